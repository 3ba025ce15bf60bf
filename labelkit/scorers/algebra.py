"""Exact normal forms: rational functions over symbols, radicals, constants and opaque terms.

Decides most comparisons of expressions without a computer algebra system, in bounded time. Two
equal forms are equal. Two different ones are certainly different only where every atom is
independent of the others (variables, roots of primes, i, one of pi and e); otherwise this module
says that it does not know.
"""

from __future__ import annotations

import math
from contextvars import ContextVar
from dataclasses import dataclass
from fractions import Fraction

from labelkit.scorers.arithmetic import MAX_BITS, Huge, UnreadableError, factorial
from labelkit.scorers.formula import Node
from labelkit.scorers.numbers import spelling

MAX_TERMS = 300
_MAX_POWER = 40
_MAX_WORK = 6_000
_BITS_A_TERM = 500
_MAX_NAME = 10_000
_work: ContextVar[int] = ContextVar("terms multiplied since the last question, by their length")
_MAX_FACTORED = 10**10

Monomial = tuple[tuple[str, Fraction], ...]
Polynomial = dict[Monomial, Fraction]

_ONE: Polynomial = {(): Fraction(1)}


class NotAlgebraError(ValueError):
    """The tree is no expression, or past the caps."""


class UndefinedError(NotAlgebraError):
    """The expression has no value: it divides by zero."""


@dataclass(frozen=True, slots=True)
class Form:
    """A quotient of polynomials. Atoms are named by kind: `s:` symbol, `c:` constant, `p:` prime
    (only under roots), `x:` power with a symbolic exponent, `f:` function or root of a sum."""

    top: Polynomial
    bottom: Polynomial

    def text(self) -> str:
        """A name for an atom: equal texts are equal forms, not the reverse."""
        top = _text(self.top)
        return top if self.bottom == _ONE else f"({top})/({_text(self.bottom)})"

    @property
    def constant(self) -> Fraction | None:
        """The value where the form is a rational number."""
        if self.bottom != _ONE or any(self.top):
            return None if self.top else Fraction(0)
        return self.top.get((), Fraction(0))


def form_of(node: Node) -> Form:
    """The form of an expression. Raises NotAlgebraError for what is none or takes too much work."""
    _work.set(0)
    return _form(node)


def _form(node: Node) -> Form:
    match node.kind:
        case "num" if node.value is not None:
            return _number(node.value)
        case "sym":
            return _atom(f"s:{node.name}")
        case "const" if node.name != "oo":
            return _atom(f"c:{node.name}")
        case "add":
            total = _form(node.args[0])
            for arg in node.args[1:]:
                total = add(total, _form(arg))
            return total
        case "mul":
            product = _form(node.args[0])
            for arg in node.args[1:]:
                product = multiply(product, _form(arg))
            return product
        case "pow":
            return _power(_form(node.args[0]), _form(node.args[1]))
        case "percent":
            return multiply(_form(node.args[0]), _number(Fraction(1, 100)))
        case "call":
            return _call(node)
    raise NotAlgebraError(f"a {node.kind} is no expression")


def equal(one: Form, other: Form) -> bool | None:
    """Whether two forms are equal, None where this module cannot know."""
    _work.set(0)
    if not _add(_times(one.top, other.bottom), _times(other.top, one.bottom), -1):
        return True
    return False if _independent(one, other) else None


def proportional(one: Form, other: Form) -> bool | None:
    """Whether two forms vanish together: one is a constant times the other."""
    if not one.top or not other.top:
        return not one.top and not other.top
    lead_one, lead_other = max(one.top), max(other.top)
    if lead_one == lead_other:
        scaled = {key: value * other.top[lead_other] for key, value in one.top.items()}
        target = {key: value * one.top[lead_one] for key, value in other.top.items()}
        if scaled == target:
            return True
    return False if _independent(one, other) else None


def add(one: Form, other: Form, sign: int = 1) -> Form:
    """The sum, or the difference for sign -1."""
    if one.bottom == other.bottom:
        return Form(_add(one.top, other.top, sign), one.bottom)
    top = _add(_times(one.top, other.bottom), _times(other.top, one.bottom), sign)
    return _reduced(top, _times(one.bottom, other.bottom))


def multiply(one: Form, other: Form) -> Form:
    """The product."""
    return _reduced(_times(one.top, other.top), _times(one.bottom, other.bottom))


def _number(value: Fraction) -> Form:
    return Form({(): value} if value else {}, _ONE)


def _atom(name: str, exponent: Fraction | int = 1) -> Form:
    if len(name) > _MAX_NAME:
        raise NotAlgebraError("has too long a part that is not worked out")
    return Form({((name, Fraction(exponent)),): Fraction(1)}, _ONE)


def _text(polynomial: Polynomial) -> str:
    return "+".join(
        f"{spelling(value)}*{'*'.join(f'{name}^{power}' for name, power in monomial)}"
        for monomial, value in sorted(polynomial.items())
    )


def _independent(*forms: Form) -> bool:
    names = {
        name
        for form in forms
        for polynomial in (form.top, form.bottom)
        for monomial in polynomial
        for name, _ in monomial
    }
    if {"c:pi", "c:e"} <= names:
        return False
    return not any(name.startswith(("x:", "f:")) for name in names)


def _add(one: Polynomial, other: Polynomial, sign: int = 1) -> Polynomial:
    total = dict(one)
    for monomial, value in other.items():
        found = total.get(monomial, Fraction(0)) + sign * value
        if found:
            total[monomial] = _small(found)
        else:
            total.pop(monomial, None)
    if len(total) > MAX_TERMS:
        raise NotAlgebraError("has too many terms")
    return total


def _times(one: Polynomial, other: Polynomial) -> Polynomial:
    if one == _ONE:
        return other
    if other == _ONE:
        return one
    _spend(len(one) * len(other))
    product: Polynomial = {}
    for left, left_value in one.items():
        for right, right_value in other.items():
            monomial, factor = _merge(left, right)
            value = product.get(monomial, Fraction(0)) + left_value * right_value * factor
            if value:
                product[monomial] = _small(value)
            else:
                product.pop(monomial, None)
    if len(product) > MAX_TERMS:
        raise NotAlgebraError("has too many terms")
    return product


def _small(value: Fraction) -> Fraction:
    bits = value.numerator.bit_length() + value.denominator.bit_length()
    if bits > MAX_BITS:
        raise NotAlgebraError("has too large a number")
    _spend(bits // _BITS_A_TERM)
    return value


def _spend(terms: int) -> None:
    _work.set(_work.get() + terms)
    if _work.get() > _MAX_WORK:
        raise NotAlgebraError("takes too much work")


def _merge(left: Monomial, right: Monomial) -> tuple[Monomial, Fraction]:
    """The product of two monomials, and the number that falls out of roots and of i."""
    if not left:
        return right, Fraction(1)
    if not right:
        return left, Fraction(1)
    powers = dict(left)
    for name, power in right:
        powers[name] = powers.get(name, Fraction(0)) + power
    return _normal(powers)


def _normal(powers: dict[str, Fraction]) -> tuple[Monomial, Fraction]:
    factor = Fraction(1)
    kept: list[tuple[str, Fraction]] = []
    for name, power in powers.items():
        if name == "c:i" and power.denominator == 1:
            turns = power.numerator % 4
            factor *= -1 if turns >= 2 else 1
            power = Fraction(turns % 2)
        elif name.startswith("p:"):
            whole = math.floor(power)
            factor *= Fraction(int(name[2:])) ** whole
            power -= whole
        if power:
            kept.append((name, power))
    kept.sort()
    return tuple(kept), factor


def _reduced(top: Polynomial, bottom: Polynomial) -> Form:
    """The quotient, a one-term denominator divided into the numerator."""
    if not bottom:
        raise UndefinedError("divides by zero")
    if bottom == _ONE:
        return Form(top, _ONE)
    if len(bottom) == 1:
        ((monomial, value),) = bottom.items()
        inverse, factor = _normal({name: -power for name, power in monomial})
        return Form(_times(top, {inverse: _small(factor / value)}), _ONE)
    if top == bottom:
        return Form(_ONE, _ONE)
    return Form(top, bottom)


def _power(base: Form, exponent: Form) -> Form:
    constant = exponent.constant
    if constant is not None:
        if constant.denominator == 1:
            return _integer_power(base, constant.numerator)
        return _root(base, constant)
    if exponent.bottom != _ONE:
        return _opaque_power(base, exponent)
    result = _number(Fraction(1))
    for monomial, coefficient in exponent.top.items():
        result = multiply(result, _symbolic_power(base, monomial, coefficient))
    return result


def _integer_power(base: Form, power: int) -> Form:
    if power < 0:
        return _integer_power(_reduced(base.bottom, base.top), -power)
    if len(base.top) == 1 and base.bottom == _ONE:
        ((monomial, value),) = base.top.items()
        bits = value.numerator.bit_length() + value.denominator.bit_length()
        if abs(value) != 1 and bits * power > MAX_BITS:
            raise NotAlgebraError("has too large a power")
        powers, factor = _normal({name: exponent * power for name, exponent in monomial})
        sign = value ** (power % 2 + 2) if abs(value) == 1 else value**power
        return Form({powers: sign * factor}, _ONE)
    if power > _MAX_POWER:
        raise NotAlgebraError("has too large a power")
    result = _number(Fraction(1))
    while power:
        if power & 1:
            result = multiply(result, base)
        power >>= 1
        base = multiply(base, base) if power else base
    return result


def _root(base: Form, power: Fraction) -> Form:
    """base**power for a fraction: roots of rationals come out as roots of primes."""
    if base.bottom != _ONE or len(base.top) != 1:
        if not base.top:
            if power > 0:
                return base
            raise UndefinedError("divides by zero")
        return _atom(f"f:root({base.text()})", power)
    ((monomial, value),) = base.top.items()
    if any(
        exponent != 1 and not name.startswith(("p:", "c:e", "c:pi")) for name, exponent in monomial
    ):
        return _atom(f"f:root({base.text()})", power)
    if any(name == "c:i" for name, _ in monomial) or (value < 0 and power.denominator != 2):
        return _atom(f"f:root({base.text()})", power)
    powers = {name: exponent * power for name, exponent in monomial}
    if value < 0:
        powers["c:i"] = powers.get("c:i", Fraction(0)) + power * 2
    for part, sign in ((abs(value).numerator, 1), (value.denominator, -1)):
        for prime, count in _factors(part):
            name = f"p:{prime}"
            powers[name] = powers.get(name, Fraction(0)) + sign * count * power
    kept, factor = _normal(powers)
    return Form({kept: _small(factor)}, _ONE)


def _factors(number: int) -> list[tuple[int, int]]:
    """Prime factors with their counts, by trial division. Raises NotAlgebraError past the cap."""
    if number > _MAX_FACTORED:
        raise NotAlgebraError("has a root of too large a number")
    found = []
    prime = 2
    while prime * prime <= number:
        count = 0
        while number % prime == 0:
            number //= prime
            count += 1
        if count:
            found.append((prime, count))
        prime += 1 if prime == 2 else 2
    if number > 1:
        found.append((number, 1))
    return found


def _symbolic_power(base: Form, monomial: Monomial, coefficient: Fraction) -> Form:
    """base**(coefficient * monomial): a constant part comes out, primes of a number apart."""
    if not monomial:
        return _power(base, _number(coefficient))
    exponent = _text({monomial: Fraction(1)})
    if len(base.top) == 1 and base.bottom == _ONE:
        ((inner, value),) = base.top.items()
        if not inner and value > 0:
            result = _number(Fraction(1))
            for part, sign in ((value.numerator, 1), (value.denominator, -1)):
                for prime, count in _factors(part):
                    power = sign * count * coefficient
                    result = multiply(result, _atom(f"x:{prime}^({exponent})", power))
            return result
        if value == 1 and len(inner) == 1 and inner[0][1] == 1:
            return _atom(f"x:{inner[0][0]}^({exponent})", coefficient)
    return _atom(f"x:{base.text()}^({exponent})", coefficient)


def _opaque_power(base: Form, exponent: Form) -> Form:
    return _atom(f"x:{base.text()}^({exponent.text()})")


def _call(node: Node) -> Form:
    forms = [_form(arg) for arg in node.args]
    values = [form.constant for form in forms]
    name = node.name
    if name == "degrees":
        return multiply(multiply(forms[0], _atom("c:pi")), _number(Fraction(1, 180)))
    if len(values) == 1 and values[0] is not None:
        known = _known(name, values[0])
        if known is not None:
            return _number(known)
    if name == "ln" and len(forms) == 1 and forms[0].top == {(("c:e", Fraction(1)),): Fraction(1)}:
        return _number(Fraction(1))
    if name == "binom" and len(values) == 2:
        top, bottom = values
        if top is not None and bottom is not None and top.denominator == bottom.denominator == 1:
            if not 0 <= bottom <= top <= 5_000:
                raise NotAlgebraError("has a binomial out of range")
            return _number(_small(Fraction(math.comb(top.numerator, bottom.numerator))))
    return _atom(f"f:{name}({','.join(form.text() for form in forms)})")


def _known(name: str, value: Fraction) -> Fraction | None:
    match name:
        case "abs":
            return abs(value)
        case "floor":
            return Fraction(math.floor(value))
        case "ceil":
            return Fraction(math.ceil(value))
        case "ln" if value == 1:
            return Fraction(0)
        case "factorial":
            try:
                found = factorial(value)
            except UnreadableError as error:
                raise NotAlgebraError(str(error)) from None
            if isinstance(found, Huge):
                raise NotAlgebraError("has too large a factorial")
            return found
    return None
