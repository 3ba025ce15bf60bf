"""Arithmetic on number literals, exactly and within caps: what a numeric answer may be made of.

`read_value` evaluates the longest arithmetic prefix of a text: fractions, mixed numbers, powers,
factorials, binomials, square roots that come out. A value past the caps is `Huge`: its size is
known and nothing else, which still decides that it is not a small number. Takes folded text.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from fractions import Fraction

from labelkit.scorers.numbers import Literal, digits_of, read_literal

MAX_BITS = 80_000
_MAX_WORK_BITS = 1_000_000
_MAX_DEPTH = 40


class UnreadableError(ValueError):
    """The text is no arithmetic on numbers; the message says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Huge:
    """A number whose absolute value is at least 2**bits."""

    bits: float


Value = Fraction | Huge


@dataclass(frozen=True, slots=True)
class Read:
    """A value and where its text ended. `literal`: it is one literal, as written."""

    value: Value
    end: int
    literal: Literal | None = None


_BLANK = re.compile(
    r"(?:\s|~|\{\}|\\(?:[,;:!> ]|q?quad(?![A-Za-z])|left(?![A-Za-z])|right(?![A-Za-z])"
    r"|[bB]igg?[lr]?(?![A-Za-z])|displaystyle(?![A-Za-z])|limits(?![A-Za-z])))*"
)
_TIMES = re.compile(
    r"\*(?!\*)|×|·|⋅|\\times(?![A-Za-z])|\\cdot(?![A-Za-z])|[xX](?=\s?10(?:\^|\*\*))"
)
_OVER = re.compile(r"/|÷|\\div(?![A-Za-z])")
_POWER = re.compile(r"\^|\*\*")
_FRACTION = re.compile(r"\\[dtc]?frac(?![A-Za-z])")
_BINOMIAL = re.compile(r"\\[dt]?binom(?![A-Za-z])")
_ROOT = re.compile(r"\\sqrt(?![A-Za-z])|sqrt(?=[({])|√")
_WRAPPED = re.compile(r"\\(?:text|mbox|mathrm|mathbf|textbf|boxed|fbox)\s*\{")
_MIXED = re.compile(r"\s+(\d+)\s?/\s?(\d+)(?![\d/.])")
_OPENING = {"(": ")", "[": "]", "{": "}"}


def read_value(text: str, at: int = 0) -> Read:
    """The longest arithmetic at `at`. Raises UnreadableError where nothing can be read."""
    reader = _Reader(text, at)
    value = reader.sum(0)
    return Read(value, reader.at, reader.literal)


class _Reader:
    def __init__(self, text: str, at: int) -> None:
        self.text = text
        self.at = at
        self.literal: Literal | None = None
        self.bits = 0

    def worked(self, value: Value) -> Value:
        """Pass on what was worked out, unless it has all been too much by now."""
        if isinstance(value, Fraction):
            self.bits += _bits(value)
            if self.bits > _MAX_WORK_BITS:
                raise UnreadableError("takes too much work")
        return value

    def skip(self) -> int:
        blank = _BLANK.match(self.text, self.at)
        assert blank is not None
        return blank.end()

    def take(self, pattern: re.Pattern[str]) -> bool:
        found = pattern.match(self.text, self.skip())
        if found is None:
            return False
        self.at = found.end()
        return True

    def sum(self, depth: int) -> Value:
        value = self.product(depth)
        while True:
            before, literal = self.at, self.literal
            at = self.skip()
            sign = self.text[at : at + 1]
            if sign not in ("+", "-") or not sign:
                return value
            self.at = at + 1
            try:
                other = self.product(depth)
            except UnreadableError:
                self.at, self.literal = before, literal
                return value
            value = self.worked(_add(value, other, 1 if sign == "+" else -1))
            self.literal = None

    def product(self, depth: int) -> Value:
        negative = False
        while self.text[self.skip() :][:1] in ("-", "+"):
            negative ^= self.text[self.skip()] == "-"
            self.at = self.skip() + 1
        value = self.power(depth)
        while True:
            before, literal = self.at, self.literal
            over = False
            if not self.take(_TIMES):
                over = self.take(_OVER)
                if (
                    not over
                    and self.text[self.skip() :][:1] != "("
                    and not _FRACTION.match(self.text, self.skip())
                ):
                    break
            try:
                other = self.power(depth)
            except UnreadableError:
                self.at, self.literal = before, literal
                break
            value = self.worked(_divide(value, other) if over else _multiply(value, other))
            self.literal = None
        if not negative:
            return value
        if self.literal is not None:
            self.literal = Literal(-self.literal.value, self.literal.places, self.literal.base)
        return _multiply(value, Fraction(-1))

    def power(self, depth: int) -> Value:
        value = self.primary(depth)
        while self.text[self.skip() :][:1] == "!" and self.text[self.skip() + 1 :][:1] != "=":
            self.at = self.skip() + 1
            value, self.literal = self.worked(factorial(value)), None
        if self.take(_POWER):
            sign = -1 if self.text[self.skip() :][:1] == "-" else 1
            if sign < 0:
                self.at = self.skip() + 1
            exponent = self.power(depth + 1)
            self.literal = None
            return self.worked(_power(value, _multiply(exponent, Fraction(sign))))
        return value

    def primary(self, depth: int) -> Value:
        if depth > _MAX_DEPTH:
            raise UnreadableError("nested too deeply")
        self.literal = None
        at = self.skip()
        try:
            found = read_literal(self.text, at)
        except OverflowError as error:
            raise UnreadableError(str(error)) from None
        if found is not None:
            return self._number(*found)
        sign = self.text[at : at + 1]
        if sign in _OPENING and sign:
            self.at = at + 1
            return self._inside(_OPENING[sign], depth, keep_literal=True)
        wrapped = _WRAPPED.match(self.text, at)
        if wrapped:
            self.at = wrapped.end()
            return self._inside("}", depth, keep_literal=True)
        if self.take(_FRACTION):
            return self.worked(_divide(self._argument(depth), self._argument(depth)))
        if self.take(_BINOMIAL):
            return self.worked(_binomial(self._argument(depth), self._argument(depth)))
        if self.take(_ROOT):
            return self.worked(_root(self._argument(depth)))
        raise UnreadableError("is not a number")

    def _number(self, literal: Literal, end: int) -> Value:
        self.at = end
        base = re.compile(r"_\{?(\d+)\}?").match(self.text, end)
        if base and not 2 <= int(base[1][:3]) <= 36:
            raise UnreadableError("has digits behind _, which are no base: write 1000 or 1,000")
        if base:
            return self._in_base(literal, int(base[1]), base.end())
        if literal.places is None and literal.value.denominator == 1:
            mixed = _MIXED.match(self.text, end)
            if mixed and 0 < int(mixed[1]) < int(mixed[2]):
                self.at = mixed.end()
                return literal.value + Fraction(int(mixed[1]), int(mixed[2]))
            before = self.at
            if self.take(_FRACTION):
                part = _divide(self._argument(_MAX_DEPTH - 2), self._argument(_MAX_DEPTH - 2))
                if isinstance(part, Fraction) and 0 < part < 1:
                    self.literal = None
                    return literal.value + part
                self.at = before
        self.literal = literal
        return literal.value

    def _in_base(self, literal: Literal, base: int, end: int) -> Value:
        digits = digits_of(literal.value)
        if digits is None or any(int(digit) >= base for digit in digits):
            raise UnreadableError(f"is no number in base {base}")
        self.at = end
        self.literal = Literal(Fraction(int(digits, base)), None, base)
        return self.literal.value

    def _argument(self, depth: int) -> Value:
        """A braced or bracketed group, or a single digit, as LaTeX takes it."""
        at = self.skip()
        sign = self.text[at : at + 1]
        if sign in ("{", "("):
            self.at = at + 1
            return self._inside(_OPENING[sign], depth)
        if sign.isdigit():
            self.at = at + 1
            return Fraction(int(sign))
        raise UnreadableError("has an argument missing")

    def _inside(self, closing: str, depth: int, *, keep_literal: bool = False) -> Value:
        value = self.sum(depth + 1)
        at = self.skip()
        if self.text[at : at + 1] != closing:
            raise UnreadableError("has brackets that do not close around a number")
        self.at = at + 1
        if not keep_literal:
            self.literal = None
        return value


def _bits(value: Fraction) -> int:
    return value.numerator.bit_length() + value.denominator.bit_length()


def _size(value: Fraction) -> float:
    return value.numerator.bit_length() - value.denominator.bit_length() + 1.0


def _undecided() -> UnreadableError:
    return UnreadableError("is too large to be worked out")


def _add(one: Value, other: Value, sign: int) -> Value:
    if isinstance(one, Fraction) and isinstance(other, Fraction):
        total = one + sign * other
        return total if _bits(total) <= 2 * MAX_BITS else _as_huge(total)
    if isinstance(one, Huge) and isinstance(other, Huge):
        raise _undecided()
    huge, small = (one, other) if isinstance(one, Huge) else (other, one)
    assert isinstance(huge, Huge)
    assert isinstance(small, Fraction)
    if _size(small) > huge.bits - 2:
        raise _undecided()
    return Huge(huge.bits - 1)


def _multiply(one: Value, other: Value) -> Value:
    if isinstance(one, Fraction) and isinstance(other, Fraction):
        product = one * other
        return product if _bits(product) <= 2 * MAX_BITS else _as_huge(product)
    if isinstance(one, Huge) and isinstance(other, Huge):
        return Huge(one.bits + other.bits)
    huge, small = (one, other) if isinstance(one, Huge) else (other, one)
    assert isinstance(huge, Huge)
    assert isinstance(small, Fraction)
    return Fraction(0) if small == 0 else Huge(huge.bits + _size(small) - 2)


def _as_huge(value: Fraction) -> Huge:
    if _size(value) < 1000:
        raise _undecided()
    return Huge(_size(value) - 2)


def _divide(one: Value, other: Value) -> Value:
    if isinstance(other, Huge):
        raise _undecided()
    if other == 0:
        raise UnreadableError("divides by zero")
    return _multiply(one, 1 / other)


def _power(base: Value, exponent: Value) -> Value:
    if isinstance(base, Huge):
        if isinstance(exponent, Fraction) and exponent >= 1:
            return base
        raise _undecided()
    if isinstance(exponent, Huge):
        # A huge exponent's sign is unknown only through subtraction from something smaller.
        if base.denominator == 1 and abs(base) >= 2:
            return Huge(2.0**60)
        raise _undecided()
    if exponent.denominator != 1:
        root = _root_of(base, exponent.denominator)
        if root is None:
            raise UnreadableError("is not rational")
        return _power(root, Fraction(exponent.numerator))
    power = exponent.numerator
    if base == 0 and power < 0:
        raise UnreadableError("divides by zero")
    if abs(base) == 1 or base == 0:
        return base**power if abs(power) < 2 else base ** (2 + power % 2)
    if (_bits(base) - 1) * abs(power) > MAX_BITS:
        if power > 0 and abs(base) >= 2:
            return Huge(min((_size(abs(base)) - 2) * float(min(power, 2**60)), 2.0**60))
        raise _undecided()
    return base**power


def factorial(value: Value) -> Value:
    """n!, `Huge` past the caps. Raises UnreadableError for what is no natural number."""
    if isinstance(value, Huge):
        return value
    if value.denominator != 1 or value < 0:
        raise UnreadableError("has a factorial of what is no natural number")
    count = value.numerator
    if count > 6_000:
        return Huge(60_000.0)
    return Fraction(math.factorial(count))


def _binomial(top: Value, bottom: Value) -> Value:
    if isinstance(top, Huge) or isinstance(bottom, Huge):
        raise _undecided()
    if top.denominator != 1 or bottom.denominator != 1 or top < 0:
        raise UnreadableError("has a binomial of what are no natural numbers")
    n, k = top.numerator, bottom.numerator
    if k < 0 or k > n:
        return Fraction(0)
    k = min(k, n - k)
    if k * n.bit_length() > MAX_BITS:
        # C(n, k) >= (n / k)**k
        return Huge(k * math.log2(n / k)) if n // max(k, 1) >= 2 else _raise(_undecided())
    return Fraction(math.comb(n, k))


def _raise(error: UnreadableError) -> Value:
    raise error


def _root(value: Value) -> Value:
    if isinstance(value, Huge):
        raise _undecided()
    root = _root_of(value, 2)
    if root is None:
        raise UnreadableError("is not rational")
    return root


def _root_of(value: Fraction, degree: int) -> Fraction | None:
    """The exact root of a rational, None where there is none (or it would be laborious)."""
    if value < 0 or not 2 <= degree <= 12:
        return None
    parts = []
    for part in (value.numerator, value.denominator):
        root = math.isqrt(part) if degree == 2 else _integer_root(part, degree)
        if root**degree != part:
            return None
        parts.append(root)
    return Fraction(*parts)


def _integer_root(value: int, degree: int) -> int:
    """The whole part of the root, by Newton's steps down from above it."""
    if value == 0:
        return 0
    root = 1 << -(-value.bit_length() // degree)
    while (lower := ((degree - 1) * root + value // root ** (degree - 1)) // degree) < root:
        root = lower
    return root
