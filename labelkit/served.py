"""What the endpoints of a run say they serve: one model a role, for as long as the run lasts.

Asked before anything is spent, and again of an endpoint that was gone, since a server is only ever
given another model by starting it anew. Servers that do not say are trusted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

from labelkit.errors import RunMismatchError, UsageError
from labelkit.seams import Sampler


class Served:
    """`names` maps a role to what the run was sampled from; `check` fills in what is new.

    `urls`: the endpoints of each role as messages may show them, without credentials.
    """

    def __init__(
        self,
        samplers: Mapping[str, Sampler],
        urls: Mapping[str, Sequence[str]],
        names: Mapping[str, str],
    ) -> None:
        self._samplers = {role: each for role, each in samplers.items() if each.paid}
        self._urls = urls
        self.names = dict(names)
        self._asking: dict[tuple[str, int], asyncio.Task[str | None]] = {}
        self._doubted: set[tuple[str, int]] = set()

    async def check(self, directory: Path) -> None:
        """Ask every endpoint. Raises UsageError where one serves another model than the rest, or
        than the run was sampled from."""
        for role, sampler in self._samplers.items():
            told = await asyncio.gather(*map(sampler.served, range(sampler.endpoints)))
            before = self.names.get(role)
            known = {n: name for n, name in enumerate(told) if name is not None}
            others = {n: name for n, name in known.items() if name != before}
            if before is not None and others:
                at, name = next(iter(others.items()))
                raise RunMismatchError(
                    f"{directory}: {self._shown(role, at)} serves {name!r}, but this run was "
                    f"sampled from {before!r}",
                    hint="serve that model again, or start anew with --fresh",
                )
            if len(set(known.values())) > 1:
                listed = ", ".join(f"{self._shown(role, n)} {name!r}" for n, name in known.items())
                raise UsageError(
                    f"the {role}'s replicas serve different models: {listed}",
                    hint="list only endpoints of one model under api_base",
                )
            if known:
                self.names[role] = next(iter(known.values()))

    def doubt(self, role: str, endpoint: int) -> None:
        """The endpoint was gone: it is asked again before the next call."""
        if role in self.names:
            self._doubted.add((role, endpoint))

    def doubted(self, role: str, endpoint: int) -> bool:
        return (role, endpoint) in self._doubted

    async def trouble(self, role: str, endpoint: int) -> str | None:
        """Why a doubted endpoint must get no call; None where it serves what it did, or is silent,
        which leaves it doubted."""
        at = (role, endpoint)
        if at not in self._asking:
            self._asking[at] = asyncio.ensure_future(self._samplers[role].served(endpoint))
            self._asking[at].add_done_callback(lambda _: self._asking.pop(at, None))
        name = await asyncio.shield(self._asking[at])
        if name is None:
            return None
        if name == self.names[role]:
            self._doubted.discard(at)
            return None
        return (
            f"{self._shown(role, endpoint)} now serves {name!r}, but this run was sampled from "
            f"{self.names[role]!r}; serve that model again, or start anew with --fresh"
        )

    def _shown(self, role: str, endpoint: int) -> str:
        urls = self._urls.get(role, ())
        return urls[endpoint] if endpoint < len(urls) else f"the {role}'s endpoint"
