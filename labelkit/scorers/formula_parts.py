"""Parts of formulas as trees: what a power, a root or a subscript makes of the tree before it.

The reading conventions of mathematics live here, the grammar in `formula_parser`.
"""

from __future__ import annotations

from fractions import Fraction

from labelkit.scorers.formula import FormulaError, Node, number, written
from labelkit.scorers.formula_tokens import Token
from labelkit.scorers.numbers import Literal, digits_of


def times(one: Node, other: Node) -> Node:
    """The product; products of products become one."""
    if one.kind == "mul":
        return Node("mul", (*one.args, other))
    return Node("mul", (one, other))


def function_of(name: str, args: tuple[Node, ...], base: Node | None, root: Fraction) -> Node:
    """A function applied: roots and exp are powers, logarithms carry their base.

    `root`: the degree that a \\sqrt[…] names.
    """
    if name in ("sqrt", "cbrt") and len(args) == 1:
        degree = Fraction(3) if name == "cbrt" else root
        if degree == 0:
            raise FormulaError("has a root of degree zero")
        return Node("pow", (args[0], number(1 / degree)))
    if name == "exp" and len(args) == 1:
        return Node("pow", (Node("const", name="e"), args[0]))
    if name in ("log", "ln", "lg"):
        if name == "lg":
            base = base or number(10)
        if base is None or (base.kind == "const" and base.name == "e"):
            return Node("call", args, "ln")
        return Node("call", (*args, base), "logb")
    return Node("call", args if base is None else (*args, base), name)


def primed(node: Node) -> Node:
    """x' as a symbol of its own."""
    if node.kind != "sym":
        raise FormulaError("has a prime that does not fit")
    return Node("sym", name=node.name + "'")


def subscripted(node: Node, index: Node) -> Node:
    """52_8 as a number in a base, x_1 as a symbol of its own."""
    if node.kind == "num" and index.value is not None and node.value is not None:
        base, value = index.value, node.value
        if base.denominator == 1 and 2 <= base <= 16 and value.denominator == 1 and value >= 0:
            digits = digits_of(value)
            if digits and all(int(digit) < base for digit in digits):
                return Node("based", name=str(base), value=Fraction(int(digits, int(base))))
        raise FormulaError("has a number in a base that it does not fit")
    if node.kind not in ("sym", "const", "call"):
        raise FormulaError("has a subscript that does not fit")
    return Node("sym", (index,), f"{node.name}_{written(index)}")


def proper_fraction(part: Node) -> Fraction | None:
    """The value of a fraction between 0 and 1 of two natural numbers, None for anything else."""
    if part.kind != "mul" or len(part.args) != 2 or part.args[1].kind != "pow":
        return None
    top, bottom = part.args[0].value, part.args[1].args[0].value
    if top is None or bottom is None or top.denominator != 1 or bottom.denominator != 1:
        return None
    return top / bottom if 0 < top < bottom else None


def spaced_fraction(following: list[Token]) -> Fraction | None:
    """The fraction of a mixed number written as `3 1/2`: three tokens, a blank before the first."""
    if [token.kind for token in following] != ["num", "op", "num"] or following[1].text != "/":
        return None
    top, bottom = following[0].literal, following[2].literal
    if top is None or bottom is None or not following[0].spaced:
        return None
    if top.places is not None or bottom.places is not None:
        return None
    if not 0 < top.value < bottom.value:
        return None
    return top.value / bottom.value


def grouped(ends: str, args: tuple[Node, ...]) -> Node:
    """What brackets make of their content: a tuple or an interval, a matrix of rows, or nothing.

    `ends`: both brackets. Raises FormulaError where they do not match around one thing.
    """
    if ends[0] == "[" and all(arg.kind == "group" and arg.name == "[]" for arg in args):
        rows = tuple(Node("row", arg.args) for arg in args)
        if len({len(row.args) for row in rows}) == 1:
            return Node("matrix", rows)
    if len(args) > 1 or (ends == "[]" and args[0].kind == "group"):
        return Node("group", args, ends)
    if ends in ("()", "[]"):
        return args[0]
    raise FormulaError("has brackets that do not match")


def first_digit(literal: Literal) -> tuple[int, Literal | None]:
    """A number's first digit, and the number that the others make."""
    digits = digits_of(literal.value)
    if digits is None or literal.places is not None:
        raise FormulaError("has a fraction that cannot be read")
    return int(digits[0]), Literal(Fraction(int(digits[1:]))) if len(digits) > 1 else None


def laid_out(name: str, rows: tuple[Node, ...]) -> Node:
    """The rows of an environment as cases, a matrix or a determinant."""
    if name == "cases":
        return Node("cases", rows)
    if len({len(row.args) for row in rows}) > 1:
        raise FormulaError("has a matrix with rows of different lengths")
    matrix = Node("matrix", rows)
    return Node("call", (matrix,), "det") if name == "vmatrix" else matrix
