"""Requests and tokens a minute, kept below what the user's contract allows."""

from __future__ import annotations


class Bucket:
    """A token bucket: `per_minute` flows in evenly, and what `burst_s` seconds bring is kept.

    An amount larger than the bucket goes out when it is full and leaves a debt. What was set aside
    and not used comes back whole.
    """

    def __init__(self, per_minute: float, burst_s: float) -> None:
        self._per_s = per_minute / 60
        self._size = max(1.0, self._per_s * burst_s)
        self._level = self._size
        self._at_s: float | None = None

    def wait_s(self, amount: float, now_s: float) -> float:
        """Seconds until `amount` may go out, 0.0 where it may now."""
        if self._at_s is not None and self._level < self._size:
            self._level = min(self._size, self._level + (now_s - self._at_s) * self._per_s)
        self._at_s = now_s
        return max(0.0, (min(amount, self._size) - self._level) / self._per_s)

    def take(self, amount: float) -> None:
        self._level -= amount

    def give_back(self, amount: float) -> None:
        """Return what was taken and not used; negative where more was used than taken."""
        self._level += amount
