"""Number literals, exactly: digits in all their spellings to a Fraction.

No float is ever made, and nothing is guessed: `1.000` is one, `3,5` is no number. Digits and
exponents are capped, so that a literal costs no more than its length. Takes folded text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from labelkit.scorers.folding import fold

MAX_DIGITS = 20_000
MAX_EXPONENT = 10_000


@dataclass(frozen=True, slots=True)
class Literal:
    """A number as written. `places`: decimal places, None for an integer or a fraction.

    `base`: the base it was written in, where it was said (52_8); the value is then in that base.
    """

    value: Fraction
    places: int | None = None
    base: int | None = None


GROUPED = (
    r"\d{1,3}(?:(?:,|\{,\}|\\,|\\!,\\!|')\d{3})+(?![\d,{])(?:\.\d+)?"  # 1,000 · 1{,}000 · 1\,000
    r"|\d{1,3}(?:(?:,|\{,\})\d{3})+(?=[,{](?!\d))(?:\.\d+)?"  # … before a comma of prose
    r"|\d{1,2}(?:(?:,|\{,\})\d{2})+(?:,|\{,\})\d{3}(?![\d,])(?:\.\d+)?"  # 1,00,000
    r"|[1-9]\d{0,2}(?: \d{3})+(?!\d)(?:[.,]\d+)?"  # 1 000
    r"|\d{1,3}(?:\.\d{3})+,\d+(?![\d,])"  # 1.000,5
    r"|\d{1,3}(?:\.\d{3}){2,}(?![\d.])"  # 1.000.000
)
PLAIN = r"\d+(?:\.\d*)?|\.\d+"
_EXPONENT = r"(?:[eE][-+]?\d+(?![\d.]))?"
NUMBER = re.compile(rf"(?P<grouped>{GROUPED})(?!\d)|(?P<plain>(?:{PLAIN}){_EXPONENT})")
_PREFIXED = re.compile(r"0(?:x([0-9a-fA-F]+)|b([01]+)|o([0-7]+))(?![0-9a-zA-Z])")
_REPEATING = re.compile(
    r"(\d*)\.(\d*)(?:\\overline\{(\d+)\}|\\overline(\d)|\\dot\{(\d)\}|\((\d+)\)"
    r"|(?:\.\.\.|\\(?:ldots|dots|cdots)(?![A-Za-z])))"
)


def read_literal(text: str, at: int = 0) -> tuple[Literal, int] | None:
    """The longest number literal that starts at `at`, with its end; None where there is none.

    Raises OverflowError past the caps.
    """
    found = _PREFIXED.match(text, at)
    if found:
        hexadecimal, binary, octal = found.groups()
        digits, base = (hexadecimal, 16) if hexadecimal else (binary, 2) if binary else (octal, 8)
        return Literal(Fraction(int(_capped(digits), base))), found.end()
    found = _REPEATING.match(text, at)
    if found:
        repeated = _repeating(found)
        if repeated is not None:
            return repeated, found.end()
    found = NUMBER.match(text, at)
    if found is None:
        return None
    return (_grouped(found[0]) if found["grouped"] else _plain(found[0])), found.end()


def _capped(digits: str) -> str:
    if len(digits) > MAX_DIGITS:
        raise OverflowError(f"a number of {len(digits):,} digits")
    return digits


# The interpreter refuses to read or write more than some 4,300 decimal digits at a time.
_AT_A_TIME = 4_000
_DECIMAL_BITS = 13_000


def _integer(digits: str) -> int:
    """Digits of any length as a number."""
    value = 0
    for at in range(0, len(digits), _AT_A_TIME):
        part = digits[at : at + _AT_A_TIME]
        value = value * 10 ** len(part) + int(part)
    return value


def digits_of(value: Fraction) -> str | None:
    """The digits of a natural number; None for another one, or where the interpreter refuses."""
    if value < 0 or value.denominator != 1 or value.numerator.bit_length() > _DECIMAL_BITS:
        return None
    return str(value.numerator)


def spelling(value: Fraction) -> str:
    """One spelling for every number: as `str`, hexadecimal where that would refuse."""
    top, bottom = value.numerator, value.denominator
    longest = max(top.bit_length(), bottom.bit_length())
    return str(value) if longest <= _DECIMAL_BITS else f"{top:#x}/{bottom:#x}"


def _plain(text: str) -> Literal:
    mantissa, _, exponent = _capped(text).lower().partition("e")
    whole, point, part = mantissa.partition(".")
    value = Fraction(_integer(whole + part), 10 ** len(part))
    if exponent:
        power = int(exponent)
        if abs(power) > MAX_EXPONENT:
            raise OverflowError(f"an exponent of {power}")
        value *= Fraction(10) ** power
        return Literal(value)
    return Literal(value, len(part) if point and part else None)


def _grouped(text: str) -> Literal:
    if re.search(r"\.\d{3}(?:\.|,)", text):
        return _plain(text.replace(".", "").replace(",", "."))
    if " " in text:
        return _plain(text.replace(" ", "").replace(",", "."))
    return _plain(re.sub(r"\{,\}|\\!|\\|,|'", "", text))


def _repeating(found: re.Match[str]) -> Literal | None:
    whole, fixed, *cycles = found.groups()
    cycle = next((part for part in cycles if part), None)
    if cycle is None:
        cycle = _apparent_cycle(fixed)
        if cycle is None:
            return None
    shift = 10 ** len(_capped(fixed))
    value = Fraction(_integer(_capped(whole)) * shift + _integer(fixed), shift)
    return Literal(value + Fraction(_integer(cycle), (10 ** len(_capped(cycle)) - 1) * shift))


def _apparent_cycle(digits: str) -> str | None:
    """What repeats at the end of 0.1666…: at least three times, None where nothing does."""
    for size in range(1, len(digits) // 3 + 1):
        cycle = digits[-size:]
        if digits.endswith(cycle * 3):
            return cycle
    return None


_NOT_DIGITS = re.compile(r"^[\s$€£₹¥\\]+|[\s.]+$")


def plain_number(text: str) -> str | None:
    """A number's own digits without currency, grouping and unit (`$1,234.50` → `1234.50`)."""
    bare = _NOT_DIGITS.sub("", fold(text))
    sign, digits = ("-", bare[1:]) if bare.startswith("-") else ("", bare)
    digits = _NOT_DIGITS.sub("", digits)
    found = NUMBER.match(digits)
    if found is None or any(char.isdigit() for char in digits[found.end() :]):
        return None
    digits = found[0].rstrip(".")
    return sign + (re.sub(r"[{}\\!', ]", "", digits) if found["grouped"] else digits)
