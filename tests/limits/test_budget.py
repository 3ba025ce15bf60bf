"""The cap holds, whatever calls cost and however they end."""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import Any

import pytest

from labelkit.errors import ProviderError, UsageError
from labelkit.limits import Budget, Fleet, Halt, Halted, Limits, LimitSettings, Spend
from tests.limits.world import Server, World, in_virtual_time


class Till:
    """What a server has charged, by its own count, never asked about by the code under test."""

    def __init__(self) -> None:
        self.usd = 0.0
        self.most = 0.0

    def charge(self, usd: float) -> None:
        self.usd += usd
        self.most = max(self.most, self.usd)


async def random_run(seed: int) -> None:
    rng = random.Random(seed)
    till = Till()
    halt = Halt()
    cap = rng.uniform(0.01, 5.0)
    budget = Budget(cap, halt)
    loop = asyncio.get_running_loop()
    settings = LimitSettings(
        concurrency=rng.choice([1, 4, 64]), max_tries=3, breaker_failures=10**6
    )
    fleets = [
        Fleet(
            [Limits(settings, halt, budget, loop, rng=rng) for _ in range(rng.choice([1, 2]))],
            rng=rng,
        )
        for _ in range(2)
    ]
    price = 10 ** rng.uniform(-4, 0)

    async def attempt(worst: float) -> float:
        fate = rng.random()
        cost = worst * rng.choice([rng.random(), 1.0])
        if fate < 0.1:  # refused before anything was taken on
            await asyncio.sleep(0.01)
            raise ProviderError("transient", "busy", status_code=rng.choice([429, 503]))
        till.charge(cost)  # a call that was taken on is charged, whatever comes of it
        await asyncio.sleep(rng.uniform(0.1, 3.0))
        if fate < 0.2:
            raise ProviderError(rng.choice(["timeout", "unreadable", "content_filter"]), "lost")
        if fate < 0.25:
            raise ProviderError("transient", "disconnected", paid=True)
        return cost

    async def draw(fleet: Fleet, task: str) -> None:
        worst = price * rng.uniform(0.1, 1.0)
        known = rng.random() < 0.9
        with contextlib.suppress(ProviderError, Halted):
            await fleet.run(
                lambda endpoint, tries: attempt(worst),
                affinity=task,
                worst=lambda: (worst, None),
                spend=lambda cost: Spend(usd=cost if known else None),
            )

    draws = [
        asyncio.create_task(draw(rng.choice(fleets), f"t{i}")) for i in range(rng.randint(1, 60))
    ]
    for task in rng.sample(draws, len(draws) // 5):
        loop.call_later(rng.uniform(0, 10), task.cancel)
    await asyncio.gather(*draws, return_exceptions=True)
    assert till.most <= cap * (1 + 1e-9), f"seed {seed}"
    assert till.usd <= budget.spent_usd + 1e-9, f"seed {seed}"
    assert budget.reserved_usd == 0.0, f"seed {seed}"
    if halt.reason is not None:
        assert halt.reason == "budget"
        assert budget.spent_usd + price > cap, f"seed {seed}: halted with room left"
    for fleet in fleets:
        assert all(state.in_flight == 0 for state in fleet.snapshot())


def test_no_random_run_spends_more_than_its_cap() -> None:
    for seed in range(200):
        in_virtual_time(random_run(seed))


async def spent(
    ending: float | ProviderError | None, *, worst_usd: float = 1.0, cap_usd: float | None = 10.0
) -> float:
    """What the budget counts for one call that ends so: an answer with its cost, or an error."""
    world = World([Server()], LimitSettings(max_tries=1), cap_usd=cap_usd)

    async def attempt(endpoint: int, tries: int) -> int:
        if isinstance(ending, ProviderError):
            raise ending
        return 0

    cost = None if isinstance(ending, ProviderError) else ending
    with contextlib.suppress(ProviderError):
        await world.fleet.run(
            attempt, affinity="t", worst=lambda: (worst_usd, None), spend=lambda _: Spend(usd=cost)
        )
    assert world.budget.reserved_usd == 0.0
    return world.budget.spent_usd


@pytest.mark.parametrize(
    ("ending", "expected"),
    [
        (0.25, 0.25),
        (None, 1.0),
        (ProviderError("timeout", "no answer in time"), 1.0),
        (ProviderError("unreadable", "cut"), 1.0),
        (ProviderError("content_filter", "filtered"), 1.0),
        (ProviderError("transient", "disconnected", paid=True), 1.0),
        (ProviderError("transient", "busy", status_code=429), 0.0),
        (ProviderError("transient", "connection refused"), 0.0),
        (ProviderError("row", "too long", status_code=400), 0.0),
        (ProviderError("fatal", "bad key", status_code=401), 0.0),
    ],
)
def test_each_ending_is_counted_as_what_it_may_have_cost(
    ending: float | ProviderError | None, expected: float
) -> None:
    assert in_virtual_time(spent(ending)) == expected


def test_a_cancelled_call_counts_as_its_worst_case() -> None:
    async def main() -> None:
        world = World([Server(latency_s=10)], cap_usd=10.0)
        draw = asyncio.create_task(world.draw("t", worst_usd=1.0))
        await asyncio.sleep(1)
        assert world.budget.reserved_usd == 1.0
        draw.cancel()
        await asyncio.gather(draw, return_exceptions=True)
        assert (world.budget.spent_usd, world.budget.reserved_usd) == (1.0, 0.0)

    in_virtual_time(main())


def costing(world: World, task: str, usd: float, worst_usd: float) -> asyncio.Task[int]:
    async def attempt(endpoint: int, tries: int) -> int:
        return await world.servers[endpoint].call()

    return asyncio.create_task(
        world.fleet.run(
            attempt, affinity=task, worst=lambda: (worst_usd, None), spend=lambda _: Spend(usd=usd)
        )
    )


def test_a_reservation_that_does_not_fit_waits_for_what_is_in_flight() -> None:
    async def main() -> None:
        world = World([Server()], cap_usd=1.0)
        await costing(world, "probe", 0.0, 0.0)
        # One at a time fits, and each costs a fifth of its worst case.
        draws = [costing(world, f"t{i}", 0.2, 0.8) for i in range(3)]
        assert len(await asyncio.gather(*draws, return_exceptions=True)) == 3
        assert world.servers[0].calls == 1 + 2
        assert world.budget.spent_usd == pytest.approx(0.4)
        assert world.halt.reason == "budget"

    in_virtual_time(main())


def test_a_small_reservation_does_not_overtake_a_large_one() -> None:
    async def main() -> None:
        world = World([Server(spread=0.0)], cap_usd=1.0)
        await costing(world, "probe", 0.0, 0.0)
        running = costing(world, "running", 0.0, 0.5)
        await asyncio.sleep(0.1)
        large = costing(world, "large", 0.0, 0.8)
        await asyncio.sleep(0.1)
        small = costing(world, "small", 0.0, 0.1)
        await asyncio.sleep(0.1)
        assert world.servers[0].calls == 2
        await asyncio.gather(running, large, small)

    in_virtual_time(main())


def test_when_the_large_one_gives_up_the_small_one_goes_at_once() -> None:
    async def main() -> None:
        world = World([Server(latency_s=10.0)], cap_usd=1.0)
        await costing(world, "probe", 0.0, 0.0)
        running = costing(world, "running", 0.0, 0.5)
        await asyncio.sleep(0.1)
        large = costing(world, "large", 0.0, 0.8)
        await asyncio.sleep(0.1)
        small = costing(world, "small", 0.0, 0.1)
        await asyncio.sleep(0.1)
        assert world.servers[0].calls == 2
        large.cancel()
        await asyncio.sleep(0.1)
        assert world.servers[0].calls == 3
        await asyncio.gather(running, small)

    in_virtual_time(main())


def test_at_the_cap_the_run_stops_admitting_and_lets_calls_finish() -> None:
    async def main() -> list[Any]:
        world = World([Server()], cap_usd=1.0)
        draws = [costing(world, f"t{i}", 0.3, 0.3) for i in range(6)]
        ended = await asyncio.gather(*draws, return_exceptions=True)
        assert world.budget.spent_usd == pytest.approx(0.9)
        assert world.halt.reason == "budget"
        assert world.halt.detail is not None
        assert "$1" in world.halt.detail
        return ended

    ended = in_virtual_time(main())
    assert [type(end) for end in ended] == [int] * 3 + [Halted] * 3
    assert ended[-1].reason == "budget"


def test_a_cap_that_is_a_sum_of_prices_is_used_up_to_the_last_cent() -> None:
    async def main() -> None:
        world = World([Server()], cap_usd=0.3)
        await asyncio.gather(*(costing(world, f"t{i}", 0.1, 0.1) for i in range(3)))
        assert world.servers[0].calls == 3

    in_virtual_time(main())


def test_what_earlier_runs_spent_counts() -> None:
    async def main() -> None:
        halt = Halt()
        budget = Budget(1.0, halt, spent_usd=0.95)
        limits = Limits(LimitSettings(), halt, budget, asyncio.get_running_loop())

        async def attempt(endpoint: int, tries: int) -> int:
            raise AssertionError("must not be called")

        with pytest.raises(Halted):
            await Fleet([limits]).run(
                attempt, affinity="t", worst=lambda: (0.1, None), spend=lambda _: Spend()
            )

    in_virtual_time(main())


def test_two_fleets_share_one_budget() -> None:
    async def main() -> None:
        world = World([Server()], cap_usd=1.0)
        other = World([Server()])
        shared = Limits(LimitSettings(), world.halt, world.budget, asyncio.get_running_loop())
        judge = Fleet([shared])

        async def attempt(endpoint: int, tries: int) -> int:
            return await other.servers[0].call()

        first = costing(world, "t", 0.1, 0.8)
        await asyncio.sleep(0.1)
        # Does not fit beside the first; goes out when that one is settled.
        await judge.run(
            attempt, affinity="t", worst=lambda: (0.5, None), spend=lambda _: Spend(usd=0.5)
        )
        assert first.done()
        assert world.budget.spent_usd == pytest.approx(0.6)

    in_virtual_time(main())


def test_tokens_have_a_cap_of_their_own() -> None:
    async def main() -> None:
        world = World([Server(tokens=100)], cap_tokens=250)
        draws = [asyncio.create_task(world.draw(f"t{i}", tokens=100)) for i in range(4)]
        ended = await asyncio.gather(*draws, return_exceptions=True)
        assert [type(end) for end in ended] == [int, int, Halted, Halted]
        assert world.budget.spent_tokens == 200
        assert world.halt.reason == "tokens"

    in_virtual_time(main())


def test_an_unknown_worst_case_under_a_cap_is_an_error_not_a_guess() -> None:
    async def main() -> None:
        world = World([Server()], cap_usd=1.0)
        with pytest.raises(UsageError, match="worst case"):
            await world.draw("t", worst_usd=None)
        assert world.servers[0].calls == 0

    in_virtual_time(main())
