"""Formulas as trees, and the words of mathematics: what the tokenizer and the parser share.

A tree is plain data: it is never evaluated as code, and it travels to worker processes as JSON.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from pydantic import JsonValue

from labelkit.scorers.numbers import spelling

MAX_CHARACTERS = 2_000
MAX_DEPTH = 40
MAX_TREE_DEPTH = 100
"""What recurses over a tree (comparison, normal forms) relies on it."""
MAX_TOKENS = 1_200


class FormulaError(ValueError):
    """The text is no formula that can be read; the message says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Node:
    """A part of a formula.

    kind and what it holds: `num` value (and `places`, if written as a decimal) · `sym` name, and
    its index if it has one ·
    `const` name (pi, e, i, oo) · `add`, `mul` args · `pow` base, exponent · `call` name and args ·
    `pm` one arg, either sign · `percent` arg · `word` name, text as it stands · `dots` · `blank`
    (a bound left out) ·
    `list` args · `group` args in brackets, name their kinds (`[)`) · `set` args ·
    `builder` args · `matrix` rows, each a `row` · `cases` rows · `rel` name (`=`, `<`, …), two
    args · `chain` of `rel`s · `cup`, `cap`, `minus` args · `ratio` args · `based` name (the base),
    value
    """

    kind: str
    args: tuple[Node, ...] = ()
    name: str = ""
    value: Fraction | None = None
    places: int | None = None

    def walk(self) -> Iterator[Node]:
        """This node and all below it."""
        waiting = [self]
        while waiting:
            node = waiting.pop()
            yield node
            waiting.extend(node.args)

    def is_deeper_than(self, depth: int) -> bool:
        """Whether the tree has more levels than that."""
        level: list[Node] = [self]
        while level and depth >= 0:
            level = [arg for node in level for arg in node.args]
            depth -= 1
        return bool(level)

    def to_json(self) -> JsonValue:
        """Kind, name, value and arguments as lists, for a worker."""
        value = None if self.value is None else spelling(self.value)
        return [self.kind, self.name, value, [arg.to_json() for arg in self.args]]


def number(value: Fraction | int) -> Node:
    """An exact number."""
    return Node("num", value=Fraction(value))


MINUS_ONE = number(-1)


def negated(node: Node) -> Node:
    """The node with the other sign; a number stays a number."""
    if node.kind == "num" and node.value is not None:
        return Node("num", value=-node.value, places=node.places)
    return Node("mul", (MINUS_ONE, node))


def divided(top: Node, bottom: Node) -> Node:
    """A quotient as a product with a power of -1."""
    return Node("mul", (top, Node("pow", (bottom, MINUS_ONE))))


_FUNCTION_NAMES = (
    "sin cos tan cot sec csc sinh cosh tanh coth sech csch arcsin arccos arctan arccot arcsec "
    "arccsc arsinh arcosh artanh ln log lg exp sqrt cbrt abs floor ceil gcd lcm max min "
    "det deg dim ker arg sgn sign re im tr rank"
)
FUNCTIONS = {name: name for name in _FUNCTION_NAMES.split()} | {
    "asin": "arcsin",
    "acos": "arccos",
    "atan": "arctan",
    "tg": "tan",
    "ctg": "cot",
    "cosec": "csc",
    "Re": "re",
    "Im": "im",
    "Log": "log",
    "Arg": "arg",
}
_GREEK = (
    "alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi "
    "rho sigma tau upsilon phi varphi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Upsilon "
    "Phi Psi Omega ell hbar aleph nabla partial"
)
GREEK = {name: name.removeprefix("var") for name in _GREEK.split()}
CONSTANTS = {"pi": "pi", "infty": "oo", "infinity": "oo", "Infinity": "oo", "inf": "oo", "oo": "oo"}


_OPAQUE_NAMES = "f g h F G P O Theta Omega det gcd lcm deg dim ker rank tr norm"
OPAQUE = frozenset(_OPAQUE_NAMES.split())
"""Calls that are not worked out."""
NUMBER_SETS = {"R": "ℝ", "N": "ℕ", "Z": "ℤ", "Q": "ℚ", "C": "ℂ"}


def greek_letter(char: str) -> str | None:
    """The name of a Greek letter as LaTeX has it (`pi`, `Omega`), None for other characters."""
    words = unicodedata.name(char, "").split()
    if words[:1] != ["GREEK"] or "LETTER" not in words or words[-2] != "LETTER":
        return None
    name = "lambda" if words[-1] == "LAMDA" else words[-1].lower()
    return name if words[1] == "SMALL" else name.capitalize()


def written(node: Node) -> str:
    """A node's spelling, one for every structure: for names and for comparing forms."""
    value = "" if node.value is None else spelling(node.value)
    if node.kind == "num":
        return value
    if node.kind in ("sym", "const", "word"):
        return node.name
    inner = ",".join(written(arg) for arg in node.args)
    return f"{node.kind}:{node.name}:{value}({inner})"
