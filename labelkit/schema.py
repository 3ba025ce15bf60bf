"""Response schemas: the short form, JSON Schema, and the strict reading of replies against one.

Integers stay exact at any size, `true` is no integer, and nothing in a reply is repaired. No
reference is ever fetched.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, ValidationError
from jsonschema.protocols import Validator
from jsonschema.validators import extend, validator_for
from pydantic import JsonValue
from referencing import Registry
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012

from labelkit.codec import canonical, strict_loads, unwritable
from labelkit.patterns import PatternLateError, linear_pattern, occurs, patience
from labelkit.spec import Path_, Problem, SectionError

_WORDS = {"str": "string", "int": "integer", "float": "number", "bool": "boolean"}
_JSON_TYPES = {"object", "array", "string", "integer", "number", "boolean", "null"}
_FORM = "write str, int, float, bool, list[…] of these, a mapping, or a list of allowed values"
_EXACT = 2**53


class UncheckedError(Exception):
    """Whether a JSON value keeps to its schema could not be found out."""

    def __init__(self, unable: Exception) -> None:
        why = "nested too deeply" if isinstance(unable, RecursionError) else type(unable).__name__
        super().__init__(f"cannot be checked against the schema: {why}")


def response_schema(response: dict[str, Any], at: Path_ = ("response",)) -> dict[str, JsonValue]:
    """The JSON Schema of a `response` section, which is one already or the short form of one.

    `{reasoning: str, final_answer: int}`: every key is required, no other is allowed; `str?` may be
    null. Raises SectionError with all problems; `at` is where the section stands.
    """
    problems: list[Problem] = []
    if _is_json_schema(response):
        schema = response
        problems += _schema_problems(response, at)
    else:
        schema = _object(response, at, problems)
    if problems:
        raise SectionError(problems)
    return schema


def schema_instructions(schema: dict[str, JsonValue]) -> str:
    """What asks for JSON in the prompt, where a model takes no schema of its own."""
    written = json.dumps(schema, ensure_ascii=False)
    return (
        "Answer with a single JSON value and nothing else: no Markdown, no text around it. "
        f"It must be valid against this JSON Schema:\n{written}"
    )


def parse_reply(text: str, schema: dict[str, JsonValue]) -> tuple[JsonValue, str | None]:
    """The value that a reply holds, and None; or None, and why there is none.

    One Markdown fence around the whole reply is allowed. Raises UncheckedError for JSON that
    cannot be checked against the schema, and nothing else, whatever the text.
    """
    try:
        value = strict_loads(_unfenced(text.strip()))
    except ValueError as error:
        return None, f"is not JSON: {str(error)[:200]}" if text.strip() else "is empty"
    problem = unwritable(value)
    if problem:
        return None, problem
    try:
        misfit = _misfit(value, schema)
    except (RecursionError, ArithmeticError, Unresolvable, PatternLateError) as unable:
        raise UncheckedError(unable) from None
    if misfit is None:
        return value, None
    place = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in misfit.absolute_path)
    said = f"{place.lstrip('.')}: {misfit.message}" if place else misfit.message
    return None, said if len(said) <= 200 else f"{said[:199]}…"


def _misfit(value: JsonValue, schema: dict[str, JsonValue]) -> ValidationError | None:
    """Where a value breaks a schema, from any caller the same: what is too deep for the stack that
    is left is walked again with a whole one, which a thread begins with."""
    validator = _validator(canonical(schema))

    def first() -> ValidationError | None:
        with patience(), remembering():
            return next(validator.iter_errors(value), None)

    try:
        return first()
    except RecursionError:
        with ThreadPoolExecutor(max_workers=1) as thread:
            return thread.submit(first).result()


def _is_json_schema(response: dict[str, Any]) -> bool:
    kind = response.get("type")
    return (
        (isinstance(kind, str) and kind in _JSON_TYPES)
        or isinstance(response.get("properties"), dict)
        or any(key.startswith("$") for key in response)
    )


def _object(members: dict[str, Any], at: Path_, problems: list[Problem]) -> dict[str, JsonValue]:
    if not members:
        problems.append(Problem(at, "has no fields", "e.g. {reasoning: str, final_answer: int}"))
    properties = {name: _member(kind, (*at, name), problems) for name, kind in members.items()}
    return {
        "type": "object",
        "properties": properties,
        "required": list(members),
        "additionalProperties": False,
    }


def _member(kind: Any, at: Path_, problems: list[Problem]) -> JsonValue:
    if isinstance(kind, dict):
        return _object(kind, at, problems)
    if isinstance(kind, list) and kind:
        if all(isinstance(value, str | int | float | bool) for value in kind):
            return {"enum": list(kind)}
    elif isinstance(kind, str):
        schema = _word(kind.strip())
        if schema is not None:
            return schema
    problems.append(Problem(at, f"{kind!r} is no type", _FORM))
    return None


def _word(kind: str) -> dict[str, JsonValue] | None:
    optional = kind.endswith("?")
    kind = kind.removesuffix("?")
    item = re.fullmatch(r"list\[(.+)\]", kind)
    schema: dict[str, JsonValue]
    if item:
        inner = _word(item[1])
        if inner is None:
            return None
        schema = {"type": "array", "items": inner}
    elif kind in _WORDS:
        schema = {"type": _WORDS[kind]}
    else:
        return None
    return {**schema, "type": [str(schema["type"]), "null"]} if optional else schema


def _schema_problems(schema: dict[str, Any], at: Path_) -> Iterator[Problem]:
    """What would make a schema fail, or reach out, when a reply is checked."""
    kind = validator_for(schema, default=Draft202012Validator)
    try:
        kind.check_schema(schema)
    except SchemaError as error:
        where = (*at, *error.absolute_path)
        yield Problem(where, f"is not JSON Schema: {error.message[:200]}")
        return
    if unbounded := unbounded_keyword(schema):
        yield Problem(at, unbounded, "use additionalProperties")
    root = DRAFT202012.create_resource(schema)
    resolver = Registry().with_resource("", root).resolver()
    for where, name, value in _keywords(schema, at):
        if name in ("$ref", "$dynamicRef") and isinstance(value, str):
            try:
                if not value.startswith("#"):
                    raise Unresolvable(value)
                resolver.lookup(value)
            except Unresolvable:
                problem = f"refers to {value!r}, which is not in this schema"
                yield Problem(where, problem, "write it under $defs and refer to #/$defs/…")
        for pattern in _patterns(name, value):
            try:
                linear_pattern(pattern)
            except ValueError as error:
                # A reply is read anew on every replay, so no clock may decide what it is.
                fix = "write it without lookaround, or check it with a `json` scorer"
                yield Problem(where, f"{pattern!r} is {error}", fix)


def unbounded_keyword(schema: dict[str, Any]) -> str | None:
    """Which keyword cannot be checked in bounded time in this schema, in words."""
    names = {name for _, name, _ in _keywords(schema, ())}
    if {"unevaluatedProperties", "patternProperties"} <= names:
        return "`unevaluatedProperties` beside `patternProperties` is not supported"
    return None


def has_patterns(schema: dict[str, Any]) -> bool:
    """Whether a schema holds any regular expression."""
    return any(_patterns(name, value) for _, name, value in _keywords(schema, ()))


def _patterns(name: str, value: Any) -> list[str]:
    """The regular expressions of a keyword."""
    if name == "pattern" and isinstance(value, str):
        return [value]
    return [*value] if name == "patternProperties" and isinstance(value, dict) else []


def _keywords(value: Any, at: Path_) -> Iterator[tuple[Path_, str, Any]]:
    if isinstance(value, dict):
        for name, member in value.items():
            yield (*at, name), name, member
            yield from _keywords(member, (*at, name))
    elif isinstance(value, list):
        for i, member in enumerate(value):
            yield from _keywords(member, (*at, i))


def _is_integer(_checker: Any, value: Any) -> bool:
    """12.0 is an integer to JSON Schema; a float beyond 2⁵³ is not exact, so it is none here."""
    if isinstance(value, float):
        return value.is_integer() and abs(value) <= _EXACT
    return isinstance(value, int) and not isinstance(value, bool)


@functools.lru_cache(maxsize=64)
def _validator(schema: bytes) -> Validator:
    loaded = json.loads(schema)
    kind = validator_for(loaded, default=Draft202012Validator)
    checker = kind.TYPE_CHECKER.redefine("integer", _is_integer)
    exact: type[Validator] = extend(  # type: ignore[no-untyped-call]
        kind, bounded_keywords(kind), type_checker=checker
    )
    return exact(loaded, registry=Registry())


Keyword = Callable[[Any, Any, Any, dict[str, Any]], Iterator[ValidationError]]


_decided: ContextVar[dict[tuple[int, int], str | None] | None]
_decided = ContextVar("what references found in parts of the value", default=None)


@contextmanager
def remembering() -> Iterator[None]:
    """Inside, while one value is checked, a reference is followed once for each of its parts.

    Every alternative of a recursive schema looks at all that is below it; without this the time
    would grow with a power of the value's depth.
    """
    token = _decided.set({})
    try:
        yield
    finally:
        _decided.reset(token)


def bounded_keywords(kind: type[Validator]) -> dict[str, Keyword]:
    """A draft's keywords that take unbounded time in jsonschema, in bounded time.

    There any text can hang a pattern, unique objects cost the square of their number, and
    references are followed anew however often they lead to the same place.
    """
    others: Keyword = kind.VALIDATORS["additionalProperties"]
    follow: Keyword = kind.VALIDATORS["$ref"]

    def reference(
        validator: Any, target: Any, instance: Any, schema: dict[str, Any]
    ) -> Iterator[ValidationError]:
        decided = _decided.get()
        place = id(schema), id(instance)
        if decided is None or place not in decided:
            said: str | None = None
            for error in follow(validator, target, instance, schema):
                said = said or error.message
                if decided is not None:
                    decided[place] = said
                yield error
            if decided is not None:
                decided[place] = said
        elif (known := decided[place]) is not None:
            yield ValidationError(known)

    def additional_properties(
        validator: Any, allowed: Any, instance: Any, schema: dict[str, Any]
    ) -> Iterator[ValidationError]:
        patterns = schema.get("patternProperties")
        if patterns and isinstance(instance, dict):
            instance = {
                name: value
                for name, value in instance.items()
                if not any(occurs(pattern, name) for pattern in patterns)
            }
            schema = {"properties": schema.get("properties", {})}
        return others(validator, allowed, instance, schema)

    return {
        "$ref": reference,
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "additionalProperties": additional_properties,
        "uniqueItems": _unique_items,
    }


def _pattern(
    validator: Any, pattern: str, instance: Any, schema: dict[str, Any]
) -> Iterator[ValidationError]:
    if isinstance(instance, str) and not occurs(pattern, instance):
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


def _pattern_properties(
    validator: Any, patterns: dict[str, Any], instance: Any, schema: dict[str, Any]
) -> Iterator[ValidationError]:
    for pattern, subschema in patterns.items() if isinstance(instance, dict) else ():
        for name, value in instance.items():
            if occurs(pattern, name):
                yield from validator.descend(value, subschema, path=name, schema_path=pattern)


def _unique_items(
    validator: Any, unique: bool, instance: Any, schema: dict[str, Any]
) -> Iterator[ValidationError]:
    if unique and isinstance(instance, list) and len({*map(_hashed, instance)}) < len(instance):
        yield ValidationError(f"{instance!r} has non-unique elements")


def _hashed(value: Any) -> Any:
    """A JSON value as one that equals another where JSON Schema says so: 1 is 1.0, not true."""
    if isinstance(value, dict):
        return frozenset((name, _hashed(member)) for name, member in value.items())
    if isinstance(value, list):
        return ("array", *map(_hashed, value))
    return ("boolean", value) if isinstance(value, bool) else value


def _unfenced(text: str) -> str:
    if not (text.startswith("```") and text.endswith("```")):
        return text
    head, newline, body = text[3:-3].partition("\n")
    return body if newline and head.strip().lower() in ("json", "") else text
