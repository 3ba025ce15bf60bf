"""Reading payloads of the OpenAI protocol, however odd."""

from __future__ import annotations

from typing import Any

import pytest

from labelkit.records import Usage
from labelkit.samplers.protocol import Unreadable, completion, decode, response_format


def body(message: dict[str, Any], **choice: Any) -> Any:
    return {"choices": [{"message": {"role": "assistant", **message}, **choice}]}


def test_integers_of_any_size_stay_exact() -> None:
    digits = "1234567890123456789012345678901234"
    raw = b'{"choices": [{"message": {"tool_calls": [{"function": {"name": "f", "arguments": '
    payload = decode(raw + b'{"n": ' + digits.encode() + b"}}}]}}]}")
    assert completion(payload).tool_calls[0].arguments == f'{{"n":{digits}}}'


def test_half_a_surrogate_pair_beside_long_digits_is_replaced() -> None:
    raw = b'{"choices": [{"message": {"content": "12345678901234567890 \\ud83d"}}]}'
    assert completion(decode(raw)).text == "12345678901234567890 \ufffd"


def test_infinite_logprobs_become_unknown() -> None:
    raw = b'{"choices": [{"text": "x", "logprobs": {"token_logprobs": [-Infinity, NaN, -0.5]}}]}'
    assert completion(decode(raw)).logprobs == {"token_logprobs": [None, None, -0.5]}


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\xff\xfe\x00",
        b"<html>busy</html>",
        b'"text"',
        b"[]",
        b"[" * 100_000,
        b'{"choices": [' + b'{"logprobs": ' * 300 + b"1" + b"}" * 300 + b"]}",
        b'{"choices": {}}',
        b'{"choices": ["x"]}',
        b'{"choices": [{"finish_reason": "stop"}]}',
        b'{"choices": [{"message": {"content": "x"}, "logprobs": [1e999]}]}',
        b'{"error": "overloaded", "choices": [{"message": {"content": "x"}}]}',
    ],
)
def test_what_is_no_reply_is_unreadable(raw: bytes) -> None:
    with pytest.raises(Unreadable):
        completion(decode(raw))


def test_content_parts_are_joined_and_a_refusal_is_text() -> None:
    parts = [{"type": "text", "text": "it "}, {"type": "image"}, {"type": "text", "text": "is"}]
    assert completion(body({"content": parts})).text == "it is"
    assert completion(body({"content": None, "refusal": "I cannot."})).text == "I cannot."


@pytest.mark.parametrize(
    ("said", "read"),
    [
        (None, Usage()),
        ("many", Usage()),
        ({"prompt_tokens": -1, "completion_tokens": "5"}, Usage()),
        ({"prompt_tokens": True, "completion_tokens": 2.5}, Usage()),
        ({"prompt_tokens": 0, "completion_tokens": 5}, Usage(output_tokens=5)),
        ({"prompt_tokens": 0, "completion_tokens": 0}, Usage()),
        ({"prompt_tokens": 1, "completion_tokens_details": 3}, Usage(input_tokens=1)),
    ],
)
def test_usage_that_is_no_count_is_unknown(said: Any, read: Usage) -> None:
    assert completion({**body({"content": "x"}), "usage": said}).usage == read


@pytest.mark.parametrize(
    ("schema", "strict"),
    [
        ({"type": "object", "properties": {"a": {}}, "required": ["a"]}, False),
        (
            {
                "type": "object",
                "properties": {"a": {"type": "object"}},
                "required": ["a"],
                "additionalProperties": False,
            },
            False,
        ),
        (
            {
                "type": "object",
                "properties": {"a": {"type": "array", "items": {"type": "string"}}},
                "required": ["a"],
                "additionalProperties": False,
            },
            True,
        ),
    ],
)
def test_only_closed_schemas_are_sent_as_strict(schema: dict[str, Any], strict: bool) -> None:
    described = response_format(schema)["json_schema"]
    assert isinstance(described, dict)
    assert described.get("strict", False) is strict
