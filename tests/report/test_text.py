"""A stranger's text on a terminal."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labelkit.report.text import money, plain, seconds, short


@pytest.mark.parametrize(
    ("hostile", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;owned\x07title", "title"),
        ("\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1bPq#0\x1b\\sixel", "sixel"),
        ("a\x9b31mb", "ab"),
        ("\x9d0;owned\x9ctitle", "title"),
        ("a\x08\x00\x7f\x1bb", "ab"),
        ("user\u202etxt.exe", "usertxt.exe"),
        ("\u2066iso\u2069", "iso"),
        ("hid\u200bden\U000e0041", "hidden"),
        ("lone \ud800 surrogate", "lone \ufffd surrogate"),
        ("[bold]not markup[/bold]", "[bold]not markup[/bold]"),
    ],
)
def test_controls_never_reach_the_terminal(hostile: str, shown: str) -> None:
    assert plain(hostile) == shown


def test_an_unfinished_sequence_hides_nothing() -> None:
    assert plain("\x1b]0;never ended, the answer is 7") == "]0;never ended, the answer is 7"


def test_lines_and_tabs_stay_only_where_asked() -> None:
    assert plain("a\r\nb\rc\u2028d\te", lines=True) == "a\nb\nc\nd\te"
    assert plain("a\r\nb\rc\u2028d\te") == "a b c d e"


def test_scripts_with_joiners_stay_whole() -> None:
    assert plain("👩\u200d👩\u200d👧 می\u200cخواهم") == "👩\u200d👩\u200d👧 می\u200cخواهم"


@given(st.text(st.characters()))
def test_no_control_or_bidi_override_survives(text: str) -> None:
    for character in plain(text):
        assert unicodedata.category(character) not in ("Cc", "Cs", "Zl", "Zp")
        assert unicodedata.bidirectional(character) not in (
            "LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI",
        )  # fmt: skip


def test_short_text_says_that_it_was_cut() -> None:
    assert short("x" * 100, 10) == "x" * 9 + "…"
    assert short("whole", 10) == "whole"
    assert len(short("\x1b[0m" * 1000 + "tail", 10)) <= 10


@pytest.mark.parametrize(
    ("usd", "shown"), [(0.0, "$0.00"), (1234.5, "$1,234.50"), (0.00012344, "$0.0001234")]
)
def test_money_keeps_small_amounts_visible(usd: float, shown: str) -> None:
    assert money(usd) == shown


@pytest.mark.parametrize(
    ("duration_s", "shown"), [(7.4, "7 s"), (200, "3 min 20 s"), (7500, "2 h 5 min")]
)
def test_durations_are_said_in_two_units_at_most(duration_s: float, shown: str) -> None:
    assert seconds(duration_s) == shown
