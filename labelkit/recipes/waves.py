"""Draws in waves, stopped as soon as a task's decision can no longer change.

The decision is the recipe's and must be exact: whatever the remaining draws bring, unscored ones
included, the outcome is the one that all K draws would give. A rate measured on a stopped task is
biased, so the task is marked and its rates are not averaged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from labelkit.recipes import draw_all, off_loop, split
from labelkit.records import Attempt, NotRun, Request
from labelkit.seams import Draw

Decided = Callable[[Sequence[Attempt], int], bool]
"""(attempts so far in sample order, draws that may still come) → the decision is certain.

Pure: where replies are long, it is asked in a thread."""


@dataclass(frozen=True)
class Drawn:
    """A task's candidate draws. `saved`: how many draws stopping early saves, or would have."""

    attempts: tuple[Attempt, ...]
    not_run: tuple[NotRun, ...]
    not_needed: int
    saved: int

    @property
    def stopped_early(self) -> bool:
        return self.not_needed > 0

    @property
    def remaining(self) -> int:
        """Draws that might still change the counts: those not needed, and those owed."""
        return self.not_needed + _n_owed(self.not_run)


def waves(k: int, first: int = 2) -> Iterator[range]:
    """Sample indexes 0…k−1 in waves of 2, 2, 4, 8, … (or another first): each doubles the draws."""
    start, size = 0, min(first, k)
    while start < k:
        yield range(start, start + size)
        start += size
        size = min(start, k - start)


async def draw_candidates(
    draw: Draw, request: Request, k: int, decided: Decided, *, adaptive: bool, first: int = 2
) -> Drawn:
    """K candidate draws, or with `adaptive` as many waves of them as the decision needs."""
    if not adaptive:
        attempts, not_run = split(await draw_all(draw, request, range(k)))
        needed = await off_loop(attempts, _needed, attempts, not_run, k, decided, first)
        return Drawn(attempts, not_run, 0, k - needed)
    drawn: list[Attempt | NotRun] = []
    for wave in waves(k, first):
        drawn += await draw_all(draw, request, wave)
        attempts, not_run = split(drawn)
        left = k - wave.stop
        if await off_loop(attempts, decided, attempts, left + _n_owed(not_run)):
            return Drawn(attempts, not_run, left, left)
    return Drawn(*split(drawn), 0, 0)


def _needed(
    attempts: Sequence[Attempt], not_run: Sequence[NotRun], k: int, decided: Decided, first: int
) -> int:
    """How many draws the waves would have made, told from all K of them."""
    for wave in waves(k, first):
        seen = [attempt for attempt in attempts if attempt.sample_index < wave.stop]
        missing = [each for each in not_run if each.key.sample_index < wave.stop]
        if decided(seen, k - wave.stop + _n_owed(missing)):
            return wave.stop
    return k


def _n_owed(not_run: Sequence[NotRun]) -> int:
    return sum(each.reason != "unavailable" for each in not_run)


def counts(attempts: Sequence[Attempt]) -> tuple[int, int]:
    """(n_passed, n_scored)."""
    scores = [attempt.score for attempt in attempts if attempt.score is not None]
    return sum(score.passed for score in scores), len(scores)


def owed(not_run: Sequence[NotRun]) -> str | None:
    """Why draws are still to be made, None where none is: replies that no file holds never come."""
    return next((each.reason for each in not_run if each.reason != "unavailable"), None)


def states(drawn: Drawn) -> list[JsonValue]:
    """What became of each candidate draw, in sample order: the `outcomes` of a row."""
    return [
        {
            "sample_index": attempt.sample_index,
            "state": attempt.state,
            "stop_reason": attempt.stop_reason,
        }
        for attempt in drawn.attempts
    ]
