"""What a call may cost before it is made, and what the tries of a draw did, as records say it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import JsonValue

from labelkit.ledger_index import to_pico
from labelkit.records import Call, Usage
from labelkit.samplers.endpoints import worst_usage
from labelkit.seams import Sampler

KEPT = 4096
"""Requests of which something is remembered: more than are ever under way."""


@dataclass(slots=True)
class Tab:
    """What the tries of one draw may cost; `worst_usd` and `worst_tokens` are of the next one.

    A try that may have been charged for although it brought no reply counts as its worst case.
    Records say nothing of what is unknown or none, as there are millions of them.
    """

    worst_usd: float | None
    worst_tokens: int | None
    paid: bool
    bound: Usage | None = None
    """The worst case by what is sent alone, whatever the server was seen to add to it."""
    tries: int = 0
    begun_s: float = 0.0
    """When the last try went out, on the monotonic clock."""
    reserved_pico: int = 0
    reserved_tokens: int = 0
    lost_usd: float = 0.0
    lost_tokens: int = 0

    def send(self) -> dict[str, JsonValue]:
        """Count a try that goes out now; returns what its `sent` record says."""
        self.tries += 1
        self.begun_s = time.monotonic()
        said: dict[str, JsonValue] = {"try": self.tries}
        if self.worst_usd is not None:
            said["worst_usd"] = self.worst_usd
            self.reserved_pico += to_pico(self.worst_usd)
        if self.worst_tokens is not None:
            said["worst_tokens"] = self.worst_tokens
            self.reserved_tokens += self.worst_tokens
        return said

    def lose(self) -> None:
        """The last try brought no reply and may have been charged for."""
        self.lost_usd += self.worst_usd or 0.0
        self.lost_tokens += self.worst_tokens or 0

    def settled(self, usd: float | None, n_tokens: int | None) -> dict[str, JsonValue]:
        """What an outcome record says to settle the `sent` records of its draw."""
        if self.lost_usd:
            usd = (usd or 0.0) + self.lost_usd
        if self.lost_tokens:
            n_tokens = (n_tokens or 0) + self.lost_tokens
        said: dict[str, JsonValue] = {"tries": self.tries if self.paid else 0}
        if self.reserved_pico:
            said["reserved_pico"] = self.reserved_pico
        if self.reserved_tokens:
            said["reserved_tokens"] = self.reserved_tokens
        if usd is not None:
            said["spent_usd"] = usd
        if n_tokens is not None:
            said["spent_tokens"] = n_tokens
        return said


class WorstCases:
    """What calls may cost: by what is sent, and by what a server was seen to add to that.

    A server may count more tokens than it was sent or asked for (a hidden prompt, a long template):
    what it once added, every later call may take.
    """

    def __init__(self, samplers: Mapping[str, Sampler]) -> None:
        self._samplers = samplers
        self._known: dict[tuple[str, str], tuple[float | None, int | None, Usage]] = {}
        self._over: dict[str, tuple[int, int]] = {}

    def of(self, call: Call, role: str) -> tuple[float | None, int | None, Usage]:
        """The worst case in dollars and tokens, worked out once a request, and the tokens that the
        call can have by what is sent alone."""
        known = (role, call.key.request)
        if known not in self._known:
            if len(self._known) >= KEPT:
                self._known.clear()
            bound = worst_usage(call)
            more_in, more_out = self._over.get(role, (0, 0))
            whole = bound.output_tokens is not None
            worst = Usage(
                input_tokens=(bound.input_tokens or 0) + more_in,
                output_tokens=(bound.output_tokens or 0) + more_out if whole else None,
            )
            usd = self._samplers[role].price_usd(worst)
            self._known[known] = usd, tokens_of(worst) if whole else None, bound
        return self._known[known]

    def learn(self, role: str, tab: Tab, usage: Usage) -> None:
        """Take in what a reply was counted as."""
        bound = tab.bound
        if bound is None:
            return
        more_in, more_out = self._over.get(role, (0, 0))
        over_in = (usage.input_tokens or 0) - (bound.input_tokens or 0)
        over_out = (usage.output_tokens or 0) - (bound.output_tokens or usage.output_tokens or 0)
        if over_in > more_in or over_out > more_out:
            self._over[role] = max(more_in, over_in), max(more_out, over_out)
            self._known.clear()


def tokens_of(usage: Usage) -> int | None:
    if usage.input_tokens is None and usage.output_tokens is None:
        return None
    return (usage.input_tokens or 0) + (usage.output_tokens or 0)
