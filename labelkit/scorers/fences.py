"""Fenced code blocks in a reply, as CommonMark has them, lists and missing ends included."""

from __future__ import annotations

import re
from dataclasses import dataclass

_FENCE = re.compile(r"^([ \t>]*)(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)?(`{3,}|~{3,})[ \t]*([^\n`]*)$")


@dataclass(frozen=True, slots=True)
class CodeBlock:
    """A block without its fences and its indent. `language` is the info string's first word.

    `closed` False: the reply ended inside it.
    """

    code: str
    span: tuple[int, int]
    language: str
    closed: bool


def code_blocks(text: str) -> list[CodeBlock]:
    """Every fenced block in order; an unclosed last one runs to the end of the text."""
    blocks: list[CodeBlock] = []
    opened: tuple[str, int, str, int] | None = None
    at = 0
    for line in text.split("\n"):
        after = at + len(line) + 1
        found = _FENCE.match(line.rstrip("\r"))
        if found and opened is None:
            opened = (found[2], found.start(2), found[3].strip(), after)
        elif found and opened and found[2].startswith(opened[0]) and not found[3].strip():
            blocks.append(_block(text, opened, at, closed=True))
            opened = None
        at = after
    if opened is not None:
        blocks.append(_block(text, opened, len(text) + 1, closed=False))
    return blocks


def last_code_block(text: str) -> CodeBlock | None:
    """The last block that holds anything."""
    return next((block for block in reversed(code_blocks(text)) if block.code.strip()), None)


def _block(text: str, opened: tuple[str, int, str, int], end: int, *, closed: bool) -> CodeBlock:
    _, width, info, start = opened
    end = max(start, end - 1)
    lines = text[start:end].replace("\r\n", "\n").split("\n")
    code = "\n".join(line[:width].lstrip(" \t") + line[width:] for line in lines)
    return CodeBlock(code, (start, end), info.split(" ")[0].lower() if info else "", closed)
