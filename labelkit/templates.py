"""Prompt templates: Jinja, cut down to what cannot run code, hang or fill the memory.

A spec may come from a stranger. So beside Jinja's own sandbox: no macros, includes or blocks; the
filters and methods listed here; every text that grows is bounded before it is built, and so is the
number of loop steps. What is not data (a function, null, an undefined name) never becomes text.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from jinja2 import TemplateError, TemplateSyntaxError, meta, nodes
from jinja2.exceptions import SecurityError
from jinja2.runtime import StrictUndefined, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer
from pydantic import JsonValue

from labelkit.codec import unwritable
from labelkit.spec import nearest

MAX_CHARACTERS = 2_000_000
"""The most that one template, and any text inside it, may come to."""

MAX_STEPS = 10_000
"""Loop steps in one rendering, nested loops taken together."""

_MAX_WORK = 5 * MAX_CHARACTERS
_COST = 32  # of a value that is no text, in characters
# fmt: off
_FILTERS = [
    "abs", "capitalize", "count", "d", "default", "dictsort", "first", "float", "int", "items",
    "last", "length", "list", "lower", "map", "max", "min", "reject", "rejectattr", "round",
    "select", "selectattr", "sort", "string", "sum", "title", "trim", "truncate", "unique", "upper",
    "wordcount",
]
_MAX_NUMBER = 10**100
_METHODS = [
    "capitalize", "casefold", "count", "endswith", "find", "get", "index", "isalpha", "isdigit",
    "islower", "isnumeric", "isspace", "isupper", "items", "keys", "lower", "lstrip", "partition",
    "removeprefix", "removesuffix", "rfind", "rpartition", "rsplit", "rstrip", "split",
    "splitlines", "startswith", "strip", "swapcase", "title", "upper", "values",
]
# fmt: on
_REFUSED: dict[type[nodes.Node], str] = {
    nodes.Macro: "macros",
    nodes.CallBlock: "call blocks",
    nodes.FilterBlock: "filter blocks",
    nodes.AssignBlock: "set blocks",
    nodes.Block: "blocks",
    nodes.Extends: "extends",
    nodes.Include: "include",
    nodes.Import: "import",
    nodes.FromImport: "import",
    nodes.NSRef: "namespaces",
    nodes.ScopedEvalContextModifier: "autoescape",
    nodes.Pow: "**",
}


class TemplateFault(ValueError):
    """Why a template cannot be used, or cannot be rendered for one task; in words for the user."""

    def __init__(self, problem: str, fix: str | None = None) -> None:
        super().__init__(problem)
        self.fix = fix


class Template:
    """A template, compiled once. `names` are the variables it may use, all given to `render`.

    Raises TemplateFault on one that cannot work for any task.
    """

    def __init__(self, source: str, names: Collection[str]) -> None:
        try:
            tree = _ENVIRONMENT.parse(source)
            for kind, said in _REFUSED.items():
                if tree.find(kind) is not None:
                    raise TemplateFault(f"uses {said}, which templates here do not have")
            for name in sorted(meta.find_undeclared_variables(tree) - set(names) - {"range"}):
                guess = nearest(name, sorted(names))
                fix = f"did you mean `{guess}`?" if guess else f"known: {', '.join(sorted(names))}"
                if name == "gold":
                    fix = "the gold is never shown to the model"
                raise TemplateFault(f"uses the undefined name `{name}`", fix)
            self._template = _ENVIRONMENT.from_string(_Bounds().visit(tree))
        except TemplateSyntaxError as error:
            problem = f"is not a template: {error.message} (line {error.lineno})"
            fix = "write literal {{, {% or {# as {{ '{{' }}"
            if "filter named" in str(error.message):
                fix = f"known: {', '.join(_FILTERS)}, join, replace, tojson"
            raise TemplateFault(problem, fix) from None
        except (RecursionError, MemoryError, OverflowError):
            raise TemplateFault("is nested too deeply") from None

    def render(self, variables: Mapping[str, Any]) -> str:
        """Raises TemplateFault where this task's values do not fit the template."""
        _ENVIRONMENT.steps = _ENVIRONMENT.work = 0
        pieces: list[str] = []
        size = 0
        try:
            for piece in self._template.generate(variables):
                size += len(piece)
                if size > MAX_CHARACTERS:
                    raise SecurityError(_TOO_LONG)
                pieces.append(piece)
        except _FAULTS as error:
            raise TemplateFault(f"cannot be rendered: {str(error)[:300]}") from None
        text = "".join(pieces)
        problem = unwritable(text)
        if problem:
            raise TemplateFault(f"gives text that {problem}")
        return text


_FAULTS = (
    TemplateError,
    TypeError,
    ValueError,
    ArithmeticError,
    LookupError,
    AttributeError,
    RecursionError,
)
_TOO_LONG = f"it comes to more than {MAX_CHARACTERS:,} characters"


class _Environment(ImmutableSandboxedEnvironment):
    """One for all templates; rendering is synchronous, so one count of steps and work will do."""

    intercepted_binops = frozenset(["+", "-", "*", "/", "//", "%"])
    steps = 0
    work = 0

    def wrap_str_format(self, value: Any) -> None:
        """`str.format` is refused like every method that is not listed."""

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if operator == "+":
            _check_size([left, right])
        elif not (isinstance(left, int | float) and isinstance(right, int | float)):
            raise SecurityError(f"{operator} takes numbers only")
        elif max(abs(left), abs(right)) > _MAX_NUMBER:
            raise SecurityError("a number is too large")
        return super().call_binop(context, operator, left, right)

    def call(self, context: Any, function: Any, /, *arguments: Any, **options: Any) -> Any:
        _check_size([getattr(function, "__self__", None), *arguments])
        return super().call(context, function, *arguments, **options)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        if callable(value) and isinstance(obj, str | int | float | list | dict | tuple):
            return attr in _METHODS
        return super().is_safe_attribute(obj, attr, value)

    def getattr(self, obj: Any, attribute: str) -> Any:
        """A member of the data goes before a method of the same name (`row.items`)."""
        if isinstance(obj, dict) and attribute in obj:
            return obj[attribute]
        return super().getattr(obj, attribute)


class _Bounds(NodeTransformer):
    """Puts the bounds into a template: around what is looped over, compared or joined by ~."""

    def visit_For(self, node: nodes.For) -> nodes.Node:
        if node.recursive:
            raise TemplateFault("uses a recursive loop, which templates here do not have")
        self.generic_visit(node)
        node.iter = _filter("_steps", node.iter)
        return node

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:
        self.generic_visit(node)
        node.expr = _filter("_sized", node.expr)
        for operand in node.ops:
            operand.expr = _filter("_sized", operand.expr)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return _filter("_concat", nodes.List(node.nodes, lineno=node.lineno))


def _filter(name: str, value: nodes.Node) -> nodes.Filter:
    return nodes.Filter(value, name, [], [], None, None, lineno=value.lineno)


def _steps(values: Iterable[Any]) -> list[Any]:
    """What a loop goes over, counted against the bound of one rendering."""
    if isinstance(values, Undefined):
        list(values)  # raises, in Jinja's words
    taken = []
    for value in values:
        _ENVIRONMENT.steps += 1
        if _ENVIRONMENT.steps > MAX_STEPS:
            raise SecurityError(f"it loops more than {MAX_STEPS:,} times")
        taken.append(value)
    return taken


def _range(*bounds: int) -> list[int]:
    steps = range(*bounds)
    if len(steps) > MAX_STEPS:
        raise SecurityError(f"range() is longer than {MAX_STEPS:,}")
    return list(steps)


def _concat(parts: list[Any]) -> str:
    _check_size(parts)
    return "".join(str(_printable(part)) for part in parts)


def _join(values: Iterable[Any], separator: str = "", attribute: str | None = None) -> str:
    parts = list(values)
    if attribute is not None:
        parts = [_ENVIRONMENT.getitem(part, attribute) for part in parts]
    _check_size([parts, len(separator) * len(parts)], MAX_CHARACTERS - len(separator) * len(parts))
    return separator.join(str(_printable(part)) for part in parts)


def _replace(text: str, old: str, new: str) -> str:
    text = str(_printable(text))
    if len(text) + text.count(old) * len(new) > MAX_CHARACTERS:
        raise SecurityError(_TOO_LONG)
    return text.replace(old, new)


def _tojson(value: JsonValue) -> str:
    """JSON as text for a model: nothing is escaped for HTML."""
    _check_size([value])
    return json.dumps(value, ensure_ascii=False)


def _printable(value: Any) -> Any:
    """What may become text: data, but not null, which is a value that is missing."""
    if value is None:
        raise SecurityError("a value is null; write {{ … or '' }} where it may be")
    if not isinstance(value, str | int | float | list | tuple | dict | Undefined):
        raise SecurityError(f"a {type(value).__name__} is no text")
    return value


def _sized(value: Any) -> Any:
    _check_size([value])
    return value


def _finalize(value: Any) -> Any:
    _check_size([value])
    return _printable(value)


def _check_size(values: list[Any] | tuple[Any, ...], left: int = MAX_CHARACTERS) -> None:
    """Refuse values whose text would be too long, without building it."""
    pending = list(values)
    while pending:
        value = pending.pop()
        size = len(value) if isinstance(value, str) else _COST
        left -= size
        _ENVIRONMENT.work += size
        if left < 0:
            raise SecurityError(_TOO_LONG)
        if _ENVIRONMENT.work > _MAX_WORK:
            raise SecurityError(f"it handles more than {_MAX_WORK:,} characters")
        if isinstance(value, dict):
            pending += [*value, *value.values()]
        elif isinstance(value, list | tuple):
            pending += value


def _bounded(function: Any) -> Callable[..., Any]:
    @functools.wraps(function)
    def filter_(*arguments: Any, **options: Any) -> Any:
        _check_size(
            [a for a in arguments if isinstance(a, str | int | float | list | tuple | dict)]
        )
        return function(*arguments, **options)

    return filter_


_ENVIRONMENT = _Environment(
    undefined=StrictUndefined,
    autoescape=False,
    keep_trailing_newline=True,
    finalize=_finalize,
    cache_size=0,
)
_ENVIRONMENT.filters = {
    **{name: _bounded(_ENVIRONMENT.filters[name]) for name in _FILTERS},
    "join": _bounded(_join),
    "replace": _bounded(_replace),
    "tojson": _tojson,
    "_steps": _steps,
    "_concat": _concat,
    "_sized": _sized,
}
_ENVIRONMENT.tests = {name: _bounded(test) for name, test in _ENVIRONMENT.tests.items()}
_ENVIRONMENT.globals = {"range": _range}
