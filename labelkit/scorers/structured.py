"""The `json` scorer: a reply's JSON against the gold, a JSON Schema, or selected paths.

Strict on purpose: what is not JSON (NaN, duplicate keys, a cut object) is a wrong answer with that
reason, never repaired into a right one. Schemas never reach the network.
"""

from __future__ import annotations

import json
from importlib.metadata import version
from typing import Any, ClassVar, Literal

from jsonschema import Draft202012Validator, SchemaError
from jsonschema.exceptions import best_match
from jsonschema.protocols import Validator
from jsonschema.validators import extend
from pydantic import Field, JsonValue, field_validator, model_validator
from referencing import Registry

from labelkit.codec import clean_text, strict_loads
from labelkit.patterns import PatternLateError, patience
from labelkit.records import Abstention, Reply, Score, Task, Verdict
from labelkit.schema import bounded_keywords, has_patterns, remembering, unbounded_keyword
from labelkit.scorers import Binding, ScorerSettings
from labelkit.scorers.json_in_text import NoOffer, offered, same
from labelkit.seams import Draw, Scorer

_MISSING: Any = object()


class Json(ScorerSettings):
    """Strict JSON.

    `schema`: the reply must satisfy it. `match`: whether it must equal the gold; by default so
    unless a schema is given without `paths`. `paths`: only these places are compared (`a.b.0` or
    `/a/b/0`); value = share of them that are equal. `repair`: trailing commas are forgiven.
    A gold that is the text of a JSON object or array stands for that value.
    """

    KIND: ClassVar[str] = "json"
    PURE: ClassVar[bool] = True

    schema_: dict[str, JsonValue] | None = Field(default=None, alias="schema")
    match: Literal["gold", "none"] | None = None
    paths: list[str] = []
    repair: bool = True

    @field_validator("schema_")
    @classmethod
    def _is_schema(cls, schema: dict[str, JsonValue] | None) -> dict[str, JsonValue] | None:
        if schema is not None:
            check_schema(schema)
        return schema

    @model_validator(mode="after")
    def _compares(self) -> Json:
        if self.match == "none" and (self.paths or self.schema_ is None):
            raise ValueError("`match: none` goes with a schema and without paths")
        return self

    @property
    def matches_gold(self) -> bool:
        if self.match is None:
            return self.schema_ is None or bool(self.paths)
        return self.match == "gold"

    def bind(self, binding: Binding) -> Scorer:
        return _JsonScorer(self)


class _JsonScorer:
    reads: frozenset[str] = frozenset()

    def __init__(self, settings: Json) -> None:
        self.settings = settings
        self.fingerprint = settings.identity
        schema = settings.schema_
        self.validator = None if schema is None else validator_of(schema)
        if schema is not None:
            libraries = ["jsonschema", *(["google-re2", "regex"] if has_patterns(schema) else [])]
            self.fingerprint["libraries"] = {name: version(name) for name in libraries}

    def check_gold(self, task: Task) -> str | None:
        if not self.settings.matches_gold:
            return None
        if task.gold is None:
            return "has no gold to compare JSON with"
        gold = gold_value(task.gold)
        try:
            if not same(gold, gold):
                return "has a gold that does not equal itself"
            with patience():
                if self.validator and (fault := self._invalid(gold)):
                    return f"has a gold that breaks the schema: {fault}"
        except RecursionError:
            return "has a gold that is nested too deeply"
        except PatternLateError as late:
            return f"has a gold that cannot be checked: {late}"
        absent = [path for path in self.settings.paths if _at(gold, path) is _MISSING]
        return f"has a gold without {', '.join(absent)}" if absent else None

    async def score(self, task: Task, reply: Reply, draw: Draw) -> Verdict:
        if reply.parsed is not None:
            return self._judge(task, reply.parsed, answer=_text(reply.parsed))
        found = offered(reply.text, repair=self.settings.repair)
        if isinstance(found, NoOffer):
            return Score(value=0.0, passed=False, reason=found.reason, no_answer=True, rule="json")
        return self._judge(
            task,
            found.value,
            answer=reply.text[found.start : found.end],
            span=(found.start, found.end),
            found_by=f"{found.rule}, commas repaired" if found.repaired else found.rule,
        )

    def _judge(
        self,
        task: Task,
        value: JsonValue,
        *,
        answer: str,
        span: tuple[int, int] | None = None,
        found_by: str = "response",
    ) -> Verdict:
        try:
            share, decided_by, fault = self._compare(task, value)
        except RecursionError:
            reason = "the schema and the reply are nested too deeply to compare"
            return Abstention(reason=reason, answer=answer, span=span, rule=f"json:{found_by}")
        return Score(
            value=share,
            passed=fault is None,
            reason=None if fault is None else clean_text(fault),
            answer=answer,
            span=span,
            rule=f"json:{found_by} · {decided_by}",
        )

    def _compare(self, task: Task, value: JsonValue) -> tuple[float, str, str | None]:
        """The share that is right, what decided, and the first fault."""
        if self.validator and (fault := self._invalid(value)):
            return 0.0, "schema", f"breaks the schema: {fault}"
        if not self.settings.matches_gold:
            return 1.0, "schema", None
        gold = gold_value(task.gold)
        if not self.settings.paths:
            fault = difference(gold, value)
            return (0.0 if fault else 1.0), "equality", fault
        faults = []
        for path in self.settings.paths:
            expected, got = _at(gold, path), _at(value, path)
            if got is _MISSING:
                faults.append(f"{path} is missing")
            elif fault := difference(expected, got, path):
                faults.append(fault)
        right = len(self.settings.paths) - len(faults)
        return right / len(self.settings.paths), "paths", "; ".join(faults) or None

    def _invalid(self, value: JsonValue) -> str | None:
        assert self.validator is not None
        with remembering():
            error = best_match(self.validator.iter_errors(value))
        return None if error is None else f"{error.json_path}: {_short(error.message)}"

    async def close(self) -> None:
        return None


def gold_value(gold: JsonValue) -> JsonValue:
    """The gold, or what it is the JSON text of (an object or array; tables hold golds as text)."""
    if isinstance(gold, str) and gold.lstrip()[:1] in ("{", "["):
        try:
            return strict_loads(gold)
        except ValueError:
            return gold
    return gold


def check_schema(schema: dict[str, JsonValue]) -> None:
    """Raises ValueError for what is no JSON Schema, or refers to anything outside itself."""
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        raise ValueError(f"is not a JSON Schema: {_short(error.message)}") from None
    if unbounded := unbounded_keyword(schema):
        raise ValueError(unbounded)
    todo: list[JsonValue] = [schema]
    while todo:
        part = todo.pop()
        if isinstance(part, dict):
            reference = part.get("$ref", part.get("$dynamicRef"))
            if isinstance(reference, str) and not reference.startswith("#"):
                raise ValueError(f"refers to {reference!r}; only `#…` within the schema is read")
            todo += part.values()
        elif isinstance(part, list):
            todo += part


_Bounded: type[Validator] = extend(  # type: ignore[no-untyped-call]
    Draft202012Validator, bounded_keywords(Draft202012Validator)
)


def validator_of(schema: dict[str, JsonValue]) -> Validator:
    """A validator that retrieves nothing.

    Where a pattern takes too long, checking raises PatternLateError.
    """
    return _Bounded(schema, registry=Registry())


def difference(expected: JsonValue, got: JsonValue, at: str = "$") -> str | None:
    """The first place where two JSON values differ, in words; None where they are equal."""
    if isinstance(expected, dict) and isinstance(got, dict):
        for key, value in expected.items():
            if key not in got:
                return f"{at}.{key} is missing"
            if found := difference(value, got[key], f"{at}.{key}"):
                return found
        extra = sorted(got.keys() - expected.keys())
        return f"{at}.{extra[0]} is not expected" if extra else None
    if isinstance(expected, list) and isinstance(got, list):
        if len(expected) != len(got):
            return f"{at} has {len(got)} items, expected {len(expected)}"
        pairs = enumerate(zip(expected, got, strict=True))
        found_all = (difference(left, right, f"{at}[{i}]") for i, (left, right) in pairs)
        return next(filter(None, found_all), None)
    if same(expected, got):
        return None
    return f"{at} is {_short(_text(got))}, expected {_short(_text(expected))}"


def _at(value: JsonValue, path: str) -> Any:
    """The value at `a.b.0` or the JSON pointer `/a/b/0`; _MISSING where there is none."""
    if path.startswith("/"):
        keys = [key.replace("~1", "/").replace("~0", "~") for key in path[1:].split("/")]
    else:
        keys = path.split(".")
    for key in keys:
        if isinstance(value, dict) and key in value:
            value = value[key]
        elif isinstance(value, list) and key.isascii() and key.isdigit() and int(key) < len(value):
            value = value[int(key)]
        else:
            return _MISSING
    return value


def _text(value: JsonValue) -> str:
    """Compact JSON that can be written as UTF-8, whatever surrogates a stranger escaped."""
    return clean_text(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def _short(text: str) -> str:
    return text if len(text) <= 200 else f"{text[:199]}…"
