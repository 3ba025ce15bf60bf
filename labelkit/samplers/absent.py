"""The sampler of a run that may not buy: it has no sample of anything.

`rescore` runs with it, so that no key, endpoint or model is needed and no mistake can spend.
"""

from __future__ import annotations

from labelkit.records import Call, Completion, Request, Usage


class AbsentSampler:
    """See `Sampler`. Nothing asks it for a draw: what no ledger holds is `not_drawn`."""

    paid = False
    endpoints = 1
    slots = None
    supports_seed = False

    async def sample(self, call: Call) -> Completion | None:
        return None

    def price_usd(self, usage: Usage) -> float | None:
        return 0.0

    def check(self, request: Request) -> list[str]:
        return []

    async def served(self, endpoint: int) -> str | None:
        return None

    async def close(self) -> None: ...
