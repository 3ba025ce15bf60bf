"""Filters of traces and what makes two of them alike."""

from __future__ import annotations

from typing import Any

import pytest

from labelkit.recipes.distinct import Distinct, Kind, answer_path
from labelkit.recipes.trace_filters import TraceFilters, other_script_share, repeated_share
from labelkit.records import Completion, DrawKey, Request, Sampled
from labelkit.reply import read_reply

KEY = DrawKey(task_id="t", stage="candidate", request="r", sample_index=0)


def fault(text: str, completion: dict[str, Any] | None = None, **filters: Any) -> str | None:
    said = Completion(text=text, finish_reason="stop", **(completion or {}))
    reply = read_reply(Request(model="m"), said, KEY)
    found = TraceFilters(**filters).fault(Sampled(key=KEY, completion=said, reply=reply))
    return None if found is None else found[0]


def test_nothing_is_refused_unless_asked() -> None:
    assert fault("the the the the " * 50 + "мир") is None


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("<think>a</think> b", True),
        ("a</think> b", True),
        ("<think>a</think><think>b</think> c", False),
        ("no thinking", False),
        ("<think>never closed", False),
    ],
)
def test_exactly_one_closed_think_block(text: str, kept: bool) -> None:
    assert fault(text, one_think_block=True) == (None if kept else "think_block")


def test_the_providers_own_reasoning_is_a_think_block() -> None:
    assert fault("b", {"reasoning": "a"}, one_think_block=True) is None


def test_finish_reason_and_lengths() -> None:
    assert fault("four", finish_reason="stop") is None
    assert fault("four", finish_reason=["length", "eos"]) == "finish_reason"
    assert fault("four", min_chars=5) == "too_short"
    assert fault("four", max_chars=3) == "too_long"
    assert fault("<think>12345</think>ab", min_chars=8) is None


def test_repeated_ngrams_are_a_share() -> None:
    # 8 words, 7 bigrams, of which (a b) ×4 and (b a) ×3: 2 distinct, so 5 of 7 are repeats.
    assert repeated_share("a b a b a b a b", 2) == pytest.approx(5 / 7)
    assert repeated_share("too few", 8) == 0
    assert fault("go on " * 40, max_repeated_share=0.2) == "repetitive"
    assert fault("each word here is another one than the last", max_repeated_share=0.0) is None


def test_letters_of_another_script_are_a_share() -> None:
    assert other_script_share("abcd") == 0
    assert other_script_share("abcж") == pytest.approx(1 / 4)
    assert other_script_share("角度を π と α で 表す") == 0
    assert fault("mostly latin, немного нет", max_other_script_share=0.2) == "mixed_scripts"


def test_forbidden_patterns_are_linear_regexes() -> None:
    assert fault("As an AI model, 4", forbid=["(?i)as an ai"]) == "forbidden_text"
    assert fault("4", forbid=["(?i)as an ai"]) is None
    [problem] = TraceFilters(forbid=[r"(a)\1"]).problems(("f",))
    assert problem.at == ("f", "forbid", 0)


@pytest.mark.parametrize(
    ("kind", "traces", "repeats"),
    [
        ("exact", ["a  b", "a b\n", "a c"], [False, True, False]),
        (
            "answer_path",
            ["First 12 × 6 = 72, then 72 - 15 = 57.", "12*6=72. So 72−15=57", "6*12=72"],
            [False, True, False],
        ),
        (
            "near",
            [
                "the bakery makes seventy two muffins a day and sells all but fifteen of them",
                "the bakery makes seventy two muffins a day and sells all but fifteen of these",
                "a reader picks three of seven books whose order does not matter at all to him",
            ],
            [False, True, False],
        ),
    ],
)
def test_alike_traces_are_told_from_distinct_ones(
    kind: Kind, traces: list[str], repeats: list[bool]
) -> None:
    distinct = Distinct(kind)
    assert [distinct.repeats(trace) for trace in traces] == repeats


def test_the_path_of_a_trace_is_its_calculations() -> None:
    said = "She has 16 - 3 = <<16-3=13>>13 eggs and 13 * 2 = $<<13*2=26>>26"
    assert answer_path(said) == "16-3=13\n13*2=26"
    assert answer_path("no sums here") == "no sums here"
