"""Which calls are made, repeated, spread and held back."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from labelkit.errors import FailureKind, ProviderError
from labelkit.limits import BURST, Budget, Fleet, Halt, Halted, Limits, LimitSettings, Spend
from tests.limits.world import Server, World, broken, failing, in_virtual_time, now_s, refusal


def test_transient_failures_are_tried_again_up_to_the_bound() -> None:
    async def main() -> None:
        world = World([Server()], LimitSettings(max_tries=4))
        seen, attempt = failing(broken(), refusal(), broken())
        assert await world.run(attempt, "t") == 0
        assert seen == [1, 2, 3, 4]
        seen, attempt = failing(*(broken() for _ in range(9)))
        with pytest.raises(ProviderError) as caught:
            await world.run(attempt, "u")
        assert seen == [1, 2, 3, 4]
        assert caught.value.tries == 4

    in_virtual_time(main())


@pytest.mark.parametrize("kind", ["row", "content_filter", "timeout", "unreadable"])
def test_what_may_have_been_answered_or_never_will_be_is_not_tried_again(
    kind: FailureKind,
) -> None:
    async def main() -> None:
        world = World([Server()])
        seen, attempt = failing(ProviderError(kind, "no"))
        with pytest.raises(ProviderError, match="no") as caught:
            await world.run(attempt, "t")
        assert seen == [1]
        assert not caught.value.outage
        assert world.halt.reason is None

    in_virtual_time(main())


def test_a_dead_key_costs_one_call_of_ten_thousand() -> None:
    async def main() -> None:
        server = Server()

        def fault() -> None:
            raise ProviderError("fatal", "invalid API key", status_code=401)

        server.fault = fault
        world = World([server, server])
        ended = await asyncio.gather(
            *(world.draw(f"t{i}") for i in range(10_000)), return_exceptions=True
        )
        assert server.calls == 1
        assert [type(end) for end in ended] == [ProviderError] + [Halted] * 9_999
        assert (world.halt.reason, world.halt.detail) == ("fatal", "invalid API key")

    in_virtual_time(main())


def test_a_fatal_failure_in_mid_run_lets_calls_in_flight_finish() -> None:
    async def main() -> None:
        server = Server(spread=0.0)
        world = World([server])
        await world.draw("probe")
        draws = [asyncio.create_task(world.draw(f"t{i}")) for i in range(30)]
        await asyncio.sleep(0.5)
        _, attempt = failing(ProviderError("fatal", "no quota", status_code=402))
        with pytest.raises(ProviderError):
            await one_more(world, attempt)
        ended = await asyncio.gather(*draws, return_exceptions=True)
        assert [type(end) for end in ended] == [int] * 20 + [Halted] * 10

    async def one_more(world: World, attempt: Callable[[int, int], Any]) -> int:
        # Twenty are in flight; the limit is shared with a fleet of another model.
        other = Limits(LimitSettings(), world.halt, world.budget, asyncio.get_running_loop())
        return await Fleet([other]).run(attempt, affinity="u", spend=lambda _: Spend())

    in_virtual_time(main())


def test_all_wait_for_the_probe_and_then_fan_out() -> None:
    async def main() -> None:
        server = Server(spread=0.0)
        world = World([server])
        draws = [asyncio.create_task(world.draw(f"t{i}")) for i in range(10)]
        await asyncio.sleep(0.9)
        assert server.calls == 1
        await asyncio.sleep(0.2)
        assert server.calls == 10
        await asyncio.gather(*draws)

    in_virtual_time(main())


def test_a_crowd_is_more_than_one_call_a_slot_waiting_before_the_probe_or_after() -> None:
    async def main() -> None:
        world = World([Server(spread=0.0)], LimitSettings(concurrency=4))
        draws = [asyncio.create_task(world.draw(f"t{i}")) for i in range(5)]
        await asyncio.sleep(0.1)  # one is the probe
        assert not world.fleet.crowded
        draws += [asyncio.create_task(world.draw(f"u{i}")) for i in range(4)]
        await asyncio.sleep(0.1)
        assert world.fleet.crowded
        await asyncio.sleep(1)  # four of eight are in flight
        assert not world.fleet.crowded
        draws.append(asyncio.create_task(world.draw("v")))
        await asyncio.sleep(0.1)
        assert world.fleet.crowded
        await asyncio.gather(*draws)
        assert not world.fleet.crowded

    in_virtual_time(main())


def test_a_probe_that_fails_for_itself_opens_the_way_too() -> None:
    async def main() -> None:
        world = World([Server()])
        _, attempt = failing(ProviderError("row", "too long", status_code=400))
        with pytest.raises(ProviderError):
            await world.run(attempt, "t")
        await asyncio.gather(*(world.draw(f"t{i}") for i in range(5)))

    in_virtual_time(main())


def test_a_cancelled_probe_passes_the_part_on() -> None:
    async def main() -> None:
        server = Server()
        world = World([server])
        draws = [asyncio.create_task(world.draw(f"t{i}")) for i in range(5)]
        await asyncio.sleep(0.1)
        draws[0].cancel()
        await asyncio.sleep(0.1)
        assert server.calls == 2
        ended = await asyncio.gather(*draws, return_exceptions=True)
        assert [type(end) for end in ended[1:]] == [int] * 4

    in_virtual_time(main())


async def waits(*errors: ProviderError) -> list[float]:
    """Seconds between the tries of one draw."""
    at: list[float] = []
    world = World([Server()], LimitSettings(max_tries=20, adaptive=False, concurrency=5))

    async def attempt(endpoint: int, tries: int) -> int:
        at.append(now_s())
        if len(at) <= len(errors):
            raise errors[len(at) - 1]
        return 0

    await world.run(attempt, "t")
    return [b - a for a, b in itertools.pairwise(at)]


def test_backoff_is_jittered_and_doubles_up_to_a_minute() -> None:
    pauses = [in_virtual_time(waits(*(broken() for _ in range(10))))]
    for n, pause in enumerate(pauses[0], start=1):
        assert 0 <= pause <= min(60, 2**n) + 0.01
    assert len({round(pause, 6) for pause in pauses[0]}) == 10
    assert max(pauses[0]) > 10


def test_retry_after_is_waited_out_up_to_ten_minutes() -> None:
    assert in_virtual_time(waits(refusal(45.0)))[0] >= 45
    assert in_virtual_time(waits(broken(), refusal(599.0)))[1] >= 599


def test_a_longer_retry_after_is_waited_out_for_ten_minutes_where_others_are_served() -> None:
    async def main() -> None:
        world = World([Server()])
        load = asyncio.create_task(world.load(4, 1000.0))
        await asyncio.sleep(3)
        _, attempt = failing(broken(retry_after_s=5000.0))
        await world.run(attempt, "t")
        assert 600 <= now_s() <= 610
        load.cancel()

    in_virtual_time(main())


def test_a_refused_draw_does_not_give_up_while_others_are_served() -> None:
    async def main() -> None:
        world = World([Server()], LimitSettings(max_tries=2))
        seen, attempt = failing(*(refusal() for _ in range(8)))
        load = asyncio.create_task(world.load(4, 600.0))
        await asyncio.sleep(3)
        assert await world.run(attempt, "t") == 0
        assert len(seen) == 9
        load.cancel()

    in_virtual_time(main())


def test_the_time_of_a_draw_is_bounded_too() -> None:
    async def main() -> None:
        world = World([Server()], LimitSettings(max_tries=1000, total_timeout_s=120.0))
        _, attempt = failing(*(broken() for _ in range(1000)))
        with pytest.raises(ProviderError):
            await world.run(attempt, "t")
        assert 30 < now_s() <= 120

    in_virtual_time(main())


def test_first_come_first_served() -> None:
    async def main() -> None:
        world = World([Server(spread=0.0)], LimitSettings(concurrency=2))
        order: list[int] = []

        async def draw(i: int) -> None:
            async def attempt(endpoint: int, tries: int) -> int:
                order.append(i)
                return await world.servers[0].call()

            await world.run(attempt, f"t{i}")

        await asyncio.gather(*(draw(i) for i in range(20)))
        assert order == list(range(20))

    in_virtual_time(main())


def test_a_task_stays_on_its_replica_and_tasks_spread_evenly() -> None:
    async def main() -> None:
        servers = [Server() for _ in range(3)]
        world = World(servers)
        where: dict[str, set[int]] = {}

        async def draw(task: str) -> None:
            async def attempt(endpoint: int, tries: int) -> int:
                where.setdefault(task, set()).add(endpoint)
                return await servers[endpoint].call()

            await world.run(attempt, task)

        for _ in range(4):
            await asyncio.gather(*(draw(f"t{i}") for i in range(90)))
        assert all(len(endpoints) == 1 for endpoints in where.values())
        for endpoint in range(3):
            # 30 expected, standard deviation 4.5
            assert 15 <= sum(endpoint in endpoints for endpoints in where.values()) <= 45

    in_virtual_time(main())


def test_a_slow_replica_does_not_hold_up_a_fast_one() -> None:
    async def main() -> None:
        servers = [Server(latency_s=10.0), Server(latency_s=1.0)]
        world = World(servers, LimitSettings(concurrency=20))
        await world.load(100, 200.0)
        assert servers[1].done(50, 200) >= 0.9 * 20 * 150
        assert servers[0].done(50, 200) >= 0.9 * 2 * 150

    in_virtual_time(main())


def test_who_waits_at_a_replica_that_is_disabled_waits_on_at_the_one_that_may_come_back() -> None:
    """The first hangs, its breaker opens, and the second comes to serve another model."""

    async def main() -> None:
        servers = [Server(spread=0.0), Server(spread=0.0, latency_s=5.0)]
        settings = LimitSettings(
            concurrency=2, adaptive=False, breaker_failures=3, breaker_tasks=1, probe_interval_s=1.0
        )
        world = World(servers, settings)

        async def attempt(endpoint: int, tries: int) -> int:
            if endpoint == 1 and now_s() > 20:
                world.fleet.disable(1, "another model")
                raise ProviderError("transient", "another model")
            return await servers[endpoint].call()

        await world.run(attempt, "first")
        servers[0].down = "timeout"
        draws = [asyncio.create_task(world.run(attempt, f"t{i}")) for i in range(60)]
        await asyncio.sleep(40)
        servers[0].down = None
        n_waiting = sum(not draw.done() for draw in draws)
        n_answered = len(servers[0].done_at_s)
        await asyncio.wait_for(asyncio.gather(*draws, return_exceptions=True), 600)
        assert world.halt.reason is None
        assert n_waiting > 10
        assert len(servers[0].done_at_s) - n_answered >= n_waiting - 1

    in_virtual_time(main())


def test_a_crowd_is_told_by_the_replicas_that_carry_calls() -> None:
    async def main() -> None:
        servers = [Server(spread=0.0), Server(spread=0.0)]
        settings = LimitSettings(concurrency=2, adaptive=False, breaker_failures=3, breaker_tasks=1)
        world = World(servers, settings)
        servers[0].down = "timeout"
        draws = [asyncio.create_task(world.draw(f"t{i}")) for i in range(40)]
        await asyncio.sleep(5)
        assert world.limits[0].state().status == "open"
        assert world.limits[1].waiting > 2
        assert world.fleet.crowded
        await asyncio.gather(*draws, return_exceptions=True)

    in_virtual_time(main())


def test_two_fleets_of_one_endpoint_share_its_limit() -> None:
    async def main() -> None:
        halt = Halt()
        loop = asyncio.get_running_loop()
        limits = Limits(LimitSettings(concurrency=4), halt, Budget(None, halt), loop)
        policy, judge = Fleet([limits]), Fleet([limits])
        server = Server()
        most = 0

        async def attempt(endpoint: int, tries: int) -> int:
            nonlocal most
            most = max(most, server.in_flight + 1)
            return await server.call()

        def run(fleet: Fleet, task: str) -> Any:
            return fleet.run(attempt, affinity=task, spend=lambda _: Spend())

        await asyncio.gather(*(run(f, f"t{i}") for i in range(20) for f in (policy, judge)))
        assert (most, server.calls) == (4, 40)

    in_virtual_time(main())


@pytest.mark.parametrize("error", [None, refusal(5.0)])
def test_a_crowd_starts_little_by_little(error: ProviderError | None) -> None:
    """Two thousand that connect at once, after the probe or a long Retry-After, would all wait for
    the last of them."""

    async def main() -> None:
        server = Server(spread=0.0, latency_s=5.0)
        world = World([server], LimitSettings(concurrency=2000, adaptive=False))
        started: list[float] = []

        async def draw(number: int) -> None:
            async def attempt(endpoint: int, tries: int) -> int:
                if number == 0 and tries == 1 and error is not None:
                    raise error
                started.append(now_s())
                return await server.call()

            await world.run(attempt, f"t{number}")

        await asyncio.gather(*(draw(number) for number in range(2000)))
        at_once = Counter(started)
        assert max(at_once.values()) <= BURST
        assert started[-1] - started[1] < 0.1

    in_virtual_time(main())
