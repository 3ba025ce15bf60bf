"""Extraction: declared places, their order, what overtakes what, spans, and linear time."""

from __future__ import annotations

import sys
import unicodedata
from types import FrameType
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from labelkit.records import Reply
from labelkit.scorers.extract import AnswerPlace, Extraction, extract
from labelkit.scorers.fences import code_blocks
from labelkit.scorers.folding import fold, normalized, plain_words, view

PLACE: TypeAdapter[AnswerPlace] = TypeAdapter(AnswerPlace)


def found(text: str, place: Any = "auto", **reply: Any) -> Extraction:
    return extract(Reply(text=text, **reply), PLACE.validate_python(place))


def answer(text: str, place: Any = "auto", **reply: Any) -> str | None:
    candidate = found(text, place, **reply).candidate
    return candidate.text if candidate is not None else None


@pytest.mark.parametrize(
    ("text", "rule", "expected"),
    [
        ("<answer>1</answer> \\boxed{2}", "tag:answer", "1"),
        ("<answer>so \\boxed{1}</answer> \\boxed{2}", "tag:answer boxed:last", "1"),
        ("<answer>The answer is 1.</answer>", "tag:answer sentence", "1"),
        ("#### 1\n\\boxed{2}", "boxed:last", "2"),
        ("The answer is 1.\n#### 2", "hash", "2"),
        ("I count 3. The answer is 1. I checked 5 times.", "sentence", "1"),
        ("42", "whole", "42"),
        ("**42.**", "whole", "42"),
    ],
)
def test_auto_takes_the_most_formal_place(text: str, rule: str, expected: str) -> None:
    candidate = found(text).candidate
    assert candidate is not None
    assert (candidate.rule, candidate.text) == (rule, expected)
    assert candidate.span is not None
    assert text[slice(*candidate.span)] == expected


def test_schema_field_comes_first() -> None:
    reply = {"answer": {"value": [7, 8]}, "final_answer": "x"}
    assert answer("\\boxed{2}", parsed=reply) == "x"
    assert answer("", {"field": "answer.value.1"}, parsed=reply) == "8"
    assert answer("", {"field": "answer.value"}, parsed=reply) == "[7,8]"
    assert answer("", {"field": "nothing"}, parsed=reply) is None
    assert answer("", {"field": "a"}, parsed={"a": ""}) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"\boxed{\frac{\sqrt{2}}{2}}", r"\frac{\sqrt{2}}{2}"),
        (r"\boxed{\{1\}}", r"\{1\}"),
        (r"\boxed {1}", "1"),
        (r"\boxed 2$.", "2"),
        (r"\fbox{3}", "3"),
        (r"\boxed{\boxed{4}}", "4"),
        (r"\boxed{ \boxed{\boxed 4} }", "4"),
        (r"\boxed{\boxed{4}+1}", r"\boxed{4}+1"),
        (r"\boxed{\boxed{\frac{1}{\}}} }", r"\frac{1}{\}}"),
        (r"\boxed{\boxed{\boxed{4}}{5}}", r"\boxed{\boxed{4}}{5}"),
        (r"\boxed{2} is wrong, so \boxed{3}", "3"),
        (r"-\boxed{3}", r"-\boxed{3}"),
        ("- \\boxed{3}", "3"),
        (r"\boxedness{3}", None),
        ("No box here, just 42.", None),
        (r"\boxed{42", None),
        (r"\boxed{42} \boxed{", None),
        (r"\boxed{42} \boxed{}", None),
        (r"\boxed{{7}", None),
        (r"\boxed{42} is wrong.", None),
        (r"\boxed{42}. Oops, that is incorrect.", None),
    ],
)
def test_last_box_or_nothing(text: str, expected: str | None) -> None:
    assert answer(text, "boxed") == answer(text, {"boxed": "last"}) == expected


@pytest.mark.parametrize(
    ("text", "rivals"),
    [
        (r"\boxed{1} \boxed{2}", ["1"]),
        (r"\boxed{1} and \boxed{2} and \boxed{3}", ["1", "2"]),
        (r"\boxed{1}. That misses a case: \boxed{2}", []),
        (r"\boxed{1}. Hmm, no, actually \boxed{2}", []),
        (r"\boxed{1} gives the rest. The final answer is \boxed{2}", []),
        (r"The final answer is \boxed{1}. The final answer is \boxed{2}", ["1"]),
        (r"\boxed{2}. The answer is 3.", ["3"]),
        ("#### 1\n#### 2", ["1"]),
        ("#### 1\n\nNow the real one.\n#### 2", []),
        ("<answer>1</answer><answer>2</answer>", ["1"]),
        ("<answer>1</answer> no, better <answer>2</answer>", []),
    ],
)
def test_answers_that_still_stand_are_rivals(text: str, rivals: list[str]) -> None:
    assert [rival.text for rival in found(text).rivals] == rivals


@pytest.mark.parametrize(
    "text", [r"either \boxed{1} or \boxed{2}", r"\boxed{1} or so", "Maybe it is $\\boxed{1}$"]
)
def test_words_that_leave_the_answer_open_are_noted(text: str) -> None:
    assert found(text).hedged


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The answer is 42.", "42"),
        ("The answer is 4.5. So there.", "4.5"),
        ("the final answer: 42", "42"),
        ("**Answer:** 42", "42"),
        ("### Answer\n\n42", "42"),
        ("Final Answer\n42", "42"),
        ("**Final Answer:**\n\n$$\n\\text{ANSWER: } \\$355\n$$", "\\$355"),
        ("The answer is:\n\\[\nx = 3\n\\]\nDone.", "\\[\nx = 3\n\\]"),
        ("Answer: 8\nOn a second look it grows.\nAnswer: 13", "13"),
        ("Antwort:\n\nAntwort: C", "C"),
        ("答案：４２。因为", "４２"),
        ("The answer is not 3 but 4.", "4"),
        ("The answer is not A; it is B.", "B"),
        ("The answer is not A.", None),
        ("The answer is 42?", None),
        ("If the answer is 42, stop.", None),
        ("The answer is 42. Wait, that is wrong.", None),
        ("The answer is 42. Answer:", None),
        ("The answers differ.", None),
        ("unanswered: 4", None),
        ("Answer: " * 20, None),
    ],
)
def test_sentence_that_states_the_answer(text: str, expected: str | None) -> None:
    assert answer(text, "sentence") == expected


@pytest.mark.parametrize(
    ("text", "place", "expected"),
    [
        ("6*7\n#### 42", "hash", "42"),
        ("#### $1,234.50", "hash", "$1,234.50"),
        ("#### -5", "hash", "-5"),
        ("#### Total\n#### 9\n#### Notes", "hash", "9"),
        ("See #### 9", "hash", None),
        ("A: 1\nA: 2 km\nmore", {"after": "A:"}, "2 km"),
        ("A:\n\n2", {"after": "A:"}, "2"),
        ("A:", {"after": "A:"}, None),
        ("B: 1", {"after": "A:"}, None),
        ("<a>1</a> no, <a>2</a>", {"tag": "a"}, "2"),
        ("<a>1</a><a>2", {"tag": "a"}, None),
        ("<A>1</A >", {"tag": "a"}, "1"),
        ("1</a>", {"tag": "a"}, None),
        ("x=1, x=22", {"regex": r"x=(\d+)"}, "22"),
        ("x=1", {"regex": "y"}, None),
        ("é x=1", {"regex": r"x=(\d+)"}, "1"),
        ("```python\na\n```\n~~~\nb\n~~~", "code", "b"),
        ("1. First:\n   ```python\n   print(4)\n   ```", "code", "print(4)"),
        ("```\na", "code", "a"),
        ("no code", "code", None),
        ("all of it", "whole", "all of it"),
        ("", "whole", None),
    ],
)
def test_declared_places(text: str, place: Any, expected: str | None) -> None:
    assert answer(text, place) == expected
    extraction = found(text, place)
    assert (extraction.candidate is None) == (extraction.why is not None)


def test_last_number_is_no_place() -> None:
    assert answer("I had 3 apples and then 5.\n" * 40) is None


def test_cut_reply_has_no_answer_anywhere() -> None:
    for place in ("auto", "boxed", "whole", {"field": "a"}, {"after": "x"}):
        assert found("\\boxed{1}", place, cut=True, parsed={"a": 1}).candidate is None


def test_code_blocks_keep_language_and_closing() -> None:
    blocks = code_blocks("````py x\n```\n````\n- ```\n  a\n  ```\n~~~\nb")
    assert [(one.code, one.language, one.closed) for one in blocks] == [
        ("```", "py", True),
        ("a", "", True),
        ("b", "", False),
    ]


PIECES = [
    "\\boxed{", "\\boxed{1}", "\\boxed 2 ", "}", "{", "####", "#### 4\n", "Answer:",
    "the answer is ",
    "<answer>", "</answer>", "not ", "wait, ", " or ", "?", ".", "\n", "```", "$$", "\\[", "\\",
    "½", "⁵", "\u200b", "\ud800", "42", "答案：", "final ", " but ", "\x1b[31m", "İ",
]  # fmt: skip
PLACES = ["auto", "boxed", "hash", "sentence", "code", "whole", {"after": "A"}, {"tag": "answer"}]


@given(st.lists(st.sampled_from(PIECES) | st.characters(), max_size=40), st.sampled_from(PLACES))
def test_extraction_never_raises_and_spans_are_true(pieces: list[str], place: Any) -> None:
    text = "".join(pieces)
    extraction = found(text, place)
    for candidate in (extraction.candidate, *extraction.rivals):
        if candidate is not None and candidate.span is not None and place != "code":
            assert text[slice(*candidate.span)] == candidate.text


def steps(text: str, place: Any) -> int:
    """Lines of Python that one extraction runs through, which no clock can blur."""
    count = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    reply, policy = Reply(text=text), PLACE.validate_python(place)
    sys.settrace(trace)
    try:
        extract(reply, policy)
    finally:
        sys.settrace(None)
    return count


@pytest.mark.parametrize("piece", [*PIECES, "answer to ", "a", " ", "\\boxed{1} ", "e\u0301"])
def test_extraction_is_linear_in_the_reply(piece: str) -> None:
    small, large = piece * 300, piece * 3_000
    for place in PLACES:
        assert steps(large, place) <= 12 * steps(small, place) + 1_000


@given(st.text())
def test_folding_is_idempotent(text: str) -> None:
    assert fold(fold(text)) == fold(text)


@given(st.lists(st.sampled_from(["\x1b", "[", "0m", "½", "1", "²", "₃", "é", "e\u0301", "\u200d"])))
def test_folding_of_marks_and_escapes_is_idempotent(pieces: list[str]) -> None:
    text = "".join(pieces)
    assert fold(fold(text)) == fold(text)


_LONG_RUNS = st.lists(
    st.sampled_from("aé\u1ea5가½ ") | st.text("\u0301\u0323\u0327\u0344\u05b0≠", min_size=32)
).map("".join)


@given(st.text() | _LONG_RUNS, st.sampled_from(["NFC", "NFD", "NFKD"]))
def test_normal_forms_are_unicodes_own(text: str, form: Literal["NFC", "NFD", "NFKD"]) -> None:
    assert normalized(form, text) == unicodedata.normalize(form, text)


@given(st.text())
def test_view_keeps_every_position(text: str) -> None:
    assert len(view(text)) == len(text)


@pytest.mark.parametrize(
    ("text", "folded"),
    [
        ("10⁵", "10^{5}"),
        ("x₁₂", "x_{12}"),
        ("1½", "1 1/2"),
        ("½", "1/2"),
        ("４２", "42"),
        ("٤٢", "42"),
        ("−7 – 3", "-7 - 3"),
        ("\u200f42\u200b", "42"),
        ("1\u202f000", "1 000"),
        ("“a” ‘b’", "\"a\" 'b'"),
        ("\x1b[1m42\x1b[0m", "42"),
        ("𝟒𝟐 𝑥", "42 x"),
        ("x² — y", "x^{2} — y"),
        ("a\r\nb", "a\nb"),
    ],
)
def test_folding_keeps_the_meaning(text: str, folded: str) -> None:
    assert fold(text) == folded


def test_plain_words_drop_what_people_overlook() -> None:
    assert plain_words(" The  U.S.A.! ") == plain_words("“USA”") == "usa"
    assert plain_words("H₂O", ignore_case=False) == "H2O"
    assert plain_words("10⁵") != plain_words("105")
