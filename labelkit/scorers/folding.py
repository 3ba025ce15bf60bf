"""Unicode folding for comparison: the same meaning in one spelling, and nothing else.

Bare NFKC changes meanings (10⁵ → 105, 1½ → 11⁄2), so folding goes character by character: other
digits, widths, minus signs, spaces, quotes and invisible marks become ASCII or vanish; raised and
lowered digits become `^{5}` and `_{5}`, vulgar fractions `1/2`. Idempotent.
"""

from __future__ import annotations

import re
import unicodedata
from itertools import accumulate
from typing import Literal

_SPELT = {
    # minus and hyphens (an em dash is punctuation and stays)
    **dict.fromkeys("\u2010\u2011\u2012\u2013\u2212\ufe58\ufe63\uff0d\u2796", "-"),
    # quotes and primes
    **dict.fromkeys("\u2018\u2019\u201a\u201b\u2032\u00b4\u02bc\uff07", "'"),
    **dict.fromkeys("\u201c\u201d\u201e\u201f\u2033\u00ab\u00bb\uff02", '"'),
    # division, decimal and percent signs, stops
    **dict.fromkeys("\u2044\u2215", "/"),
    "\u066a": "%",
    "\ufe6a": "%",
    "\u066b": ".",
    "\u066c": ",",
    "\u3002": ".",
    "\uff61": ".",
    "\u3001": ",",
    "\u2236": ":",
    "\u2026": "...",
    # compatibility letters that are words or symbols of their own
    "\u00b5": "\u03bc",
    "\u2126": "\u03a9",
    "\u212a": "K",
    "\ufb00": "ff",
    "\ufb01": "fi",
    "\ufb02": "fl",
    "\ufb03": "ffi",
    "\ufb04": "ffl",
    "\r": "\n",
    "\x0b": "\n",
    "\x0c": "\n",
    "\x85": "\n",
    "\u2028": "\n",
    "\u2029": "\n",
}
_INVISIBLE = frozenset(
    "\u00ad\u034f\u061c\u180e\u200b\u200c\u200d\u200e\u200f\u2060\u2061\u2062\u2063\u2064\ufeff"
) | {chr(code) for code in [*range(0x202A, 0x202F), *range(0x2066, 0x206A), *range(0xFE00, 0xFE10)]}
_VULGAR = {
    char: "/".join(unicodedata.normalize("NFKC", char).split("\u2044"))
    for char in map(chr, [0xBC, 0xBD, 0xBE, *range(0x2150, 0x215F), 0x2189])
}
_RAISED = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁼⁽⁾ⁿⁱ", "0123456789+-=()ni", strict=True))
_LOWERED = dict(zip("₀₁₂₃₄₅₆₇₈₉₊₋₌₍₎ₙ", "0123456789+-=()n", strict=True))

_NUMBER_SETS = frozenset("ℝℕℤℚℂ")
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]{0,2000}(?:\x07|\x1b\\)|[@-Z\\-_])")
_SHIFTED = re.compile(f"([{''.join(_RAISED)}]+)|([{''.join(_LOWERED)}]+)|([{''.join(_VULGAR)}])")


_UNBOUNDED_MARKS = re.compile(r"[^\x00-\x7f\w\s]{32,}")
"""Runs that may be combining marks, which no letter and no space is."""


def normalized(form: Literal["NFC", "NFD", "NFKD"], text: str) -> str:
    """The text in a Unicode normal form, in linear time.

    `unicodedata` takes quadratic time over a long run of combining marks that are out of order.
    """
    if not text.isascii():
        text = _UNBOUNDED_MARKS.sub(_in_order, text)
    return unicodedata.normalize(form, text)


def _in_order(found: re.Match[str]) -> str:
    """The run decomposed, the marks behind each character by their class: the canonical order."""
    parts = "".join(unicodedata.normalize("NFD", char) for char in found[0])
    classes = [unicodedata.combining(part) for part in parts]
    bases = accumulate(not mark for mark in classes)
    places = sorted(zip(bases, classes, range(len(parts)), strict=True))
    return "".join(parts[place] for _, _, place in places)


class _Folds(dict[int, str]):
    """Where each character goes, worked out when first met."""

    def __missing__(self, code: int) -> str:
        self[code] = folded = _fold_character(chr(code))
        return folded


def _fold_character(char: str) -> str:
    if char in _SPELT:
        return _SPELT[char]
    if char in _INVISIBLE:
        return ""
    if char in _NUMBER_SETS:
        return char
    category = unicodedata.category(char)
    if category == "Nd":
        return str(unicodedata.decimal(char))
    if category == "Zs":
        return " "
    if category in ("Cc", "Cs") and char not in "\n\t":
        return ""
    if unicodedata.decomposition(char).startswith(("<font>", "<wide>", "<narrow>", "<small>")):
        return unicodedata.normalize("NFKC", char)
    return char


_FOLDS = _Folds()


def fold(text: str) -> str:
    """The text with equal meanings spelt equally; letter case, order and layout stay."""
    if text.isascii() and text.isprintable():
        return text
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    text = text.replace("\r\n", "\n")
    if not text.isascii():
        text = _SHIFTED.sub(_spell_shifted, text)
        text = normalized("NFC", text.translate(_FOLDS))
    return text.translate(_FOLDS)


def _spell_shifted(found: re.Match[str]) -> str:
    raised, lowered, vulgar = found.groups()
    if raised:
        return "^{" + "".join(_RAISED[char] for char in raised) + "}"
    if lowered:
        return "_{" + "".join(_LOWERED[char] for char in lowered) + "}"
    before = found.string[found.start() - 1 : found.start()]
    return f" {_VULGAR[vulgar]}" if before.isdigit() else _VULGAR[vulgar]


class _Views(dict[int, str]):
    """One character for one: what `view` shows."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        folded = _fold_character(char).lower()
        self[code] = shown = folded if len(folded) == 1 else (char if folded else " ")
        return shown


_VIEWS = _Views()


def view(text: str) -> str:
    """The text in lower case and of the same length, folded where one character stands for one.

    For finding words and positions; what is found is cut out of the original and folded whole.
    """
    return text.lower() if text.isascii() else text.translate(_VIEWS)


_ARTICLE = re.compile(r"^(?:the|an?)\s+(?=\S)", re.IGNORECASE)
_SPACES = re.compile(r"\s+")
_INITIALS = re.compile(r"\b(?:[A-Za-z]\.){2,}(?:[A-Za-z]\b)?")
_LOWERED_PART = re.compile(r"_\{(\w+)\}")
_JOINED = re.compile(r"(?<=[^\W\d_])-(?=[^\W\d_])")
_GROUPED = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_EDGES = " \t\n.,;:!?\"'`*_$"


def spelt(text: str) -> str:
    """Text folded, on one line: no subscripts (H₂O), dots of initials (U.S.A.), hyphens within
    words, commas within numbers; & is a word."""
    text = _LOWERED_PART.sub(r"\1", fold(text))
    text = _INITIALS.sub(lambda found: found[0].replace(".", ""), text)
    text = _JOINED.sub(" ", text.replace("&", " and "))
    return _SPACES.sub(" ", _GROUPED.sub("", text)).strip()


def plain_words(text: str, *, ignore_case: bool = True) -> str:
    """Text as a person compares it: as `spelt`, without outer quotes and stops, a leading article
    and, unless it counts, letter case."""
    text = spelt(text).strip(_EDGES)
    text = _ARTICLE.sub("", text, count=1) or text
    return text.casefold() if ignore_case else text
