"""A solution's text as steps: by declared marks, else by blank lines, without losing a character.

A step is a span of the text, so that what stands before any step is an exact prefix of what the
model wrote. Nothing is cut inside code fences or display math. Linear in the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_FENCE = re.compile(r"[ \t]*(`{3,}|~{3,})")
_DISPLAY = re.compile(r"(?<!\\)(?:\\\[|\\\]|\$\$|\\(begin|end)\{([A-Za-z*]{1,20})\})")
_STEP_MARK = re.compile(r"[ \t]*(?:#{1,6}[ \t]*)?[*_]{0,3}Step[ \t]+(\d{1,4})\b", re.IGNORECASE)
_NUMBERED = re.compile(r"[ \t]*(\d{1,4})[.)][ \t]+\S")
_THINK_TAG = re.compile(r"[ \t]*</?(?:think|thinking|reasoning|answer)>[ \t]*", re.IGNORECASE)
_RESULT = re.compile(r"=\s*[-−$€£]{0,2}(\d[\d,]{0,99})(?![\d,])")
STEP_TOKEN = "ки"
"""Ends a step in Math-Shepherd's data (arXiv 2312.08935); no part of the step itself."""


@dataclass(frozen=True)
class Steps:
    """A text and the half-open spans of its steps, in order and apart from one another."""

    text: str
    spans: tuple[tuple[int, int], ...]

    @classmethod
    def given(cls, steps: Sequence[str], separator: str = "\n\n") -> Steps:
        """Steps that came as a list."""
        spans: list[tuple[int, int]] = []
        at = 0
        for step in steps:
            spans.append((at, at + len(step)))
            at += len(step) + len(separator)
        return cls(separator.join(steps), tuple(spans))

    def __len__(self) -> int:
        return len(self.spans)

    @property
    def texts(self) -> list[str]:
        return [self.text[start:end] for start, end in self.spans]

    def prefix(self, number: int) -> str:
        """The text up to the end of the first `number` steps, exactly as it was written."""
        return self.text[: self.spans[number - 1][1]] if number else ""

    def replaced(self, number: int, step: str) -> Steps:
        """The first `number` steps with the last of them replaced."""
        start, _ = self.spans[number - 1]
        return Steps(
            self.text[:start] + step, (*self.spans[: number - 1], (start, start + len(step)))
        )


def split_steps(text: str) -> Steps:
    """The steps of a free text. Its first lines before a mark belong to the first step.

    Marks, where there are at least two: `Step N:` at the start of lines (headings and bold too),
    lines numbered from 1 on in order, Math-Shepherd's token. Else blank lines divide.
    """
    open_lines = _outside(list(_lines(text)))
    if f" {STEP_TOKEN}" in text:
        return _by_token(text)
    starts = [
        start
        for start, line, outside in open_lines
        if outside and _STEP_MARK.match(line) is not None
    ]
    if len(starts) < 2:
        starts = _numbered(open_lines)
    if len(starts) >= 2:
        pieces = list(zip([0, *starts[1:]], [*starts[1:], len(text)], strict=True))
    else:
        pieces = list(_paragraphs(open_lines, len(text)))
    return Steps(text, tuple(_merged(text, [_trimmed(text, *piece) for piece in pieces])))


def corrupt_arithmetic(step: str) -> str | None:
    """The step with its last computed result 10 too large; None where it computes nothing.

    Plausible and wrong, whatever the number: a faithful completer carries it on to another answer.
    """
    results = list(_RESULT.finditer(step))
    if not results:
        return None
    start, end = results[-1].span(1)
    digits = step[start:end].rstrip(",")
    wrong = f"{int(digits.replace(',', '')) + 10:,}"
    wrong = wrong if "," in digits else wrong.replace(",", "")
    return step[:start] + wrong + step[start + len(digits) :]


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Every line with its offset; ends are \\n, \\r\\n or \\r, and stay with their line."""
    at = 0
    for line in re.split(r"(?<=\n)|(?<=\r)(?!\n)", text):
        if line:
            yield at, line
            at += len(line)


def _outside(lines: Sequence[tuple[int, str]]) -> list[tuple[int, str, bool]]:
    """Every line with whether a step may begin at it: not inside a fence or display math.

    Math that is never closed is none; a fence that is never closed runs to the end.
    """
    fence: str | None = None
    math: dict[str, None] = {}
    found_lines: list[tuple[int, str, bool]] = []
    opened = 0
    for start, line in lines:
        outside = fence is None and not math
        if not math:
            opened = len(found_lines)
        mark = _FENCE.match(line)
        if fence is not None:
            if mark and mark[1].startswith(fence) and not line[mark.end() :].strip():
                fence = None
        elif mark and not math:
            fence = mark[1]
        else:
            for found in _DISPLAY.finditer(line):
                _toggle(math, found)
        found_lines.append((start, line, outside))
    if math:
        found_lines[opened:] = [(start, line, True) for start, line, _ in found_lines[opened:]]
    return found_lines


def _toggle(math: dict[str, None], found: re.Match[str]) -> None:
    """Open or close display math, given as the marks that are open, from the first one on.

    A closing mark closes all that was opened since its opening one, and without one nothing; so a
    mark that is opened again changes nothing.
    """
    mark = found[0]
    closes = {"\\]": "\\[", "$$": "$$"}.get(mark) or (found[2] if found[1] == "end" else None)
    if closes is not None and closes in math:
        while math.popitem()[0] != closes:
            pass
    elif mark in ("\\[", "$$"):
        math.setdefault(mark)
    elif found[1] == "begin":
        math.setdefault(found[2])


def _numbered(lines: Sequence[tuple[int, str, bool]]) -> list[int]:
    """Where lines numbered 1, 2, 3, … begin; none where the text starts with something else."""
    starts: list[int] = []
    for start, line, outside in lines:
        found = _NUMBERED.match(line) if outside else None
        if found is not None and int(found[1]) == len(starts) + 1:
            starts.append(start)
        elif not starts and line.strip():
            return []
    return starts


def _paragraphs(lines: Sequence[tuple[int, str, bool]], length: int) -> Iterator[tuple[int, int]]:
    start: int | None = None
    for at, line, outside in lines:
        if outside and (not line.strip() or _THINK_TAG.fullmatch(line.strip())):
            if start is not None:
                yield start, at
            start = None
        elif start is None:
            start = at
    if start is not None:
        yield start, length


def _by_token(text: str) -> Steps:
    pieces: list[tuple[int, int]] = []
    start = 0
    for found in re.finditer(rf"(?<![ \t])[ \t]+{STEP_TOKEN}(?=\s|$)", text):
        pieces.append((start, found.start()))
        start = found.end()
    pieces.append((start, len(text)))
    spans = [_trimmed(text, *piece) for piece in pieces]
    return Steps(text, tuple((start, end) for start, end in spans if start < end))


def _trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    """The span without white space and lone think tags at its ends."""
    opening = re.compile(r"\s*(?:</?think>\s*)*", re.IGNORECASE).match(text, start, end)
    start = opening.end() if opening else start
    while end > start:
        if text[end - 1].isspace():
            end -= 1
        elif text[max(start, end - 8) : end].lower().endswith(("<think>", "</think>")):
            end = text.rindex("<", start, end)
        else:
            break
    return start, end


def _merged(text: str, spans: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Steps without empty ones; a fragment without a letter or digit joins the step before it."""
    held: tuple[int, int] | None = None
    for start, end in spans:
        if start >= end:
            continue
        if held is not None and not any(c.isalnum() for c in text[start:end]):
            held = held[0], end
            continue
        if held is not None:
            yield held
        held = start, end
    if held is not None:
        yield held
