"""The golds of `program`: which tests a candidate must pass, and how a returned value compares.

Reads task files of strangers: every fault is told, nothing is run.
"""

from __future__ import annotations

import ast
import builtins
import math
from typing import Annotated, Any

from pydantic import (
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    ValidationError,
    model_validator,
)

from labelkit.records import Task
from labelkit.scorers.program_source import parse
from labelkit.spec import first_problem


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Case(_Part):
    """One call and what must come of it: an equal value, or an exception of that name."""

    args: list[JsonValue] = []
    kwargs: dict[str, JsonValue] = {}
    expected: JsonValue = None
    raises: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _from_pair(cls, given: Any) -> Any:
        if isinstance(given, list) and len(given) == 2:
            return {"args": given[0], "expected": given[1]}
        return given


class StdinTest(_Part):
    """Standard input and the standard output that must come of it."""

    stdin: str = ""
    stdout: str


class ProgramGold(_Part):
    """Exactly one of `tests` (with or without `hidden_tests`), `cases` and `stdin_tests`.

    `tests`: Python source; HumanEval's `test` and MBPP's `test_list` are read as well. `prelude`
    runs before the candidate and before the tests (imports, helpers, a stub of the entry point);
    HumanEval's `prompt` is one. `task_id` and `canonical_solution` are left alone.
    """

    entry_point: str | None = None
    tests: Annotated[
        str | list[str] | None,
        Field(validation_alias=AliasChoices("tests", "test", "test_list")),
    ] = None
    hidden_tests: str | list[str] | None = None
    cases: list[Case] | None = None
    stdin_tests: list[StdinTest] | None = None
    prelude: Annotated[str, Field(validation_alias=AliasChoices("prelude", "prompt"))] = ""
    task_id: JsonValue = None
    canonical_solution: str | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> ProgramGold:
        kinds = [bool(self.tests or self.hidden_tests), bool(self.cases), bool(self.stdin_tests)]
        if sum(kinds) != 1:
            raise ValueError("give exactly one of `tests`, `cases` and `stdin_tests`, not empty")
        return self

    @property
    def sources(self) -> dict[str, str]:
        """The test sources by the name that a failure shows."""
        named = {"tests.py": self.tests, "hidden_tests.py": self.hidden_tests}
        return {name: _joined(source) for name, source in named.items() if source}


def read_gold(task: Task, entry_point: str | None, prelude_from_prompt: bool) -> ProgramGold:
    """A task's gold with entry point and prelude filled in. Raises ValueError with the problem.

    Source text alone, or a list of it, is `tests`; the entry point may stand in the metadata or be
    the one unknown function that the tests call.
    """
    gold: Any = task.gold
    if isinstance(gold, str) or (isinstance(gold, list) and all(isinstance(g, str) for g in gold)):
        gold = {"tests": gold}
    if gold is None:
        raise ValueError("is missing: a mapping with `tests`, `cases` or `stdin_tests`")
    if not isinstance(gold, dict):
        raise ValueError("should be a mapping with `tests`, `cases` or `stdin_tests`")
    try:
        read = ProgramGold.model_validate(gold)
    except ValidationError as error:
        raise ValueError(first_problem(error, ProgramGold, gold)) from None
    changes: dict[str, Any] = {}
    if prelude_from_prompt and not read.prelude:
        if not isinstance(task.prompt, str):
            raise ValueError("a prompt of chat messages is no prelude")
        changes["prelude"] = task.prompt
    for name, source in {**read.sources, "prelude": changes.get("prelude", read.prelude)}.items():
        _must_parse(name, source)
    if read.stdin_tests is None:
        named = read.entry_point or entry_point or task.metadata.get("entry_point")
        changes["entry_point"] = named if isinstance(named, str) else _tested_name(read)
    return read.model_copy(update=changes)


def matches(expected: JsonValue, returned: Any, tolerance: float | None = None) -> bool:
    """Whether an encoded value (`sandbox.values`) is the expected JSON value.

    JSON has no tuples, so a tuple counts as a list. True is no 1. Numbers are equal exactly, or
    within the tolerance, relative or absolute. `returned` may be any JSON at all.
    """
    if expected is None or isinstance(expected, bool | str):
        return type(returned) is type(expected) and returned == expected
    if isinstance(expected, int | float):
        number = _number(returned)
        if number is None:
            return False
        if tolerance is None or number == expected:
            return number == expected
        return math.isclose(number, expected, rel_tol=tolerance, abs_tol=tolerance)
    if not isinstance(returned, list) or len(returned) != 2 or not isinstance(returned[1], list):
        return False
    kind, items = returned
    if len(items) != len(expected):
        return False
    if isinstance(expected, list):
        pairs = zip(expected, items, strict=True)
        return kind in ("list", "tuple") and all(matches(a, b, tolerance) for a, b in pairs)
    if kind != "dict" or not all(isinstance(item, list) and len(item) == 2 for item in items):
        return False
    members = {key: value for key, value in items if isinstance(key, str)}
    return members.keys() == expected.keys() and all(
        matches(value, members[key], tolerance) for key, value in expected.items()
    )


def same_output(expected: str, printed: str) -> bool:
    """Equal lines, but for blanks at their ends and empty lines at the end."""
    return _lines(expected) == _lines(printed)


def _lines(text: str) -> list[str]:
    return "\n".join(line.rstrip() for line in text.split("\n")).rstrip("\n").split("\n")


def _number(returned: Any) -> int | float | None:
    if isinstance(returned, int) and not isinstance(returned, bool):
        return returned
    if isinstance(returned, list) and len(returned) == 2 and isinstance(returned[1], str):
        try:
            if returned[0] == "int":
                return int(returned[1], 16)
            if returned[0] == "float":
                return float.fromhex(returned[1])
        except (ValueError, OverflowError):
            return None
    return None


def _joined(source: str | list[str]) -> str:
    return source if isinstance(source, str) else "\n".join(source)


def _must_parse(name: str, source: str) -> None:
    try:
        parse(source)
    except SyntaxError as error:
        raise ValueError(f"{name} is not Python: {error.msg} (line {error.lineno})") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise ValueError(f"{name} is not Python: {error}") from None


def _tested_name(gold: ProgramGold) -> str:
    """The one function that the tests call and nobody defines."""
    called: set[str] = set()
    known = set(dir(builtins))
    for source in [*gold.sources.values(), gold.prelude]:
        for node in ast.walk(parse(source)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                called.add(node.func.id)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                known.add(node.name)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                known.add(node.id)
            elif isinstance(node, ast.arg):
                known.add(node.arg)
            elif isinstance(node, ast.Import | ast.ImportFrom):
                known.update(alias.asname or alias.name for alias in node.names)
    unknown = sorted(called - known)
    if len(unknown) != 1:
        found = ", ".join(unknown) or "none"
        raise ValueError(f"`entry_point` is missing, and the tests do not tell it (found: {found})")
    return unknown[0]
