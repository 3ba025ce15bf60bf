"""What a verified trace must look like besides being right: filters of verify-traces.

A right answer does not make a good trace: it may be endless, loop, or change its language. Each
filter is off unless set, linear in the text, and names itself as the reason of what it drops.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from functools import lru_cache
from typing import Annotated

from pydantic import Field, model_validator

from labelkit.errors import UsageError
from labelkit.patterns import linear_pattern, patience
from labelkit.records import Sampled
from labelkit.spec import Path_, Problem, Section

_THINK_TAG = re.compile(r"<(/?)(?:think|thinking|reasoning)>", re.IGNORECASE)
_SHARED_SCRIPTS = ("GREEK", "MATHEMATICAL", "SUPERSCRIPT", "SUBSCRIPT", "DOUBLE-STRUCK", "SCRIPT")
_EAST_ASIAN = ("CJK", "HIRAGANA", "KATAKANA", "HANGUL", "BOPOMOFO")


class TraceFilters(Section):
    """Lengths are in characters of the whole trace, thinking included. `finish_reason`: what the
    provider must have said, e.g. stop. `one_think_block`: exactly one, closed. Shares are in
    [0, 1]: `max_repeated_share` of the word n-grams that occurred before, `max_other_script_share`
    of the letters outside the trace's main script. `forbid`: RE2 patterns."""

    finish_reason: str | list[str] | None = None
    one_think_block: bool = False
    min_chars: Annotated[int, Field(ge=1)] | None = None
    max_chars: Annotated[int, Field(ge=1)] | None = None
    max_repeated_share: Annotated[float, Field(ge=0, le=1)] | None = None
    ngram: Annotated[int, Field(ge=1, le=100)] = 8
    max_other_script_share: Annotated[float, Field(ge=0, le=1)] | None = None
    forbid: list[str] = []

    @model_validator(mode="after")
    def _ordered(self) -> TraceFilters:
        if self.min_chars and self.max_chars and self.min_chars > self.max_chars:
            raise ValueError(f"min_chars {self.min_chars} is above max_chars {self.max_chars}")
        return self

    def problems(self, at: Path_) -> list[Problem]:
        """What is wrong with the patterns; they need a library that nothing else here does."""
        found: list[Problem] = []
        for number, pattern in enumerate(self.forbid):
            try:
                _search(pattern, "")
            except ValueError as error:
                found.append(Problem((*at, "forbid", number), str(error)))
            except UsageError as error:
                found.append(Problem((*at, "forbid"), str(error), error.hint))
                break
        return found

    def fault(self, sampled: Sampled) -> tuple[str, str] | None:
        """Why a trace is refused, as a reason and its measure, or None."""
        reply, completion = sampled.reply, sampled.completion
        assert reply is not None
        assert completion is not None
        wanted = self.finish_reason
        if wanted and reply.finish_reason not in ([wanted] if isinstance(wanted, str) else wanted):
            return "finish_reason", str(reply.finish_reason)
        if self.one_think_block and not _one_block(completion.text, completion.reasoning):
            return "think_block", "not exactly one closed think block"
        whole = "\n".join(part for part in (reply.reasoning, reply.text) if part)
        if self.min_chars and len(whole) < self.min_chars:
            return "too_short", f"{len(whole)} characters"
        if self.max_chars and len(whole) > self.max_chars:
            return "too_long", f"{len(whole)} characters"
        if self.max_repeated_share is not None:
            share = repeated_share(whole, self.ngram)
            if share > self.max_repeated_share:
                return "repetitive", f"{share:.3f} of its {self.ngram}-grams are repeated"
        if self.max_other_script_share is not None:
            share = other_script_share(whole)
            if share > self.max_other_script_share:
                return "mixed_scripts", f"{share:.3f} of its letters are of another script"
        for pattern in self.forbid:
            if _search(pattern, whole):
                return "forbidden_text", pattern
        return None


def repeated_share(text: str, n: int) -> float:
    """The share of a text's word n-grams that stood in it before; 0 for fewer words than n."""
    words = text.split()
    grams = [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]
    return 1 - len(set(grams)) / len(grams) if grams else 0.0


def other_script_share(text: str) -> float:
    """The share of letters outside the commonest script. Greek and mathematical letters belong to
    every text, Han, kana and Hangul to one another."""
    scripts = Counter(_script(character) for character in text)
    del scripts[""]
    total = scripts.total()
    return 1 - max(scripts.values()) / total if total else 0.0


@lru_cache(maxsize=1 << 14)
def _script(character: str) -> str:
    """The first word of a letter's name; empty for what is of no one script."""
    if not character.isalpha():
        return ""
    script = unicodedata.name(character, "").partition(" ")[0]
    if script in _SHARED_SCRIPTS:
        return ""
    return "EAST ASIAN" if script in _EAST_ASIAN else script


def _one_block(text: str, reasoning: str | None) -> bool:
    """One opening tag closed by the next; without tags, thinking in the provider's own field.

    A lone closing tag counts: some servers put the opening one into the prompt.
    """
    tags = ["close" if tag[1] else "open" for tag in _THINK_TAG.finditer(text)]
    if not tags:
        return bool(reasoning and reasoning.strip())
    return tags in (["open", "close"], ["close"])


def _search(pattern: str, text: str) -> bool:
    """Raises ValueError for a pattern that RE2 does not take, UsageError without RE2."""
    with patience():
        return linear_pattern(pattern).first(text) is not None
