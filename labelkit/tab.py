"""What the tries of one draw may cost, as the ledger's records say it."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import JsonValue

from labelkit.ledger_index import to_pico


@dataclass(slots=True)
class Tab:
    """What the tries of one draw may cost. `lost`: tries that may have been charged for although
    they brought no reply; each counts as its worst case. Records say nothing of what is unknown or
    none, as there are millions of them."""

    worst_usd: float | None
    worst_tokens: int | None
    paid: bool
    tries: int = 0
    lost: int = 0
    begun_s: float = 0.0
    """When the last try went out, on the monotonic clock."""

    def worst(self) -> dict[str, JsonValue]:
        """What a `sent` record says."""
        said: dict[str, JsonValue] = {}
        if self.worst_usd is not None:
            said["worst_usd"] = self.worst_usd
        if self.worst_tokens is not None:
            said["worst_tokens"] = self.worst_tokens
        return said

    def settled(self, usd: float | None, n_tokens: int | None) -> dict[str, JsonValue]:
        """What an outcome record says to settle the `sent` records of its draw."""
        if self.lost and self.worst_usd is not None:
            usd = (usd or 0.0) + self.lost * self.worst_usd
        if self.lost and self.worst_tokens is not None:
            n_tokens = (n_tokens or 0) + self.lost * self.worst_tokens
        said: dict[str, JsonValue] = {"tries": self.tries if self.paid else 0}
        if self.tries and self.worst_usd:
            said["reserved_pico"] = to_pico(self.worst_usd) * self.tries
        if self.tries and self.worst_tokens:
            said["reserved_tokens"] = self.worst_tokens * self.tries
        if usd is not None:
            said["spent_usd"] = usd
        if n_tokens is not None:
            said["spent_tokens"] = n_tokens
        return said
