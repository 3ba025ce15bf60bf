"""A completion as labelkit reads it: thinking apart from the answer, a schema's object parsed.

Pure, total and linear in the text: model text is data from a stranger, and nothing in it can raise
or stall. Nothing is repaired; what cannot be read says why.
"""

from __future__ import annotations

import re

from labelkit.records import Completion, DrawKey, Reply, Request
from labelkit.schema import UncheckedError, parse_reply

_TAG = re.compile(r"<(/?)(?:think|thinking|reasoning|(answer))>", re.IGNORECASE)


def read_reply(request: Request, completion: Completion, key: DrawKey) -> Reply:
    """The reply of a draw; a function of the request and the completion alone."""
    text, thinking = completion.text, ""
    parsed, invalid, unchecked = None, None, False
    schema = request.response_schema
    try:
        if schema is not None:
            parsed, invalid = parse_reply(text, schema)
        if schema is None or invalid is not None:
            # A reply that is valid as it stands is all answer: tags in its strings are data.
            text, thinking = split_thinking(text)
            if schema is not None and thinking:
                parsed, invalid = parse_reply(text, schema)
    except UncheckedError as error:
        invalid, unchecked = str(error), True
    reasoning = completion.reasoning
    if thinking:
        reasoning = f"{reasoning}\n\n{thinking}" if reasoning else thinking
    return Reply(
        text=text,
        reasoning=reasoning,
        parsed=parsed,
        invalid=invalid,
        unchecked=unchecked,
        tool_calls=completion.tool_calls,
        finish_reason=completion.finish_reason,
        cut=completion.finish_reason == "length",
        stage=key.stage,
        index=key.sample_index,
        logprobs=completion.logprobs,
    )


def split_thinking(text: str) -> tuple[str, str]:
    """The answer and the thinking of a text with think tags; without tags, the text as it is.

    The answer is what stands after the last block: what came before it was not the last word. A
    closing tag without an opening one makes all before it thinking, a block may be closed by a
    mistaken `</answer>`, and a block that never closes leaves no answer.
    """
    if "<" not in text:
        return text, ""
    thinking: list[str] = []
    at = 0
    inside = False
    answers = 0
    for tag in _TAG.finditer(text):
        closing = bool(tag[1])
        if tag[2] and (not inside or not closing or answers):
            answers += (-1 if closing else 1) if inside else 0
            continue
        if inside and not closing:
            continue
        thinking.append(text[at : tag.start()])
        inside = not closing
        at = tag.end()
    if at == 0:
        return text, ""
    answer = "" if inside else text[at:].strip()
    if inside:
        thinking.append(text[at:])
    return answer, "\n\n".join(filter(None, map(str.strip, thinking)))
