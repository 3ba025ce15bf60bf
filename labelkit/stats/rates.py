"""What c passes of n scored samples say about a pass rate, of one task and of many."""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

from labelkit.stats.beta import beta_cdf, beta_quantile, t_quantile

Interval = tuple[float, float]
"""Lower and upper end, both in [0, 1] for rates."""

BINS = ("0", "(0, .2]", "(.2, .5]", "(.5, .8]", "(.8, 1)", "1")
"""Curriculum bins by pass rate, hardest first."""


def pass_at_k(n_scored: int, n_passed: int, k: int) -> float | None:
    """Probability that at least one of k samples passes: 1 − C(n−c, k)/C(n, k), unbiased.

    Chen et al. 2021 (arXiv 2107.03374), whose argument order n, c, k this keeps; in integers, so
    exact at any n. None where n < k: fewer samples than k cannot estimate it.
    """
    _check(n_passed, n_scored)
    if n_scored < _positive(k):
        return None
    every = math.comb(n_scored, k)
    return (every - math.comb(n_scored - n_passed, k)) / every


def pass_hat_k(n_scored: int, n_passed: int, k: int) -> float | None:
    """pass^k, the probability that all of k samples pass: C(c, k)/C(n, k), unbiased, exact.

    Yao et al. 2024 (τ-bench, arXiv 2406.12045). None where n < k.
    """
    _check(n_passed, n_scored)
    if n_scored < _positive(k):
        return None
    return math.comb(n_passed, k) / math.comb(n_scored, k)


def wilson(n_passed: int, n_scored: int, confidence: float = 0.95) -> Interval | None:
    """Score interval of Wilson 1927, uncorrected for continuity; None where nothing is scored."""
    _check(n_passed, n_scored)
    if n_scored == 0:
        return None
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    failed = n_scored - n_passed
    middle = n_passed + z * z / 2
    half = z * math.sqrt(n_passed * failed / n_scored + z * z / 4)
    total = n_scored + z * z
    low = 0.0 if n_passed == 0 else (middle - half) / total
    return low, 1.0 if failed == 0 else (middle + half) / total


@lru_cache(maxsize=1 << 14)
def jeffreys(n_passed: int, n_scored: int, confidence: float = 0.95) -> Interval | None:
    """Equal-tailed posterior interval under the Jeffreys prior Beta(½, ½); the default for a task.

    Ends at 0 for c = 0 and at 1 for c = n (Brown, Cai and DasGupta 2001, Statistical Science
    16(2)). None where nothing is scored.
    """
    _check(n_passed, n_scored)
    if n_scored == 0:
        return None
    a, b = n_passed + 0.5, n_scored - n_passed + 0.5
    tail = (1 - confidence) / 2
    low = 0.0 if n_passed == 0 else beta_quantile(tail, a, b)
    return low, 1.0 if n_passed == n_scored else beta_quantile(1 - tail, a, b)


def clopper_pearson(n_passed: int, n_scored: int, confidence: float = 0.95) -> Interval | None:
    """Exact, conservative interval of Clopper and Pearson 1934; None where nothing is scored."""
    _check(n_passed, n_scored)
    if n_scored == 0:
        return None
    failed = n_scored - n_passed
    tail = (1 - confidence) / 2
    low = 0.0 if n_passed == 0 else beta_quantile(tail, n_passed, failed + 1)
    return low, 1.0 if failed == 0 else beta_quantile(1 - tail, n_passed + 1, failed)


@lru_cache(maxsize=1 << 14)
def band_posterior(n_passed: int, n_scored: int, lo: float, hi: float) -> float:
    """P(lo ≤ p ≤ hi | c of n) under the Jeffreys prior: I_hi(c+½, n−c+½) − I_lo(c+½, n−c+½)."""
    _check(n_passed, n_scored)
    a, b = n_passed + 0.5, n_scored - n_passed + 0.5
    return max(0.0, beta_cdf(hi, a, b) - beta_cdf(lo, a, b))


def p_in_zone(n_passed: int, n_scored: int, k: int) -> float:
    """Probability that k fresh samples are mixed (a pass and a fail among them), given c of n.

    The posterior predictive 1 − E[pᵏ + (1−p)ᵏ] under Beta(c+½, n−c+½), whose moments are products:
    E[pᵏ] = Π_{i<k} (a+i)/(a+b+i).
    """
    _check(n_passed, n_scored)
    a, b = n_passed + 0.5, n_scored - n_passed + 0.5
    all_pass = math.prod((a + i) / (a + b + i) for i in range(_positive(k)))
    all_fail = math.prod((b + i) / (a + b + i) for i in range(k))
    return max(0.0, 1 - all_pass - all_fail)


def learnability(n_passed: int, n_scored: int) -> float | None:
    """Unbiased estimate of p(1−p): c(n−c)/(n(n−1)), the rank of LILO. None for n < 2."""
    _check(n_passed, n_scored)
    if n_scored < 2:
        return None
    return n_passed * (n_scored - n_passed) / (n_scored * (n_scored - 1))


def curriculum_bin(n_passed: int, n_scored: int) -> str | None:
    """The task's member of `BINS`, by exact fractions; None where nothing is scored."""
    _check(n_passed, n_scored)
    if n_scored == 0:
        return None
    if n_passed in (0, n_scored):
        return BINS[-1] if n_passed else BINS[0]
    tenths = 10 * n_passed
    return BINS[1 + sum(tenths > limit * n_scored for limit in (2, 5, 8))]


class ClusteredRate:
    """The pass rate pooled over tasks, with an error that knows samples of a task belong together.

    Fed task by task; holds six integers, so that any order and any number of tasks give the same
    bits. Tasks without scored samples carry no weight.
    """

    def __init__(self) -> None:
        self.n_tasks = 0
        self.n_scored = 0
        self.n_passed = 0
        self._scored_squares = 0
        self._passed_squares = 0
        self._products = 0

    def add(self, *, n_passed: int, n_scored: int) -> None:
        """Count one task. Keyword-only: swapped counts would go unnoticed."""
        _check(n_passed, n_scored)
        if n_scored == 0:
            return
        self.n_tasks += 1
        self.n_scored += n_scored
        self.n_passed += n_passed
        self._scored_squares += n_scored * n_scored
        self._passed_squares += n_passed * n_passed
        self._products += n_passed * n_scored

    @property
    def rate(self) -> float | None:
        """n_passed / n_scored over all tasks; None where nothing is scored."""
        return self.n_passed / self.n_scored if self.n_scored else None

    @property
    def se(self) -> float | None:
        """Cluster-robust standard error, None for fewer than two tasks.

        √(Σ_tasks (Σ_samples (s − s̄))²) / n, which is the clustered error of Miller 2024 (arXiv
        2411.00640), times √(G/(G−1)) for G tasks as is usual for few clusters (Cameron and Miller
        2015, J. Human Resources 50(2)); at equal K it is sd of the task rates / √G.
        """
        if self.n_tasks < 2:
            return None
        c, n = self.n_passed, self.n_scored
        squares = n * n * self._passed_squares - 2 * c * n * self._products
        squares += c * c * self._scored_squares
        return math.sqrt(squares * self.n_tasks / (n**4 * (self.n_tasks - 1)))

    def interval(self, confidence: float = 0.95) -> Interval | None:
        """rate ± t·se with G−1 degrees of freedom, within [0, 1]; None for fewer than two tasks.

        Where all tasks have the same rate the error is 0, which claims certainty. There it is the
        Jeffreys interval: over samples, or, where everything passed or everything failed, with each
        task counted as one sample.
        """
        rate, se = self.rate, self.se
        if rate is None or se is None:
            return None
        if rate in (0.0, 1.0):
            return jeffreys(self.n_tasks * int(rate), self.n_tasks, confidence)
        if se == 0:
            return jeffreys(self.n_passed, self.n_scored, confidence)
        half = t_quantile(confidence, self.n_tasks - 1) * se
        return max(0.0, rate - half), min(1.0, rate + half)


def _check(n_passed: int, n_scored: int) -> None:
    if not 0 <= n_passed <= n_scored:
        raise ValueError(f"{n_passed} passed of {n_scored} scored samples cannot be")


def _positive(k: int) -> int:
    if k < 1:
        raise ValueError(f"k is {k}; it must be at least 1")
    return k
