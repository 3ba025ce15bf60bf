"""Patterns from a spec, run by an engine that is linear in the text (RE2)."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from labelkit.errors import UsageError


class LinearPattern:
    """A pattern in RE2's syntax: no backreferences and no lookaround, so no text can hang it.

    Raises ValueError, in words for the user, for a pattern that RE2 does not take.
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
        try:
            self._compiled: Any = re2.compile(pattern, options)
        except re2.error as error:
            said = error.args[0] if error.args else ""
            problem = said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)
            raise ValueError(f"not an RE2 pattern: {problem}") from None

    def last(self, text: str) -> tuple[int, int] | None:
        """The span of the last match's first group, or of the match where it has no group."""
        span: tuple[int, int] | None = None
        for found in self._compiled.finditer(text):
            span = found.span(1 if self._compiled.groups else 0)
        return span if span is not None and span[0] >= 0 else None

    def whole(self, text: str) -> bool:
        """Whether the pattern covers all of the text."""
        return self._compiled.fullmatch(text) is not None

    def first(self, text: str) -> tuple[int, int] | None:
        """The span of the first match."""
        found = self._compiled.search(text)
        return found.span() if found is not None else None


@lru_cache(maxsize=256)
def linear_pattern(pattern: str, *, ignore_case: bool = False) -> LinearPattern:
    """The compiled pattern, kept between calls. Raises as `LinearPattern` does."""
    return LinearPattern(pattern, ignore_case=ignore_case)
