"""The adaptive limit against simulated servers, in virtual time."""

from __future__ import annotations

import asyncio

from labelkit.limits import LimitSettings
from tests.limits.world import Server, World, broken, in_virtual_time, now_s

END_S = 240.0


async def loaded(
    server: Server, *, settings: LimitSettings | None = None, workers: int = 260, until_s: float
) -> World:
    world = World([server], settings)
    raised = await world.load(workers, until_s)
    assert raised == []
    return world


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
        load = asyncio.create_task(world.load(40, 3.0))
        await asyncio.sleep(1.5)  # the probe took one second; then twenty went out
        assert world.fleet.snapshot()[0].why == "429 at 20 in flight"
        assert await load == []
        state = world.fleet.snapshot()[0]
        assert (state.status, state.in_flight, state.waiting) == ("ok", 0, 0)
        assert state.why == "clean round"

    in_virtual_time(main())
