"""Rates of one task and of many against the literature, scipy and exact enumeration."""

from __future__ import annotations

import math
import random
from fractions import Fraction
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate
from scipy import stats as oracle

from labelkit import stats
from labelkit.stats import ClusteredRate, Interval

counts = st.integers(0, 200).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))
some_counts = counts.filter(lambda pair: pair[1] > 0)


def rounded(interval: Interval | None) -> tuple[float, float]:
    assert interval is not None
    return round(interval[0], 3), round(interval[1], 3)


@pytest.mark.parametrize("n", [1, 4, 7])
def test_pass_at_k_and_pass_hat_k_equal_counting_all_subsets(n: int) -> None:
    for c in range(n + 1):
        for k in range(1, n + 1):
            subsets = list(combinations([True] * c + [False] * (n - c), k))
            some = sum(map(any, subsets)) / len(subsets)
            every = sum(map(all, subsets)) / len(subsets)
            assert stats.pass_at_k(n, c, k) == some
            assert stats.pass_hat_k(n, c, k) == every


def test_pass_at_k_is_exact_where_floats_would_cancel() -> None:
    n = 100_000
    assert stats.pass_at_k(n, 1, 3) == 3 / n
    assert stats.pass_at_k(n, n - 2, 3) == 1.0
    assert stats.pass_at_k(n, n // 2, 50_000) == 1.0
    assert stats.pass_hat_k(n, n - 1, 3) == float(1 - Fraction(3, n))
    chance = stats.pass_at_k(10**4, 10, 100)
    assert chance == pytest.approx(float(oracle.hypergeom.sf(0, 10**4, 10, 100)), rel=1e-12)


def test_fewer_samples_than_k_estimate_nothing() -> None:
    assert stats.pass_at_k(3, 3, 4) is None
    assert stats.pass_hat_k(3, 3, 4) is None


@pytest.mark.parametrize(
    ("c", "wilson", "jeffreys", "clopper_pearson"),
    [
        (0, (0.0, 0.324), (0.0, 0.262), (0.0, 0.369)),
        (4, (0.215, 0.785), (0.199, 0.801), (0.157, 0.843)),
        (8, (0.676, 1.0), (0.738, 1.0), (0.631, 1.0)),
    ],
)
def test_intervals_of_eight_samples(
    c: int, wilson: Interval, jeffreys: Interval, clopper_pearson: Interval
) -> None:
    assert rounded(stats.wilson(c, 8)) == wilson
    assert rounded(stats.jeffreys(c, 8)) == jeffreys
    assert rounded(stats.clopper_pearson(c, 8)) == clopper_pearson


def test_wilson_interval_as_newcombe_1998_prints_it() -> None:
    assert stats.wilson(81, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert stats.wilson(1, 29) == pytest.approx((0.0061, 0.1718), abs=5e-5)


@given(pair=some_counts, confidence=st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_intervals_equal_scipy(pair: tuple[int, int], confidence: float) -> None:
    c, n = pair
    test = oracle.binomtest(c, n)
    for method, interval in (("wilson", stats.wilson), ("exact", stats.clopper_pearson)):
        low, high = test.proportion_ci(confidence, method=method)
        assert interval(c, n, confidence) == pytest.approx((low, high), abs=1e-10)
    low, high = oracle.beta.interval(confidence, c + 0.5, n - c + 0.5)
    expected = (0.0 if c == 0 else float(low), 1.0 if c == n else float(high))
    assert stats.jeffreys(c, n, confidence) == pytest.approx(expected, abs=1e-10)


@given(pair=some_counts)
def test_intervals_hold_the_rate_and_mirror(pair: tuple[int, int]) -> None:
    c, n = pair
    for interval in (stats.wilson, stats.jeffreys, stats.clopper_pearson):
        ends, mirrored = interval(c, n), interval(n - c, n)
        assert ends is not None
        assert mirrored is not None
        assert 0 <= ends[0] <= c / n <= ends[1] <= 1
        assert ends == pytest.approx((1 - mirrored[1], 1 - mirrored[0]), abs=1e-12)


def test_nothing_scored_has_no_interval_no_bin_no_rate() -> None:
    assert stats.wilson(0, 0) is None
    assert stats.jeffreys(0, 0) is None
    assert stats.clopper_pearson(0, 0) is None
    assert stats.curriculum_bin(0, 0) is None
    assert ClusteredRate().rate is None
    assert ClusteredRate().interval() is None


def test_impossible_counts_are_refused() -> None:
    with pytest.raises(ValueError, match="5 passed of 4"):
        stats.jeffreys(5, 4)
    with pytest.raises(ValueError, match="cannot be"):
        ClusteredRate().add(n_passed=-1, n_scored=4)
    with pytest.raises(ValueError, match="at least 1"):
        stats.pass_at_k(4, 2, 0)


@pytest.mark.parametrize(("c", "expected"), [(1, 0.33), (2, 0.67), (3, 0.88), (4, 0.95)])
def test_band_posterior_of_eight_samples(c: int, expected: float) -> None:
    assert round(stats.band_posterior(c, 8, 0.2, 0.8), 2) == expected


@given(pair=counts, lo=st.floats(0, 1), hi=st.floats(0, 1))
def test_band_posterior_equals_scipy(pair: tuple[int, int], lo: float, hi: float) -> None:
    c, n = pair
    lo, hi = min(lo, hi), max(lo, hi)
    prior = oracle.beta(c + 0.5, n - c + 0.5)
    expected = float(prior.cdf(hi) - prior.cdf(lo))
    assert stats.band_posterior(c, n, lo, hi) == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize(
    ("c", "n", "k"), [(0, 0, 2), (0, 8, 8), (1, 8, 8), (4, 8, 4), (30, 32, 16)]
)
def test_p_in_zone_equals_the_integral_over_the_posterior(c: int, n: int, k: int) -> None:
    density = oracle.beta(c + 0.5, n - c + 0.5).pdf
    value, _ = integrate.quad(
        lambda p: density(p) * (1 - p**k - (1 - p) ** k), 0, 1, epsabs=1e-12, limit=500
    )
    assert stats.p_in_zone(c, n, k) == pytest.approx(value, abs=1e-8)


def test_one_sample_is_never_mixed_and_two_are_by_the_beta_binomial() -> None:
    assert stats.p_in_zone(3, 8, 1) == pytest.approx(0.0, abs=1e-15)
    mixed = float(oracle.betabinom(2, 3.5, 5.5).pmf(1))
    assert stats.p_in_zone(3, 8, 2) == pytest.approx(mixed, rel=1e-12)


@given(n=st.integers(2, 12), p=st.floats(0, 1))
def test_learnability_is_unbiased(n: int, p: float) -> None:
    values = [stats.learnability(c, n) for c in range(n + 1)]
    weights = [math.comb(n, c) * p**c * (1 - p) ** (n - c) for c in range(n + 1)]
    expected = math.fsum(w * v for w, v in zip(weights, values, strict=True) if v is not None)
    assert expected == pytest.approx(p * (1 - p), abs=1e-12)


def test_learnability_needs_two_samples() -> None:
    assert stats.learnability(1, 1) is None
    assert stats.learnability(1, 2) == 0.5


@pytest.mark.parametrize(
    ("c", "n", "label"),
    [
        (0, 8, "0"),
        (1, 8, "(0, .2]"),
        (1, 5, "(0, .2]"),
        (2, 8, "(.2, .5]"),
        (4, 8, "(.2, .5]"),
        (4, 5, "(.5, .8]"),
        (7, 8, "(.8, 1)"),
        (8, 8, "1"),
    ],
)
def test_curriculum_bins_close_above(c: int, n: int, label: str) -> None:
    assert stats.curriculum_bin(c, n) == label


def clustered(tasks: list[tuple[int, int]]) -> ClusteredRate:
    pooled = ClusteredRate()
    for c, n in tasks:
        pooled.add(n_passed=c, n_scored=n)
    return pooled


def test_clustered_error_equals_the_formula_of_miller() -> None:
    tasks = [(1, 4), (3, 3), (0, 4), (7, 8), (0, 0)]
    samples = [[1] * c + [0] * (n - c) for c, n in tasks if n]
    flat = [s for cluster in samples for s in cluster]
    mean = sum(flat) / len(flat)
    within = sum((s - mean) ** 2 for s in flat)
    cross = sum(
        (s - mean) * (t - mean)
        for cluster in samples
        for i, s in enumerate(cluster)
        for j, t in enumerate(cluster)
        if i != j
    )
    miller = math.sqrt((within + cross) / len(flat) ** 2)
    pooled = clustered(tasks)
    assert pooled.rate == 11 / 19
    assert pooled.se == pytest.approx(miller * math.sqrt(4 / 3), rel=1e-12)


def test_tasks_of_one_rate_are_no_certainty() -> None:
    assert clustered([(1, 2), (1, 2)]).interval() == stats.jeffreys(2, 4)


def test_clustered_interval_at_equal_k_is_the_t_interval_of_the_task_rates() -> None:
    tasks = [(1, 4), (3, 4), (0, 4), (4, 4), (2, 4)]
    rates = [c / n for c, n in tasks]
    low, high = oracle.ttest_1samp(rates, 0).confidence_interval(0.95)
    assert low > 0
    assert clustered(tasks).interval() == pytest.approx((low, high), abs=1e-10)


def test_clustered_interval_is_wider_than_that_of_independent_samples_and_stays_a_rate() -> None:
    tasks = [(8, 8), (8, 8), (8, 8), (0, 8)]
    pooled, independent = clustered(tasks), stats.wilson(24, 32)
    interval = pooled.interval()
    assert interval is not None
    assert independent is not None
    assert interval[0] < independent[0]
    assert interval[1] == 1.0


def test_one_task_has_a_rate_but_no_clustered_interval() -> None:
    pooled = clustered([(3, 8), (0, 0)])
    assert (pooled.rate, pooled.se, pooled.interval()) == (3 / 8, None, None)


def test_all_passed_is_not_certainty() -> None:
    assert clustered([(8, 8)] * 8).interval() == stats.jeffreys(8, 8)
    assert clustered([(0, 8)] * 8).interval() == stats.jeffreys(0, 8)


@given(tasks=st.lists(counts, max_size=30), seed=st.integers(0, 2**32))
def test_clustered_rate_does_not_depend_on_order(tasks: list[tuple[int, int]], seed: int) -> None:
    shuffled = random.Random(seed).sample(tasks, len(tasks))
    first, second = clustered(tasks), clustered(shuffled)
    assert (first.rate, first.se, first.interval()) == (second.rate, second.se, second.interval())
