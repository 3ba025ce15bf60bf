"""What a run may spend, in dollars and tokens, and what it has spent.

The worst case is reserved before a call and settled after it, so that the cap holds whatever the
calls in flight turn out to cost. Nothing here waits: who is turned away leaves a wake-up call.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from labelkit.errors import UsageError
from labelkit.limits.halt import Halt

_PICO = 10**12  # sums are whole picodollars: exact, so what is released leaves nothing behind


@dataclass(frozen=True, slots=True)
class Spend:
    """What a finished call cost; None for what the provider did not say."""

    usd: float | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None

    @property
    def tokens(self) -> int | None:
        """Input and output together; None unless both are known."""
        if self.input_tokens is None or self.output_tokens is None:
            return None
        return self.input_tokens + self.output_tokens


class Budget:
    """The run's purse, shared by all its endpoints. A cap of None is no cap.

    spent + reserved never exceeds a cap, as long as no call costs more than its worst case.
    What earlier runs over the same ledger spent comes in as `spent_usd` and `spent_tokens`.
    """

    def __init__(
        self,
        cap_usd: float | None,
        halt: Halt,
        *,
        spent_usd: float = 0.0,
        cap_tokens: int | None = None,
        spent_tokens: int = 0,
    ) -> None:
        self._halt = halt
        self._cap = None if cap_usd is None else int(cap_usd * _PICO)
        self._cap_tokens = cap_tokens
        self._spent = _pico(spent_usd)
        self._reserved = 0
        self._spent_tokens = spent_tokens
        self._reserved_tokens = 0
        self._in_flight = 0
        self._turned_away: dict[Callable[[], None], None] = {}

    @property
    def spent_usd(self) -> float:
        """Dollars spent; a call of unknown cost counts as its worst case (0 if that is unknown)."""
        return self._spent / _PICO

    @property
    def reserved_usd(self) -> float:
        """The worst case of the calls in flight."""
        return self._reserved / _PICO

    @property
    def spent_tokens(self) -> int:
        return self._spent_tokens

    def reserve(
        self, worst_usd: float | None, worst_tokens: int | None, wake: Callable[[], None]
    ) -> bool:
        """Set the worst case of one call aside.

        False: it does not fit now. Then `wake` is called once when a reservation is settled;
        with none left to settle, no more will ever fit and the run is halted.
        """
        if (self._cap is not None and worst_usd is None) or (
            self._cap_tokens is not None and worst_tokens is None
        ):
            raise UsageError(
                "a budget needs the worst case of every call, and this one's is unknown",
                hint="set sampler.max_tokens, and sampler.price where the model has no known price",
            )
        usd, tokens = _pico(worst_usd), worst_tokens or 0
        if self._cap is not None and self._spent + self._reserved + usd > self._cap:
            return self._turn_away("budget", f"the budget of ${self._cap / _PICO:g}", wake)
        if (
            self._cap_tokens is not None
            and self._spent_tokens + self._reserved_tokens + tokens > self._cap_tokens
        ):
            return self._turn_away("tokens", f"the cap of {self._cap_tokens:,} tokens", wake)
        self._reserved += usd
        self._reserved_tokens += tokens
        self._in_flight += 1
        return True

    def settle(self, worst_usd: float | None, worst_tokens: int | None, spend: Spend) -> None:
        """Replace the reservation of an answered call by what it cost; where that is unknown the
        worst case stays spent."""
        usd = worst_usd if spend.usd is None else spend.usd
        tokens = worst_tokens if spend.tokens is None else spend.tokens
        self._close(worst_usd, worst_tokens, _pico(usd), tokens or 0)

    def correct(self, worst_usd: float | None, worst_tokens: int | None, spend: Spend) -> None:
        """Replace what an earlier run's call counted as, its worst case, by what it cost."""
        usd = worst_usd if spend.usd is None else spend.usd
        tokens = worst_tokens if spend.tokens is None else spend.tokens
        self._spent += _pico(usd) - _pico(worst_usd)
        self._spent_tokens += (tokens or 0) - (worst_tokens or 0)

    def keep(self, worst_usd: float | None, worst_tokens: int | None) -> None:
        """Count the reservation as spent: the call was sent and its cost will never be known."""
        self._close(worst_usd, worst_tokens, _pico(worst_usd), worst_tokens or 0)

    def release(self, worst_usd: float | None, worst_tokens: int | None) -> None:
        """Give the reservation back: the call was refused or never sent."""
        self._close(worst_usd, worst_tokens, 0, 0)

    def _close(
        self, worst_usd: float | None, worst_tokens: int | None, usd: int, tokens: int
    ) -> None:
        self._reserved -= _pico(worst_usd)
        self._reserved_tokens -= worst_tokens or 0
        self._spent += usd
        self._spent_tokens += tokens
        self._in_flight -= 1
        if self._turned_away:
            turned_away, self._turned_away = self._turned_away, {}
            for wake in turned_away:
                wake()

    def _turn_away(self, reason: str, cap: str, wake: Callable[[], None]) -> bool:
        if self._in_flight:
            self._turned_away[wake] = None
        else:
            self._halt.stop(
                reason,
                f"{cap} has no room for another call "
                f"(spent ${self.spent_usd:.4g}, {self._spent_tokens:,} tokens)",
            )
        return False


def _pico(usd: float | None) -> int:
    return 0 if usd is None else round(usd * _PICO)
