"""Splitting solutions into steps."""

from __future__ import annotations

import gzip
import json
import string
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labelkit.recipes.steps import Steps, corrupt_arithmetic, split_steps

CASES = Path(__file__).parent.parent / "data" / "verifier_cases.jsonl.gz"


def cases() -> list[Any]:
    with gzip.open(CASES, "rt", encoding="utf-8") as file:
        rows = map(json.loads, file)
        return [row for row in rows if row["kind"] == "step_split" and not row.get("ambiguous")]


@pytest.mark.parametrize("case", cases(), ids=lambda case: case["id"])
def test_labelled_cases(case: Any) -> None:
    assert split_steps(case["response"]).texts == case["expected_extract"]


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("Step 1: a\n\nmore\nStep 2: b", ["Step 1: a\n\nmore", "Step 2: b"]),
        ("**Step 1:** a\n**Step 2:** b", ["**Step 1:** a", "**Step 2:** b"]),
        ("Let us see.\n\nStep 1: a\nStep 2: b", ["Let us see.\n\nStep 1: a", "Step 2: b"]),
        ("Only Step 1: here\n\nand there", ["Only Step 1: here", "and there"]),
        ("```python\nx = 1\n\ny = 2\n```\n\nDone.", ["```python\nx = 1\n\ny = 2\n```", "Done."]),
        ("~~~\na\n\n```\n\nb\n~~~\n\nc", ["~~~\na\n\n```\n\nb\n~~~", "c"]),
        ("$$\na\n\nb\n$$\n\nc", ["$$\na\n\nb\n$$", "c"]),
        (
            "\\begin{align}\na\n\nb\n\\end{align}\n\nc",
            ["\\begin{align}\na\n\nb\n\\end{align}", "c"],
        ),
        ("a \\\\[4pt] b\n\nc", ["a \\\\[4pt] b", "c"]),
        ("\\[ never closed\n\nb", ["\\[ never closed", "b"]),
        ("a\n\n---\n\nb", ["a\n\n---", "b"]),
        ("It is 2.\n\n1. not a list", ["It is 2.", "1. not a list"]),
        ("", []),
        (" \n\n ", []),
    ],
)
def test_marks_then_blank_lines_never_inside_fences_or_math(text: str, steps: list[str]) -> None:
    assert split_steps(text).texts == steps


@pytest.mark.parametrize(
    ("text", "n_steps"),
    [
        ("$$ \\begin{a} \\begin{a}\n\nx\n\\end{a}\n\ny\n$$\n\nz", 2),
        ("\\begin{a}\n\\begin{b}\n\n\\end{a}\n\nz", 2),
        ("\\begin{a}\n\n\\begin{b}\n\n\\end{c}\n\nz", 4),
    ],
)
def test_a_closing_mark_closes_all_that_was_opened_since(text: str, n_steps: int) -> None:
    assert len(split_steps(text)) == n_steps


_NAMES = [f"{a}{b}{c}" for a in string.ascii_letters for b in string.ascii_letters for c in "xyz"]


@pytest.mark.parametrize(
    "text",
    [
        "\\begin{a}\n" * 20_000 + "\\end{b}\n" * 20_000,
        "\\begin{a}\\end{b}\n" * 20_000,
        "".join(f"\\begin{{{name}}}\\]\n" for name in _NAMES * 5),
        "".join(f"\\begin{{{name}}}\n" for name in _NAMES) + "\\end{none}\n" * 30_000,
        "\\begin{a}$$\n" * 20_000,
        "x ки" + " " * 100_000 + "x",
        "</think> " * 60_000,
        "```\n~~~~\n" * 20_000,
        " " * 400_000,
    ],
    ids=range(9),
)
def test_steps_are_found_in_linear_time(text: str) -> None:
    started = time.process_time()
    split_steps(text)
    assert time.process_time() - started < 1


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.sampled_from(["a b", "\n", "\n\n", "```", "$$", "\\[", "\\]", "Step 1: x", "1. y", " "]),
        max_size=30,
    )
)
def test_prefixes_are_exact_and_only_white_space_and_tags_lie_between(parts: list[str]) -> None:
    text = "".join(parts)
    steps = split_steps(text)
    at = 0
    for number, (start, end) in enumerate(steps.spans, 1):
        assert at <= start < end
        assert not text[at:start].strip()
        assert steps.prefix(number) == text[:end]
        at = end
    assert not text[at:].strip()


def test_a_replaced_step_stands_where_the_old_one_stood() -> None:
    steps = split_steps("one\n\ntwo\n\nthree")
    wrong = steps.replaced(2, "2?")
    assert wrong.texts == ["one", "2?"]
    assert wrong.prefix(2) == "one\n\n2?"
    assert Steps.given(["one", "two"]).prefix(2) == "one\n\ntwo"


@pytest.mark.parametrize(
    ("step", "wrong"),
    [
        ("72 − 15 = 57 muffins", "72 − 15 = 67 muffins"),
        ("so 2 × 600 = 1,200, then", "so 2 × 600 = 1,210, then"),
        ("a = 3 and b = $4.50", "a = 3 and b = $14.50"),
        ("nothing is computed", None),
        ("1 + 1 = 2 and = " + "9" * 10_000, "1 + 1 = 12 and = " + "9" * 10_000),
    ],
)
def test_the_last_computed_result_is_made_wrong(step: str, wrong: str | None) -> None:
    assert corrupt_arithmetic(step) == wrong
