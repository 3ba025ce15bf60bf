"""The OpenAI protocol as data: a call's parameters out, a payload in.

Shared by all transports, so that a reply is read the same way whoever brought it. Nothing here
connects, waits or knows a provider.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import orjson
from pydantic import JsonValue

from labelkit import codec
from labelkit.codec import clean_text, unwritable
from labelkit.records import Call, Completion, Request, ToolCall, Usage

OWN_KEYS = ("model", "messages", "prompt", "n", "best_of", "stream", "seed", "tools",
            "response_format", "max_tokens", "max_completion_tokens")  # fmt: skip
"""What `extra_body` may not set: labelkit decides it."""


_INSTEAD = {
    "n": " (K draws are K calls: set k)",
    "best_of": " (K draws are K calls: set k)",
    "max_tokens": " (set sampler.max_tokens)",
    "max_completion_tokens": " (set sampler.max_tokens)",
}


class Unreadable(ValueError):
    """A payload that is no reply; `error_type` names how. The message is not scrubbed yet."""

    def __init__(self, error_type: str, message: str) -> None:
        super().__init__(message)
        self.error_type = error_type


def parameters(call: Call) -> dict[str, JsonValue]:
    """A call's parameters as the protocol names them, `extra_body` left out."""
    request = call.request
    sent: dict[str, JsonValue] = {
        name: value
        for name, value in request.parameters.items()
        if value is not None and name not in ("seed", "logprobs", "extra_body")
    }
    logprobs = request.parameters.get("logprobs")
    if logprobs is not None and logprobs is not False:
        if request.api == "completions":
            sent["logprobs"] = 1 if logprobs is True else logprobs
        else:
            sent["logprobs"] = True
            if logprobs is not True:
                sent["top_logprobs"] = logprobs
    if call.seed is not None:
        sent["seed"] = call.seed
    if request.tools:
        sent["tools"] = list(request.tools)
    return sent


def extra_body(request: Request) -> dict[str, JsonValue]:
    """The request's `extra_body`, empty where none is set."""
    extra = request.parameters.get("extra_body")
    return extra if isinstance(extra, dict) else {}


def response_format(schema: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """A response schema as the protocol's `json_schema`; strict where the schema is closed, as
    OpenAI demands of strict ones."""
    described: dict[str, JsonValue] = {"name": "reply", "schema": schema}
    if all(_closed(part) for part in _objects(schema)):
        described["strict"] = True
    return {"type": "json_schema", "json_schema": described}


def misuse(request: Request) -> list[str]:
    """What no transport sends, one sentence each."""
    found = [
        f"extra_body.{key}: labelkit sets `{key}` itself; remove it{_INSTEAD.get(key, '')}"
        for key in OWN_KEYS
        if key in extra_body(request)
    ]
    if request.api == "completions":
        found += [
            f"{name}: not part of the completions API; use api: chat"
            for name, given in (
                ("response", request.response_schema),
                ("tools", request.tools),
                ("reasoning_effort", request.parameters.get("reasoning_effort")),
            )
            if given
        ]
    return found


def decode(raw: bytes) -> JsonValue:
    """A reply body as JSON with text that can be written; raises Unreadable.

    NaN and infinities become None, as servers write them into logprobs.
    """
    if not codec.has_long_integers(raw):
        try:
            value: JsonValue = orjson.loads(raw)
            return value
        except ValueError:
            pass  # half a surrogate pair or NaN, perhaps: the standard library reads those
    try:
        value = json.loads(raw.decode("utf-8", "replace"), parse_constant=lambda name: None)
    except (ValueError, RecursionError) as error:
        raise Unreadable("not_json", f"the reply is not JSON: {error}") from None
    cleaned: JsonValue = clean(value)
    return cleaned


def clean(value: Any) -> Any:
    """JSON with every text made writable as UTF-8; raises Unreadable where it is bottomless."""
    try:
        return _clean(value)
    except RecursionError:
        raise Unreadable("not_json", "the reply is nested too deeply") from None


def completion(payload: JsonValue) -> Completion:
    """A chat or text completion payload, already clean, as a Completion; raises Unreadable.

    `cost_usd` stays None: prices are the transport's matter.
    """
    if not isinstance(payload, dict):
        raise Unreadable("not_a_completion", "the reply is not a JSON object")
    if payload.get("error"):
        raise Unreadable("error_body", f"a 200 with an error body: {_short(payload['error'])}")
    choices = payload.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    if not isinstance(choice, dict):
        raise Unreadable("no_choices", "the reply has no choices")
    message = choice.get("message")
    if not isinstance(message, dict):
        if not isinstance(choice.get("text"), str):
            raise Unreadable("no_message", "the reply's first choice has no message and no text")
        message = {"content": choice["text"]}
    logprobs = choice.get("logprobs")
    trouble = None if logprobs is None else unwritable(logprobs)
    if trouble is not None:
        raise Unreadable("not_a_completion", f"logprobs of the reply {trouble}")
    try:
        text = content_text(message)
        return Completion(
            text=text,
            reasoning=_text(message.get("reasoning_content")) or _text(message.get("reasoning")),
            tool_calls=tuple(_tool_calls(message.get("tool_calls"))),
            finish_reason=_text(choice.get("finish_reason")),
            usage=usage(payload.get("usage"), text),
            model_served=_text(payload.get("model")),
            response_id=_text(payload.get("id")),
            logprobs=logprobs,
        )
    except (ValueError, RecursionError) as error:
        raise Unreadable("not_a_completion", f"the reply cannot be used: {error}") from None


def content_text(message: Mapping[str, JsonValue]) -> str:
    """A message's text: its content, the joined text parts of a list, a refusal, or nothing."""
    content = message.get("content")
    if isinstance(content, list):
        parts = (part.get("text") for part in content if isinstance(part, dict))
        return "".join(part for part in parts if isinstance(part, str))
    return _text(content) or _text(message.get("refusal")) or ""


def usage(said: JsonValue, text: str = "") -> Usage:
    """Token counts; None for what is missing or no count. No call has an empty prompt, and no reply
    with text has no tokens: a zero there is what a proxy says that does not count."""
    if not isinstance(said, dict):
        return Usage()
    output_tokens = _count(said, "completion_tokens")
    return Usage(
        input_tokens=_count(said, "prompt_tokens") or None,
        output_tokens=(output_tokens or None) if text else output_tokens,
        reasoning_tokens=_count(said.get("completion_tokens_details"), "reasoning_tokens"),
        cached_tokens=_count(said.get("prompt_tokens_details"), "cached_tokens"),
    )


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, dict):
        return {clean_text(key): _clean(member) for key, member in value.items()}
    if isinstance(value, list):
        return [_clean(member) for member in value]
    return value


def _tool_calls(said: JsonValue) -> Iterator[ToolCall]:
    for item in said if isinstance(said, list) else ():
        function = item.get("function") if isinstance(item, dict) else None
        if not isinstance(item, dict) or not isinstance(function, dict):
            continue
        arguments = function.get("arguments")
        if not isinstance(arguments, str):
            arguments = "" if arguments is None else codec.dumps(arguments).decode()
        name = _text(function.get("name")) or ""
        yield ToolCall(name=name, arguments=arguments, id=_text(item.get("id")))


def _count(said: JsonValue, name: str) -> int | None:
    value = said.get(name) if isinstance(said, dict) else None
    return value if type(value) is int and value >= 0 else None  # True is no count


def _text(value: JsonValue) -> str | None:
    return value if isinstance(value, str) else None


def _short(error: JsonValue) -> str:
    message = error.get("message") if isinstance(error, dict) else error
    return str(message)


def _objects(schema: JsonValue) -> Iterator[dict[str, JsonValue]]:
    """All the object schemas inside a schema, itself included."""
    if isinstance(schema, list):
        for item in schema:
            yield from _objects(item)
    elif isinstance(schema, dict):
        if schema.get("type") == "object":
            yield schema
        for value in schema.values():
            yield from _objects(value)


def _closed(schema: dict[str, JsonValue]) -> bool:
    members, required = schema.get("properties"), schema.get("required")
    return (
        schema.get("additionalProperties") is False
        and isinstance(members, dict)
        and isinstance(required, list)
        and set(members) == {str(name) for name in required}
    )
