"""Which JSON a free-text reply offers: found by linear scans, parsed strictly, never guessed.

A cut object is never closed, a value inside an unreadable one is never taken, and only trailing
commas are repaired. Two values that differ are a hedge, unless the text marks one as the example
or the other as the final one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from pydantic import JsonValue

from labelkit.codec import strict_loads

MAX_DEPTH = 200
MAX_OFFERS = 200


@dataclass(frozen=True)
class Offer:
    """A JSON value in a text, at `start:end`; `flaw` says why it cannot be read (value None).

    `rule`: `whole` (the text is nothing else), `fence` or `prose`; `repaired` where trailing commas
    were taken out.
    """

    value: JsonValue
    start: int
    end: int
    rule: str
    flaw: str | None = None
    repaired: bool = False


@dataclass(frozen=True)
class NoOffer:
    """Why a text offers no JSON value, or more than one."""

    reason: str


def offered(text: str, *, repair: bool = True) -> Offer | NoOffer:
    """The one JSON value that a text offers; scalars only as the whole text or a json fence."""
    whole = _read(text, *_trimmed(text, 0, len(text)), "whole", repair=False)
    if whole.flaw is None:
        return whole
    standing = _standing(text, all_offers(text, repair=repair))
    if not standing:
        return NoOffer("offers no JSON")
    last = standing[-1]
    if last.flaw:
        return NoOffer(last.flaw)
    if any(offer.flaw or not same(offer.value, last.value) for offer in standing):
        return NoOffer("offers several JSON values that differ")
    return last


def all_offers(text: str, *, repair: bool = True) -> list[Offer]:
    """Every outermost JSON object or array in text order, the unreadable ones too.

    Where there is a fenced block of JSON, the prose before it is not looked at.
    """
    offers: list[Offer] = []
    place, fenced = 0, False
    for opening, start, end, after, language in _fences(text):
        before = _in_prose(text, place, opening, repair)
        place = after
        if not _is_json(text, start, end, language):
            offers += before
            continue
        offers = [*offers, *before] if fenced else []
        offers.append(_read(text, *_trimmed(text, start, end), "fence", repair))
        fenced = True
        if len(offers) > MAX_OFFERS:
            return [*offers, _too_many(place, len(text))]
    return offers + _in_prose(text, place, len(text), repair)


def same(left: JsonValue, right: JsonValue) -> bool:
    """Equality of JSON values: true is not 1, 1 is 1.0, integers of any size are exact."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict):
        return (
            isinstance(right, dict)
            and left.keys() == right.keys()
            and all(same(value, right[key]) for key, value in left.items())
        )
    if isinstance(left, list):
        return isinstance(right, list) and len(left) == len(right) and all(map(same, left, right))
    return left == right


def _read(text: str, start: int, end: int, rule: str, repair: bool) -> Offer:
    chunk = text[start:end]
    try:
        return Offer(read_strictly(chunk), start, end, rule)
    except ValueError as error:
        flaw = f"its JSON cannot be read: {error}"
    mended = _TRAILING_COMMA.sub(lambda found: found[1] or "", chunk)
    if repair and mended != chunk:
        try:
            return Offer(read_strictly(mended), start, end, rule, repaired=True)
        except ValueError as error:
            flaw = f"its JSON cannot be read: {error}"
    return Offer(None, start, end, rule, flaw)


# An unclosed string runs to the end, so that no later quote is tried as another start.
_STRING = r'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)'
_TOKEN = re.compile(_STRING + r"|[{}\[\]]", re.DOTALL)
_TRAILING_COMMA = re.compile(f"({_STRING})" + r"|,(?=\s*+[}\]])", re.DOTALL)
_OPENING = re.compile(r'\{\s*+["}]|\[\s*+(?:[{\["\]\d-]|true|false|null|NaN|Infinity)')
_BRACKET = re.compile(r"[{}\[\]]")
_CLOSES = {"}": "{", "]": "["}


def read_strictly(text: str) -> JsonValue:
    """JSON of at most MAX_DEPTH levels, so that whoever walks it may recurse. Raises ValueError."""
    value = strict_loads(text)
    depth = 0
    for token in _TOKEN.finditer(text):
        depth += {"{": 1, "[": 1, "}": -1, "]": -1}.get(token[0], 0)
        if depth > MAX_DEPTH:
            raise ValueError("nested too deeply")
    return value


def _opens(text: str, at: int) -> bool:
    return _OPENING.match(text, at) is not None


def _balanced(text: str, start: int, end: int) -> int | None:
    """The end of the bracket that opens at `start`, strings skipped; None where it never closes,
    or holds more than MAX_DEPTH levels."""
    open_: list[str] = []
    for token in _TOKEN.finditer(text, start, end):
        mark = token[0]
        if mark in "{[":
            open_.append(mark)
            if len(open_) > MAX_DEPTH:
                return None
        elif mark in "}]":
            if open_.pop() != _CLOSES[mark]:
                return None
            if not open_:
                return token.end()
    return None


def _in_prose(text: str, start: int, end: int, repair: bool) -> list[Offer]:
    """Outermost objects and arrays of a stretch; those inside other brackets are not offered."""
    offers: list[Offer] = []
    around: list[str] = []
    place, tries = start, 0
    while found := _BRACKET.search(text, place, end):
        at, mark = found.start(), found[0]
        place = at + 1
        if mark in _CLOSES:
            if around and around[-1] == _CLOSES[mark]:
                around.pop()
        elif around or not _opens(text, at):
            around.append(mark)
        elif (close := _balanced(text, at, end)) is None:
            flaw = (
                "its JSON does not end, or nests too deeply"
                if mark == "{" or '"' in text[at:end]
                else None
            )
            return [*offers, Offer(None, at, end, "prose", flaw)] if flaw else offers
        else:
            place = close
            offer = _read(text, at, close, "prose", repair)
            if offer.flaw is None or mark == "{" or '"' in text[at:close]:
                offers.append(offer)
            tries += 1
            if tries > MAX_OFFERS:
                return [*offers, _too_many(place, end)]
    return offers


def _too_many(start: int, end: int) -> Offer:
    return Offer(None, start, end, "prose", f"holds more than {MAX_OFFERS} JSON values")


def _trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    """The stretch without white space and byte order marks around it."""
    chunk = text[start:end]
    left = len(chunk) - len(chunk.lstrip(_BLANK))
    return start + left, max(start + left, start + len(chunk.rstrip(_BLANK)))


_BLANK = " \t\r\n\f\v\ufeff\u200b"
_FENCE = re.compile(r"^[ \t]{0,3}(?:```+|~~~+)[ \t]*+([\w+.-]*+)[ \t]*+\r?$", re.MULTILINE)


def _fences(text: str) -> list[tuple[int, int, int, int, str]]:
    """Closed fenced blocks: (opening line, start, end, after the closing line, language)."""
    blocks: list[tuple[int, int, int, int, str]] = []
    opening: re.Match[str] | None = None
    for line in _FENCE.finditer(text):
        if opening is None:
            opening = line
        elif not line[1]:
            inside = (opening.start(), opening.end(), line.start(), line.end())
            blocks.append((*inside, opening[1].lower()))
            opening = None
    return blocks


def _is_json(text: str, start: int, end: int, language: str) -> bool:
    if language:
        return language in ("json", "jsonc", "json5")
    start, end = _trimmed(text, start, end)
    return _opens(text, start)


_ASIDE = re.compile(
    r"\b(?:examples?|e\.g|for instance|format|template|schema|draft|sketch|input|originally|"
    r"first attempt)\b",
    re.IGNORECASE,
)
_FINAL = re.compile(
    r"\b(?:final(?:ly)?|corrected|correction|revised|fixed|wait|actually|sorry|oops|"
    r"on second thought|should be|(?:that|this|it)(?:'s| is| was) (?:wrong|incorrect))\b",
    re.IGNORECASE,
)
_EITHER = re.compile(r"\b(?:or|either|alternative(?:ly)?|maybe|perhaps|possibly|another)\b", re.I)
_DENIED = re.compile(
    r"(?:\b(?:not|never|rather than|instead of)|n't)(?: be| return| use| the answer)?[\s:`]*\Z",
    re.IGNORECASE,
)


def _standing(text: str, offers: list[Offer]) -> list[Offer]:
    """The offers less those that the text itself sets aside: denied ones, and earlier ones that it
    calls an example or a draft, or follows with a final or corrected one."""
    standing: list[Offer] = []
    replaced = False
    for i in range(len(offers) - 1, -1, -1):
        # What introduces an offer: the text since the one before, at most 200 characters.
        before = offers[i - 1].end if i else 0
        lead = text[max(before, offers[i].start - 200) : offers[i].start]
        aside = standing and _ASIDE.search(lead)
        if not (replaced or aside or _DENIED.search(lead)):
            standing.append(offers[i])
        replaced = replaced or bool(_FINAL.search(lead) and not _EITHER.search(lead))
    return standing[::-1]
