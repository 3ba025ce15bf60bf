"""verl: a prompt a task with its ground truth, for verl's RL trainers.

https://verl.readthedocs.io/en/latest/preparation/prepare_data.html. `data_source` names the reward
function, so it is never guessed (verl#758), and `extra_info.index` is always there (verl#3450).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import JsonValue

from labelkit import codec
from labelkit.errors import UsageError
from labelkit.exports import Example, Options, RunRow, Unit
from labelkit.exports.chat import prompt_messages


class Verl:
    """An example a task with a gold, whatever its samples.

    `extra_info` carries split and index (the metadata's own, else `train` and the row's place in
    the file, from 0), the task id, and the metadata as JSON text: its keys differ from task to
    task, and a column's may not (datasets#6699).
    """

    UNIT = "task"
    COMMANDS = ("rollout", "learning-zone", "rl-select", "verify-traces")
    TAKES = ("system", "prompt", "data_source")

    def __init__(self, options: Options) -> None:
        self._options = options
        self._written = 0

    def units(self, task_rows: Sequence[RunRow]) -> Iterator[Unit]:
        row = task_rows[0]
        prompt = prompt_messages(row, self._options)
        if row["gold"] is None:
            yield Unit(left_out="no_gold")
            return
        if not prompt:
            yield Unit(left_out="empty_prompt")
            return
        metadata: dict[str, Any] = row["metadata"]
        ability = metadata.get("ability")
        fields: dict[str, JsonValue] = {
            "data_source": self._data_source(row),
            "prompt": list(prompt),
            "ability": ability if isinstance(ability, str) else None,
            "reward_model": {"style": "rule", "ground_truth": _text(row["gold"])},
            "extra_info": {**self._place(metadata), "id": row["id"], "metadata": _text(metadata)},
        }
        self._written += 1
        counts = {name: row.get(name) for name in ("n_passed", "n_scored")}
        yield Unit((Example(fields, {"task_id": row["id"], **counts}),))

    def _data_source(self, row: RunRow) -> str:
        source = self._options.data_source or row["metadata"].get("data_source")
        if isinstance(source, str) and source:
            return source
        raise UsageError(
            f"task {row['id']}: metadata.data_source is "
            + ("missing" if source is None else f"{_text(source)[:60]}, which is no name"),
            hint="--data-source NAME sets it for all rows; it names verl's reward function",
        )

    def _place(self, metadata: dict[str, Any]) -> dict[str, JsonValue]:
        """Split and index; the metadata's `extra_info`, which verl's own files have, goes first."""
        extra = metadata.get("extra_info")
        known = {**metadata, **extra} if isinstance(extra, dict) else metadata
        split, index = known.get("split"), known.get("index")
        return {
            "split": split if isinstance(split, str) else "train",
            "index": index if type(index) is int else self._written,
        }


def _text(value: JsonValue) -> str:
    """Text as it stands, anything else as JSON; integers of any size stay exact."""
    return value if isinstance(value, str) else codec.dumps(value).decode("utf-8")
