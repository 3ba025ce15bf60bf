"""Whether two runs on the same tasks differ, over all tasks and on one.

A difference is called a change only where its interval leaves out 0: 8/8 against 7/8 is not one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from labelkit.stats.beta import beta_cdf, t_quantile, t_two_sided_p
from labelkit.stats.rates import Interval, wilson


@dataclass(frozen=True)
class Paired:
    """A paired comparison over tasks; `mean` is the mean of after − before.

    None: `mean` without tasks, `se` and `p_value` with fewer than two, `interval` also where all
    differences are equal, since no spread then bounds the error.
    """

    n_tasks: int
    mean: float | None
    se: float | None
    interval: Interval | None
    p_value: float | None


def paired(differences: Iterable[float], confidence: float = 0.95) -> Paired:
    """Paired t test on per-task differences of pass rates: SE = sd(d)/√n, n−1 degrees of freedom.

    Miller 2024 (arXiv 2411.00640), section on paired differences. For one sample a task use
    `mcnemar`. Where all differences are equal and not 0 the p value is that of the exact sign test,
    2·2⁻ⁿ. The order of the differences does not matter, not even for the last bit.
    """
    values = list(differences)
    n = len(values)
    if n < 2:
        return Paired(n, values[0] if values else None, None, None, None)
    mean = math.fsum(values) / n
    squares = math.fsum((value - mean) ** 2 for value in values)
    se = math.sqrt(squares / (n - 1) / n)
    if min(values) == max(values) or se == 0.0:  # differences too small to be squared
        return Paired(n, mean, 0.0, None, 1.0 if mean == 0 else 2.0 ** (1 - n))
    half = t_quantile(confidence, n - 1) * se
    p_value = t_two_sided_p(mean / se, n - 1)
    return Paired(n, mean, se, (mean - half, mean + half), p_value)


def mcnemar(n_lost: int, n_won: int) -> float:
    """Exact two-sided p of McNemar 1947 for one sample a task in each run.

    `n_lost` tasks went from pass to fail, `n_won` from fail to pass; tasks that agree carry
    nothing. Twice the binomial tail at ½, at most 1; 1 where no task differs.
    """
    n, fewer = n_lost + n_won, min(n_lost, n_won)
    if fewer < 0:
        raise ValueError(f"{n_lost} lost and {n_won} won tasks cannot be")
    return min(1.0, 2 * beta_cdf(0.5, n - fewer, fewer + 1)) if n else 1.0


def newcombe(
    before: tuple[int, int], after: tuple[int, int], confidence: float = 0.95
) -> Interval | None:
    """Interval for rate(after) − rate(before), each (n_passed, n_scored); None if either is empty.

    The hybrid score interval, method 10 of Newcombe 1998 (Statistics in Medicine 17), which holds
    its level at small counts and at rates of 0 and 1.
    """
    old, new = wilson(*before, confidence), wilson(*after, confidence)
    if old is None or new is None:
        return None
    p_old, p_new = before[0] / before[1], after[0] / after[1]
    low = p_new - p_old - math.hypot(p_new - new[0], old[1] - p_old)
    high = p_new - p_old + math.hypot(new[1] - p_new, p_old - old[0])
    return max(-1.0, low), min(1.0, high)
