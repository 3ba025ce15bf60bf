"""Requests and tokens a minute."""

from __future__ import annotations

import asyncio

import pytest

from labelkit.limits import LimitSettings
from tests.limits.world import Server, World, in_virtual_time, now_s


def test_requests_a_minute_are_kept() -> None:
    async def main() -> None:
        at: list[float] = []
        world = World([Server()], LimitSettings(rpm=120))

        async def attempt(endpoint: int, tries: int) -> int:
            at.append(now_s())
            return await world.servers[0].call()

        await asyncio.gather(*(world.run(attempt, f"t{i}") for i in range(600)))
        for start in range(0, 240, 10):
            assert sum(start <= t < start + 60 for t in at) <= 120 + 2
        assert 295 <= at[-1] <= 305

    in_virtual_time(main())


@pytest.mark.parametrize("begin_s", [123.4567, 98_765.4321, 1_234_567.891])
@pytest.mark.parametrize("settings", [LimitSettings(rpm=600), LimitSettings(tpm=60_000)])
def test_a_rate_never_stalls_whatever_the_clock_says(
    settings: LimitSettings, begin_s: float
) -> None:
    """A wait that rounding makes too short to be seen on the clock is a wait all the same."""

    async def main() -> None:
        world = World([Server(latency_s=0.01)], settings)
        draws = [world.draw(f"t{i}", tokens=10) for i in range(1_000)]
        await asyncio.gather(*draws)
        assert now_s() - begin_s < 130

    in_virtual_time(main(), begin_s)


def test_tokens_a_minute_are_reserved_and_what_was_not_used_comes_back() -> None:
    async def main(tokens: int) -> float:
        # A minute's worth at once and then 60,000 a minute: 120,000 tokens take a minute.
        world = World([Server()], LimitSettings(tpm=60_000))
        await asyncio.gather(*(world.draw(f"t{i}", tokens=tokens) for i in range(1200)))
        return now_s()

    assert in_virtual_time(main(100)) == pytest.approx(60, abs=5)
    # 4,000 reserved for 100 used: if nothing came back it would take 79 minutes.
    assert in_virtual_time(main(4000)) < 120
