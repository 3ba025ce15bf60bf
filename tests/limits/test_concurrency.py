"""The adaptive limit against simulated servers, in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from labelkit.limits import LimitSettings
from tests.limits.world import Server, World, broken, in_virtual_time, now_s

END_S = 240.0


async def loaded(
    server: Server,
    *,
    settings: LimitSettings | None = None,
    workers: int = 260,
    until_s: float = END_S,
    changes: dict[float, int] | None = None,
) -> World:
    world = World([server], settings)
    for at_s, capacity in (changes or {}).items():
        asyncio.get_running_loop().call_later(at_s, setattr, server, "capacity", capacity)
    raised = await world.load(workers, until_s)
    assert raised == []
    return world


def best_fixed(capacity: int, changes: dict[float, int] | None = None) -> int:
    """Calls answered at the best of several fixed concurrencies."""

    async def run(concurrency: int) -> int:
        server = Server(capacity=capacity)
        settings = LimitSettings(concurrency=concurrency, adaptive=False, max_tries=50)
        await loaded(server, settings=settings, changes=changes, workers=concurrency)
        return server.done(0, END_S)

    levels = {capacity, *(changes or {}).values()}
    return max(in_virtual_time(run(level)) for level in levels)


@pytest.mark.parametrize("capacity", [10, 50, 200])
def test_throughput_is_within_a_fifth_of_the_best_fixed_concurrency(capacity: int) -> None:
    server = Server(capacity=capacity)
    in_virtual_time(loaded(server))
    assert server.done(0, END_S) >= 0.8 * best_fixed(capacity)


@pytest.mark.parametrize("changes", [{80.0: 20}, {60.0: 200}, {80.0: 20, 160.0: 50}])
def test_throughput_follows_a_server_that_changes(changes: dict[float, int]) -> None:
    server = Server(capacity=50)
    in_virtual_time(loaded(server, changes=changes))
    assert server.done(0, END_S) >= 0.8 * best_fixed(50, changes)


@pytest.mark.parametrize("capacity", [10, 50, 200])
def test_after_convergence_a_growth_cycle_meets_one_refusal(capacity: int) -> None:
    server = Server(capacity=capacity)

    async def main() -> list[int]:
        world = World([server])
        cuts, last = [], [world.limits[0].limit]

        def watch() -> None:
            limit = world.limits[0].limit
            if limit < last[0] and now_s() > 60:
                cuts.append(limit)
            last[0] = limit
            if now_s() < END_S - 1:
                asyncio.get_running_loop().call_later(0.005, watch)

        watch()
        await world.load(260, END_S)
        return cuts

    cuts = in_virtual_time(main())
    refused = [at for at in server.refused_at_s if 60 < at < END_S - 1]
    assert len(cuts) >= 5
    assert len(refused) <= len(cuts)


@pytest.mark.parametrize("retry_after_s", [30.0, 300.0, 100_000.0])
def test_a_long_retry_after_stalls_only_the_draws_that_got_it(retry_after_s: float) -> None:
    server = Server(capacity=10, retry_after_s=retry_after_s)

    async def main() -> None:
        world = World([server])
        await world.load(260, END_S)
        assert world.halt.reason is None

    in_virtual_time(main())
    assert server.done(0, END_S) >= 0.8 * 10 * END_S
    for start in range(0, 240, 10):
        assert server.done(start, start + 10) > 0


def test_growth_resumes_after_everything_was_refused_with_a_long_retry_after() -> None:
    server = Server(capacity=0, retry_after_s=120.0)

    async def main() -> World:
        return await loaded(server, changes={30.0: 100}, workers=200)

    world = in_virtual_time(main())
    assert world.limits[0].limit >= 80
    # At most a minute's rest from the last refusal on, then twenty rounds at most.
    assert server.done(190, 240) >= 0.8 * 100 * 50


def test_growth_stops_where_tokens_a_second_stop_rising() -> None:
    server = Server(shared=4000.0)  # 40 calls of 100 tokens a second, and never a refusal

    async def main() -> tuple[World, list[int]]:
        world, seen = World([server]), []

        def watch() -> None:
            seen.append(world.limits[0].limit)
            if now_s() < END_S - 5:
                asyncio.get_running_loop().call_later(5, watch)

        watch()
        await world.load(260, END_S)
        return world, seen

    world, seen = in_virtual_time(main())
    assert max(seen) <= 80
    assert server.done(50, END_S) >= 0.95 * 40 * 190
    assert world.fleet.snapshot()[0].limit < 80


def test_without_refusal_or_plateau_the_limit_reaches_its_cap() -> None:
    world = in_virtual_time(loaded(Server(), until_s=30))
    assert world.fleet.snapshot()[0].limit == 256
    world = in_virtual_time(loaded(Server(), settings=LimitSettings(concurrency=64), until_s=30))
    assert world.fleet.snapshot()[0].limit == 64


def test_the_limit_starts_at_twenty_or_the_cap() -> None:
    async def start(concurrency: int | None) -> int:
        return World([Server()], LimitSettings(concurrency=concurrency)).limits[0].limit

    assert in_virtual_time(start(None)) == 20
    assert in_virtual_time(start(8)) == 8


def test_a_limit_that_is_not_used_does_not_grow() -> None:
    # 15 of 20 are less than 80%.
    world = in_virtual_time(loaded(Server(), workers=15, until_s=60))
    assert world.limits[0].limit == 20


def test_server_errors_pause_growth() -> None:
    server = Server()
    state = {"calls": 0}

    def fault() -> None:
        state["calls"] += 1
        if state["calls"] % 10 == 0:
            raise broken()

    server.fault = fault

    async def main() -> World:
        world = World([server])
        await world.load(100, 60.0)
        before = world.limits[0].limit
        server.fault = None
        await world.load(100, 120.0)
        assert world.limits[0].limit > before
        assert before == 20
        return world

    in_virtual_time(main())


def test_a_fixed_concurrency_stays_whatever_the_server_says() -> None:
    server = Server(capacity=10)
    settings = LimitSettings(concurrency=30, adaptive=False, max_tries=50)
    world = in_virtual_time(loaded(server, settings=settings, workers=60, until_s=30))
    assert world.limits[0].limit == 30
    assert world.fleet.snapshot()[0].why == "fixed"


def test_the_display_is_told_why_the_limit_moved() -> None:
    async def main() -> None:
        world = World([Server(capacity=10)])
        assert world.fleet.snapshot()[0].why == "start"
        await world.load(40, 3.0)
        state = world.fleet.snapshot()[0]
        assert (state.status, state.in_flight, state.waiting) == ("ok", 0, 0)
        assert "429" in state.why

    in_virtual_time(main())
