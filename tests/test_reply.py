"""A completion as labelkit reads it."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labelkit.attempts import read_draw
from labelkit.records import Completion, DrawKey, Reply, Request, ToolCall
from labelkit.reply import read_reply
from labelkit.schema import response_schema
from tests.stalls import watched

KEY = DrawKey(task_id="t1", stage="candidate", request="0" * 64, sample_index=3)
SOLVER = response_schema({"reasoning": "str", "final_answer": "int"})
LONG = 6747742486863689476416508396372901


def read(text: str, schema: dict[str, Any] | None = None, **fields: Any) -> Reply:
    request = Request(model="m", response_schema=schema)
    return read_reply(request, Completion(text=text, **fields), KEY)


@pytest.mark.parametrize(
    ("text", "answer", "thinking"),
    [
        ("  plain text\n", "  plain text\n", None),
        ("<think>a</think>b", "b", "a"),
        ("<think>\na\n</think>\n\nb\n", "b", "a"),
        ("<thinking>a</thinking>b", "b", "a"),
        ("<reasoning>a</reasoning>b", "b", "a"),
        ("<THINK>a</Think>b", "b", "a"),
        ("a</think>b", "b", "a"),
        ("a</thinking>b", "b", "a"),
        ("<think>a</thinking>b", "b", "a"),
        ("<think></think>b", "b", None),
        ("<think>a", "", "a"),
        ("b<think>a", "", "b\n\na"),
        ("<think>a</think>b<think>c", "", "a\n\nb\n\nc"),
        ("<think>a</think>b<think>c</think>d", "d", "a\n\nb\n\nc"),
        ("<think>a<think>b</think>c</think>d", "d", "a<think>b\n\nc"),
        ("<think>a</think>b</think>c", "c", "a\n\nb"),
        ("a < b, <thinker>x</thinker>", "a < b, <thinker>x</thinker>", None),
        ("</think>", "", None),
        ("<think>a</answer><answer>b</answer>", "<answer>b</answer>", "a"),
        ("<think>a <answer>1</answer> b</think>c", "c", "a <answer>1</answer> b"),
        ("<answer>b</answer>", "<answer>b</answer>", None),
    ],
)
def test_thinking_is_split_from_the_answer(text: str, answer: str, thinking: str | None) -> None:
    reply = read(text)
    assert (reply.text, reply.reasoning) == (answer, thinking)


def test_the_reasoning_of_the_provider_is_kept() -> None:
    assert read("b", reasoning="a").reasoning == "a"
    assert read("<think>b</think>c", reasoning="a").reasoning == "a\n\nb"
    assert read("b", reasoning="").reasoning == ""


@pytest.mark.parametrize(("reason", "cut"), [("length", True), ("stop", False), (None, False)])
def test_a_reply_that_ended_at_its_limit_is_cut(reason: str | None, cut: bool) -> None:
    assert read("x", finish_reason=reason).cut is cut


def test_what_came_with_the_text_is_carried() -> None:
    call = ToolCall(name="f", arguments="{}")
    reply = read("x", tool_calls=(call,), finish_reason="tool_calls", logprobs=[1])
    assert reply == Reply(
        text="x", tool_calls=(call,), finish_reason="tool_calls", logprobs=[1], index=3
    )


def test_the_stage_of_the_draw_is_carried() -> None:
    key = replace(KEY, stage="judge/0/1")
    assert read_reply(Request(model="m"), Completion(text="x"), key).stage == "judge/0/1"


@pytest.mark.parametrize("frame", ["{}", "<think>hm</think>\n{}", "hm</think>```json\n{}\n```"])
def test_the_object_of_a_schema_is_parsed_exactly(frame: str) -> None:
    text = frame.replace("{}", f'{{"reasoning": "x", "final_answer": {LONG}}}')
    reply = read(text, SOLVER)
    assert (reply.parsed, reply.invalid) == ({"reasoning": "x", "final_answer": LONG}, None)


def test_tags_inside_the_strings_of_a_valid_object_are_data() -> None:
    text = '{"reasoning": "<think>a</think> b </think>", "final_answer": 5}'
    reply = read(text, SOLVER)
    assert (reply.text, reply.reasoning, reply.invalid) == (text, None, None)


def test_an_object_outside_the_schema_says_why() -> None:
    reply = read('{"reasoning": "x", "final_answer": true}', SOLVER)
    assert reply.parsed is None
    assert reply.invalid == "final_answer: True is not of type 'integer'"


@pytest.mark.parametrize("frame", ["{}", "<think>hm</think>{}"])
def test_an_object_that_nobody_can_check_is_unchecked(frame: str) -> None:
    reply = read(frame.replace("{}", "[5]"), {"$ref": "#"})
    assert (reply.text, reply.parsed, reply.unchecked) == ("[5]", None, True)
    assert reply.invalid == "cannot be checked against the schema: nested too deeply"
    assert not read("It is 5.", {"$ref": "#"}).unchecked


def test_an_unclosed_think_block_leaves_nothing_to_parse() -> None:
    reply = read('<think>{"reasoning": "x", "final_answer": 5}', SOLVER)
    assert (reply.text, reply.parsed, reply.invalid) == ("", None, "is empty")


PIECES = st.sampled_from(
    ["<think>", "</think>", "<thinking>", "</reasoning>", "```json\n", "```", "{", "}", '"a": ']
)


@given(st.lists(st.one_of(PIECES, st.text(max_size=8))).map("".join))
def test_any_text_is_read_and_can_be_written(text: str) -> None:
    for schema in (None, SOLVER, {"type": "object"}):
        reply = read(text, schema)
        assert json.loads(reply.model_dump_json()) == reply.model_dump(mode="json")
        assert schema is None or (reply.parsed is None) == (reply.invalid is not None)


@given(st.text())
def test_a_text_without_tags_is_left_alone(text: str) -> None:
    if "<" not in text:
        assert read(text).text == text


@pytest.mark.parametrize(
    "text",
    [
        "<think>" * 150_000,
        "</think>" * 150_000,
        "a<think>b</think>" * 60_000,
        "<" * 1_000_000,
        "</thin" * 170_000,
        "```" * 330_000,
        "[" * 1_000_000,
        "[1," * 330_000 + "1" + "]" * 330_000,
        '{"a": ' * 170_000,
        '{"reasoning": "' + "\\" * 1_000_000,
        "[" + "1," * 500_000 + "1]",
        " " * 1_000_000,
        "9" * 1_000_000,
        '{"reasoning": "' + "x" * 1_000_000 + '", "final_answer": "y"}',
    ],
)
def test_a_megabyte_is_read_in_linear_time(text: str) -> None:
    started = time.process_time()
    read(text)
    read(text, SOLVER)
    assert time.process_time() - started < 5


async def test_the_loop_runs_on_while_much_is_checked_against_a_schema() -> None:
    schema = response_schema({"xs": "list[int]"})
    text = json.dumps({"xs": list(range(60_000))})
    record = {"kind": "completion", "completion": {"text": text}, "provenance": {}}
    async with watched() as watch:
        sampled = await read_draw(record, KEY, Request(model="m", response_schema=schema))
    assert sampled.reply is not None
    assert sampled.reply.invalid is None
    assert watch.longest_s < watch.elapsed_s / 3
