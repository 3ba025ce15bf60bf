"""The adaptive limit against servers that answer 429 above some number in flight."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache

import pytest

from tests.limits.world import Server, World, in_virtual_time, now_s

END_S = 240.0
SETTLED_S = 30.0  # and thirty calls one after another
LATENCY_S = 1.0

STEADY: list[tuple[int, ...]] = [(10,), (50,), (200,)]
CHANGING: list[tuple[int, ...]] = [(50, 20), (60, 200), (100, 30, 100), (30, 100, 30)]
RETRY_AFTER_S = [None, 300.0]


@dataclass
class Seen:
    """A server's course and the limit's moves: (second, limit). `changed_at_s`: when it changed,
    the start included."""

    server: Server
    changed_at_s: dict[float, int]
    moves: list[tuple[float, int]] = field(default_factory=list)

    def possible(self) -> float:
        """Answers that N calls in flight bring in, whatever N is: no concurrency brings more."""
        ends = [*list(self.changed_at_s)[1:], END_S]
        parts = zip(self.changed_at_s.items(), ends, strict=True)
        return sum(capacity * (end - start) / LATENCY_S for (start, capacity), end in parts)

    def settled(self, start_s: float, end_s: float) -> bool:
        """Whether an interval lies `SETTLED_S` after the start and every change."""
        return not any(at - 1 < end_s and start_s < at + SETTLED_S for at in self.changed_at_s)

    def cycles(self) -> Iterator[int]:
        """The refusals of each growth cycle after convergence: from one moment in which the limit
        begins to grow to the next."""
        begun, grew = [], False
        for (_, before), (at, limit) in itertools.pairwise(self.moves):
            if limit > before and not grew:
                begun.append(at)
            grew = limit > before
        for start, end in itertools.pairwise(begun):
            if self.settled(start, end):
                yield sum(start <= at < end for at in self.server.refused_at_s)


@cache
def seen(
    capacities: tuple[int, ...], retry_after_s: float | None, transit_s: float = 0.005
) -> Seen:
    """A server that has one capacity after the other, equally long, under a full load."""
    server = Server(LATENCY_S, capacity=capacities[0], transit_s=transit_s)
    server.retry_after_s = retry_after_s
    part_s = END_S / len(capacities)
    found = Seen(server, {part_s * i: capacity for i, capacity in enumerate(capacities)})

    async def main() -> None:
        loop = asyncio.get_running_loop()
        world = World([server])

        def watch() -> None:
            limit = world.limits[0].limit
            if not found.moves or found.moves[-1][1] != limit:
                found.moves.append((now_s(), limit))
            if now_s() < END_S - 1:
                loop.call_later(0.005, watch)

        watch()
        for at_s, capacity in found.changed_at_s.items():
            loop.call_later(at_s, setattr, server, "capacity", capacity)
        # More than the cap of 256, by those that wait out a Retry-After.
        assert await world.load(600, END_S) == []
        assert world.halt.reason is None

    in_virtual_time(main())
    return found


@pytest.mark.parametrize("retry_after_s", RETRY_AFTER_S)
@pytest.mark.parametrize("capacities", STEADY + CHANGING)
class TestAServerThatRefuses:
    def test_throughput_is_within_a_fifth_of_the_best(
        self, capacities: tuple[int, ...], retry_after_s: float | None
    ) -> None:
        found = seen(capacities, retry_after_s)
        assert found.server.done(0, END_S) >= 0.8 * found.possible()

    def test_a_growth_cycle_meets_one_refusal_after_convergence(
        self, capacities: tuple[int, ...], retry_after_s: float | None
    ) -> None:
        cycles = list(seen(capacities, retry_after_s).cycles())
        assert len(cycles) >= 5
        assert max(cycles) <= 1

    def test_answers_keep_coming(
        self, capacities: tuple[int, ...], retry_after_s: float | None
    ) -> None:
        found = seen(capacities, retry_after_s)
        for start in range(int(END_S) - 5):
            done = found.server.done(start, start + 5)
            assert done > 0
            if found.settled(start, start + 5):
                capacity = [n for at, n in found.changed_at_s.items() if at <= start][-1]
                assert done >= 0.6 * capacity * 5 / LATENCY_S


@pytest.mark.parametrize("capacities", CHANGING)
def test_throughput_follows_a_server_that_changes_and_is_far_away(
    capacities: tuple[int, ...],
) -> None:
    found = seen(capacities, None, transit_s=0.02)
    assert found.server.done(0, END_S) >= 0.8 * found.possible()


@pytest.mark.parametrize("retry_after_s", [5.0, 30.0, 300.0])
@pytest.mark.parametrize("capacity", [10, 50, 200])
def test_growth_resumes_after_everything_was_refused_with_a_long_retry_after(
    capacity: int, retry_after_s: float
) -> None:
    server = Server(latency_s=LATENCY_S, capacity=capacity, retry_after_s=retry_after_s)
    refusing_s = (60.0, 65.0)

    async def main() -> None:
        world = World([server])
        loop = asyncio.get_running_loop()
        loop.call_later(refusing_s[0], setattr, server, "capacity", 0)
        loop.call_later(refusing_s[1], setattr, server, "capacity", capacity)
        assert await world.load(600, END_S) == []

    in_virtual_time(main())
    # At most a minute's rest from the last refusal on, then twenty rounds of growth.
    back_s = refusing_s[1] + min(60.0, retry_after_s) + 20 * LATENCY_S
    assert server.done(back_s, back_s + 10) >= 0.8 * capacity * 10 / LATENCY_S


def test_growth_begins_after_everything_was_refused_from_the_start() -> None:
    server = Server(latency_s=LATENCY_S, capacity=0, retry_after_s=120.0)

    async def main() -> None:
        world = World([server])
        asyncio.get_running_loop().call_later(30.0, setattr, server, "capacity", 100)
        assert await world.load(200, END_S) == []

    in_virtual_time(main())
    assert server.done(190, 240) >= 0.8 * 100 * 50


def test_an_absurd_retry_after_stalls_only_the_draws_that_got_it() -> None:
    server = Server(capacity=10, retry_after_s=100_000.0)

    async def main() -> None:
        world = World([server])
        await world.load(260, END_S)
        assert world.halt.reason is None

    in_virtual_time(main())
    assert server.done(0, END_S) >= 0.8 * 10 * END_S
    for start in range(0, 240, 10):
        assert server.done(start, start + 10) > 0
