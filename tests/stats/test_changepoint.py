"""The first bad step: the posterior against integrals, the search against what it promises."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate

from labelkit.stats import Counts, change_point, next_probe

steps = st.lists(
    st.integers(0, 8).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))),
    min_size=1,
    max_size=12,
)


def marginal(before: Counts, after: Counts) -> float:
    """2 ∫∫_{p>q} of the likelihood: the prior is uniform on rate before > rate after."""
    (c, n), (d, m) = before, after

    def likelihood(q: float, p: float) -> float:
        return float(p**c * (1 - p) ** (n - c) * q**d * (1 - q) ** (m - d))

    value, _ = integrate.dblquad(likelihood, 0, 1, 0, lambda p: p, epsabs=1e-14)
    return 2 * float(value)


@pytest.mark.parametrize("v0", [None, (3, 4)])
def test_posterior_equals_the_integrals_of_its_definition(v0: Counts | None) -> None:
    counts: list[Counts] = [(4, 4), (2, 3), (0, 0), (1, 4), (0, 4)]
    known = [v0 or (0, 0), *counts]

    def total(part: list[Counts]) -> Counts:
        return sum(c for c, _ in part), sum(n for _, n in part)

    weights = [0.7 / 5 * marginal(total(known[: i + 1]), total(known[i + 1 :])) for i in range(5)]
    c, n = total(known)
    none, _ = integrate.quad(lambda p: p**c * (1 - p) ** (n - c), 0, 1, epsabs=1e-14)
    weights.append(0.3 * float(none))
    found = change_point(counts, v0, prior_none=0.3)
    expected = [weight / sum(weights) for weight in weights]
    assert [*found.posterior, found.p_none] == pytest.approx(expected, abs=1e-6)


def test_a_clear_drop_is_located() -> None:
    found = change_point([(8, 8), (7, 8), (8, 8), (0, 8), (1, 8), (0, 8)])
    assert found.index == found.likeliest == 3
    assert found.posterior[3] > 0.95


def test_a_completer_that_repairs_does_not_hide_the_error() -> None:
    found = change_point([(7, 8), (6, 8), (7, 8), (1, 8), (2, 8), (0, 8), (1, 8), (2, 8)])
    assert found.index == 3


@pytest.mark.parametrize(
    "counts",
    [
        [(8, 8)] * 6,
        [(0, 8)] * 6,
        [(4, 8), (5, 8), (4, 8), (5, 8)],
        [(1, 8), (2, 8), (6, 8), (8, 8)],
        [(0, 0)] * 4,
    ],
)
def test_level_rising_and_unknown_rates_have_no_bad_step(counts: list[Counts]) -> None:
    assert change_point(counts).index is None


def test_a_bad_first_step_is_located_against_the_rate_of_the_bare_problem() -> None:
    counts = [(0, 8), (1, 8), (0, 8), (0, 8)]
    assert change_point(counts, (7, 8)).index == 0
    assert change_point(counts).index is None


@given(counts=steps)
def test_posterior_is_a_distribution(counts: list[Counts]) -> None:
    found = change_point(counts)
    assert len(found.posterior) == len(counts)
    assert all(0 <= share <= 1 for share in found.posterior)
    assert sum(found.posterior) + found.p_none == pytest.approx(1.0, abs=1e-12)


def test_thousands_of_rollouts_do_not_overflow() -> None:
    found = change_point([(900, 1000), (910, 1000), (100, 1000), (90, 1000)])
    assert found.index == 2
    assert found.posterior[2] == pytest.approx(1.0, abs=1e-9)
    assert change_point([(100, 1000), (900, 1000)]).index is None


def test_a_solution_without_steps_and_a_certain_prior_are_refused() -> None:
    with pytest.raises(ValueError, match="without steps"):
        change_point([])
    with pytest.raises(ValueError, match="prior_none"):
        change_point([(1, 1)], prior_none=1.0)


def search(rates: list[float], k: int, limit: int, seed: int) -> tuple[list[Counts], list[int]]:
    """The counts that the search ends with, and the prefixes it asked for in order."""
    draw = random.Random(seed)
    counts, asked = [(0, 0)] * len(rates), []
    while probe := next_probe(counts, k, max_rollouts=limit):
        assert probe.n >= 1
        hits = sum(draw.random() < rates[probe.index] for _ in range(probe.n))
        passed, scored = counts[probe.index]
        counts[probe.index] = (passed + hits, scored + probe.n)
        asked.append(probe.index)
    return counts, asked


def test_search_starts_wide_then_stays_near_the_break() -> None:
    rates = [0.9] * 10 + [0.05] * 10
    counts, asked = search(rates, k=8, limit=96, seed=3)
    assert asked[:3] == [0, 19, 9]
    assert change_point(counts).index == 10
    assert all(abs(index - 9.5) <= 5 for index in asked[3:])
    assert sum(n for _, n in counts) <= 64


def test_the_first_error_is_located_though_completers_repair() -> None:
    """16 steps, error at the sixth, .7 before and .05 after it: .96 exactly, with either method."""
    rates, solutions = [0.7] * 5 + [0.05] * 11, 300
    by_full = by_search = 0
    for seed in range(solutions):
        draw = random.Random(seed)
        counts = [(sum(draw.random() < rate for _ in range(8)), 8) for rate in rates]
        by_full += change_point(counts).index == 5
        found, _ = search(rates, k=8, limit=76, seed=seed)
        by_search += change_point(found).index == 5
    assert by_full / solutions >= 0.96
    assert by_search / solutions >= 0.96


@given(
    rates=st.lists(st.floats(0, 1), min_size=1, max_size=10),
    k=st.integers(1, 8),
    limit=st.integers(0, 60),
    seed=st.integers(0, 1000),
)
def test_search_ends_within_its_rollouts(rates: list[float], k: int, limit: int, seed: int) -> None:
    counts, _ = search(rates, k, limit, seed)
    assert sum(n for _, n in counts) <= limit


def test_search_goes_on_after_a_single_hit_behind_the_likely_break() -> None:
    counts: list[Counts] = [(8, 8), (0, 0), (0, 0), (1, 8), (0, 0), (0, 0), (0, 8)]
    probe = next_probe(counts, 8, max_rollouts=60)
    assert probe is not None
    assert probe.index in (0, 1, 2, 3)


def test_unscored_rollouts_count_as_spent() -> None:
    nothing: list[Counts] = [(0, 0)] * 3
    assert next_probe(nothing, 4, max_rollouts=12, drawn=[4, 4, 4]) is None
    probe = next_probe(nothing, 4, max_rollouts=12, drawn=[4, 0, 3])
    assert probe is not None
    assert (probe.index, probe.n) == (2, 1)


def test_search_stops_when_sure() -> None:
    counts: list[Counts] = [(8, 8), (8, 8), (0, 8), (0, 8)]
    assert next_probe(counts, 8, max_rollouts=1000) is None
    assert next_probe(counts, 8, max_rollouts=1000, confident=0.99999999) is not None
