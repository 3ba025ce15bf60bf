"""Where the answer stands in a reply: declared places, one order, the span and the rule.

A place is a policy of the spec (`answer:`). Everything here is a linear scan of stored text; it
never evaluates, never raises on any text, and never falls back to an answer that the reply
itself overtook: a last box that is empty or unterminated leaves no answer. 'The last number' is
no place at all. What counts as the same answer is the scorer's business, so other answers that
the reply offers and does not take back travel along as rivals.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, model_validator

from labelkit.codec import dumps
from labelkit.patterns import linear_pattern
from labelkit.records import Reply
from labelkit.scorers import phrases
from labelkit.scorers.boxes import Box, boxes, unboxed
from labelkit.scorers.fences import last_code_block
from labelkit.scorers.folding import view

MAX_WHOLE = 400
"""A longer reply is not 'essentially just the answer', in characters."""


class Place(BaseModel):
    """A declared place; exactly one field is set."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    field: Annotated[str, Field(min_length=1)] | None = None
    after: Annotated[str, Field(min_length=1)] | None = None
    boxed: Literal["last"] | None = None
    regex: Annotated[str, Field(min_length=1)] | None = None
    tag: Annotated[str, Field(pattern=r"^[A-Za-z][\w-]*$")] | None = None

    @model_validator(mode="after")
    def _one(self) -> Place:
        if len(self.model_fields_set) != 1:
            raise ValueError("name exactly one of field, after, boxed, regex, tag")
        if self.regex is not None:
            linear_pattern(self.regex)
        return self


AnswerPlace = Literal["auto", "whole", "boxed", "hash", "sentence", "code"] | Place
"""`answer:` of a scorer. `auto`: an `answer` field of the schema, an <answer> tag, the last
\\boxed, `####` before a number, 'the answer is X', the whole reply if it is just that. `hash`:
GSM8K's `####`. `sentence`: only 'the answer is X'. `code`: the last fenced block."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A piece of a reply offered as the answer, as it stands there.

    `span`: half-open character range in the reply's text, None for a schema field.
    `exact`: the piece is the answer and nothing else; otherwise prose may trail it.
    """

    text: str
    span: tuple[int, int] | None
    rule: str
    exact: bool = True


@dataclass(frozen=True, slots=True)
class Extraction:
    """What was found: a candidate with its rivals, or why there is no answer.

    `hedged`: the words around the candidate offer another one or leave it open, which only an
    answer with several parts may do.
    """

    candidate: Candidate | None
    rivals: tuple[Candidate, ...] = ()
    hedged: bool = False
    why: str | None = None


def extract(reply: Reply, place: AnswerPlace = "auto") -> Extraction:
    """The reply's answer under a policy. Never raises on any reply."""
    if reply.cut:
        return _none("the reply was cut")
    if isinstance(place, Place):
        if place.field is not None:
            return _field(reply, place.field)
        if place.after is not None:
            return _after(reply.text, place.after)
        if place.tag is not None:
            return _tag(reply.text, place.tag) or _none(f"no <{place.tag}> in the reply")
        if place.regex is not None:
            return _regex(reply.text, place.regex)
        place = "boxed"
    return _NAMED[place](reply)


def _auto(reply: Reply) -> Extraction:
    if isinstance(reply.parsed, dict):
        for name in ("final_answer", "answer"):
            if name in reply.parsed:
                return _field(reply, name)
    text = reply.text
    if not text.strip():
        return _none("the reply is empty")
    found = _tag(text, "answer") if "</answer" in text else None
    if found is not None and found.candidate is not None:
        return _inside(text, found)
    return (
        found
        or _boxed(text)
        or _hash(text)
        or _sentence(text)
        or (_whole(text) if len(text) <= MAX_WHOLE else _none("no answer is marked in the reply"))
    )


def _inside(text: str, tag: Extraction) -> Extraction:
    """The answer in an answer tag: its box or its sentence, else all of it."""
    assert tag.candidate is not None
    assert tag.candidate.span is not None
    start, end = tag.candidate.span
    inner = _boxed(text[start:end]) or _sentence(text[start:end])
    if inner is None:
        return tag
    return Extraction(
        _shifted(inner.candidate, start) if inner.candidate else None,
        tuple(_shifted(rival, start) for rival in inner.rivals) + tag.rivals,
        inner.hedged,
        inner.why,
    )


def _shifted(candidate: Candidate, by: int) -> Candidate:
    assert candidate.span is not None
    span = (candidate.span[0] + by, candidate.span[1] + by)
    return Candidate(candidate.text, span, f"tag:answer {candidate.rule}", candidate.exact)


def _field(reply: Reply, name: str) -> Extraction:
    value: JsonValue = reply.parsed
    for part in name.split("."):
        if isinstance(value, dict) and part in value:
            value = value[part]
        elif isinstance(value, list) and part.isdecimal() and int(part) < len(value):
            value = value[int(part)]
        else:
            return _none(f"no field `{name}` in the reply's object")
    if value is None or value == "":
        return _none(f"the field `{name}` is empty")
    text = value if isinstance(value, str) else dumps(value).decode()
    return Extraction(Candidate(text, None, f"field:{name}"))


def _boxed(text: str) -> Extraction | None:
    found = boxes(text)
    if not found:
        return None
    last = found[-1]
    if last.end is None:
        return _none("the last \\boxed never closes")
    if not text[last.start : last.end].strip():
        return _none("the last \\boxed is empty")
    shown = view(text)
    later = _sentence(text, last.close)
    if phrases.is_taken_back(shown, last.close):
        return later or _none("the last \\boxed is taken back after it")
    rivals = _unretracted(text, shown, found)
    if later is not None and later.candidate is not None:
        rivals.append(later.candidate)
    start, end = unboxed(text, last.start, last.end)
    if _SIGNED.search(shown, max(0, last.open - 3), last.open):
        start, end = last.open - 1, last.close
    return Extraction(
        _cut(text, start, end, "boxed:last"),
        tuple(rivals),
        hedged=phrases.offers_another(shown, last.open, last.close),
    )


_MAX_RIVALS = 100
_SIGNED = re.compile(r"(?:^|[\s$=(])-$")


def _unretracted(text: str, shown: str, found: list[Box]) -> list[Candidate]:
    """The boxes before the last one that still stand: none of them taken back or outranked."""
    rivals: list[Candidate] = []
    for place in range(len(found) - 2, max(-1, len(found) - 2 - _MAX_RIVALS), -1):
        box, after = found[place], found[place + 1]
        between = shown[box.close : after.open]
        before = shown[found[place - 1].close if place else 0 : box.open]
        outranked = phrases.declares_final(between) and not phrases.declares_final(before)
        if phrases.is_retraction(between) or outranked:
            break
        if box.end is not None and text[box.start : box.end].strip():
            rivals.append(_cut(text, box.start, box.end, "boxed"))
    rivals.reverse()
    return rivals


_HASH = re.compile(r"^[ \t>*]*####[ \t]*(?=[^\w\n]{0,12}\d)([^\n]*)", re.MULTILINE)


def _hash(text: str) -> Extraction | None:
    if "####" not in text and "＃" not in text:
        return None
    return _last(
        text, [(found.start(1), found.end(1)) for found in _HASH.finditer(view(text))], "hash"
    )


def _after(text: str, marker: str) -> Extraction:
    start = text.rfind(marker)
    if start < 0:
        return _none(f"no `{marker}` in the reply")
    start += len(marker)
    begin, end = phrases.statement(view(text), start)
    if begin >= end:
        return _none(f"nothing after the last `{marker}`")
    return Extraction(_cut(text, begin, end, f"after:{marker}", exact=False))


def _tag(text: str, tag: str) -> Extraction | None:
    """The last closed tag; opened again after it, there is none."""
    opening = re.compile(rf"<{re.escape(tag)}>", re.IGNORECASE)
    closing = re.compile(rf"</{re.escape(tag)}\s{{0,10}}>", re.IGNORECASE)
    ends = list(closing.finditer(text))
    if not ends:
        return None
    starts = [found.end() for found in opening.finditer(text)]
    pairs: list[tuple[int, int]] = []
    done = 0
    for end in ends:
        begin = None
        while done < len(starts) and starts[done] <= end.start():
            begin = starts[done]
            done += 1
        if begin is not None:
            pairs.append((begin, end.start()))
    if done < len(starts):
        return _none(f"the last <{tag}> never closes")
    if not pairs:
        return None
    return _last(text, pairs, f"tag:{tag}")


def _regex(text: str, pattern: str) -> Extraction:
    found = linear_pattern(pattern).last(text)
    if found is None:
        return _none("the answer pattern is not found in the reply")
    return Extraction(_cut(text, *found, "regex"))


def _sentence(text: str, start: int = 0) -> Extraction | None:
    shown = view(text)
    found = phrases.declared(shown, start)
    if not found:
        return None
    begin, end = found[-1]
    if phrases.is_taken_back(shown, end):
        return _none("the stated answer is taken back after it")
    stated = _last(text, found, "sentence", exact=False)
    if stated is None or stated.candidate is None or not phrases.offers_another(shown, begin, end):
        return stated
    return replace(stated, hedged=True)


def _whole(text: str) -> Extraction:
    begin, end = phrases.trimmed(view(text), 0, len(text))
    if begin >= end:
        return _none("the reply is empty")
    return Extraction(_cut(text, begin, end, "whole"))


def _code(reply: Reply) -> Extraction:
    found = last_code_block(reply.text)
    if found is None:
        return _none("no fenced code block in the reply")
    return Extraction(Candidate(found.code, found.span, "code:last"))


def _last(
    text: str, spans: list[tuple[int, int]], rule: str, *, exact: bool = True
) -> Extraction | None:
    """The last of several marked answers; those right before it with no word between are rivals."""
    if not spans:
        return None
    begin, end = spans[-1]
    if not text[begin:end].strip():
        return _none(f"the last answer ({rule}) is empty")
    rivals = []
    spans = spans[-_MAX_RIVALS:]
    for earlier, later in zip(reversed(spans[:-1]), reversed(spans[1:]), strict=True):
        if phrases.has_words(text[earlier[1] : later[0]]):
            break
        rivals.append(_cut(text, *earlier, rule, exact=exact))
    rivals.reverse()
    return Extraction(_cut(text, begin, end, rule, exact=exact), tuple(rivals))


def _cut(text: str, begin: int, end: int, rule: str, *, exact: bool = True) -> Candidate:
    piece = text[begin:end]
    begin += len(piece) - len(piece.lstrip())
    piece = piece.strip()
    return Candidate(piece, (begin, begin + len(piece)), rule, exact)


def _none(why: str) -> Extraction:
    return Extraction(None, why=why)


_NAMED: dict[str, Callable[[Reply], Extraction]] = {
    "auto": _auto,
    "whole": lambda reply: _whole(reply.text),
    "boxed": lambda reply: _boxed(reply.text) or _none("no \\boxed in the reply"),
    "hash": lambda reply: _hash(reply.text) or _none("no `####` before a number in the reply"),
    "sentence": lambda reply: _sentence(reply.text) or _none("no 'the answer is' in the reply"),
    "code": _code,
}
