"""Stopping, cancelling, foreign exceptions: nothing goes out that should not, nothing leaks."""

from __future__ import annotations

import asyncio
import random

import pytest

from labelkit.limits import Halted, LimitSettings
from tests.limits.world import Server, World, broken, failing, in_virtual_time, now_s


def test_a_failure_during_a_stop_is_not_tried_again_and_the_draw_is_not_run() -> None:
    async def main() -> None:
        world = World([Server()])
        seen: list[int] = []

        async def attempt(endpoint: int, tries: int) -> int:
            seen.append(tries)
            world.halt.stop("interrupted")
            raise broken()

        with pytest.raises(Halted) as caught:
            await world.run(attempt, "t")
        assert caught.value.reason == "interrupted"
        assert seen == [1]
        with pytest.raises(Halted):
            await world.draw("u")

    in_virtual_time(main())


def test_a_stop_ends_waiting_and_backing_off_but_no_call() -> None:
    async def main() -> None:
        world = World([Server(latency_s=10)], LimitSettings(concurrency=2))
        await world.draw("probe")
        _, attempt = failing(broken(retry_after_s=300.0))
        backing_off = asyncio.create_task(world.run(attempt, "t"))
        await asyncio.sleep(0.1)
        draws = [asyncio.create_task(world.draw(f"t{i}")) for i in range(5)]
        await asyncio.sleep(2)
        world.halt.stop("interrupted", "Ctrl-C")
        world.halt.stop("budget")
        before = now_s()
        with pytest.raises(Halted):
            await backing_off
        assert now_s() == before
        ended = await asyncio.gather(*draws, return_exceptions=True)
        assert sum(isinstance(end, int) for end in ended) == world.servers[0].calls - 1 >= 1
        assert (world.halt.reason, world.halt.detail) == ("interrupted", "Ctrl-C")

    in_virtual_time(main())


def test_other_exceptions_pass_and_leak_nothing() -> None:
    async def main() -> None:
        world = World([Server()], LimitSettings(concurrency=1), cap_usd=1.0)

        async def attempt(endpoint: int, tries: int) -> int:
            raise OSError("disk full")

        with pytest.raises(OSError, match="disk full"):
            await world.run(attempt, "t", worst_usd=0.1)
        assert world.fleet.snapshot()[0].in_flight == 0
        assert world.budget.reserved_usd == 0

    in_virtual_time(main())


def test_cancelled_draws_leak_neither_slots_nor_reservations() -> None:
    async def main(seed: int) -> None:
        rng = random.Random(seed)
        server = Server(spread=0.9)
        settings = LimitSettings(concurrency=3, rpm=600, tpm=60_000)
        world = World([server, server], settings, cap_usd=1000.0)
        draws = [
            asyncio.create_task(world.draw(f"t{i}", worst_usd=0.1, tokens=200)) for i in range(40)
        ]
        for draw in rng.sample(draws, 30):
            asyncio.get_running_loop().call_later(rng.uniform(0, 8), draw.cancel)
        await asyncio.gather(*draws, return_exceptions=True)
        assert world.budget.reserved_usd == 0
        assert [(s.in_flight, s.waiting) for s in world.fleet.snapshot()] == [(0, 0), (0, 0)]
        # And the way is free.
        await asyncio.gather(*(world.draw(f"u{i}", worst_usd=0.1, tokens=1) for i in range(6)))

    for seed in range(20):
        in_virtual_time(main(seed))


def test_a_draw_cancelled_in_the_moment_it_is_admitted_gives_all_back() -> None:
    async def main() -> None:
        server = Server()
        world = World([server], LimitSettings(concurrency=1), cap_usd=10.0)
        await world.draw("probe", worst_usd=0.0)

        async def first() -> None:
            await world.draw("a", worst_usd=1.0)
            second.cancel()  # admitted by the end of "a", but not yet awake

        one = asyncio.create_task(first())
        second = asyncio.create_task(world.draw("b", worst_usd=1.0))
        third = asyncio.create_task(world.draw("c", worst_usd=1.0))
        await asyncio.gather(one, second, third, return_exceptions=True)
        assert second.cancelled()
        assert third.result() == 100
        assert server.calls == 3
        assert (world.budget.spent_usd, world.budget.reserved_usd) == (2.0, 0)
        assert world.fleet.snapshot()[0].in_flight == 0

    in_virtual_time(main())


@pytest.mark.parametrize("proved", [False, True])
def test_a_draw_admitted_in_the_moment_of_a_stop_is_not_sent(proved: bool) -> None:
    async def main() -> None:
        server = Server()
        world = World([server], LimitSettings(concurrency=1))
        if proved:
            await world.draw("probe")

        async def first() -> None:
            await world.draw("a")
            world.halt.stop("interrupted")

        one = asyncio.create_task(first())
        second = asyncio.create_task(world.draw("b"))
        await asyncio.gather(one, second, return_exceptions=True)
        assert isinstance(second.exception(), Halted)
        assert server.calls == 1 + proved
        assert world.fleet.snapshot()[0].in_flight == 0

    in_virtual_time(main())
