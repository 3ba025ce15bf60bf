"""Prompts and assistant turns as chat messages, the same in every format.

Nothing is written that the model did not say or was not sent: what makes no whole conversation is
named by `unusable`, never repaired.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from pydantic import JsonValue

from labelkit.errors import UsageError
from labelkit.exports import Options, RunRow
from labelkit.records import Message
from labelkit.schema import parse_reply

REASONING = "reasoning_content"
"""Where chat templates look for a message's thinking."""

_SYSTEM = ("system", "developer")


@dataclass(frozen=True)
class Turn:
    """What the model said in one sample. `reasoning` is only what stands apart from the text.

    `score` and `sample_index` None: the row does not tell.
    """

    text: str
    reasoning: str | None = None
    sample_index: int | None = None
    score: float | None = None
    has_tool_calls: bool = False

    @property
    def origin(self) -> dict[str, JsonValue]:
        return {"sample_index": self.sample_index, "score": self.score}


def turn_of(row: RunRow) -> Turn:
    """The turn of a row that is one sample (rollout, verify-traces)."""
    score = row.get("score")
    return Turn(
        text=row["text"],
        reasoning=_apart(row),
        sample_index=row["sample_index"],
        score=None if score is None else score["value"],
        has_tool_calls=bool(row.get("tool_calls")),
    )


def candidate(row: RunRow, role: Literal["chosen", "rejected"]) -> Turn:
    """A candidate of a best-of-n row, which tells the index of the chosen one alone.

    Raises UsageError for a row of the labelkit that did not yet keep reasoning and tool calls: what
    a reply was without them, nobody knows any more.
    """
    part = "" if role == "chosen" else "rejected_"
    if f"{part}reasoning" not in row:
        raise UsageError(
            f"task {row['id']}: an older labelkit wrote this row, without `{part}reasoning` and the"
            " tool calls of its reply",
            hint="`labelkit best-of-n SPEC -o DIR --from` this run writes its rows anew, without a"
            " draw; export DIR",
        )
    return Turn(
        text=row[role],
        reasoning=row[f"{part}reasoning"],
        has_tool_calls=bool(row.get(f"{part}tool_calls")),
        sample_index=row["sample_index"] if role == "chosen" else None,
        score=row[f"{role}_score"],
    )


def prompt_messages(row: RunRow, options: Options) -> list[Message]:
    """The conversation before the reply. Raises UsageError where none was sent."""
    sent: list[Message] = row.get("messages", [])
    if options.prompt == "raw":
        raw = row["prompt"]
        messages: list[Message] = (
            [{"role": "user", "content": raw}] if isinstance(raw, str) else raw
        )
        if not any(message["role"] in _SYSTEM for message in messages):
            messages = [each for each in sent if each["role"] in _SYSTEM] + messages
    elif "messages" in row:
        messages = sent
    else:
        raise UsageError(
            f"task {row['id']}: was sent as plain text (api: completions), not as messages",
            hint="--prompt raw makes a user message of the task's own prompt",
        )
    if options.system == "drop":
        return [each for each in messages if each["role"] not in _SYSTEM]
    return messages


def assistant(turn: Turn, options: Options) -> Message:
    """The turn as the assistant's message. With `keep` the reasoning's key is there in every turn,
    so that keys are constant over a file."""
    if options.reasoning == "keep" and options.reasoning_key:
        return {"role": "assistant", "content": turn.text, REASONING: turn.reasoning}
    if options.reasoning == "think-tags" and turn.reasoning:
        text = f"<think>\n{turn.reasoning}\n</think>\n\n{turn.text}"
        return {"role": "assistant", "content": text}
    return {"role": "assistant", "content": turn.text}


def conversation(prompt: list[Message], turn: Turn, options: Options) -> list[Message]:
    """Prompt and turn as one list, whose messages all have the keys of the turn's: readers make
    one record type of a list, and a reasoning key in some messages only would make it none."""
    reply = assistant(turn, options)
    return [*({**dict.fromkeys(reply), **each} for each in prompt), reply]


def has_reasoning(fields: dict[str, JsonValue]) -> bool:
    """Whether a message of an example carries reasoning in its own key."""
    lists: list[list[Any]] = [value for value in fields.values() if isinstance(value, list)]
    return any(each.get(REASONING) for messages in lists for each in messages)


def unusable(prompt: list[Message], *turns: Turn) -> str | None:
    """Why prompt and turns make no example, or None."""
    if not prompt:
        return "empty_prompt"
    if prompt[-1]["role"] == "assistant":
        return "assistant_prefill"
    if any(turn.has_tool_calls for turn in turns):
        return "tool_calls"
    return None if all(turn.text.strip() for turn in turns) else "empty_text"


def _apart(row: RunRow) -> str | None:
    """The row's reasoning, but None where verify-traces took it from the text itself: the part
    before the answer, or a field of the reply's JSON."""
    reasoning: str | None = row["reasoning"]
    if not reasoning or row["provenance"]["command"] != "verify-traces":
        return reasoning
    if row["text"].startswith(reasoning):
        return None
    value, _ = parse_reply(row["text"], {})
    inside = isinstance(value, dict) and value.get("reasoning") == reasoning
    return None if inside else reasoning
