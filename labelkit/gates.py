"""Gates: `pass_rate >= 0.6` over a run's summary, `every_task.pass_rate >= 0.5` over its tasks.

A gate decides an exit code, so whatever leaves it unanswered (a null, a missing key, no task at
all) makes it fail, never hold. It judges a finished run and must not raise there: what can be wrong
with an expression is said by `parse_gate` and `check_key` before anything is spent.
"""

from __future__ import annotations

import json
import math
import operator
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import JsonValue

from labelkit.errors import Fault, UsageError
from labelkit.spec import nearest

Scope = Literal["summary", "every_task", "any_task"]

_OPERATORS: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
    "==": operator.eq,
    "!=": operator.ne,
}
# How far a value is on the holding side: the worst task has the least of it, the best the most.
_MARGINS: dict[str, Callable[[float, float], float]] = {
    ">=": lambda value, bound: value - bound,
    ">": lambda value, bound: value - bound,
    "<=": lambda value, bound: bound - value,
    "<": lambda value, bound: bound - value,
    "==": lambda value, bound: -abs(value - bound),
    "!=": lambda value, bound: abs(value - bound),
}
_OPERATOR = re.compile(r"[<>=!~≤≥≠]+")
_SEGMENT = re.compile(r'"(?:[^"\\]|\\.)*"|[^\s."<>=!~≤≥≠]+')
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_INTEGER = re.compile(r"[+-]?[0-9]+")
_REPAIRED = {"=": "==", "=>": ">=", "=<": "<=", "<>": "!=", "≥": ">=", "≤": "<=", "≠": "!="}
_EXAMPLE = "write it as `pass_rate >= 0.6`"
# Counts by reason list only the reasons that occurred: one that is absent has the count 0.
_BY_REASON = ("unscored", "failed", "dropped")


@dataclass(frozen=True)
class GateResult:
    """A gate's verdict. `actual` None: there was no number, for which `problem` may say why."""

    expr: str
    actual: int | float | None
    holds: bool
    problem: str | None = None

    def as_json(self) -> dict[str, JsonValue]:
        """What stands in the summary: expr, actual, holds."""
        return {"expr": self.expr, "actual": self.actual, "holds": self.holds}


class Gate:
    """One parsed gate. A per-task gate is fed every line of tasks.jsonl before it is judged."""

    def __init__(
        self, expr: str, scope: Scope, path: tuple[str, ...], op: str, bound: int | float
    ) -> None:
        self.expr = expr
        self.scope: Scope = scope
        self.path = path
        self.op = op
        self.bound = bound
        self._seen: GateResult | None = None

    @property
    def per_task(self) -> bool:
        return self.scope != "summary"

    def feed(self, task_line: Mapping[str, JsonValue]) -> None:
        """Look at one task. Keeps the deciding value only: the worst of every, the best of any."""
        new = self._verdict(task_line)
        if self._seen is None:
            self._seen = new
            return
        gain = self._margin(new) - self._margin(self._seen)
        if gain < 0 if self.scope == "every_task" else gain > 0:
            self._seen = new

    def judge(self, summary: Mapping[str, JsonValue]) -> GateResult:
        """The verdict, from the summary or, for a per-task gate, from the tasks fed so far.

        `actual` of a per-task gate is the value of the task that decided it. No task: fails.
        """
        if not self.per_task:
            return self._verdict(summary)
        return self._seen or GateResult(self.expr, None, False, "the run has no task")

    def _margin(self, verdict: GateResult) -> float:
        if verdict.actual is None:
            return -sys.float_info.max
        return _MARGINS[self.op](verdict.actual, self.bound)

    def _verdict(self, document: Mapping[str, JsonValue]) -> GateResult:
        value: JsonValue = dict(document)
        for depth, segment in enumerate(self.path):
            here = dotted(self.path[: depth + 1])
            if value is None:
                break
            if isinstance(value, dict) and segment in value:
                value = value[segment]
            elif isinstance(value, list) and segment.isdecimal() and int(segment) < len(value):
                value = value[int(segment)]
            elif isinstance(value, dict) and depth and self.path[depth - 1] in _BY_REASON:
                value = 0
            else:
                known = sorted(value) if isinstance(value, dict) else []
                return GateResult(self.expr, None, False, _unknown(here, segment, known))
        if value is None:
            return GateResult(self.expr, None, False)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return GateResult(self.expr, None, False, f"`{dotted(self.path)}` is not a number")
        return GateResult(self.expr, value, _OPERATORS[self.op](value, self.bound))


def parse_gate(expr: str) -> Gate:
    """A gate from `KEY OPERATOR NUMBER`; raises UsageError that names the fault and the fix.

    KEY is dotted; a part with dots or spaces is quoted (`slices."a.b".pass_rate`), a part that is a
    number reaches into a list (`pass_rate_interval.0`). `every_task.` or `any_task.` before it asks
    each line of tasks.jsonl. OPERATOR is >= <= > < == !=.
    """
    path, at = _key(expr)
    found = _OPERATOR.match(expr, at)
    if not path or not found:
        fault = f"has no operator after `{dotted(path)}`" if path else "does not start with a key"
        raise _refused(expr, fault, f"{_EXAMPLE}; operators: {' '.join(_OPERATORS)}")
    op, number = found[0], expr[found.end() :].strip()
    if op not in _OPERATORS:
        fix = f"write {_REPAIRED[op]}" if op in _REPAIRED else f"use {' '.join(_OPERATORS)}"
        raise _refused(expr, f"has the operator `{op}`", fix)
    if _NUMBER.fullmatch(dotted(path)):
        raise _refused(expr, "has a number where the key belongs", "write the key first")
    if not _NUMBER.fullmatch(number):
        raise _refused(expr, *_not_a_number(number, path))
    bound = float(number)
    if math.isinf(bound):
        raise _refused(expr, f"has a number out of range: {number[:40]}", _EXAMPLE)
    if _INTEGER.fullmatch(number):
        bound = int(number)
    if path[0] not in ("every_task", "any_task"):
        return Gate(expr.strip(), "summary", path, op, bound)
    if len(path) == 1:
        fix = f"write it as `{path[0]}.pass_rate {op} {number}`"
        raise _refused(expr, f"names no key of the tasks after `{path[0]}`", fix)
    scope: Scope = "every_task" if path[0] == "every_task" else "any_task"
    return Gate(expr.strip(), scope, path[1:], op, bound)


def check_key(gate: Gate, known_keys: Sequence[str]) -> Fault | None:
    """What is wrong with the key of a gate, before the run.

    `known_keys` are the dotted numeric keys of the summary, or of a line of tasks.jsonl for a
    per-task gate, in the syntax of gates; a part `*` stands for any name (`slices.*.pass_rate`).
    """
    for known in known_keys:
        parts, _ = _key(known)
        if len(parts) == len(gate.path) and all(
            part in ("*", mine) for part, mine in zip(parts, gate.path, strict=True)
        ):
            return None
    key = dotted(gate.path)
    guess = nearest(key, list(known_keys))
    fix = f"did you mean `{guess}`?" if guess else f"known keys: {', '.join(known_keys)}"
    return Fault(f"gate `{gate.expr}`: there is no number `{key}`", fix=fix)


def dotted(path: Sequence[str]) -> str:
    """A path as a gate writes it, quoted where it must be."""
    return ".".join(
        part
        if _SEGMENT.fullmatch(part) and part[0] != '"'
        else json.dumps(part, ensure_ascii=False)
        for part in path
    )


def _key(text: str) -> tuple[tuple[str, ...], int]:
    """The dotted key at the start of a text, and where what follows it starts."""
    path: list[str] = []
    at = len(text) - len(text.lstrip())
    while found := _SEGMENT.match(text, at):
        at = found.end()
        path.append(_unquoted(found[0], text))
        if text[at : at + 1] != ".":
            break
        at += 1
        if not _SEGMENT.match(text, at):
            raise _refused(text, "has a dot with no name behind it", _EXAMPLE)
    return tuple(path), at + len(text[at:]) - len(text[at:].lstrip())


def _unquoted(segment: str, text: str) -> str:
    if not segment.startswith('"'):
        return segment
    try:
        return str(json.loads(segment))
    except ValueError:
        raise _refused(
            text, f"has a bad escape in {segment}", 'only \\" and \\\\ need one'
        ) from None


def _not_a_number(text: str, path: Sequence[str]) -> tuple[str, str]:
    """The fault and the fix for what stands where a number belongs."""
    if not text:
        return "ends without a number", _EXAMPLE
    fault = f"has `{text}` where a number belongs"
    if text.endswith("%") and _NUMBER.fullmatch(text[:-1].strip()):
        return fault, f"write {float(text[:-1]) / 100:g}"
    if _OPERATOR.search(text) or " and " in text:
        return fault, "write one comparison a gate; list several gates"
    if text in ("null", "true", "false"):
        return fault, f"`{dotted(path)}` can only be compared with a number"
    return fault, _EXAMPLE


def _unknown(key: str, segment: str, known: Sequence[str]) -> str:
    guess = nearest(segment, known)
    return f"there is no `{key}`" + (f"; did you mean `{guess}`?" if guess else "")


def _refused(expr: str, fault: str, fix: str) -> UsageError:
    return UsageError(f"gate `{expr.strip()}` {fault}", hint=fix)
