"""The `tool_calls` scorer: what is a call, when two are the same, and how many match."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from labelkit.records import Reply, Score, Task, ToolCall
from labelkit.scorers import Binding
from labelkit.scorers.parse import parse_scorer
from labelkit.spec import SectionError
from tests.scorers.scripted import cases, reply_of, scorer, verdict

WEATHER = {"city": "string", "days": "integer=1 (optional)", "unit": "enum c|f =c (optional)"}


@pytest.mark.parametrize("row", cases("tool_call"), ids=lambda row: row["id"])
def test_case_is_decided_as_a_careful_person_would(row: dict[str, Any]) -> None:
    found = verdict({"tool_calls": {"schema": row["schema"]}}, reply_of(row), row["gold"])
    assert isinstance(found, Score)
    if not row.get("ambiguous"):
        assert found.passed is row["expected"], found


def asks(*calls: tuple[str, Any]) -> Reply:
    written = [ToolCall(name=n, arguments=a if isinstance(a, str) else json.dumps(a))
               for n, a in calls]  # fmt: skip
    return Reply(text="", tool_calls=tuple(written))


def scored(reply: Reply | str, gold: Any, **settings: Any) -> Score:
    found = verdict({"tool_calls": settings}, reply, gold)
    assert isinstance(found, Score)
    return found


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


def test_native_calls_are_read_from_their_argument_text() -> None:
    assert scored(asks(("f", '{"n": 1}')), [call("f", n=1)]).passed
    assert scored(asks(("f", "")), [call("f")]).passed


@pytest.mark.parametrize(
    "arguments", ['{"n": 1', '{"n": 1, "n": 1}', '{"n": NaN}', "[1]", '{"n": 1} {}', '{"n":' * 500]
)
def test_call_that_cannot_be_read_is_wrong(arguments: str) -> None:
    found = scored(asks(("f", arguments)), [call("f", n=1)])
    assert not found.passed
    assert "cannot be read" in (found.reason or "")


def test_reply_without_calls_gives_no_answer_where_some_are_expected() -> None:
    assert scored("hello", [call("f")]).no_answer
    assert scored("hello", []).passed


def test_value_is_the_share_of_calls_matched() -> None:
    gold = [call("f", n=1), call("f", n=2)]
    found = scored(asks(("f", {"n": 2}), ("g", {})), gold)
    assert found.value == pytest.approx(1 / 3)
    assert found.reason == 'missing f({"n": 1}); unexpected g({})'


def test_extra_calls_can_be_allowed() -> None:
    found = scored(asks(("f", {}), ("g", {})), [call("f")], extra="allow")
    assert (found.value, found.passed) == (1.0, True)
    assert found.detail["unexpected"] == ["g({})"]


def test_order_matters_on_request() -> None:
    gold = [call("a"), call("b"), call("c")]
    swapped = asks(("b", {}), ("a", {}), ("c", {}))
    assert scored(swapped, gold).passed
    found = scored(swapped, gold, order="exact")
    assert not found.passed
    assert found.value == pytest.approx(2 / 4)
    assert scored(asks(("a", {}), ("b", {}), ("c", {})), gold, order="exact").passed


def test_subset_compares_the_expected_arguments_only() -> None:
    gold = [call("f", n=1)]
    assert scored(asks(("f", {"n": 1, "m": 2})), gold, arguments="subset").passed
    assert not scored(asks(("f", {"m": 2})), gold, arguments="subset").passed


def test_subset_finds_the_assignment_that_satisfies_all() -> None:
    gold = [call("f"), call("f", n=1)]
    assert scored(asks(("f", {"n": 1}), ("f", {"n": 2})), gold, arguments="subset").passed


def test_count_asks_for_repeated_calls() -> None:
    expected = [{"name": "f", "count": 2}]
    assert scored(asks(("f", {}), ("f", {})), None, expected=expected).passed
    assert not scored(asks(("f", {})), None, expected=expected).passed


def test_missing_argument_stands_for_its_default() -> None:
    schema = {"get_weather": WEATHER}
    gold = [call("get_weather", city="Paris", unit="c")]
    assert scored(asks(("get_weather", {"city": "Paris", "days": 1})), gold, schema=schema).passed
    assert not scored(asks(("get_weather", {"city": "Paris"})), [call("get_weather", city="Paris",
                      days=2)], schema=schema).passed  # fmt: skip


def test_case_is_ignored_on_request() -> None:
    gold = [call("f", city="Paris")]
    assert not scored(asks(("f", {"city": "PARIS"})), gold).passed
    assert scored(asks(("f", {"city": "PARIS"})), gold, ignore_case=True).passed


@pytest.mark.parametrize(
    ("text", "passed"),
    [
        ('<tool_call>{"name": "f", "arguments": {}}</tool_call>', True),
        ('<tool_call>{"name": "f", "arguments": {}}', True),
        ('<tool_call>{"name": "f", "arguments": {}', False),
        ('{"name": "f", "arguments": {}}</tool_call>', False),
        ('<tool_call>{"name": "f"}</tool_call><tool_call>', False),
        ('<tool_call>{"type": "function", "function": {"name": "f"}}</tool_call>', True),
        ('<tool_call>{"name": "f"}</tool_call><tool_response>1</tool_response>', False),
        ("<tool_call>f()</tool_call>", False),
    ],
)
def test_calls_in_text_are_read_strictly(text: str, passed: bool) -> None:
    assert scored(text, [call("f")]).passed is passed


def test_calls_in_text_count_only_where_asked_for() -> None:
    text = '<tool_call>{"name": "f"}</tool_call>'
    assert scored(text, [call("f")], text_calls=False).no_answer
    both = Reply(text=text, tool_calls=(ToolCall(name="g", arguments="{}"),))
    assert scored(both, [call("g")]).passed
    assert scored(both, [call("f")], text_calls=True).passed


def test_tools_of_the_sampler_give_the_schemas() -> None:
    tool: Any = {
        "type": "function",
        "function": {
            "name": "f",
            "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}},
        },
    }
    bound = parse_scorer("tool_calls").bind(Binding(folder=Path(), tools=(tool,)))
    bad: Any = [call("f", n="one")]
    assert "breaks its schema" in (bound.check_gold(Task(id="t", prompt="p", gold=bad)) or "")
    assert bound.check_gold(Task(id="t", prompt="p", gold=[call("f", n=1)])) is None
    assert bound.fingerprint != scorer("tool_calls").fingerprint


@pytest.mark.parametrize(
    ("gold", "fault"),
    [
        (None, "no expected calls"),
        ("f", "no expected calls"),
        ([{"nam": "f"}], "not {name, arguments}"),
        ([call("h")], "no declared tool"),
        ([call("get_weather", days=1)], "'city' is a required property"),
        ([call("get_weather", city="Rome", lang="fr")], "lang"),
    ],
)
def test_unusable_gold_is_a_fault(gold: Any, fault: str) -> None:
    bound = scorer({"tool_calls": {"schema": {"get_weather": WEATHER}}})  # type: ignore[dict-item]
    assert fault in (bound.check_gold(Task(id="t", prompt="p", gold=gold)) or "")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"schema": {"f": {"n": "integr"}}}, "unknown type `integr`"),
        ({"schema": {"f": {"n": 3}}}, "3 is no type"),
        ({"schema": {"f": {"type": "object", "properties": {"n": {"type": "x"}}}}}, "JSON Schema"),
        ({"ordr": "any"}, "unknown key"),
        ([{"name": "f", "count": 0}], "greater than or equal"),
    ],
)
def test_bad_settings_are_faults(arguments: Any, problem: str) -> None:
    with pytest.raises(SectionError, match=problem):
        scorer({"tool_calls": arguments})
