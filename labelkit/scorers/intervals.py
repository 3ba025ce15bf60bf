"""Sets of real numbers as ordered intervals, read from brackets, inequalities and unions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from labelkit.scorers.formula import MINUS_ONE, Node

_INFINITY = Node("const", name="oo")
_MINUS_INFINITY = Node("mul", (MINUS_ONE, _INFINITY))
_FLIPPED = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}


@dataclass(frozen=True, slots=True)
class Interval:
    """From `low` to `high`; infinite ends are open."""

    low: Node
    low_closed: bool
    high: Node
    high_closed: bool


@dataclass(frozen=True, slots=True)
class Region:
    """Disjoint intervals in ascending order; `variable` is what an inequality was about."""

    intervals: tuple[Interval, ...]
    variable: str = ""


def intervals_of(node: Node) -> Region | None:
    """The region that a formula describes, None where it is none or its ends cannot be ordered."""
    if node.kind == "group" and len(node.args) == 2:
        low_closed, high_closed = node.name[0] == "[", node.name[1] == "]"
        return Region((Interval(node.args[0], low_closed, node.args[1], high_closed),))
    if node.kind == "sym" and node.name == "ℝ":
        return Region((Interval(_MINUS_INFINITY, False, _INFINITY, False),))
    if node.kind == "rel" and node.name == "in":
        return intervals_of(node.args[1])
    if node.kind == "rel" and node.name in _FLIPPED:
        return _inequality(node)
    if node.kind == "chain":
        return _between(node)
    if node.kind in ("cup", "list"):
        return _union([intervals_of(arg) for arg in node.args])
    return None


def _inequality(node: Node) -> Region | None:
    left, right, sign = node.args[0], node.args[1], node.name
    if left.kind != "sym":
        left, right, sign = right, left, _FLIPPED[sign]
    if left.kind != "sym" or any(part == left for part in right.walk()):
        return None
    closed = sign.endswith("=")
    if sign.startswith("<"):
        return Region((Interval(_MINUS_INFINITY, False, right, closed),), left.name)
    return Region((Interval(right, closed, _INFINITY, False),), left.name)


def _between(node: Node) -> Region | None:
    if len(node.args) != 2 or node.args[0].args[1].kind != "sym":
        return None
    first, second = node.args
    low, high = first.args[0], second.args[1]
    signs = (first.name, second.name)
    if all(sign in (">", ">=") for sign in signs):
        low, high, signs = high, low, (_FLIPPED[signs[1]], _FLIPPED[signs[0]])
    if not all(sign in ("<", "<=") for sign in signs):
        return None
    ends = Interval(low, signs[0] == "<=", high, signs[1] == "<=")
    return Region((ends,), first.args[1].name)


def _union(regions: Sequence[Region | None]) -> Region | None:
    intervals: list[Interval] = []
    variables: set[str] = set()
    for region in regions:
        if region is None:
            return None
        intervals += region.intervals
        variables |= {region.variable} - {""}
    placed = [(_place(interval.low), _place(interval.high), interval) for interval in intervals]
    if len(variables) > 1 or any(math.isnan(low) or math.isnan(high) for low, high, _ in placed):
        return None
    placed.sort(key=lambda item: item[:2])
    joined: list[Interval] = []
    reach = -math.inf
    for low, high, interval in placed:
        if joined and (
            low < reach or (low == reach and (joined[-1].high_closed or interval.low_closed))
        ):
            if high > reach or (high == reach and interval.high_closed):
                last = joined.pop()
                joined.append(
                    Interval(last.low, last.low_closed, interval.high, interval.high_closed)
                )
        else:
            joined.append(interval)
        reach = max(reach, high)
    return Region(tuple(joined), next(iter(variables), ""))


def _place(node: Node) -> float:
    """Where an end lies, well enough to put ends in order; NaN where that is not known."""
    try:
        return _approximate(node)
    except (ArithmeticError, ValueError):
        return math.nan


def _approximate(node: Node) -> float:
    match node.kind:
        case "num" if node.value is not None:
            return float(node.value)
        case "const":
            return {"pi": math.pi, "e": math.e, "oo": math.inf}.get(node.name, math.nan)
        case "add":
            return sum(_approximate(arg) for arg in node.args)
        case "mul":
            return math.prod(_approximate(arg) for arg in node.args)
        case "pow":
            return math.pow(*(_approximate(arg) for arg in node.args))
        case "call" if node.name == "ln":
            return math.log(_approximate(node.args[0]))
    return math.nan
