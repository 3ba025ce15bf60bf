"""A dead endpoint is left alone, probed, and taken back; replicas stand in for each other."""

from __future__ import annotations

import asyncio

import pytest

from labelkit.errors import FailureKind, ProviderError
from labelkit.limits import Halted, LimitSettings
from tests.limits.world import Server, World, broken, in_virtual_time, now_s


def dies_and_recovers(world: World, *, dead_s: tuple[float, float]) -> None:
    server = world.servers[0]
    loop = asyncio.get_running_loop()
    loop.call_later(dead_s[0], setattr, server, "down", "transient")
    loop.call_later(dead_s[1], setattr, server, "down", None)


@pytest.mark.parametrize("kind", ["transient", "timeout", "unreadable"])
def test_breaker_opens_within_twenty_failures_and_what_was_in_flight(kind: FailureKind) -> None:
    async def main() -> None:
        server = Server()
        world = World([server], LimitSettings(concurrency=30, adaptive=False, max_tries=50))
        asyncio.get_running_loop().call_later(10, setattr, server, "down", kind)
        load = asyncio.create_task(world.load(100, 60.0))
        await asyncio.sleep(10)
        before = server.calls
        await asyncio.sleep(15)
        assert server.calls - before <= 20 + 30
        assert world.fleet.snapshot()[0].status == "open"
        assert "in a row" in world.fleet.snapshot()[0].why
        load.cancel()

    in_virtual_time(main())


def test_timeouts_while_the_breaker_is_open_are_told_from_those_before() -> None:
    async def main() -> list[BaseException]:
        world = World([Server(down="timeout")], LimitSettings(concurrency=30, adaptive=False))
        load = asyncio.create_task(world.load(100, 20.0))
        await asyncio.sleep(60)  # one failed probe later
        world.halt.stop("interrupted")
        return [error for error in await load if isinstance(error, ProviderError)]

    errors = in_virtual_time(main())
    outages = [error.outage for error in errors if isinstance(error, ProviderError)]
    assert outages[:19] == [False] * 19
    assert outages[19:]
    assert all(outages[19:])


def test_an_open_breaker_lets_one_probe_through_each_thirty_seconds() -> None:
    async def main() -> None:
        server = Server()
        world = World([server])
        asyncio.get_running_loop().call_later(10, setattr, server, "down", "transient")
        load = asyncio.create_task(world.load(100, 1000.0))
        await asyncio.sleep(60)
        before = server.calls
        await asyncio.sleep(300)
        assert 9 <= server.calls - before <= 10
        load.cancel()

    in_virtual_time(main())


def test_a_run_goes_on_when_the_server_comes_back_and_loses_no_draw() -> None:
    async def main() -> list[BaseException]:
        server = Server()
        world = World([server])
        dies_and_recovers(world, dead_s=(10, 200))
        raised = await world.load(100, 400.0)
        assert world.halt.reason is None
        # One probe interval and one round after it came back, it is loaded again.
        assert server.done(240, 400) > 0.8 * 100 * 160
        return raised

    assert in_virtual_time(main()) == []


def test_tries_made_while_the_breaker_is_open_use_up_no_draw() -> None:
    async def main() -> None:
        server = Server(spread=0.0)
        settings = LimitSettings(concurrency=25, adaptive=False, max_tries=2)
        world = World([server], settings)
        # All 25 in flight fail at once, then one probe after the other.
        dies_and_recovers(world, dead_s=(10, 400))
        raised = await world.load(25, 500.0)
        assert raised == []
        assert server.done(440, 500) > 0

    in_virtual_time(main())


def test_a_late_success_closes_the_breaker_whatever_the_probe_brings() -> None:
    async def main() -> None:
        server = Server(latency_s=36.0, spread=0.0)
        world = World([server], LimitSettings(concurrency=100, adaptive=False))
        await world.draw("probe")

        async def refuse(endpoint: int, tries: int) -> int:
            raise ProviderError("unreadable", "cut")

        async def hang(endpoint: int, tries: int) -> int:
            await asyncio.sleep(10)
            raise ProviderError("timeout", "no answer")

        late = asyncio.create_task(world.draw("late"))
        await asyncio.sleep(1)
        await asyncio.gather(
            *(world.run(refuse, f"t{i}") for i in range(20)), return_exceptions=True
        )
        assert world.fleet.snapshot()[0].status == "open"
        probe = asyncio.create_task(world.run(hang, "hung"))
        await late
        assert world.fleet.snapshot()[0].status == "ok"
        await asyncio.gather(probe, return_exceptions=True)
        calls = server.calls
        draw = asyncio.create_task(world.draw("next"))
        await asyncio.sleep(1)
        assert server.calls == calls + 1
        await draw

    in_virtual_time(main())


def test_a_server_that_stays_away_halts_the_run_after_the_configured_time() -> None:
    async def main() -> None:
        server = Server()
        world = World([server], LimitSettings(give_up_s=300))
        dies_and_recovers(world, dead_s=(10, 10_000))
        raised = await world.load(100, 5000.0)
        assert 310 <= now_s() <= 345
        assert world.halt.reason == "breaker"
        assert world.halt.detail is not None
        assert "in a row" in world.halt.detail
        # No draw was given up on: all are to be run when the run goes on.
        assert {type(error) for error in raised} == {Halted}

    in_virtual_time(main())


def test_a_probe_that_hangs_does_not_put_off_giving_up() -> None:
    async def main() -> None:
        server = Server()
        world = World([server], LimitSettings(give_up_s=300))
        dies_and_recovers(world, dead_s=(10, 40))
        asyncio.get_running_loop().call_later(40, setattr, server, "latency_s", 10_000.0)
        load = asyncio.create_task(world.load(100, 5000.0))
        await asyncio.sleep(345)
        assert world.halt.reason == "breaker"
        load.cancel()

    in_virtual_time(main())


def test_failures_of_few_tasks_open_nothing() -> None:
    async def main() -> None:
        server = Server(down="transient")
        world = World([server], LimitSettings(max_tries=30, breaker_tasks=5))
        draws = [asyncio.create_task(world.draw(f"t{i}")) for i in range(4)]
        await asyncio.gather(*draws, return_exceptions=True)
        assert server.calls == 4 * 30
        assert world.fleet.snapshot()[0].status == "ok"

    in_virtual_time(main())


def test_a_success_between_failures_opens_nothing() -> None:
    async def main() -> None:
        server = Server()

        def fault() -> None:
            if server.calls % 10:
                raise broken()

        server.fault = fault
        world = World([server], LimitSettings(max_tries=1000, concurrency=1))
        load = asyncio.create_task(world.load(10, 600.0))
        await asyncio.sleep(599)
        assert server.calls > 100
        assert world.fleet.snapshot()[0].status == "ok"
        load.cancel()

    in_virtual_time(main())


def test_a_draw_whose_tries_end_in_an_outage_says_so() -> None:
    async def main() -> None:
        server = Server(down="transient")
        world = World([server], LimitSettings(max_tries=3))
        with pytest.raises(ProviderError) as caught:
            await world.draw("t")
        assert (caught.value.tries, caught.value.outage) == (3, True)

    in_virtual_time(main())


def test_a_draw_that_alone_fails_is_no_outage() -> None:
    async def main() -> None:
        world = World([Server()], LimitSettings(max_tries=3))

        async def attempt(endpoint: int, tries: int) -> int:
            raise broken()

        load = asyncio.create_task(world.load(4, 100.0))
        await asyncio.sleep(5)
        with pytest.raises(ProviderError) as caught:
            await world.run(attempt, "bad")
        assert (caught.value.tries, caught.value.outage) == (3, False)
        load.cancel()

    in_virtual_time(main())


def test_the_other_replica_takes_over() -> None:
    async def main() -> list[BaseException]:
        servers = [Server(), Server()]
        world = World(servers)
        dies_and_recovers(world, dead_s=(30, 10_000))
        raised = await world.load(60, 300.0)
        assert world.halt.reason is None
        assert servers[1].done(60, 300) >= 0.9 * 60 * 240
        # Dead, it saw its breaker's failures, what was in flight, and probes.
        assert servers[0].calls - servers[0].done(0, 300) <= 20 + 60 + 10
        assert [state.status for state in world.fleet.snapshot()] == ["open", "ok"]
        return raised

    assert in_virtual_time(main()) == []


@pytest.mark.parametrize("n_draws", [1, 8, 40])
def test_a_try_that_failed_at_one_replica_is_followed_by_one_at_another(n_draws: int) -> None:
    """However few the draws are: too few to open the breaker of a replica that was never up."""

    async def main() -> None:
        servers = [Server(), Server()]
        servers[0].down = "transient"
        world = World(servers)
        await asyncio.gather(*(world.draw(f"t{i}") for i in range(n_draws)))
        assert servers[1].calls == n_draws
        assert now_s() < 10

    in_virtual_time(main())


def test_draws_that_wait_for_a_dead_replica_move_on_at_once() -> None:
    async def main() -> None:
        servers = [Server(spread=0.0), Server(spread=0.0)]
        world = World(servers, LimitSettings(concurrency=30, adaptive=False))
        draws = [asyncio.create_task(world.draw(f"t{i}")) for i in range(100)]
        await asyncio.sleep(1.5)  # the probe is over, the first 60 are in flight
        servers[0].down = "transient"
        await asyncio.gather(*draws)
        # 40 of its own and 50 of the other's, 30 at a time, and the backoff of those that failed.
        assert now_s() < 10

    in_virtual_time(main())


@pytest.mark.parametrize("survivor", [0, 1])
def test_draws_that_wait_for_the_replica_still_dead_move_to_the_one_that_is_back(
    survivor: int,
) -> None:
    async def main() -> None:
        servers = [Server(spread=0.0), Server(spread=0.0)]
        world = World(servers, LimitSettings(concurrency=30, adaptive=False))
        draws = [asyncio.create_task(world.draw(f"t{i}")) for i in range(100)]
        await asyncio.sleep(1.5)
        servers[0].down = servers[1].down = "transient"
        await asyncio.sleep(100)
        servers[survivor].down = None
        await asyncio.gather(*draws)
        assert now_s() < 102 + 30 + 10  # found by the next probe, and four rounds

    in_virtual_time(main())


def test_a_replica_that_comes_back_gets_its_tasks_again() -> None:
    async def main() -> None:
        servers = [Server(), Server()]
        world = World(servers)
        dies_and_recovers(world, dead_s=(30, 90))
        await world.load(60, 300.0)
        assert servers[0].done(130, 300) >= 0.3 * 60 * 170

    in_virtual_time(main())


def test_only_when_all_replicas_are_gone_the_run_gives_up() -> None:
    async def main() -> None:
        servers = [Server(), Server()]
        world = World(servers, LimitSettings(give_up_s=300))
        asyncio.get_running_loop().call_later(10, setattr, servers[0], "down", "transient")
        asyncio.get_running_loop().call_later(1000, setattr, servers[1], "down", "transient")
        raised = await world.load(60, 5000.0)
        assert world.halt.reason == "breaker"
        assert 1300 <= now_s() <= 1400
        assert {type(error) for error in raised} == {Halted}

    in_virtual_time(main())


def test_when_all_are_down_the_first_to_come_back_takes_everything() -> None:
    async def main() -> None:
        servers = [Server(), Server()]
        world = World(servers)
        for server in servers:
            asyncio.get_running_loop().call_later(10, setattr, server, "down", "transient")
        asyncio.get_running_loop().call_later(200, setattr, servers[1], "down", None)
        raised = await world.load(60, 400.0)
        assert raised == []
        assert servers[1].done(250, 400) >= 0.9 * 60 * 150

    in_virtual_time(main())


def test_a_disabled_replica_carries_nothing_and_its_waiting_draws_move_on() -> None:
    async def main() -> None:
        servers = [Server(), Server()]
        world = World(servers)
        load = asyncio.create_task(world.load(200, 60.0))
        await asyncio.sleep(10)
        world.fleet.disable(0, "serves another model: b instead of a")
        before = servers[0].calls
        assert await load == []
        assert servers[0].calls == before
        assert world.fleet.snapshot()[0].why == "serves another model: b instead of a"
        world.fleet.disable(1, "serves another model: c instead of a")
        assert world.halt.reason == "fatal"

    in_virtual_time(main())


def test_an_absurd_retry_after_of_the_whole_endpoint_is_said_and_given_up_on() -> None:
    async def main() -> None:
        world = World([Server(capacity=0, retry_after_s=86_400.0)], LimitSettings(give_up_s=900))
        raised = await world.load(30, 10_000.0)
        assert world.halt.reason == "breaker"
        assert world.halt.detail is not None
        assert "1,440 min" in world.halt.detail
        assert now_s() < 1000
        assert {type(error) for error in raised} == {Halted}

    in_virtual_time(main())
