"""One endpoint and key: what it may carry now, and who waits for it.

Concurrency, rates, health and budget are decided together and in one step, so that nobody holds
one of them while waiting for another. First come, first served. Nothing here retries.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from labelkit.errors import ProviderError
from labelkit.limits.breaker import Breaker
from labelkit.limits.bucket import Bucket
from labelkit.limits.budget import Budget, Spend
from labelkit.limits.halt import Clock, Halt, Timer
from labelkit.limits.window import Window

RETRY_AFTER_MAX_S = 600.0
"""The longest Retry-After that a single draw waits out; a longer one is about the endpoint."""

BURST = 32
"""So many waiting calls start at once; then those under way have their turn. Thousands that connect
in one go would all wait for the last, and so would those that follow their replies."""

_TICK_S = 0.001  # no timer is shorter: rounding must not turn a wait into a spin


@dataclass(frozen=True, slots=True)
class LimitSettings:
    """How hard one endpoint is driven.

    `concurrency` caps the calls in flight (None: 256); with `adaptive` off it is the number.
    `rpm` and `tpm` are a minute's requests and tokens, None: no limit. `max_tries` bounds the calls
    of one draw, `total_timeout_s` its time from the first call on. The breaker opens after
    `breaker_failures` in a row over `breaker_tasks` tasks; the run is halted when an open endpoint
    has not come back within `give_up_s`.
    """

    concurrency: int | None = None
    adaptive: bool = True
    start: int = 20
    rpm: float | None = None
    tpm: float | None = None
    max_tries: int = 6
    total_timeout_s: float = 3600.0
    breaker_failures: int = 20
    breaker_tasks: int = 5
    probe_interval_s: float = 30.0
    give_up_s: float = 900.0


@dataclass(frozen=True, slots=True)
class EndpointState:
    """An endpoint at a glance, for the live display. `why`: why the limit last moved, or what is
    wrong where `status` is not `ok`."""

    status: str
    limit: int
    in_flight: int
    waiting: int
    why: str


@dataclass(slots=True, eq=False)
class Turn:
    """One draw's place at an endpoint, for one try at a time. `rejoin` finds it another endpoint,
    `stranded` asks whether there is any left. `worst` tells the worst case of its next call, which
    stands in `worst_usd` and `tokens` once it is admitted; `avoided` is where the last try failed.
    """

    affinity: str
    worst: Callable[[], tuple[float | None, int | None]]
    rejoin: Callable[[Turn], None]
    stranded: Callable[[float], None]
    worst_usd: float | None = None
    tokens: int | None = None
    avoided: Limits | None = None
    granted: asyncio.Future[Limits] | None = None
    epoch: int = 0
    started_s: float = 0.0
    probe: bool = False


class Limits:
    """Admission to one endpoint. Share it where endpoint and key are shared.

    `successes` counts answered calls. To be used from the event loop's thread only.
    """

    def __init__(
        self,
        settings: LimitSettings,
        halt: Halt,
        budget: Budget,
        clock: Clock,
        *,
        rng: random.Random | None = None,
    ) -> None:
        self.settings = settings
        self.halt = halt
        self.clock = clock
        self.rng = rng or random.Random()
        self.successes = 0
        self.disabled: str | None = None
        self._budget = budget
        cap = 256 if settings.concurrency is None else settings.concurrency
        self._window = Window(cap, settings.start, adaptive=settings.adaptive)
        self._breaker = Breaker(
            settings.breaker_failures, settings.breaker_tasks, settings.probe_interval_s
        )
        # Requests go out evenly. Tokens are reserved for the longest reply there may be, so that
        # without a minute's worth in hand hardly two calls would be in flight.
        self._requests = None if settings.rpm is None else Bucket(settings.rpm, burst_s=1)
        self._tokens = None if settings.tpm is None else Bucket(settings.tpm, burst_s=60)
        self._line: deque[Turn] = deque()
        self._timer: Timer | None = None
        self._timer_s = 0.0
        self._pacing = False

    @property
    def available(self) -> bool:
        """Neither disabled nor behind an open breaker."""
        return self.disabled is None and self._breaker.open_since_s is None

    @property
    def limit(self) -> int:
        return self._window.limit

    @property
    def waiting(self) -> int:
        return len(self._line)

    @property
    def load(self) -> float:
        """Calls in flight and waiting, as a share of the limit."""
        return (self._window.in_flight + len(self._line)) / self._window.limit

    @property
    def retry_at_s(self) -> float:
        """When an unavailable endpoint may be tried again."""
        return self._breaker.retry_at_s

    def probe_due(self) -> bool:
        """Whether the open breaker would let the next call through as its probe."""
        opened = self.disabled is None and self._breaker.open_since_s is not None
        return opened and not self._line and self._breaker.may_go(self.clock.time())

    def gone(self, now_s: float) -> bool:
        """Whether there is no hope left that this endpoint comes back."""
        since_s = self._breaker.open_since_s
        return self.disabled is not None or (
            since_s is not None and now_s - since_s >= self.settings.give_up_s
        )

    def state(self) -> EndpointState:
        window, breaker = self._window, self._breaker
        status, why = "ok", window.why
        if self.disabled is not None:
            status, why = "disabled", self.disabled
        elif breaker.open_since_s is not None:
            status, why = "open", breaker.why or ""
        elif breaker.retry_at_s > self.clock.time():
            status = "resting"
        return EndpointState(status, window.limit, window.in_flight, len(self._line), why)

    def enter(self, turn: Turn) -> bool:
        """Admit the turn at once, where nobody waits and everything fits. Exactly one of `succeed`,
        `fail`, `abandon` and `withdraw` must follow."""
        return not self._line and self._admit(turn)

    def line_up(self, turn: Turn) -> None:
        """Wait; `turn.granted` gets the endpoint that admitted it."""
        self._line.append(turn)
        if self._window.in_flight < self._window.limit:
            self._wake_soon()

    def succeed(self, turn: Turn, spend: Spend) -> bool:
        """The call was answered. True: the endpoint is available again."""
        tokens = 1 if spend.output_tokens is None else spend.output_tokens
        self._window.succeeded(turn.epoch, tokens, self.clock.time())
        self.successes += 1
        recovered = self._breaker.answered()
        if self._tokens is not None and spend.tokens is not None:
            self._tokens.give_back((turn.tokens or 0) - spend.tokens)
        self._budget.settle(turn.worst_usd, turn.tokens, spend)
        self.pump()
        return recovered

    def fail(self, turn: Turn, error: ProviderError) -> bool:
        """The call brought no reply. True: the endpoint's availability changed."""
        now_s = self.clock.time()
        was_available = self.available
        asked_s = error.retry_after_s or 0.0
        if error.kind in ("fatal", "row", "content_filter"):
            self._window.leave()
            if error.kind != "fatal":  # the server did its work
                self._breaker.answered()
        elif error.status_code == 429:
            fresh = self._window.refused(turn.epoch)
            if fresh and asked_s <= RETRY_AFTER_MAX_S:
                self._breaker.rest(now_s, asked_s, self.rng.random())
            if not self._window.in_flight:  # it refuses though it carries nothing of ours
                self._breaker.failed(turn.affinity, now_s, str(error))
        else:
            self._window.failed()
            self._breaker.failed(turn.affinity, now_s, str(error))
        if asked_s > RETRY_AFTER_MAX_S:
            why = f"the endpoint asks to wait {asked_s / 60:,.0f} min (Retry-After)"
            self._breaker.open(now_s, asked_s, why)
        if turn.probe:
            self._breaker.probe_ended(turn.started_s, sent=True)
        if error.paid:
            self._budget.keep(turn.worst_usd, turn.tokens)
        else:
            if self._tokens is not None:
                self._tokens.give_back(turn.tokens or 0)
            self._budget.release(turn.worst_usd, turn.tokens)
        self.pump()
        return self.available != was_available

    def abandon(self, turn: Turn) -> None:
        """The call was cut off on our side; what it costs will never be known."""
        self._window.leave()
        if turn.probe:
            self._breaker.probe_ended(turn.started_s, sent=True)
        self._budget.keep(turn.worst_usd, turn.tokens)
        self.pump()

    def withdraw(self, turn: Turn) -> None:
        """The turn was admitted and the call never made."""
        self._window.leave()
        if turn.probe:
            self._breaker.probe_ended(turn.started_s, sent=False)
        if self._requests is not None:
            self._requests.give_back(1)
        if self._tokens is not None:
            self._tokens.give_back(turn.tokens or 0)
        self._budget.release(turn.worst_usd, turn.tokens)
        self.pump()

    def disable(self, why: str) -> None:
        """Admit nothing any more."""
        self.disabled = why

    def disperse(self) -> None:
        """Send all that wait here to where their fleets think best."""
        line, self._line = self._line, deque()
        for turn in line:
            if turn.granted is not None and not turn.granted.done():
                turn.rejoin(turn)

    def pump(self) -> None:
        """Admit whoever waits, in order, as long as everything fits, `BURST` at a time."""
        n_started = 0
        while self._line and not self._pacing:
            turn = self._line[0]
            if turn.granted is None or turn.granted.done():  # cancelled while it waited
                self._line.popleft()
            elif n_started == BURST:
                self._pacing = True
                self._wake_soon()
            elif self._admit(turn):
                self._line.popleft()
                turn.granted.set_result(self)
                n_started += 1
            else:
                return

    def _admit(self, turn: Turn) -> bool:
        window, breaker = self._window, self._breaker
        now_s = self.clock.time()
        opened = breaker.open_since_s is not None
        if self.disabled is not None or not breaker.may_go(now_s):
            self._await_health(turn, now_s)
            return False
        if window.in_flight >= window.limit:
            return False
        turn.worst_usd, turn.tokens = turn.worst()
        wait_s = 0.0
        if self._requests is not None:
            wait_s = self._requests.wait_s(1, now_s)
        if self._tokens is not None:
            wait_s = max(wait_s, self._tokens.wait_s(turn.tokens or 0, now_s))
        if wait_s > 0:
            self._wake_at(now_s + max(_TICK_S, wait_s), now_s)
            return False
        if not self._budget.reserve(turn.worst_usd, turn.tokens, self.pump):
            return False
        if self._requests is not None:
            self._requests.take(1)
        if self._tokens is not None:
            self._tokens.take(turn.tokens or 0)
        turn.epoch = window.admit()
        turn.started_s = now_s
        turn.probe = breaker.probing = opened
        return True

    def _await_health(self, turn: Turn, now_s: float) -> None:
        breaker = self._breaker
        if not breaker.probing:
            self._wake_at(breaker.retry_at_s, now_s)
        if breaker.open_since_s is not None:
            self._wake_at(breaker.open_since_s + self.settings.give_up_s, now_s)
        if not self.available:
            turn.stranded(now_s)

    def _wake_soon(self) -> None:
        now_s = self.clock.time()
        self._wake_at(now_s + _TICK_S, now_s)

    def _wake_at(self, when_s: float, now_s: float) -> None:
        if when_s <= now_s or (self._timer is not None and self._timer_s <= when_s):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.clock.call_later(max(_TICK_S, when_s - now_s), self._wake)
        self._timer_s = when_s

    def _wake(self) -> None:
        self._timer = None
        self._pacing = False
        self.pump()
