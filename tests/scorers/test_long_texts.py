"""Long and hostile replies: every scorer is linear in the text, and total."""

from __future__ import annotations

import time
from typing import Any

import pytest
from pydantic import JsonValue

from labelkit.records import Abstention, Score, Verdict
from tests.scorers.scripted import verdict

_CHARACTERS = 400_000
_CPU_S = 5.0
"""Quadratic work on so many characters takes minutes; linear work a second or so."""

_OPTIONS: JsonValue = {"A": "Paris", "B": "London"}


def _long(piece: str) -> str:
    return piece * (_CHARACTERS // len(piece))


def _nested(opening: str, closing: str) -> str:
    depth = _CHARACTERS // len(opening + closing)
    return opening * depth + "1" + closing * depth


def _quickly(section: JsonValue, text: str, gold: JsonValue, *, cpu_s: float = _CPU_S) -> Verdict:
    started = time.process_time()
    found = verdict(section, text, gold)
    assert time.process_time() - started < cpu_s
    return found


MARKS = "a" + "\u0301\u0323" * 50_000
"""Combining marks that a normal form has to put in order, which costs more a character."""


@pytest.mark.parametrize(
    ("section", "text"),
    [
        ({"exact": "whole"}, MARKS),
        ("contains", MARKS),
        ({"contains": {"mention": "anywhere"}}, MARKS),
        ({"numeric": "whole"}, MARKS),
        ({"constraints": {"forbid_letters": ["z"]}}, MARKS),
        ({"constraints": {"starts_with": "a"}}, MARKS),
        ({"exact": "whole"}, "x" * (_CHARACTERS // 2) + " " * (_CHARACTERS // 2)),
        ("numeric", _nested(r"\boxed{", "}")),
        ({"math": "whole"}, "a" + _long(" ") + "b"),
        ({"math": "whole"}, "a" + _long("\n") + "b"),
        ({"math": "whole"}, _long(r"\(")),
        ({"math": "whole"}, _long(r"$\$")),
        ({"choice": "whole"}, _long("(A) ")),
        ({"choice": {"answer": "whole", "options": _OPTIONS}}, _long("it is zero ")),
    ],
)
def test_every_scorer_is_linear_in_the_reply(section: Any, text: str) -> None:
    _quickly(section, text, 1 if "numeric" in section else "A")


def _boxed(formula: str) -> str:
    return rf"\boxed{{{formula}}}"


def _sum(term: str, count: int) -> str:
    return "+".join(term.format(9_000 + number) for number in range(count))


@pytest.mark.parametrize(
    "formula",
    [
        "9" * 1_000_000,
        r"\frac" * 200_000,
        "{" * 100_000 + "1" + "}" * 100_000,
        "{" * 100_000,
        "(" * 900 + "1" + ")" * 900,
        "-" * 1_900 + "1",
        r"\sqrt{" * 200 + "1" + "}" * 200,
        "1e9999",
        "1e9999x",
        "1e9999_7",
        r"\frac1e9999",
        _sum("1e{}", 250),
        _sum("1/(7^{}+1)", 120),
        _sum("1/(1e{}+1)", 120),
        "*".join(["5999!/5998!"] * 150),
        r"(7^{9999})^{1/11}",
        r"\sqrt{(x+" * 12 + "1" + ")^{9}}" * 12,
        r"(y+2^{" * 12 + "x" + "})^{9}" * 12,
    ],
)
@pytest.mark.parametrize("gold", ["4", "52_8", "x^2+1", r"\{1,2\}", "[1,2]"])
def test_a_dear_answer_is_wrong_or_given_up_at_once(formula: str, gold: str) -> None:
    sections: list[Any] = ["math", {"math": {"form": "same"}}]
    if gold[0].isdigit():
        sections.append("numeric")
    for section in sections:
        found = _quickly(section, _boxed(formula), gold, cpu_s=1.0)
        assert isinstance(found, Abstention) or not found.passed


def test_numbers_of_any_length_are_compared_exactly() -> None:
    for section in ("math", "numeric"):
        for said, right in (("1e9999", True), ("10^{9999}", True), ("1e9998", False)):
            found = verdict(section, _boxed(said), "1e9999")
            assert isinstance(found, Score)
            assert found.passed is right
