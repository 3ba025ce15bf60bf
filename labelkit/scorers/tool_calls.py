"""The `tool_calls` scorer: the calls a reply asks for against the expected ones, as a multiset.

Calls come from the provider's own field, or from `<tool_call>` blocks in the text. Arguments are
compared as JSON, typed: "3" is not 3, true is not 1, 12 is 12.0. Nothing is executed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from jsonschema.exceptions import best_match
from pydantic import Field, JsonValue, field_validator

from labelkit.codec import clean_text
from labelkit.patterns import PatternLateError, patience
from labelkit.records import Reply, Score, Task, Verdict
from labelkit.schema import remembering
from labelkit.scorers import Binding, ScorerSettings
from labelkit.scorers.json_in_text import read_strictly, same
from labelkit.scorers.structured import check_schema, validator_of
from labelkit.seams import Draw, Scorer
from labelkit.spec import Section

MAX_CALLS = 200
Schema = dict[str, JsonValue]


class ExpectedCall(Section):
    """A call that must be made, `count` times."""

    name: Annotated[str, Field(min_length=1)]
    arguments: dict[str, JsonValue] = {}
    count: Annotated[int, Field(ge=1, le=MAX_CALLS)] = 1


class ToolCalls(ScorerSettings):
    """The calls of `expected`, or of the gold: a list of {name, arguments}; [] expects none.

    `order`: `any` or `exact`. `extra`: whether other calls may be made too. `arguments`: `exact`,
    or `subset` where only those that are expected are compared. `schema`: each tool's parameters,
    as JSON Schema or in short (`{city: string, days: integer=1 (optional)}`), where the sampler's
    own `tools` are not it; an argument that is left out stands for its default. `text_calls`: read
    `<tool_call>` blocks in the text (`auto`: where the provider reports no calls).
    Value: calls matched of those expected and those made beyond.
    """

    KIND: ClassVar[str] = "tool_calls"
    PURE: ClassVar[bool] = True
    SHORT: ClassVar[str | None] = "expected"

    expected: list[ExpectedCall] | None = None
    order: Literal["any", "exact"] = "any"
    extra: Literal["forbid", "allow"] = "forbid"
    arguments: Literal["exact", "subset"] = "exact"
    ignore_case: bool = False
    text_calls: Literal["auto"] | bool = "auto"
    schema_: dict[str, Schema] | None = Field(default=None, alias="schema")

    @field_validator("schema_")
    @classmethod
    def _schemas(cls, schemas: dict[str, Schema] | None) -> dict[str, Schema] | None:
        if schemas is None:
            return None
        written = {name: parameters_schema(schema) for name, schema in schemas.items()}
        for name, schema in written.items():
            try:
                check_schema(schema)
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None
        return written

    def bind(self, binding: Binding) -> Scorer:
        return _ToolCallsScorer(self, binding)


class Called(NamedTuple):
    """A call with its arguments read."""

    name: str
    arguments: dict[str, JsonValue]

    def __str__(self) -> str:
        given = json.dumps(self.arguments, ensure_ascii=False)
        return clean_text(f"{self.name}({given if len(given) <= 200 else given[:199] + '…'})")


class _Found(NamedTuple):
    """The calls of a reply; `fault` says why they cannot be taken as such."""

    calls: list[Called]
    span: tuple[int, int] | None
    rule: str
    fault: str | None = None


class _ToolCallsScorer:
    reads: frozenset[str] = frozenset()

    def __init__(self, settings: ToolCalls, binding: Binding) -> None:
        self.settings = settings
        declared = settings.schema_ or _declared(binding.tools)
        self.schemas: Mapping[str, Schema] = declared
        self.defaults = {name: _defaults(schema) for name, schema in declared.items()}
        self.fingerprint: dict[str, JsonValue] = {**settings.identity, "schemas": {**declared}}

    def check_gold(self, task: Task) -> str | None:
        try:
            expected = self._expected(task)
        except ValueError as error:
            return str(error)
        for call in expected:
            if self.schemas and call.name not in self.schemas:
                return f"expects a call of `{call.name}`, which is no declared tool"
            if self.schemas and self.settings.arguments == "exact":
                validator = validator_of(self.schemas[call.name])
                try:
                    with patience(), remembering():
                        broken = best_match(validator.iter_errors(call.arguments))
                except PatternLateError as late:
                    return f"expects {call}, which cannot be checked: {late}"
                if broken:
                    return f"expects {call}, which breaks its schema: {broken.message}"
        return None

    def _expected(self, task: Task) -> list[Called]:
        given = self.settings.expected
        if given is not None:
            return [Called(one.name, one.arguments) for one in given for _ in range(one.count)]
        gold = [task.gold] if isinstance(task.gold, dict) else task.gold
        if not isinstance(gold, list):
            raise ValueError("has no expected calls: a list of {name, arguments}, [] for none")
        try:
            return [_read_call(entry) for entry in gold]
        except ValueError as error:
            raise ValueError(f"has a gold that is no list of calls: {error}") from None

    async def score(self, task: Task, reply: Reply, draw: Draw) -> Verdict:
        expected = self._expected(task)
        found = self._calls(reply)
        answer = clean_text(json.dumps([call._asdict() for call in found.calls]))
        if found.fault:
            return Score(
                value=0.0, passed=False, reason=found.fault, span=found.span, rule=found.rule
            )
        if expected and not found.calls:
            return Score(
                value=0.0, passed=False, reason="calls no tool", no_answer=True, rule=found.rule
            )
        matched = self._match(expected, found.calls)
        missing = [call for i, call in enumerate(expected) if i not in matched]
        taken = set(matched.values())
        extra = [call for j, call in enumerate(found.calls) if j not in taken]
        beyond = extra if self.settings.extra == "forbid" else []
        checks = len(expected) + len(beyond)
        faults = [f"missing {call}" for call in missing] + [f"unexpected {call}" for call in beyond]
        return Score(
            value=len(matched) / checks if checks else 1.0,
            passed=not faults,
            reason="; ".join(faults) or None,
            answer=answer,
            span=found.span,
            rule=f"{found.rule} · {self.settings.order} order",
            detail={
                "expected": len(expected),
                "matched": len(matched),
                "unexpected": [str(call) for call in extra],
            },
        )

    def _calls(self, reply: Reply) -> _Found:
        if reply.tool_calls and self.settings.text_calls is not True:
            try:
                read = [_read(call.name, call.arguments) for call in reply.tool_calls]
            except ValueError as error:
                return _Found([], None, "tool_calls", f"a call cannot be read: {error}")
            return _bounded(_Found(read, None, "tool_calls"))
        if self.settings.text_calls is False:
            return _Found([], None, "tool_calls")
        return _bounded(_in_text(reply.text))

    def _match(self, expected: Sequence[Called], calls: Sequence[Called]) -> dict[int, int]:
        """Which call satisfies which expectation: as many as can be at once."""
        fits = [[self._fits(want, got) for got in calls] for want in expected]
        return _in_order(fits) if self.settings.order == "exact" else _assigned(fits)

    def _fits(self, want: Called, got: Called) -> bool:
        if want.name != got.name:
            return False
        defaults = self.defaults.get(want.name, {})
        wanted, given = {**defaults, **want.arguments}, {**defaults, **got.arguments}
        if self.settings.arguments == "subset":
            wanted = want.arguments
            given = {name: value for name, value in given.items() if name in wanted}
        return same(self._folded(wanted), self._folded(given))

    def _folded(self, value: JsonValue) -> JsonValue:
        if not self.settings.ignore_case:
            return value
        if isinstance(value, str):
            return value.casefold()
        if isinstance(value, list):
            return [self._folded(item) for item in value]
        if isinstance(value, dict):
            return {name: self._folded(item) for name, item in value.items()}
        return value

    async def close(self) -> None:
        return None


_BLOCK = re.compile(r"<tool_call>|</tool_call>")


def _in_text(text: str) -> _Found:
    """The calls of `<tool_call>` blocks; the last may stay open where its JSON is complete."""
    calls: list[Called] = []
    marks = list(_BLOCK.finditer(text))
    if not marks:
        return _Found([], None, "text")
    span = (marks[0].start(), marks[-1].end())
    if "<tool_response>" in text:
        return _Found([], span, "text", "invents the result of a call")
    for i, mark in enumerate(marks):
        if mark[0] != "<tool_call>":
            if i == 0 or marks[i - 1][0] != "<tool_call>":
                return _Found([], span, "text", "a </tool_call> closes nothing")
            continue
        end = marks[i + 1].start() if i + 1 < len(marks) else len(text)
        try:
            calls.append(_read_call(read_strictly(text[mark.end() : end].strip())))
        except ValueError as error:
            return _Found(calls, span, "text", f"a call cannot be read: {error}")
    return _Found(calls, span, "text")


def _bounded(found: _Found) -> _Found:
    if len(found.calls) <= MAX_CALLS:
        return found
    return found._replace(calls=[], fault=f"makes {len(found.calls)} calls, over {MAX_CALLS}")


def _read_call(entry: JsonValue) -> Called:
    """{name, arguments}, or OpenAI's {type, function: {…}}. Raises ValueError."""
    if isinstance(entry, dict) and isinstance(entry.get("function"), dict):
        entry = entry["function"]
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
        raise ValueError("it is not {name, arguments}")
    return _read(str(entry["name"]), entry.get("arguments", entry.get("parameters")))


def _read(name: str, arguments: JsonValue) -> Called:
    if isinstance(arguments, str):
        arguments = read_strictly(arguments) if arguments.strip() else None
    if arguments is None:
        return Called(name, {})
    if not isinstance(arguments, dict):
        raise ValueError(f"the arguments of {name} are no object")
    return Called(name, arguments)


def _in_order(fits: list[list[bool]]) -> dict[int, int]:
    """The longest common subsequence of expectations and calls."""
    rows, columns = len(fits), len(fits[0]) if fits else 0
    longest = [[0] * (columns + 1) for _ in range(rows + 1)]
    for i in range(rows - 1, -1, -1):
        for j in range(columns - 1, -1, -1):
            skip = max(longest[i + 1][j], longest[i][j + 1])
            longest[i][j] = max(skip, 1 + longest[i + 1][j + 1]) if fits[i][j] else skip
    matched: dict[int, int] = {}
    i = j = 0
    while i < rows and j < columns:
        if fits[i][j] and longest[i][j] == 1 + longest[i + 1][j + 1]:
            matched[i] = j
            i, j = i + 1, j + 1
        elif longest[i + 1][j] >= longest[i][j + 1]:
            i += 1
        else:
            j += 1
    return matched


def _assigned(fits: list[list[bool]]) -> dict[int, int]:
    """A largest assignment of calls to expectations (augmenting paths)."""
    owner: dict[int, int] = {}

    def place(i: int, tried: set[int]) -> bool:
        for j, fit in enumerate(fits[i]):
            if fit and j not in tried:
                tried.add(j)
                if j not in owner or place(owner[j], tried):
                    owner[j] = i
                    return True
        return False

    for i in range(len(fits)):
        place(i, set())
    return {i: j for j, i in owner.items()}


def _declared(tools: Sequence[Mapping[str, Any]]) -> dict[str, Schema]:
    """The parameters of OpenAI-style tools by name."""
    functions = [tool.get("function", tool) for tool in tools]
    return {function["name"]: function.get("parameters") or {} for function in functions}


def _defaults(schema: Schema) -> dict[str, JsonValue]:
    properties = schema.get("properties")
    found: dict[str, JsonValue] = {}
    for name, property_ in properties.items() if isinstance(properties, dict) else ():
        if isinstance(property_, dict) and "default" in property_:
            found[name] = property_["default"]
    return found


_SHORT = re.compile(r"(?P<type>.+?)\s*(?:=\s*(?P<default>[^()]+?))?\s*(?P<optional>\(optional\))?")
_TYPES = ("string", "integer", "number", "boolean", "object", "array")


def parameters_schema(schema: Schema) -> Schema:
    """JSON Schema of a tool's parameters; the short form maps names to types. Raises ValueError."""
    if "type" in schema and ("properties" in schema or schema["type"] == "object"):
        return schema
    properties: dict[str, JsonValue] = {}
    required: list[JsonValue] = []
    for name, said in schema.items():
        found = _SHORT.fullmatch(said) if isinstance(said, str) else None
        if found is None:
            raise ValueError(f"{name}: {said!r} is no type; write it as `integer=1 (optional)`")
        written = _type_schema(found["type"], name)
        if found["default"]:
            written["default"] = _default(found["default"], written)
        properties[name] = written
        if not (found["optional"] or found["default"]):
            required.append(name)
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def _type_schema(said: str, name: str) -> Schema:
    if said.startswith("enum "):
        return {"enum": [option.strip() for option in said[5:].split("|")]}
    if said.startswith("array<") and said.endswith(">"):
        return {"type": "array", "items": _type_schema(said[6:-1], name)}
    if said not in _TYPES:
        raise ValueError(f"{name}: unknown type `{said}` (known: {', '.join(_TYPES)}, enum a|b)")
    return {"type": said}


def _default(said: str, schema: Schema) -> JsonValue:
    return said if "enum" in schema or schema["type"] == "string" else read_strictly(said)
