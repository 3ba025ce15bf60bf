"""LaTeX boxes in a reply, found in one pass over its braces."""

from __future__ import annotations

import re
from dataclasses import dataclass

_BOX = re.compile(r"\\(?:boxed|fbox)(?![A-Za-z])")
_MARK = re.compile(r"\\(?:boxed|fbox)(?![A-Za-z])\s*\{?|\\[\\{}]|[{}]")
_ONLY_BOX = re.compile(r"\s*\\(?:boxed|fbox)(?![A-Za-z])\s*(\{)?")
_BARE = re.compile(r"\s*([-+]?[\w.]+|\\[A-Za-z]+|[^\s{}])")


@dataclass(frozen=True, slots=True)
class Box:
    """One outermost box: `open` and `close` around it all, `start` and `end` around its content.

    `end` None: its brace never closes.
    """

    open: int
    start: int
    end: int | None
    close: int


def boxes(text: str) -> list[Box]:
    """The outermost boxes in order, `\\boxed 2` without braces included."""
    first = _BOX.search(text)
    if first is None:
        return []
    found: list[Box] = []
    depth = 0
    opened: tuple[int, int] | None = None
    skip_to = 0
    for mark in _MARK.finditer(text, first.start()):
        sign = mark[0]
        if mark.start() < skip_to or (sign[0] == "\\" and len(sign) == 2):
            continue
        if sign[0] == "\\":
            if opened is not None:
                depth += sign[-1] == "{"
            elif sign[-1] == "{":
                opened, depth = (mark.start(), mark.end()), 1
            else:
                bare = _BARE.match(text, mark.end())
                start, end = bare.span(1) if bare else (mark.end(), mark.end())
                found.append(Box(mark.start(), start, end, end))
                skip_to = end
        elif opened is not None:
            depth += 1 if sign == "{" else -1
            if depth == 0:
                found.append(Box(*opened, mark.start(), mark.end()))
                opened = None
    if opened is not None:
        found.append(Box(*opened, None, len(text)))
    return found


def unboxed(text: str, start: int, end: int) -> tuple[int, int]:
    """What is left of a range without the boxes that stand around all of it."""
    closing: dict[int, int] | None = None
    while found := _ONLY_BOX.match(text, start, end):
        if found[1]:
            closing = _closing_braces(text, start, end) if closing is None else closing
            inner, close = found.end(), closing.get(found.end())
            after = end if close is None else close + 1
        else:
            bare = _BARE.match(text, found.end(), end)
            inner, close = bare.span(1) if bare else (found.end(), found.end())
            after = close
        if close is None or text[after:end].strip():
            break
        start, end = inner, close
    return start, end


def _closing_braces(text: str, start: int, end: int) -> dict[int, int]:
    """Where the brace closes whose content starts at a place, for all braces of a range."""
    closing: dict[int, int] = {}
    opened: list[int] = []
    for mark in _MARK.finditer(text, start, end):
        if mark[0] in ("\\\\", "\\{", "\\}"):
            continue
        if mark[0][-1] == "{":
            opened.append(mark.end())
        elif mark[0] == "}" and opened:
            closing[opened.pop()] = mark.start()
    return closing
