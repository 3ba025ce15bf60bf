"""Reading a judge's verdict: one well-formed statement in range, or nothing.

Never clamped, never guessed: two verdicts that differ, a range, a copied scale, a verdict that only
stands in a quotation, give None. Which judge said it, and what follows, is `judge`'s matter.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Annotated

from pydantic import Field, JsonValue, model_validator

from labelkit.scorers.json_in_text import all_offers, read_strictly
from labelkit.spec import Section


class Scale(Section):
    """The whole numbers that a judge may give."""

    min: Annotated[int, Field(ge=-1000)]
    max: Annotated[int, Field(le=1000)]

    @model_validator(mode="after")
    def _ordered(self) -> Scale:
        if self.min >= self.max:
            raise ValueError(f"min {self.min} is not below max {self.max}")
        return self


def read_object(text: str) -> dict[str, JsonValue]:
    """The JSON object that a reply is, a fence around it allowed. Raises ValueError.

    Nothing beside it: an object within prose may be one that the judge quotes.
    """
    fenced = _FENCED.fullmatch(text.strip())
    value = read_strictly(fenced[1] if fenced else text.strip())
    if not isinstance(value, dict):
        raise ValueError("it is no object")
    return value


_FENCED = re.compile(r"```(?:json)?[ \t]*\n(.*)\n```", re.DOTALL)


def parse_verdict(text: str, scale: Scale | Sequence[str]) -> float | str | None:
    """The one score on a scale, or the one of several labels, that a free text gives."""
    if isinstance(scale, Scale):
        return _score(text, scale)
    return _label(text, list(scale))


_NUMBER = r"(?P<number>[-+]?\d+(?:\.\d+)?|one|two|three|four|five|six|seven|eight|nine|ten)\b"
_NAME = r"\b(?:score|rating|grade|mark)"
_STATED = (
    re.compile(rf"\[\[\s*{_NUMBER}\s*\]\]"),
    re.compile(rf"<(?:score|rating)>\s*{_NUMBER}(?=\s*</)", re.IGNORECASE),
    re.compile(rf"{_NAME}\b[^:=\n]{{0,60}}[:=][\s*_`]*{_NUMBER}", re.IGNORECASE),
    re.compile(rf"{_NAME}\s+(?:is|of|would be)\s+(?:an?\s+)?\**{_NUMBER}", re.IGNORECASE),
    re.compile(
        rf"\b(?:rate|give|assign|award|score)\b[^.:=\n\d]{{0,40}}?\s\**{_NUMBER}", re.IGNORECASE
    ),
    re.compile(rf"(?<![\w.]){_NUMBER}(?=\s*/\s*\d|\s+out of\s)", re.IGNORECASE),
)
_SPAN = re.compile(r"[*\s]*(?:-|–|to\b|or\b|and\b|,)?\s*\d", re.IGNORECASE)
_COPIED = re.compile(r"\bscale (?:of|from) -?\d+ ?(?:to|-|–) ?-?\d+", re.IGNORECASE)
_OF = re.compile(r"[*\s\]]*(?:/|\(?\s*out of)\s*(\d+(?:\.\d+)?)", re.IGNORECASE)
_WORDS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_QUOTED = re.compile(r'"[^"\n]*"|“[^”\n]*”|`[^`\n]*`|^[ \t]*>.*$', re.MULTILINE)


def _score(text: str, scale: Scale) -> float | None:
    folded = _folded(text)
    given = list(_keyed(folded, ("score", "rating")))
    bare = _COPIED.sub("scale", _without_json_and_quotes(folded))
    if whole := re.fullmatch(rf"[\s*]*{_NUMBER}[\s*.]*", bare):
        given.append(_number(whole))
    for pattern in _STATED:
        for found in pattern.finditer(bare):
            of = _OF.match(bare, found.end())
            foreign = of is not None and float(of[1]) != scale.max
            spans = of is None and _SPAN.match(bare, found.end()) is not None
            given.append(None if foreign or spans else _number(found))
    first = given[0] if given else None
    if isinstance(first, bool) or not isinstance(first, int | float):
        return None
    alike = all(type(one) is not bool and one == first for one in given)
    return first if alike and scale.min <= first <= scale.max else None


def _number(found: re.Match[str]) -> int | float:
    said = found["number"].lower()
    if said in _WORDS:
        return _WORDS.index(said) + 1
    number = float(said)
    return int(number) if number.is_integer() else number


def _label(text: str, labels: list[str]) -> str | None:
    folded = _folded(text)
    given = [_known(said, labels) for said in _keyed(folded, ("verdict", "label", "winner"))]
    bare = _without_json_and_quotes(folded)
    given += [_known(said, labels) for said in bracketed(bare)]
    for found in re.finditer(
        r"\b(?:verdict|judge?ment|label|decision|winner)(?:\s+is\b\s*[:=]?|\s*[:=])[\s*]*([^\s.,;*\[\]]+)"
        r"(\s*(?:/|\bor\b|\|))?",
        bare,
        re.IGNORECASE,
    ):
        given.append(None if found[2] else _known(found[1], labels))
    whole = bare.strip(" \t\r\n*.!_#")
    if known := _known(whole, labels):
        given.append(known)
    first = given[0] if given else None
    return first if all(one == first for one in given) else None


def bracketed(text: str) -> Iterator[str]:
    """What `[[…]]` holds, on one line but for blanks at its ends; the widest where they nest."""
    begin = 0
    while (close := text.find("]", begin)) >= 0:
        stretch, begin = text[begin:close], close + 1
        if text.startswith("]", begin):
            begin += 1
            line = stretch.rfind("\n", 0, len(stretch.rstrip())) + 1
            lead = stretch[:line].rstrip()
            opened = len(lead) - 2 if lead.endswith("[[") else stretch.find("[[", line)
            inside = stretch[opened + 2 :] if opened >= 0 else ""
            if inside.strip("\n"):
                yield inside.strip()


def _known(said: JsonValue, labels: list[str]) -> str | None:
    """A label as it is written; longer ones in any case."""
    if not isinstance(said, str):
        return None
    alike = [one for one in labels if one == said or (len(one) > 1 and one.lower() == said.lower())]
    return alike[0] if len(alike) == 1 else None


def _keyed(text: str, names: tuple[str, ...]) -> Iterator[JsonValue]:
    """What the JSON objects of a text hold under any of the names; None for unreadable ones."""
    for offer in all_offers(text, repair=False):
        if isinstance(offer.value, dict):
            for key, value in offer.value.items():
                if key.lower() in names:
                    yield value
        elif offer.flaw and any(name in text[offer.start : offer.end].lower() for name in names):
            yield None


def _without_json_and_quotes(text: str) -> str:
    kept, place = [], 0
    for offer in all_offers(text, repair=False):
        if offer.flaw or isinstance(offer.value, dict):
            kept.append(text[place : offer.start])
            place = offer.end
    return _QUOTED.sub(" ", " ".join([*kept, text[place:]]))


def _folded(text: str) -> str:
    """Digits, colons, minus and slash signs of other scripts as ASCII ones."""
    return "".join(
        str(unicodedata.decimal(char)) if char.isdecimal() else _SIGNS.get(char, char)
        for char in text
    )


_SIGNS = {"：": ":", "−": "-", "／": "/", "［": "[", "］": "]"}
