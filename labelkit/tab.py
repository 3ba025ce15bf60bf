"""What the tries of one draw may cost, as the ledger's records say it."""

from __future__ import annotations

import time
from dataclasses import dataclass

from pydantic import JsonValue

from labelkit.ledger_index import to_pico
from labelkit.records import Usage


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
