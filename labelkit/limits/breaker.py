"""When an endpoint is to be left alone: it fails again and again, or asks for time.

Closed, everything may go. Resting, nothing may until `retry_at_s`. Open, one probe may at
`retry_at_s`, and only a success closes it.
"""

from __future__ import annotations

REST_MAX_S = 60.0
MAX_SAID = 120
"""Of a failure's words: `why` shares a line of the display."""


class Breaker:
    """Opens after `failures` in a row over at least `tasks` tasks, then lets a probe through each
    `interval_s`. Times are the clock's seconds; `why` is for people."""

    def __init__(self, failures: int, tasks: int, interval_s: float) -> None:
        self._failures_to_open = failures
        self._tasks_to_open = tasks
        self._interval_s = interval_s
        self.open_since_s: float | None = None
        self.retry_at_s = 0.0
        self.probing = False
        self.why: str | None = None
        self._failures = 0
        self._tasks: set[str] = set()
        self._refused_rounds = 0

    def may_go(self, now_s: float) -> bool:
        """Whether a call may go now, as far as the endpoint's health is concerned."""
        return self.retry_at_s <= now_s and not self.probing

    def answered(self) -> bool:
        """The endpoint did its work. True: that closed the breaker or ended a rest."""
        if not self._failures and not self._refused_rounds and self.open_since_s is None:
            return False
        ended = self.open_since_s is not None or self.retry_at_s > 0
        self.open_since_s = None
        self.retry_at_s = 0.0
        self.probing = False
        self.why = None
        self._failures = 0
        self._tasks.clear()
        self._refused_rounds = 0
        return ended

    def rest(self, now_s: float, retry_after_s: float, jitter: float) -> None:
        """Leave a refusing endpoint alone for a while, twice as long each time it refuses again.
        The next success ends the rest at once, so that a long Retry-After freezes nothing."""
        self._refused_rounds += 1
        backoff_s = min(REST_MAX_S, 2.0 ** (self._refused_rounds - 1)) * (1 + jitter) / 2
        wait_s = max(backoff_s, min(retry_after_s, REST_MAX_S))
        self.retry_at_s = max(self.retry_at_s, now_s + wait_s)

    def failed(self, task: str, now_s: float, said: str) -> bool:
        """Count a failure, in whose words the endpoint's trouble is told. True: it opened the
        breaker."""
        self._failures += 1
        if len(self._tasks) < self._tasks_to_open:
            self._tasks.add(task)
        if self._failures < self._failures_to_open or len(self._tasks) < self._tasks_to_open:
            return False
        why = f"{self._failures} failures in a row, the last: {_short(said)}"
        if self.open_since_s is not None:
            self.why = why
            return False
        self.open(now_s, self._interval_s, why)
        return True

    def open(self, now_s: float, wait_s: float, why: str) -> None:
        """Let nothing through for `wait_s`, then one probe."""
        if self.open_since_s is None:
            self.open_since_s = now_s
        self.why = why
        self.retry_at_s = max(self.retry_at_s, now_s + wait_s)

    def probe_ended(self, started_s: float, *, sent: bool) -> None:
        """A probe came back without success, or was never sent."""
        if self.open_since_s is None:  # closed meanwhile by an earlier call's success
            return
        self.probing = False
        if sent:
            self.retry_at_s = max(self.retry_at_s, started_s + self._interval_s)


def _short(said: str) -> str:
    return said if len(said) <= MAX_SAID else f"{said[: MAX_SAID - 1]}…"
