"""Typed comparison of formulas: the gold's type says what is compared, structure before value.

Returns True, False or None (not known). Pairs of expressions that the normal forms leave open are
noted in `Comparison.open`, for a computer algebra system; its answers go into `Comparison.known`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import permutations

from labelkit.scorers.algebra import (
    NotAlgebraError,
    UndefinedError,
    add,
    equal,
    form_of,
    proportional,
)
from labelkit.scorers.folding import plain_words
from labelkit.scorers.formula import MINUS_ONE, OPAQUE, Node, negated, written
from labelkit.scorers.formula_views import label_of, members, plain, split_unit, text_of
from labelkit.scorers.intervals import Interval, intervals_of

MAX_ITEMS = 20
_MAX_SIGNS = 4
_STRUCTURE_NAMES = "group matrix row set rel chain dots ratio cases builder cup cap minus"
_STRUCTURES = frozenset(_STRUCTURE_NAMES.split())
_INEQUALITIES = frozenset(["<", ">", "<=", ">="])

Question = tuple[str, Node, Node]
"""`equal` or `proportional`, and the two expressions that it is about."""


@dataclass
class Comparison:
    """What is known about open pairs, and what was found to be open."""

    known: dict[str, bool | None] = field(default_factory=dict)
    open: dict[str, Question] = field(default_factory=dict)

    def same(self, gold: Node, said: Node) -> bool | None:
        """Whether the reply's formula is the gold's."""
        gold, said = plain(gold), plain(said)
        if written(gold) == written(said):
            return True
        if _is_text(gold) or _is_text(said):
            return plain_words(text_of(gold)).strip("()") == plain_words(text_of(said)).strip("()")
        gold_parts, said_parts = members(gold), members(said)
        if gold_parts is not None or said_parts is not None:
            return self._collections(gold, said, gold_parts, said_parts)
        if _is_region(gold) or (_is_region(said) and gold.kind == "group"):
            return self._regions(gold, said)
        if gold.kind == "rel":
            return self._relations(gold, said)
        if said.kind == "rel" and said.name == "=" and label_of(said) is not None:
            return self.same(gold, said.args[1])
        if gold.kind in ("group", "matrix", "row", "cases", "ratio", "builder", "chain", "pm"):
            return self._structures(gold, said)
        if gold.kind == "dots" or said.kind in _STRUCTURES:
            return False
        return self._values(gold, said)

    def _structures(self, gold: Node, said: Node) -> bool | None:
        if gold.kind != said.kind or gold.name != said.name or len(gold.args) != len(said.args):
            return False
        if gold.kind == "cases":
            return self._matched(gold.args, said.args)
        return self._pairwise(gold.args, said.args)

    def _pairwise(self, gold: Sequence[Node], said: Sequence[Node]) -> bool | None:
        return _all([self.same(one, other) for one, other in zip(gold, said, strict=True)])

    def _collections(
        self,
        gold: Node,
        said: Node,
        gold_parts: tuple[Node, ...] | None,
        said_parts: tuple[Node, ...] | None,
    ) -> bool | None:
        gold_parts = (gold,) if gold_parts is None else gold_parts
        said_parts = (said,) if said_parts is None else said_parts
        if any(part.kind == "dots" for part in (*gold_parts, *said_parts)):
            if len(gold_parts) != len(said_parts):
                return False
            return self._pairwise(gold_parts, said_parts)
        if _is_region(gold) or (gold_parts and all(map(_is_inequality, gold_parts))):
            regions = self._regions(gold, said)
            if regions is not None:
                return regions
        gold_parts, said_parts = self._distinct(gold, gold_parts), self._distinct(said, said_parts)
        return self._matched(gold_parts, said_parts)

    def _distinct(self, node: Node, parts: tuple[Node, ...]) -> tuple[Node, ...]:
        """The members of a set once each; a list keeps its repetitions."""
        if node.kind not in ("set", "cup"):
            return parts
        once = {written(part): part for part in parts}
        if len(once) > MAX_ITEMS:
            return tuple(once.values())
        kept: list[Node] = []
        for part in once.values():
            if not any(self.same(other, part) for other in kept):
                kept.append(part)
        return tuple(kept)

    def _matched(self, gold: Sequence[Node], said: Sequence[Node]) -> bool | None:
        """Whether two collections hold the same members in any order."""
        if len(gold) != len(said):
            return False
        left = list(said)
        spelt = [written(member) for member in left]
        rest: list[Node] = []
        for member in gold:
            if written(member) in spelt:
                del left[spelt.index(written(member))]
                spelt.remove(written(member))
            else:
                rest.append(member)
        if len(rest) > MAX_ITEMS:
            return None
        unknown: list[Node] = []
        for member in rest:
            place = next((i for i, other in enumerate(left) if self.same(member, other)), None)
            if place is None:
                unknown.append(member)
            else:
                del left[place]
        if not unknown:
            return True
        for member in unknown:
            if all(self.same(member, other) is False for other in left):
                return False
        if len(unknown) > 4:
            return None
        return _any([self._pairwise(unknown, order) for order in permutations(left)])

    def _regions(self, gold: Node, said: Node) -> bool | None:
        wanted, given = intervals_of(gold), intervals_of(said)
        if wanted is None or given is None:
            if gold.kind == "sym":
                return False
            if gold.kind == said.kind and gold.kind not in ("rel", "chain"):
                return self._structures(gold, said) or None
            return None if wanted is None else False
        if wanted.variable and given.variable and wanted.variable != given.variable:
            return False
        if len(wanted.intervals) != len(given.intervals):
            return False
        return _all(
            [
                self._same_interval(one, other)
                for one, other in zip(wanted.intervals, given.intervals, strict=True)
            ]
        )

    def _same_interval(self, gold: Interval, said: Interval) -> bool | None:
        if (gold.low_closed, gold.high_closed) != (said.low_closed, said.high_closed):
            return False
        return _all([self._ends(gold.low, said.low), self._ends(gold.high, said.high)])

    def _ends(self, gold: Node, said: Node) -> bool | None:
        return written(gold) == written(said) or self._values(gold, said)

    def _relations(self, gold: Node, said: Node) -> bool | None:
        if gold.name == "=" and label_of(gold) is not None and not _is_equation(said):
            label = label_of(said) if said.kind == "rel" else None
            if label is not None and not _compatible(label_of(gold), label):
                return False
            value = said.args[1] if label is not None else said
            return self.same(gold.args[1], value)
        if said.kind != "rel" or gold.name != said.name:
            return False
        if gold.name == "=":
            if label_of(gold) is not None and label_of(gold) == label_of(said):
                same = self.same(gold.args[1], said.args[1])
                if same:
                    return True
            try:
                one = add(form_of(gold.args[0]), form_of(gold.args[1]), -1)
                other = add(form_of(said.args[0]), form_of(said.args[1]), -1)
            except NotAlgebraError:
                return self._pairwise(gold.args, said.args) or None
            known = proportional(one, other)
            return self._ask("proportional", known, _difference(gold), _difference(said))
        return self._pairwise(gold.args, said.args)

    def _values(self, gold: Node, said: Node) -> bool | None:
        if "oo" in (gold.name, said.name) or _infinite(gold) or _infinite(said):
            return written(gold) == written(said)
        gold, gold_unit = split_unit(gold)
        said, said_unit = split_unit(said)
        if gold_unit and said_unit and plain_words(gold_unit) != plain_words(said_unit):
            return False
        if _signs(gold) != _signs(said):
            return False
        if gold.kind == "call" and _is_opaque(gold):
            if said.kind != "call" or said.name != gold.name or len(said.args) != len(gold.args):
                return None if said.kind == "call" and not _is_opaque(said) else False
            return self._pairwise(gold.args, said.args)
        if gold.kind == said.kind == "pow" and gold.args[0] == said.args[0]:
            base = gold.args[0].value
            if base is not None and base > 1:
                return self._values(gold.args[1], said.args[1])
        known: bool | None = None
        try:
            known = equal(form_of(gold), form_of(said))
        except UndefinedError:
            return False
        except NotAlgebraError:
            pass
        if known is None and self._same_call(gold, said):
            return True
        return self._ask("equal", known, gold, said)

    def _same_call(self, gold: Node, said: Node) -> bool:
        """Whether both are one function of equal arguments."""
        same_function = gold.kind == said.kind == "call" and gold.name == said.name
        return (
            same_function
            and len(gold.args) == len(said.args)
            and self._pairwise(gold.args, said.args) is True
        )

    def _ask(self, question: str, known: bool | None, gold: Node, said: Node) -> bool | None:
        if known is not None:
            return known
        key = f"{question} {written(gold)} {written(said)}"
        if key not in self.known:
            self.open[key] = (question, gold, said)
        return self.known.get(key)


def _compatible(one: str | None, other: str | None) -> bool:
    functions = ("y", "f", "g", "h")
    return one == other or (one in functions and other in functions)


def _signs(node: Node) -> set[str]:
    """Which parts a formula has that no value can replace: words, dots."""
    return {part.kind for part in node.walk()} & {"word", "dots"}


def _is_opaque(node: Node) -> bool:
    """Whether a call is a notation or an unknown function: the same only for the same arguments."""
    return node.name.startswith("\\") or node.name in OPAQUE


def _is_equation(node: Node) -> bool:
    return node.kind == "rel" and node.name == "=" and label_of(node) is None


def _is_text(node: Node) -> bool:
    """Whether a formula is words and nothing else."""
    return node.kind == "word" or (
        node.kind == "mul" and all(arg.kind == "word" for arg in node.args)
    )


def _is_inequality(node: Node) -> bool:
    names = [part.name for part in node.args] if node.kind == "chain" else [node.name]
    return node.kind in ("rel", "chain") and all(name in _INEQUALITIES for name in names)


def _is_region(node: Node) -> bool:
    if _is_inequality(node) or node.kind in ("cup", "cap", "minus"):
        return True
    if node.kind == "sym" and node.name == "ℝ":
        return True
    return node.kind == "group" and (
        node.name in ("[)", "(]") or any(_infinite(arg) for arg in node.args)
    )


def _infinite(node: Node) -> bool:
    if node.kind == "mul" and len(node.args) == 2:
        return node.args[0] == MINUS_ONE and _infinite(node.args[1])
    return node.kind == "const" and node.name == "oo"


def _difference(equation: Node) -> Node:
    return Node("add", (equation.args[0], negated(equation.args[1])))


def _all(outcomes: Sequence[bool | None]) -> bool | None:
    if False in outcomes:
        return False
    return None if None in outcomes else True


def _any(outcomes: Sequence[bool | None]) -> bool | None:
    if True in outcomes:
        return True
    return None if None in outcomes else False
