"""The beta and t distributions against scipy."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import special
from scipy import stats as oracle

from labelkit.stats.beta import beta_cdf, beta_quantile, t_quantile, t_two_sided_p

shapes = st.one_of(st.integers(0, 50_000).map(lambda n: n + 0.5), st.integers(1, 50_000).map(float))


@given(x=st.floats(0, 1), a=shapes, b=shapes)
@example(x=0.5, a=50_000.5, b=50_000.5)
@example(x=1e-300, a=0.5, b=8.5)
@example(x=0.999, a=50_000.5, b=0.5)
@example(x=5e-324, a=50_000.5, b=0.5)
@example(x=1 - 1e-16, a=0.5, b=8.5)
@example(x=1 - 1e-12, a=0.5, b=0.5)
def test_incomplete_beta_equals_scipy(x: float, a: float, b: float) -> None:
    assert beta_cdf(x, a, b) == pytest.approx(float(special.betainc(a, b, x)), abs=1e-10)


@example(a=49_999.5, b=50_000.5, spread=0.0)
@given(a=shapes, b=shapes, spread=st.floats(-6, 6))
def test_incomplete_beta_equals_scipy_where_the_mass_is(a: float, b: float, spread: float) -> None:
    mean = a / (a + b)
    x = min(max(mean + spread * math.sqrt(mean * (1 - mean) / (a + b + 1)), 0.0), 1.0)
    assert beta_cdf(x, a, b) == pytest.approx(float(special.betainc(a, b, x)), abs=1e-10)


@given(q=st.sampled_from([1e-6, 0.005, 0.025, 0.3, 0.5, 0.95, 0.975, 0.999]), a=shapes, b=shapes)
@example(q=0.025, a=0.5, b=50_000.5)
@example(q=0.975, a=50_000.5, b=0.5)
def test_beta_quantile_equals_scipy(q: float, a: float, b: float) -> None:
    assert beta_quantile(q, a, b) == pytest.approx(float(special.betaincinv(a, b, q)), abs=1e-10)


def test_beta_quantile_of_impossible_and_certain_is_the_end_of_the_range() -> None:
    assert beta_quantile(0.0, 2.0, 3.0) == 0.0
    assert beta_quantile(1.0, 2.0, 3.0) == 1.0


@pytest.mark.parametrize("df", [1, 2, 5, 30, 1000, 50_000])
@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.999])
def test_t_quantile_equals_scipy(confidence: float, df: int) -> None:
    expected = float(oracle.t.ppf((1 + confidence) / 2, df))
    assert t_quantile(confidence, df) == pytest.approx(expected, rel=1e-9)


def test_t_quantiles_of_the_printed_table() -> None:
    assert round(t_quantile(0.95, 1), 3) == 12.706
    assert round(t_quantile(0.95, 10), 3) == 2.228


@given(t=st.floats(-50, 50), df=st.integers(1, 5000))
def test_t_tail_equals_scipy(t: float, df: int) -> None:
    assert t_two_sided_p(t, df) == pytest.approx(2 * float(oracle.t.sf(abs(t), df)), abs=1e-10)
