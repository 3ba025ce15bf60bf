"""Long and hostile replies: every scorer is linear in the text, and total."""

from __future__ import annotations

import time
from typing import Any

import pytest
from pydantic import JsonValue

from labelkit.records import Verdict
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


def _quickly(section: JsonValue, text: str, gold: JsonValue) -> Verdict:
    started = time.process_time()
    found = verdict(section, text, gold)
    assert time.process_time() - started < _CPU_S
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
