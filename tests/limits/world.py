"""Virtual time and simulated model servers, so that hours of load take milliseconds.

The event loop itself is in virtual time: it jumps to the next timer instead of waiting. So the code
under test, the servers and the tests share one clock, and every run is the same.
"""

from __future__ import annotations

import asyncio
import random
import selectors
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from labelkit.errors import FailureKind, ProviderError
from labelkit.limits import Budget, Fleet, Halt, Limits, LimitSettings, Spend

T = TypeVar("T")


class _Jump(selectors.DefaultSelector):
    """Waits for nothing: where the loop would sleep, time moves on."""

    now_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("deadlock: all wait and no timer is set")
        self.now_s += max(0.0, timeout)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self, begin_s: float) -> None:
        self._jump = _Jump()
        self._jump.now_s = begin_s
        super().__init__(self._jump)

    def time(self) -> float:
        return self._jump.now_s


def in_virtual_time(coroutine: Coroutine[Any, Any, T], begin_s: float = 0.0) -> T:
    """Run a coroutine in virtual time."""
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(begin_s)) as runner:
        return runner.run(coroutine)


def now_s() -> float:
    return asyncio.get_running_loop().time()


def refusal(retry_after_s: float | None = None) -> ProviderError:
    return ProviderError("transient", "busy", status_code=429, retry_after_s=retry_after_s)


def broken(retry_after_s: float | None = None) -> ProviderError:
    return ProviderError("transient", "unavailable", status_code=503, retry_after_s=retry_after_s)


def failing(*errors: ProviderError) -> tuple[list[int], Callable[[int, int], Any]]:
    """An attempt that raises these one after the other, then answers; and the tries it saw."""
    seen: list[int] = []

    async def attempt(endpoint: int, tries: int) -> int:
        seen.append(tries)
        if len(seen) <= len(errors):
            raise errors[len(seen) - 1]
        return 0

    return seen, attempt


@dataclass
class Server:
    """A model server: takes `latency_s` (±`spread`), answers `tokens`, refuses above `capacity`.

    `transit_s` (±90%) goes by on the way to it and back, where a call is in flight for the client
    alone. `shared`: tokens a second in all; above it every call slows down and none is refused
    (vLLM). `fault` may raise instead of answering; a server that is `down` fails all calls, those
    in flight too.
    """

    latency_s: float = 1.0
    spread: float = 0.2
    transit_s: float = 0.0
    tokens: int = 100
    capacity: int = 10**9
    shared: float | None = None
    retry_after_s: float | None = None
    fault: Callable[[], None] | None = None
    down: FailureKind | None = None
    rng: random.Random = field(default_factory=lambda: random.Random(7))
    in_flight: int = 0
    calls: int = 0
    refused_at_s: list[float] = field(default_factory=list)
    done_at_s: list[float] = field(default_factory=list)

    async def call(self) -> int:
        """One call; returns its output tokens."""
        if not self.transit_s:
            return await self._serve()
        one_way_s = self.transit_s / 2 * self.rng.uniform(0.1, 1.9)
        await asyncio.sleep(one_way_s)
        try:
            return await self._serve()
        finally:
            await asyncio.sleep(one_way_s)

    async def _serve(self) -> int:
        self.calls += 1
        if self.in_flight >= self.capacity:
            await asyncio.sleep(0.01)
            self.refused_at_s.append(now_s())
            raise refusal(self.retry_after_s)
        self.in_flight += 1
        try:
            self.check()
            if self.fault is not None:
                self.fault()
            wait_s = self.latency_s * self.rng.uniform(1 - self.spread, 1 + self.spread)
            if self.shared is not None:
                wait_s = max(wait_s, self.in_flight * self.tokens / self.shared)
            await asyncio.sleep(wait_s)
            self.check()
        finally:
            self.in_flight -= 1
        self.done_at_s.append(now_s())
        return self.tokens

    def check(self) -> None:
        if self.down is not None:
            raise ProviderError(self.down, "connection refused")

    def done(self, start_s: float, end_s: float) -> int:
        """Calls answered in an interval of time."""
        return bisect_left(self.done_at_s, end_s) - bisect_left(self.done_at_s, start_s)


class World:
    """A run's halt and budget, and a fleet before some servers; made inside a running loop."""

    def __init__(
        self,
        servers: Sequence[Server],
        settings: LimitSettings | None = None,
        *,
        cap_usd: float | None = None,
        cap_tokens: int | None = None,
    ) -> None:
        self.servers = servers
        self.halt = Halt()
        self.budget = Budget(cap_usd, self.halt, cap_tokens=cap_tokens)
        loop = asyncio.get_running_loop()
        self.limits = [
            Limits(settings or LimitSettings(), self.halt, self.budget, loop, rng=random.Random(i))
            for i in range(len(servers))
        ]
        self.fleet = Fleet(self.limits, rng=random.Random(99))

    async def draw(self, task: str, **costs: Any) -> int:
        async def attempt(endpoint: int, tries: int) -> int:
            return await self.servers[endpoint].call()

        return await self.run(attempt, task, **costs)

    async def run(
        self,
        attempt: Callable[[int, int], Awaitable[int]],
        task: str,
        *,
        worst_usd: float | None = None,
        tokens: int | None = None,
    ) -> int:
        return await self.fleet.run(
            attempt,
            affinity=task,
            worst=lambda: (worst_usd, tokens),
            spend=lambda tokens: Spend(usd=None, input_tokens=0, output_tokens=tokens),
        )

    async def load(self, workers: int, until_s: float) -> list[BaseException]:
        """Keep `workers` draws going until a moment; what they raised."""
        raised: list[BaseException] = []

        async def work(worker: int) -> None:
            draw = 0
            while now_s() < until_s and self.halt.reason is None:
                draw += 1
                try:
                    await self.draw(f"{worker}/{draw}")
                except Exception as error:
                    raised.append(error)

        await asyncio.gather(*(work(worker) for worker in range(workers)))
        return raised
