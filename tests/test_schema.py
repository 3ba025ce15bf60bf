"""Response schemas: the short form, JSON Schema, and strict reading."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from labelkit.schema import UncheckedError, parse_reply, response_schema, schema_instructions
from labelkit.spec import SectionError

SOLVER = {"reasoning": "str", "final_answer": "int"}
LONG = 6747742486863689476416508396372901


def test_the_short_form_is_a_closed_object_with_every_key_required() -> None:
    assert response_schema(SOLVER) == {
        "type": "object",
        "properties": {"reasoning": {"type": "string"}, "final_answer": {"type": "integer"}},
        "required": ["reasoning", "final_answer"],
        "additionalProperties": False,
    }


@pytest.mark.parametrize(
    ("kind", "schema"),
    [
        ("float", {"type": "number"}),
        ("bool", {"type": "boolean"}),
        ("str?", {"type": ["string", "null"]}),
        ("list[str]", {"type": "array", "items": {"type": "string"}}),
        ("list[int?]", {"type": "array", "items": {"type": ["integer", "null"]}}),
        ("list[str]?", {"type": ["array", "null"], "items": {"type": "string"}}),
        (
            "list[list[int]]",
            {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}},
        ),
        (["A", "B", 3], {"enum": ["A", "B", 3]}),
        (
            {"x": "int"},
            {
                "type": "object",
                "properties": {"x": {"type": "integer"}},
                "required": ["x"],
                "additionalProperties": False,
            },
        ),
    ],
)
def test_each_kind_of_the_short_form(kind: Any, schema: dict[str, Any]) -> None:
    made: Any = response_schema({"a": kind})
    assert made["properties"]["a"] == schema
    Draft202012Validator.check_schema(made)


def test_a_field_called_type_does_not_make_the_short_form_a_schema() -> None:
    made: Any = response_schema({"type": "str", "answer": "int"})
    assert made["required"] == ["type", "answer"]


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": {"type": "integer"}}},
        {"properties": {"a": {}}},
        {"$ref": "#/$defs/a", "$defs": {"a": {"type": "object"}}},
        {"type": "array", "items": {"type": "string"}},
    ],
)
def test_json_schema_is_taken_as_it_is(schema: dict[str, Any]) -> None:
    assert response_schema(schema) == schema


@pytest.mark.parametrize(
    ("response", "at", "said"),
    [
        ({"a": "integer"}, ("response", "a"), "'integer' is no type"),
        ({"a": "list[x]"}, ("response", "a"), "'list[x]' is no type"),
        ({"a": "int??"}, ("response", "a"), "is no type"),
        ({"a": []}, ("response", "a"), "[] is no type"),
        ({"a": [[1]]}, ("response", "a"), "is no type"),
        ({"a": None}, ("response", "a"), "None is no type"),
        ({"a": {"b": 5}}, ("response", "a", "b"), "5 is no type"),
        ({}, ("response",), "has no fields"),
        ({"a": {}}, ("response", "a"), "has no fields"),
        (
            {"type": "object", "properties": {"a": {"type": "int"}}},
            ("response", "properties", "a", "type"),
            "is not JSON Schema",
        ),
        ({"type": "object", "required": "a"}, ("response", "required"), "is not JSON Schema"),
        (
            {"type": "object", "properties": {"a": {"pattern": "("}}},
            ("response", "properties", "a", "pattern"),
            "is not JSON Schema: '(' is not a 'regex'",
        ),
        (
            {"type": "object", "properties": {"a": {"$ref": "https://example.org/x"}}},
            ("response", "properties", "a", "$ref"),
            "refers to 'https://example.org/x', which is not in this schema",
        ),
        ({"$ref": "#/$defs/missing"}, ("response", "$ref"), "refers to '#/$defs/missing'"),
        (
            {"type": "string", "pattern": "^(?!a)b"},
            ("response", "pattern"),
            "'^(?!a)b' is not an RE2 pattern",
        ),
        (
            {"type": "object", "patternProperties": {r"(a)\1": {}}},
            ("response", "patternProperties"),
            "is not an RE2 pattern",
        ),
        (
            {"type": "object", "patternProperties": {"a": {}}, "unevaluatedProperties": False},
            ("response",),
            "`unevaluatedProperties` beside `patternProperties`",
        ),
    ],
)
def test_a_bad_schema_is_refused_where_it_stands(
    response: dict[str, Any], at: tuple[str, ...], said: str
) -> None:
    with pytest.raises(SectionError) as caught:
        response_schema(response)
    [problem] = caught.value.problems
    assert problem.at == at
    assert said in problem.problem


def test_all_problems_of_a_short_form_come_at_once() -> None:
    with pytest.raises(SectionError) as caught:
        response_schema({"a": "x", "b": {"c": "y"}})
    assert [problem.at for problem in caught.value.problems] == [
        ("response", "a"),
        ("response", "b", "c"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        f'{{"reasoning": "x", "final_answer": {LONG}}}',
        f' \n{{"reasoning": "x", "final_answer": {LONG}}}\n',
        f'```json\n{{"reasoning": "x", "final_answer": {LONG}}}\n```',
        f'```\n{{"reasoning": "x", "final_answer": {LONG}}}```\n',
    ],
)
def test_a_valid_reply_is_exact(text: str) -> None:
    assert parse_reply(text, response_schema(SOLVER)) == (
        {"reasoning": "x", "final_answer": LONG},
        None,
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        (" \n", "is empty"),
        ("The answer is 5.", "is not JSON"),
        ('{"reasoning": "x", "final_answer": 5', "is not JSON"),
        ("{'reasoning': 'x', 'final_answer': 5}", "is not JSON"),
        ('{"reasoning": "x", "final_answer": 5,}', "is not JSON"),
        ('Sure! {"reasoning": "x", "final_answer": 5}', "is not JSON"),
        ('{"reasoning": "x", "final_answer": 5} Done.', "is not JSON"),
        ('```json\n{"reasoning": "x"}\n```\n```json\n{}\n```', "is not JSON"),
        ('```python\n{"reasoning": "x", "final_answer": 5}\n```', "is not JSON"),
        ('{"reasoning": "x", "final_answer": NaN}', "NaN is not JSON"),
        ('{"reasoning": "x", "final_answer": 1e999}', "1e999 is too large"),
        ('{"reasoning": "x", "final_answer": 5, "final_answer": 6}', "duplicate key"),
        ('{"reasoning": "x", "final_answer": true}', "final_answer: True is not of type"),
        ('{"reasoning": "x", "final_answer": "5"}', "final_answer: '5' is not of type"),
        ('{"reasoning": "x", "final_answer": 5.5}', "final_answer: 5.5 is not of type"),
        ('{"reasoning": "x", "final_answer": 1e30}', "final_answer: 1e+30 is not of type"),
        ('{"reasoning": "x"}', "'final_answer' is a required property"),
        ('{"reasoning": "x", "final_answer": 5, "sure": 1}', "Additional properties are not"),
        ('[{"reasoning": "x", "final_answer": 5}]', "is not of type 'object'"),
        ('{"reasoning": "\\ud800", "final_answer": 5}', "half of a surrogate pair"),
        ("[" * 100_000, "nested too deeply"),
        ('{"reasoning": "x", "final_answer": ' + "9" * 5000 + "}", "is not JSON"),
    ],
)
def test_a_reply_outside_the_schema_is_invalid_for_a_short_reason(text: str, said: str) -> None:
    value, invalid = parse_reply(text, response_schema(SOLVER))
    assert value is None
    assert invalid is not None
    assert said in invalid
    assert len(invalid) < 250


def test_deep_nesting_inside_a_free_schema_is_invalid() -> None:
    value, invalid = parse_reply("[" * 200 + "]" * 200, {"type": "array"})
    assert (value, invalid) == (None, "is nested more than 100 levels deep")


def test_a_whole_float_is_an_integer_as_json_schema_has_it() -> None:
    value, invalid = parse_reply('{"a": 12.0}', response_schema({"a": "int"}))
    assert (value, invalid) == ({"a": 12.0}, None)


STACKED: dict[str, Any] = {
    "$defs": {
        "list": {"allOf": [{"allOf": [{"anyOf": [{"items": {"$ref": "#/$defs/list"}}, {}]}]}]}
    },
    "$ref": "#/$defs/list",
}


@pytest.mark.parametrize(
    ("schema", "text", "said"),
    [
        ({"$ref": "#"}, "5", "nested too deeply"),
        (STACKED, "[" * 99 + "]" * 99, "nested too deeply"),
        ({"type": "number", "multipleOf": 0.1}, "9" * 4000, "OverflowError"),
        ({"$ref": "#/$defs/none"}, "5", "Referencing"),
    ],
)
def test_a_check_that_cannot_be_made_says_so(schema: Any, text: str, said: str) -> None:
    with pytest.raises(UncheckedError, match=said):
        parse_reply(text, schema)


def test_a_schema_is_checked_alike_however_deep_its_caller_is() -> None:
    text = "[" * 40 + "]" * 40

    def deeper(frames: int) -> str | None:
        return deeper(frames - 1) if frames else parse_reply(text, STACKED)[1]

    assert (deeper(0), deeper(700)) == (None, None)


BACKTRACKS = "^(a|aa)+$"
NAMED: dict[str, Any] = {
    "properties": {"id": {}},
    "patternProperties": {"^x-": {"type": "integer"}},
    "additionalProperties": False,
}


def _operation(name: str) -> dict[str, Any]:
    side = {"$ref": "#/$defs/term"}
    return {
        "type": "object",
        "properties": {"op": {"const": name}, "left": side, "right": side},
        "required": ["op", "left", "right"],
    }


FORMULA = {
    "$defs": {
        "term": {"anyOf": [_operation("+"), _operation("-"), _operation("*"), {"type": "number"}]}
    },
    "$ref": "#/$defs/term",
}


def _product(innermost: Any) -> Any:
    """Twenty factors; every alternative that comes before the right one looks at all of them."""
    term = innermost
    for factor in range(19):
        term = {"op": "*", "left": term, "right": factor}
    return term


@pytest.mark.parametrize(
    ("schema", "value", "said"),
    [
        (FORMULA, _product(1), None),
        (FORMULA, _product("1"), "{'op': '*', 'left'"),
        ({"type": "string", "pattern": BACKTRACKS}, "a" * 60, None),
        ({"type": "string", "pattern": BACKTRACKS}, "a" * 60 + "!", "does not match"),
        ({"patternProperties": {BACKTRACKS: {"type": "null"}}}, {"a" * 60 + "!": 1}, None),
        ({"patternProperties": {BACKTRACKS: {"type": "null"}}}, {"a" * 60: 1}, "is not of type"),
        (
            {"patternProperties": {BACKTRACKS: {}}, "additionalProperties": False},
            {"a" * 60 + "!": 1},
            "Additional properties are not allowed",
        ),
        (NAMED, {"id": "a", "x-a": 1}, None),
        (NAMED, {"x-a": "1"}, "x-a: '1' is not of type 'integer'"),
        (NAMED, {"y": 1}, "Additional properties are not allowed"),
        ({"uniqueItems": True}, [{"a": number} for number in range(20_000)], None),
        ({"uniqueItems": True}, [1, True, "1", [1], ["boolean", True], {}, [], None, 0], None),
        ({"uniqueItems": True}, [{"a": [1, {}]}, {"b": 1}, {"a": [1.0, {}]}], "non-unique"),
        ({"uniqueItems": False}, [1, 1], None),
    ],
)
def test_no_reply_makes_a_schema_slow(schema: Any, value: Any, said: str | None) -> None:
    started = time.process_time()
    _, invalid = parse_reply(json.dumps(value), schema)
    assert time.process_time() - started < 2
    assert said in (invalid or "") if said else invalid is None


def test_instructions_carry_the_schema() -> None:
    assert '"final_answer": {"type": "integer"}' in schema_instructions(response_schema(SOLVER))
