"""Patterns: linear, or given up in time, and read as `re` reads them."""

from __future__ import annotations

import contextlib
import re
import time

import pytest

from labelkit.patterns import PatternLateError, TimedPattern, linear_pattern, occurs, patience

CATASTROPHIC = "a" * 60 + "!"


@pytest.mark.parametrize(
    "pattern",
    [r"^(a|aa)+$", r"(?=^(a|aa)+$)a", r"^((a|aa)\2?)+$", r"^(?!(a|aa)+$)(a|aa)+$"],
)
def test_no_text_can_hang_a_pattern(pattern: str) -> None:
    started = time.process_time()
    with contextlib.suppress(PatternLateError):
        assert not occurs(pattern, CATASTROPHIC)
    assert time.process_time() - started < 2


def test_a_pattern_that_takes_too_long_is_no_answer() -> None:
    with pytest.raises(PatternLateError, match=r"'\^\(\?!z\)\(a\|aa\)\+\$' took over 0\.1 s"):
        occurs(r"^(?!z)(a|aa)+$", CATASTROPHIC)


def test_a_catastrophic_pattern_that_re2_takes_is_decided() -> None:
    assert not occurs(r"^(a|aa)+$", CATASTROPHIC)
    assert occurs(r"^(a|aa)+!$", CATASTROPHIC)


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        (r"^(?!\s*$).+", " \n ", False),
        (r"^(?!\s*$).+", " a", True),
        (r"(['\"]).*\1", "'a'", True),
        (r"^.{2,4000}$", "ab", True),
        (r"\d+", "x1", True),
    ],
)
def test_patterns_beyond_re2_are_found_too(pattern: str, text: str, found: bool) -> None:
    assert occurs(pattern, text) is found


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (r"\\boxed{(\d+)}", r"\boxed{42}"),
        (r"x{e}", "x"),
        (r"x{e}", "x{e}"),
        (r"a{i<=2}", "abc"),
        (r"[{e}]+", "x{e}"),
        (r"x{}", "x{}"),
        (r"x{2}", "xx"),
        (r"x{,2}y", "xxy"),
        (r"\{e}", "{e}"),
        (r"\N{EM DASH}", "—"),
        (r"#### (.*)$", "so\n#### 42\n"),
        (r"(?P<n>\d+)\Z", "٤٢"),
        (r"\bß\w", "ßa"),
        (r"(?i)STRASSE", "straße"),
    ],
)
def test_a_timed_pattern_reads_as_re_does(pattern: str, text: str) -> None:
    wanted, found = re.search(pattern, text), TimedPattern(pattern).search(text)
    assert (wanted and (wanted.span(), wanted.groups())) == (
        found and (found.span(), found.groups())
    )


def test_a_timed_pattern_that_is_none_is_refused_as_re_does() -> None:
    with pytest.raises(re.error):
        TimedPattern(r"\p{L}")


def test_the_last_of_very_many_slow_matches_is_given_up() -> None:
    """Each search looks for a z to the end of the text before it takes one a."""
    pattern = linear_pattern(r"(?s)(.*z|a)")
    with pytest.raises(PatternLateError):
        pattern.last("a" * 50_000)


def test_a_huge_pattern_waits_for_patience() -> None:
    pattern = linear_pattern("(?:a?b?c?){1000}d")
    text = "abc" * 10_000 + "d"
    with pytest.raises(PatternLateError):
        pattern.first(text)
    with patience():
        assert pattern.first(text) is not None


def test_halves_of_surrogate_pairs_keep_every_position() -> None:
    assert linear_pattern("x=(.)").last("\ud83d x=1") == (4, 5)
