"""A stored draw read as an attempt, and replies about which no scorer is asked.

Pure: the same records give the same attempts, when they are drawn and whenever they are read back.
"""

from __future__ import annotations

import asyncio
from typing import Any

from pydantic import JsonValue

from labelkit.records import (
    Abstention,
    Attempt,
    Completion,
    DrawKey,
    Failure,
    Request,
    Sampled,
    Score,
    StopReason,
    Verdict,
)
from labelkit.reply import read_reply

_MUCH_TO_CHECK = 20_000
"""Characters of a reply that a response schema is checked on in some 20 ms."""


def read_sampled(record: Any, key: DrawKey, request: Request) -> Sampled:
    """A draw's outcome record (completion or failure) as it was."""
    provenance = record.get("provenance", {})
    if record["kind"] == "failure":
        failure = Failure.model_validate(record["failure"])
        return Sampled(key=key, failure=failure, provenance=provenance)
    completion = Completion.model_validate(record["completion"])
    return read_completion(completion, key, request, provenance)


def read_completion(
    completion: Completion, key: DrawKey, request: Request, provenance: dict[str, JsonValue]
) -> Sampled:
    reply = read_reply(request, completion, key)
    return Sampled(key=key, completion=completion, reply=reply, provenance=provenance)


async def read_draw(
    record: Any, key: DrawKey, request: Request, completion: Completion | None = None
) -> Sampled:
    """As `read_sampled`, off the event loop where a response schema is to be checked on much text.

    A megabyte takes a second, nearly all of it in Python, so that a thread lets the loop run on.
    `completion`: the record's, where it is at hand.
    """
    if (
        request.response_schema is not None
        and record["kind"] == "completion"
        and len(record["completion"]["text"]) > _MUCH_TO_CHECK
    ):
        return await asyncio.to_thread(read_sampled, record, key, request)
    if completion is None:
        return read_sampled(record, key, request)
    return read_completion(completion, key, request, record["provenance"])


def settled_by_rule(
    sampled: Sampled, *, truncated_fails: bool, invalid_fails: bool
) -> Attempt | None:
    """Attempts that no scorer is asked about: failures, and replies that are no answer."""
    failure, reply = sampled.failure, sampled.reply
    if failure is not None:
        reason = f"{failure.error_type}: {failure.message}"
        return Attempt(sampled=sampled, stop_reason=failure.stop_reason, reason=reason)
    assert reply is not None
    if reply.finish_reason == "content_filter":
        reason = "the provider's content filter ended the reply"
        return Attempt(sampled=sampled, stop_reason="content_filter", reason=reason)
    if reply.cut:
        reason = "the reply was cut at its token limit"
        return _failed(sampled, "truncated", reason, truncated_fails)
    if reply.invalid is not None and reply.unchecked:
        return judged(sampled, Abstention(reason=f"the reply {reply.invalid}"))
    if reply.invalid is not None:
        return _failed(sampled, "invalid_output", reply.invalid, invalid_fails)
    if not reply.text.strip() and not reply.tool_calls:
        return _failed(sampled, "no_answer", "the reply is empty", True)
    return None


def read_attempt(sampled: Sampled, record: Any) -> Attempt:
    """A draw with its score record."""
    if "error" in record:
        reason = f"scorer: {record['error']}"
        return Attempt(sampled=sampled, stop_reason="scorer_error", reason=reason)
    if "abstention" in record:
        return judged(sampled, Abstention.model_validate(record["abstention"]))
    return judged(sampled, Score.model_validate(record["score"]))


def judged(sampled: Sampled, verdict: Verdict) -> Attempt:
    if isinstance(verdict, Abstention):
        stop: StopReason = "abstained"
        return Attempt(sampled=sampled, stop_reason=stop, abstention=verdict, reason=verdict.reason)
    stop = "no_answer" if verdict.no_answer else "completed"
    return Attempt(sampled=sampled, stop_reason=stop, score=verdict, reason=verdict.reason)


def _failed(sampled: Sampled, stop: StopReason, reason: str, fails: bool) -> Attempt:
    score = Score(value=0.0, passed=False, reason=reason) if fails else None
    return Attempt(sampled=sampled, stop_reason=stop, score=score, reason=reason)


def first_difference(body: Any, request: Request) -> str:
    """The dotted path of the first request field in which a journalled request differs."""
    then = Request.model_validate(body).model_dump(mode="json")
    now = request.model_dump(mode="json")
    return _difference(then, now, "") or "nothing"


def _difference(then: Any, now: Any, at: str) -> str | None:
    if isinstance(then, dict) and isinstance(now, dict):
        for name in dict.fromkeys((*now, *then)):
            found = _difference(then.get(name), now.get(name), f"{at}.{name}" if at else name)
            if found:
                return found
        return None
    if isinstance(then, list) and isinstance(now, list) and len(then) == len(now):
        for number, (one, other) in enumerate(zip(then, now, strict=True)):
            found = _difference(one, other, f"{at}[{number}]")
            if found:
                return found
        return None
    return None if then == now and type(then) is type(now) else at
