"""sft-messages: TRL's conversational language modelling rows, `{messages}`.

https://huggingface.co/docs/trl/dataset_formats. The system prompt is a message, not a column of its
own (trl#2385). Only what passed is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pydantic import JsonValue

from labelkit.exports import Example, Options, RunRow, Unit
from labelkit.exports.chat import candidate, conversation, prompt_messages, turn_of, unusable


class SftMessages:
    """An example a row whose sample passed."""

    UNIT = "row"
    COMMANDS = ("rollout", "verify-traces", "best-of-n")
    TAKES = ("reasoning", "system", "prompt")

    def __init__(self, options: Options) -> None:
        self._options = options

    def units(self, task_rows: Sequence[RunRow]) -> Iterator[Unit]:
        for row in task_rows:
            yield self._unit(row)

    def _unit(self, row: RunRow) -> Unit:
        command = row["provenance"]["command"]
        if command == "rollout" and not row["score"]["passed"]:
            return Unit(left_out="failed")
        turn = candidate(row, "chosen") if command == "best-of-n" else turn_of(row)
        prompt = prompt_messages(row, self._options)
        why = unusable(prompt, turn)
        if why is not None:
            return Unit(left_out=why)
        messages: list[JsonValue] = [*conversation(prompt, turn, self._options)]
        return Unit((Example({"messages": messages}, {"task_id": row["id"], **turn.origin}),))
