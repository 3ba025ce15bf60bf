"""Patterns that others wrote, on text that strangers wrote: none can hang a run.

RE2 is linear in the text. A pattern that needs more than RE2 has (lookaround, backreferences) runs
under a time limit, past which nobody knows whether it matches: that is an error of its own, never
an answer. On the event loop the limit is short; who may wait says so with `patience`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import Any

from labelkit.errors import UsageError

_HASTE_S = 0.1
_PATIENCE_S = 2.0
_patient: ContextVar[bool] = ContextVar("searches may take seconds", default=False)
# What RE2 does in a second where its automaton does not fit its memory: characters by instructions.
_STEPS_A_SECOND = 150_000_000


class PatternLateError(Exception):
    """Whether a pattern is found was not known within the time limit."""

    def __init__(self, pattern: str, limit_s: float) -> None:
        shown = pattern if len(pattern) <= 60 else pattern[:59] + "…"
        super().__init__(f"the pattern {shown!r} took over {limit_s:g} s")


@contextmanager
def patience() -> Iterator[None]:
    """Inside, a search may take seconds: nobody waits for this thread, or all have to."""
    token = _patient.set(True)
    try:
        yield
    finally:
        _patient.reset(token)


def _limit_s() -> float:
    return _PATIENCE_S if _patient.get() else _HASTE_S


class LinearPattern:
    """A pattern in RE2's syntax: no backreferences and no lookaround, so no text can hang it.

    Raises ValueError, in words for the user, for a pattern that RE2 does not take. Its searches
    raise PatternLateError where a huge pattern or very many matches take too long after all.
    """

    def __init__(self, pattern: str, *, ignore_case: bool = False) -> None:
        try:
            import re2
        except ImportError:
            raise UsageError("patterns need google-re2", hint="pip install google-re2") from None
        options: Any = re2.Options()
        options.case_sensitive = not ignore_case
        options.log_errors = False
        options.max_mem = 16 << 20
        self._source = pattern
        try:
            self._compiled: Any = re2.compile(pattern, options)
        except re2.error as error:
            said = error.args[0] if error.args else ""
            problem = said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)
            raise ValueError(f"not an RE2 pattern: {problem}") from None
        self._longest_at_once = int(_STEPS_A_SECOND * _HASTE_S) // self._compiled.programsize

    def last(self, text: str) -> tuple[int, int] | None:
        """The span of the last match's first group, or of the match where it has no group."""
        span: tuple[int, int] | None = None
        deadline = time.monotonic() + _limit_s()
        for found in self._compiled.finditer(self._readable(text)):
            span = found.span(1 if self._compiled.groups else 0)
            if time.monotonic() > deadline:
                raise PatternLateError(self._source, _limit_s())
        return span if span is not None and span[0] >= 0 else None

    def whole(self, text: str) -> bool:
        """Whether the pattern covers all of the text."""
        return self._compiled.fullmatch(self._readable(text)) is not None

    def first(self, text: str) -> tuple[int, int] | None:
        """The span of the first match."""
        found = self._compiled.search(self._readable(text))
        return found.span() if found is not None else None

    def _readable(self, text: str) -> str:
        """The text with U+FFFD for each half of a surrogate pair, which UTF-8 cannot hold."""
        if len(text) > self._longest_at_once and not _patient.get():
            raise PatternLateError(self._source, _HASTE_S)
        return text if text.isascii() else _SURROGATE.sub("\ufffd", text)


_SURROGATE = re.compile("[\ud800-\udfff]")


@lru_cache(maxsize=256)
def linear_pattern(pattern: str, *, ignore_case: bool = False) -> LinearPattern:
    """The compiled pattern, kept between calls. Raises as `LinearPattern` does."""
    return LinearPattern(pattern, ignore_case=ignore_case)


class TimedPattern:
    """A pattern in the syntax of Python's `re`, all of it, given up at the time limit.

    Raises re.error for a pattern that is none.
    """

    def __init__(self, pattern: str) -> None:
        import regex

        self.groups = re.compile(pattern).groups
        self.pattern = pattern
        # {e}, {i} and the like are plain text to `re`, and inexact matches to `regex`.
        plain = _BRACE.sub(lambda found: found[0] if found[0] != "{" else r"\{", pattern)
        self._compiled: Any = regex.compile(plain, regex.VERSION0)

    def search(self, text: str) -> re.Match[str] | None:
        """The first match. Raises PatternLateError."""
        limit_s = _limit_s()
        try:
            found: re.Match[str] | None = self._compiled.search(text, timeout=limit_s)
        except TimeoutError:
            raise PatternLateError(self.pattern, limit_s) from None
        return found


_BRACE = re.compile(r"\\N\{|\\.|\{\d*,?\d*\}|\{", re.DOTALL)


@lru_cache(maxsize=256)
def _timed(pattern: str) -> TimedPattern:
    return TimedPattern(pattern)


@lru_cache(maxsize=256)
def _linear_or_none(pattern: str) -> LinearPattern | None:
    try:
        return LinearPattern(pattern)
    except ValueError:
        return None


def occurs(pattern: str, text: str) -> bool:
    """Whether the pattern of a JSON Schema is found in a text: by RE2 where RE2 takes it.

    Raises PatternLateError, re.error for a pattern that is none.
    """
    linear = _linear_or_none(pattern)
    if linear is not None:
        return linear.first(text) is not None
    return _timed(pattern).search(text) is not None
