"""Stopping rules against every way the remaining draws can end."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from labelkit.stats import Band, band_decided, expected_draws, is_mixed

ends = st.one_of(st.sampled_from([0.0, 0.2, 0.25, 0.5, 0.8, 1.0]), st.floats(0, 1), st.just(1 / 3))
bands = st.builds(
    lambda lo, hi, lo_in, hi_in: Band(min(lo, hi), max(lo, hi), lo_in, hi_in),
    ends,
    ends,
    st.booleans(),
    st.booleans(),
)
states = st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 6))


@given(state=states, band=bands, min_scored=st.integers(1, 3))
@example(state=(1, 1, 2), band=Band(0.41, 0.49), min_scored=1)
@example(state=(1, 4, 0), band=Band(0.2, 0.8, True, True), min_scored=1)
def test_a_band_is_decided_exactly_where_every_end_agrees(
    state: tuple[int, int, int], band: Band, min_scored: int
) -> None:
    passed, failed, remaining = state
    found: set[str] = set()
    for more_passed in range(remaining + 1):
        for more_failed in range(remaining + 1 - more_passed):
            total = passed + failed + more_passed + more_failed
            if total < min_scored:
                found.add("undecided")
            else:
                inside = band.contains(passed + more_passed, total)
                found.add("in" if inside else "out")
    expected = found.pop() if len(found) == 1 and found != {"undecided"} else "open"
    decided = band_decided(passed, passed + failed, remaining, band, min_scored=min_scored)
    assert decided == expected


def test_a_gap_between_reachable_rates_decides_out() -> None:
    assert band_decided(1, 2, 1, Band(0.51, 0.6)) == "out"
    assert band_decided(1, 2, 2, Band(0.51, 0.6)) == "out"
    assert band_decided(1, 2, 3, Band(0.51, 0.6, hi_inclusive=True)) == "open"


def test_the_default_band_is_the_learning_zone() -> None:
    assert band_decided(1, 2, 6, Band()) == "in"
    assert band_decided(2, 2, 6, Band()) == "open"
    assert band_decided(2, 2, 0, Band()) == "out"
    assert is_mixed(1, 2)
    assert not is_mixed(0, 2)
    assert not is_mixed(2, 2)


def test_ends_of_the_band_belong_to_it_only_when_said() -> None:
    assert Band(0.2, 0.8, True, True).contains(1, 5)
    assert not Band(0.2, 0.8).contains(1, 5)
    assert not Band(0.2, 0.8).contains(4, 5)
    assert not Band(0.0, 1.0, True, True).contains(0, 0)


def test_impossible_counts_are_refused() -> None:
    with pytest.raises(ValueError, match="3 of 2"):
        band_decided(3, 2, 1, Band())


@pytest.mark.parametrize(
    ("p", "singly", "in_waves"),
    [(0.5, 2.98, 3.50), (0.2, 4.41, 5.00), (0.05, 6.78, 7.07), (0.0, 8.0, 8.0), (1.0, 8.0, 8.0)],
)
def test_expected_draws_until_a_pass_and_a_fail(p: float, singly: float, in_waves: float) -> None:
    assert round(expected_draws(p, [1] * 8), 2) == singly
    assert round(expected_draws(p, [2, 2, 4]), 2) == in_waves


def test_no_wave_no_draw() -> None:
    assert expected_draws(0.3, []) == 0.0
