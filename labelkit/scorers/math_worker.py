"""The computer algebra side of `math`: runs in a worker process that is killed when it is late.

Gets two formulas as trees (never text), and says whether they are equal: first by their values at
a few points, which refutes in bounded precision, then by sympy through math-verify, which proves.
None is an honest answer: neither refuted nor proved.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import mpmath
import sympy
from math_verify.grader import verify
from pydantic import JsonValue
from sympy.core.function import AppliedUndef
from sympy.functions.elementary.trigonometric import TrigonometricFunction

_DIGITS = 30
_TOLERANCE = sympy.Rational(1, 10**20)
_QUADRATURE_DIGITS = 20
_QUADRATURE_ERROR = 1e-12
_ROUGH_TOLERANCE = sympy.Rational(1, 10**9)
_MAX_RANGE = 20_000
_MAX_EXPONENT = 10_000
_MAX_BITS = 40_000

_SAME_NAMES = "sin cos tan cot sec csc sinh cosh tanh coth sech csch floor re im arg sign gcd lcm"
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    name: getattr(sympy, name) for name in _SAME_NAMES.split()
} | {
    "arcsin": sympy.asin,
    "arccos": sympy.acos,
    "arctan": sympy.atan,
    "arccot": sympy.acot,
    "arcsec": sympy.asec,
    "arccsc": sympy.acsc,
    "arsinh": sympy.asinh,
    "arcosh": sympy.acosh,
    "artanh": sympy.atanh,
    "ln": sympy.log,
    "abs": sympy.Abs,
    "ceil": sympy.ceiling,
    "max": sympy.Max,
    "min": sympy.Min,
    "binom": sympy.binomial,
    "sgn": sympy.sign,
    "mod": sympy.Mod,
}
_INFINITE = {sympy.oo: mpmath.inf, -sympy.oo: -mpmath.inf}
_CONSTANTS = {"pi": sympy.pi, "e": sympy.E, "i": sympy.I, "oo": sympy.oo}
_DISCRETE = (
    sympy.Sum,
    sympy.Product,
    sympy.factorial,
    sympy.binomial,
    sympy.Mod,
    sympy.gcd,
    AppliedUndef,
)
_END = sympy.Symbol("end#", integer=True, positive=True)
_POINTS = (
    sympy.Rational(37, 101),
    sympy.Rational(61, 103),
    sympy.Rational(173, 107),
    sympy.Rational(23, 109),
    sympy.Rational(89, 113),
    sympy.Rational(131, 127),
)


class _Unsupported(Exception):
    """A tree that is not turned into an expression: unknown, or too large to touch."""


def start(argument: JsonValue) -> Callable[[JsonValue], JsonValue]:
    """The function that answers calls; everything heavy is imported and warm by now."""
    logging.disable(logging.CRITICAL)
    warm: JsonValue = ["sym", "x", None, []]
    answer(["equal", ["call", "sin", None, [warm]], ["call", "cos", None, [warm]]])
    answer(["equal", ["call", "sin", None, [warm]], ["call", "sin", None, [warm]]])
    return answer


def answer(question: JsonValue) -> JsonValue:
    """`[equal or proportional, tree, tree]` → true, false or null."""
    assert isinstance(question, list)
    kind, one, other = question
    try:
        left, right = _expression(one, frozenset()), _expression(other, frozenset())
    except (_Unsupported, ZeroDivisionError, OverflowError, TypeError, ValueError):
        return None
    if kind == "proportional":
        return _proportional(left, right)
    return _equal(left, right)


def _equal(left: Any, right: Any) -> bool | None:
    agreed = 0
    for shift in range(4):
        # The last point is negative and counts where both sides are real there: |x| is not x.
        values = _values((left, right), shift)
        if values is None or (shift == 3 and not all(value.is_real for value in values)):
            continue
        if _differ(*values, rough=left.has(sympy.Integral) or right.has(sympy.Integral)):
            return False
        agreed += 1
    if not agreed:
        return None
    left, right = left.doit(), right.doit()
    if left == right or _vanishes(left - right):
        return True
    if verify(left, right, timeout_seconds=None):
        return True
    return True if sympy.simplify(left - right) == 0 else None


def _vanishes(difference: Any) -> bool:
    """A quick proof that a difference is zero; circular functions as exponentials."""
    if difference.has(TrigonometricFunction):
        difference = sympy.fraction(sympy.together(difference.rewrite(sympy.exp)))[0]
    return bool(sympy.expand(difference) == 0)


def _proportional(left: Any, right: Any) -> bool | None:
    ratios = []
    for shift in range(3):
        values = _values((left, right), shift)
        if values is not None and values[0] != 0:
            ratios.append(values[1] / values[0])
    if len(ratios) < 2:
        return None
    if any(_differ(ratios[0], ratio) for ratio in ratios[1:]):
        return False
    quotient = sympy.simplify(right / left)
    return True if quotient.is_number and quotient != 0 else None


def _differ(one: Any, other: Any, *, rough: bool = False) -> bool:
    """Whether two values differ; `rough` where a quadrature stands behind one."""
    size = max(abs(one), abs(other))
    tolerance = _ROUGH_TOLERANCE if rough else _TOLERANCE
    return bool(size != 0 and abs(one - other) > tolerance * size)


def _values(expressions: tuple[Any, Any], shift: int) -> tuple[Any, Any] | None:
    """Both values with the free symbols at one point, None where one has no value there."""
    symbols = sorted(set().union(*(one.free_symbols for one in expressions)), key=str)
    discrete = any(one.has(*_DISCRETE) for one in expressions)
    point = {
        symbol: sympy.Integer(4 + shift + 2 * place)
        if discrete
        else (-1 if shift == 3 else 1) * _POINTS[(place + 2 * shift) % len(_POINTS)] * (1 + place)
        for place, symbol in enumerate(symbols)
    }
    values = []
    for one in expressions:
        at = _integrated(one.subs(point)).doit()
        members = {member: _member(member) for member in at.atoms(AppliedUndef)}
        value = sympy.N(at.subs(members), _DIGITS, maxn=200)
        if not value.is_number or value.has(sympy.nan, sympy.zoo, sympy.oo, -sympy.oo):
            return None
        if not all(part.is_Float or part.is_Integer for part in value.as_real_imag()):
            return None
        values.append(value)
    return values[0], values[1]


def _member(member: Any) -> Any:
    """A value for a member of an unknown sequence, one for its name and index."""
    return sympy.Rational(zlib.crc32(str(member).encode()) % 1009 + 1, 997)


def _integrated(expression: Any) -> Any:
    """Integrals without a closed form by quadrature, good enough to tell values apart."""
    values = {}
    for integral in expression.atoms(sympy.Integral):
        if integral.free_symbols or len(integral.limits) != 1 or len(integral.limits[0]) != 3:
            continue
        symbol, start, end = integral.limits[0]
        with mpmath.workdps(_QUADRATURE_DIGITS):
            function = sympy.lambdify(symbol, integral.function, "mpmath")
            ends = [_INFINITE.get(bound) or mpmath.mpmathify(sympy.N(bound))
                    for bound in (start, end)]  # fmt: skip
            value, error = mpmath.quad(function, ends, error=True)
        if error < _QUADRATURE_ERROR:
            values[integral] = sympy.sympify(value)
    return expression.subs(values)


def _expression(node: Any, bound: frozenset[str]) -> Any:
    kind, name, value, args = node
    match kind:
        case "num":
            fraction = Fraction(str(value))
            return sympy.Rational(fraction.numerator, fraction.denominator)
        case "sym" if args:
            return sympy.Function(name.partition("_")[0])(_expression(args[0], bound))
        case "sym":
            return sympy.Symbol(name, real=True)
        case "const":
            return _CONSTANTS[name]
        case "add":
            return sympy.Add(*(_expression(arg, bound) for arg in args))
        case "mul":
            return sympy.Mul(*(_expression(arg, bound) for arg in args))
        case "pow":
            return _power(_expression(args[0], bound), _expression(args[1], bound))
        case "percent":
            return _expression(args[0], bound) / 100
        case "call":
            return _call(name, args, bound)
    raise _Unsupported(f"a {kind}")


def _power(base: Any, exponent: Any) -> Any:
    if exponent.is_Integer and base.is_Rational:
        bits = max(abs(base.p).bit_length(), base.q.bit_length())
        if bits * abs(int(exponent)) > _MAX_BITS:
            raise _Unsupported("a power too large")
    if exponent.is_number and not exponent.is_Integer and exponent.has(sympy.Pow):
        size = sympy.N(abs(exponent), 5)
        if not size.is_Float or size > _MAX_EXPONENT:
            raise _Unsupported("an exponent too large")
    if exponent.is_Integer and abs(exponent) > 10**7:
        raise _Unsupported("an exponent too large")
    return sympy.Pow(base, exponent)


def _call(name: str, args: list[Any], bound: frozenset[str]) -> Any:
    if name == "lim":
        return _limit(args, bound)
    if name in ("sum", "prod", "int"):
        return _ranged(name, args, bound)
    parts = [_expression(arg, bound) for arg in args]
    if name == "degrees":
        return parts[0] * sympy.pi / 180
    if name == "logb":
        return sympy.log(parts[0]) / sympy.log(parts[1])
    if name == "factorial":
        if parts[0].is_number and not (parts[0].is_Integer and 0 <= parts[0] <= 5_000):
            raise _Unsupported("a factorial out of range")
        return sympy.factorial(parts[0])
    if name not in _FUNCTIONS:
        raise _Unsupported(name)
    return _FUNCTIONS[name](*parts)


def _ranged(name: str, args: list[Any], bound: frozenset[str]) -> Any:
    """A sum, product or integral over an explicit range."""
    lower, upper, body = args
    if name == "int":
        return _integral(lower, upper, body, bound)
    if lower[0] != "rel" or lower[1] != "=" or lower[3][0][0] not in ("sym", "const"):
        raise _Unsupported("a range without a start")
    variable = lower[3][0][1]
    start, end = _expression(lower[3][1], bound), _expression(upper, bound)
    term = _expression(_replaced(body, variable), bound | {variable})
    make = sympy.Sum if name == "sum" else sympy.Product
    symbol = sympy.Symbol(f"{variable}#", integer=True)
    term = term.subs(sympy.Symbol(f"{variable}#", real=True), symbol)
    if start.is_number and end.is_number and end.is_finite and end - start > _MAX_RANGE:
        return _closed(make(term, (symbol, start, _END)), end)
    return make(term, (symbol, start, end))


def _closed(ranged: Any, end: Any) -> Any:
    """The value of a sum or product over a long range, where there is a closed form for it."""
    form = ranged.doit()
    if form.has(sympy.Sum, sympy.Product) or form.free_symbols != {_END}:
        raise _Unsupported("a range too long")
    with mpmath.workdps(2 * _DIGITS):
        value = sympy.lambdify(_END, form, "mpmath")(mpmath.mpf(int(end)))
    return sympy.Float(value, 2 * _DIGITS)


def _limit(args: list[Any], bound: frozenset[str]) -> Any:
    lower, _, body = args
    if lower[0] != "rel" or lower[1] != "to" or lower[3][0][0] != "sym":
        raise _Unsupported("a limit without a point")
    variable = lower[3][0][1]
    term = _expression(_replaced(body, variable), bound | {variable})
    point = _expression(lower[3][1], bound)
    return sympy.limit(term, sympy.Symbol(f"{variable}#", real=True), point)


def _integral(lower: Any, upper: Any, body: Any, bound: frozenset[str]) -> Any:
    factors = body[3]
    if body[0] != "mul" or len(factors) < 2 or factors[-2][:2] != ["sym", "d"]:
        raise _Unsupported("an integral without a differential")
    variable = factors[-1][1]
    inner = ["mul", "", None, factors[:-2]] if len(factors) > 2 else ["num", "", "1", []]
    term = _expression(_replaced(inner, variable), bound | {variable})
    symbol = sympy.Symbol(f"{variable}#", real=True)
    ends = (_expression(lower, bound), _expression(upper, bound))
    return sympy.Integral(term, (symbol, *ends))


def _replaced(node: Any, variable: str) -> Any:
    """The tree with a bound variable under a name that no free one has."""
    kind, name, value, args = node
    if kind in ("sym", "const") and name == variable:
        return ["sym", f"{variable}#", None, []]
    return [kind, name, value, [_replaced(arg, variable) for arg in args]]
