"""Which of a task's verified traces say the same thing: exactly, by their path, or nearly.

Distinct reasoning paths are what training on verified traces gains from (RFT, arXiv 2308.01825), so
of traces alike the first is kept. Traces of different tasks are never compared.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Literal

from labelkit.errors import UsageError

Kind = Literal["exact", "answer_path", "near"]

NEAR = 0.8
"""Estimated Jaccard similarity of word triples from which on two traces are near duplicates."""

_PERMUTATIONS = 128
_SHINGLE = 3
_MAX_SIDE = 200
_SIGNS = str.maketrans(
    {"×": "*", "·": "*", "÷": "/", "−": "-", "–": "-", "x": "*", "[": "(", "]": ")"}
)
_NOISE = re.compile(r"[\s,$€£\\{}]|\bleft|\bright")
_EXPRESSION = frozenset("0123456789.+-*/()^% ,$€£×·÷−–x[]\\{}")


class Distinct:
    """Traces of one task, told apart one by one in sample order."""

    def __init__(self, kind: Kind) -> None:
        self._is_known: Callable[[str], bool] = (
            _Near().seen if kind == "near" else _Keys(_KEYS[kind]).seen
        )

    def repeats(self, trace: str) -> bool:
        """Whether an earlier trace is alike; else this one is remembered."""
        return self._is_known(trace)


def missing_library() -> UsageError | None:
    """Why `near` cannot be used here, or None."""
    try:
        import datasketch  # noqa: F401
    except ImportError:
        return UsageError("near duplicates need datasketch", hint="pip install 'labelkit[near]'")
    return None


def answer_path(trace: str) -> str:
    """The calculations of a trace in their order, written alike: RFT's distinct path.

    A trace without calculations stands for itself.
    """
    steps = re.findall(r"<<([^<>]{1,400})>>", trace) or list(_equations(trace))
    path = [_NOISE.sub("", step.translate(_SIGNS)) for step in steps]
    return "\n".join(filter(None, path)) or _folded(trace)


def _equations(trace: str) -> list[str]:
    """Every `expression = number` of a text; looks at no more than a bounded window around a =."""
    found: list[str] = []
    at = trace.find("=")
    while at >= 0:
        left = at
        while left > max(0, at - _MAX_SIDE) and trace[left - 1] in _EXPRESSION:
            left -= 1
        right = at + 1
        while right < min(len(trace), at + _MAX_SIDE) and trace[right] in _EXPRESSION:
            right += 1
        sides = trace[left:at].strip(" .,"), trace[at + 1 : right].strip(" .,")
        if all(any(c.isdigit() for c in side) for side in sides):
            found.append("=".join(sides))
        at = trace.find("=", at + 1)
    return found


def _folded(trace: str) -> str:
    return " ".join(trace.split())


_KEYS: dict[str, Callable[[str], str]] = {"exact": _folded, "answer_path": answer_path}


class _Keys:
    def __init__(self, key: Callable[[str], str]) -> None:
        self._key = key
        self._known: set[str] = set()

    def seen(self, trace: str) -> bool:
        key = self._key(trace)
        if key in self._known:
            return True
        self._known.add(key)
        return False


class _Near:
    """MinHash signatures, each compared with those kept before."""

    def __init__(self) -> None:
        self._known: list[Any] = []

    def seen(self, trace: str) -> bool:
        from datasketch import MinHash

        words = trace.casefold().split()
        last = max(1, len(words) - _SHINGLE + 1)
        shingles = {" ".join(words[i : i + _SHINGLE]).encode() for i in range(last)}
        signature = MinHash(num_perm=_PERMUTATIONS, seed=1)
        signature.update_batch(sorted(shingles))
        if any(signature.jaccard(known) >= NEAR for known in self._known):
            return True
        self._known.append(signature)
        return False
