"""When a task's decision can no longer change, whatever its remaining draws bring.

Exact: a task is stopped only where every way to pass, fail or not score the remaining draws leads
to the same decision, so that the kept set equals that of all draws. A stopped task's pass rate is
biased towards ½; it must not be averaged or ranked by.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Decision = Literal["in", "out", "open"]


@dataclass(frozen=True)
class Band:
    """A band of pass rates; open at both ends unless said otherwise."""

    lo: float = 0.0
    hi: float = 1.0
    lo_inclusive: bool = False
    hi_inclusive: bool = False

    def contains(self, n_passed: int, n_scored: int) -> bool:
        """Whether n_passed / n_scored lies in the band; never where nothing is scored."""
        return n_scored > 0 and not (
            self.below(n_passed, n_scored) or self.above(n_passed, n_scored)
        )

    def below(self, n_passed: int, n_scored: int) -> bool:
        """Whether the rate, of at least one scored draw, is too low for the band."""
        rate = n_passed / n_scored
        return rate < self.lo or (rate == self.lo and not self.lo_inclusive)

    def above(self, n_passed: int, n_scored: int) -> bool:
        """Whether the rate, of at least one scored draw, is too high for the band."""
        rate = n_passed / n_scored
        return rate > self.hi or (rate == self.hi and not self.hi_inclusive)


def is_mixed(n_passed: int, n_scored: int) -> bool:
    """The learning zone on raw counts: a pass and a fail. Once true it stays true."""
    return 0 < n_passed < n_scored


def band_decided(
    n_passed: int, n_scored: int, remaining: int, band: Band, *, min_scored: int = 1
) -> Decision:
    """Whether a task is certain to end inside (`in`) or outside (`out`) a band, or still `open`.

    Each remaining draw may pass, fail or stay unscored, so the final rate is (c+i)/(n+i+j) for any
    i + j ≤ remaining. A task that may end with fewer than `min_scored` scored draws is `open`: its
    end may be no decision at all.
    """
    if not (0 <= n_passed <= n_scored and remaining >= 0):
        raise ValueError(f"{n_passed} of {n_scored} with {remaining} to come cannot be")
    if n_scored < max(1, min_scored):
        return "open"
    most = n_scored + remaining
    worst_in = band.contains(n_passed, most)
    best_in = band.contains(n_passed + remaining, most)
    if worst_in or best_in:
        return "in" if worst_in and best_in else "open"
    if band.below(n_passed + remaining, most) or band.above(n_passed, most):
        return "out"
    for total in range(n_scored, most + 1):
        first = math.ceil(band.lo * total)
        for passed in (first - 1, first, first + 1):
            reachable = min(max(passed, n_passed), n_passed + total - n_scored)
            if band.contains(reachable, total):
                return "open"
    return "out"


def expected_draws(p: float, waves: Sequence[int]) -> float:
    """E[N] of drawing in waves until a pass and a fail are seen or the waves are used up.

    After n draws of a task with success rate p it is undecided with probability pⁿ + (1−p)ⁿ, so
    E[N] = w₁ + Σ_i w_{i+1} (p^{S_i} + (1−p)^{S_i}), S_i the draws of the first i waves. Single
    draws are waves of one: 1 + Σ_{n=1}^{K−1} (pⁿ + (1−p)ⁿ).
    """
    drawn, expected = 0, 0.0
    for wave in waves:
        expected += wave * (p**drawn + (1 - p) ** drawn if drawn else 1.0)
        drawn += wave
    return expected
