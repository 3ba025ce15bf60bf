"""Comparisons of two runs against scipy and the examples of Newcombe 1998."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as oracle

from labelkit.stats import mcnemar, newcombe, paired

differences = st.lists(
    st.integers(-8, 8).map(lambda eighths: eighths / 8), min_size=2, max_size=60
).filter(lambda values: min(values) < max(values))


@given(values=differences)
def test_paired_comparison_equals_the_t_test_of_scipy(values: list[float]) -> None:
    found = paired(values)
    expected = oracle.ttest_1samp(values, 0.0)
    low, high = expected.confidence_interval(0.95)
    assert found.mean == pytest.approx(sum(values) / len(values), abs=1e-12)
    assert found.se == pytest.approx(float(oracle.sem(values)), abs=1e-12)
    assert found.p_value == pytest.approx(float(expected.pvalue), abs=1e-9)
    assert found.interval == pytest.approx((low, high), abs=1e-9)


@given(values=st.lists(st.floats(-1, 1), max_size=40), seed=st.integers(0, 2**32))
def test_paired_comparison_does_not_depend_on_order(values: list[float], seed: int) -> None:
    assert paired(values) == paired(random.Random(seed).sample(values, len(values)))


def test_paired_comparison_of_too_few_tasks_says_nothing() -> None:
    assert paired([]).mean is None
    one = paired([0.25])
    assert (one.n_tasks, one.mean, one.se, one.interval, one.p_value) == (1, 0.25, None, None, None)


def test_equal_differences_have_no_interval_and_the_p_of_the_sign_test() -> None:
    same, gain = paired([0.0] * 5), paired([0.125] * 5)
    assert (same.mean, same.interval, same.p_value) == (0.0, None, 1.0)
    sign = float(oracle.binomtest(5, 5).pvalue)
    assert (gain.mean, gain.interval, gain.p_value) == (0.125, None, sign)


@given(n_lost=st.integers(0, 300), n_won=st.integers(0, 300))
def test_mcnemar_equals_the_exact_binomial_test(n_lost: int, n_won: int) -> None:
    n = n_lost + n_won
    expected = float(oracle.binomtest(n_lost, n).pvalue) if n else 1.0
    assert mcnemar(n_lost, n_won) == pytest.approx(expected, abs=1e-9)


def test_mcnemar_by_hand() -> None:
    assert mcnemar(0, 5) == pytest.approx(2 / 32, rel=1e-12)
    assert mcnemar(1, 5) == pytest.approx(2 * (1 + 6) / 64, rel=1e-12)
    assert mcnemar(0, 0) == mcnemar(4, 4) == 1.0


@pytest.mark.parametrize(
    ("after", "before", "expected"),
    [
        ((56, 70), (48, 80), (0.0524, 0.3339)),
        ((9, 10), (3, 10), (0.1705, 0.8090)),
        ((6, 7), (2, 7), (0.0582, 0.8062)),
        ((5, 56), (0, 29), (-0.0381, 0.1926)),
        ((0, 10), (0, 20), (-0.1611, 0.2775)),
        ((0, 10), (0, 10), (-0.2775, 0.2775)),
        ((10, 10), (0, 20), (0.6791, 1.0)),
        ((10, 10), (0, 10), (0.6075, 1.0)),
    ],
)
def test_difference_intervals_of_newcombe_table_2(
    after: tuple[int, int], before: tuple[int, int], expected: tuple[float, float]
) -> None:
    assert newcombe(before, after) == pytest.approx(expected, abs=5e-5)


def test_one_lost_sample_of_eight_is_no_change_and_losing_all_is() -> None:
    small, large = newcombe((8, 8), (7, 8)), newcombe((8, 8), (0, 8))
    assert small is not None
    assert small[0] < 0 < small[1]
    assert large is not None
    assert large[1] < 0


def test_a_task_scored_in_one_run_only_has_no_difference() -> None:
    assert newcombe((0, 0), (7, 8)) is None
    assert newcombe((7, 8), (0, 0)) is None
