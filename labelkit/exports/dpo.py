"""dpo: TRL's conversational preference rows with an explicit prompt, `{prompt, chosen, rejected}`.

https://huggingface.co/docs/trl/dataset_formats. A rejected reply is a whole, scored, wrong answer:
a pair with a cut or malformed reply would teach length or format instead of being right.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from labelkit.exports import Example, Options, RunRow, Unit
from labelkit.exports.chat import (
    Turn,
    assistant,
    candidate,
    prompt_messages,
    turn_of,
    unusable,
)

MAX_LENGTH_RATIO = 2
"""Longer to shorter, in characters: beyond that a pair says more of length than of being right."""

MAX_ATTEMPTS = 200
"""Only so many passed and so many wrong attempts of a task are compared, the earliest: every pair
of them is looked at."""


class Dpo:
    """Up to `max_pairs` pairs a task, the nearest in length first, each attempt in one at most."""

    UNIT = "task"
    COMMANDS = ("rollout", "best-of-n")
    TAKES = ("reasoning", "system", "prompt", "max_pairs")

    def __init__(self, options: Options) -> None:
        self._options = options

    def units(self, task_rows: Sequence[RunRow]) -> Iterator[Unit]:
        first = task_rows[0]
        if first["provenance"]["command"] == "best-of-n":
            if first.get("rejected") is None:
                yield Unit(left_out="no_rejected")
                return
            passed, wrong = [candidate(first, "chosen")], [candidate(first, "rejected")]
        else:
            passed = [turn_of(row) for row in task_rows if row["score"]["passed"]]
            wrong = [turn_of(row) for row in task_rows if _is_wrong(row)]
        yield self._unit(first, passed[:MAX_ATTEMPTS], wrong[:MAX_ATTEMPTS])

    def _unit(self, row: RunRow, passed: list[Turn], wrong: list[Turn]) -> Unit:
        if not passed or not wrong:
            return Unit(left_out="no_wrong" if passed else "no_passed")
        prompt = prompt_messages(row, self._options)
        whole = [
            (chosen, rejected)
            for chosen, rejected in product(passed, wrong)
            if unusable(prompt, chosen, rejected) is None
        ]
        if not whole:
            return Unit(left_out=unusable(prompt, *passed, *wrong))
        differing = [(a, b) for a, b in whole if a.text.strip() != b.text.strip()]
        if not differing:
            return Unit(left_out="same_text")
        pairs = self._nearest(differing)
        if not pairs:
            return Unit(left_out="length_ratio")
        return Unit(
            tuple(
                Example(
                    {
                        "prompt": list(prompt),
                        "chosen": [assistant(chosen, self._options)],
                        "rejected": [assistant(rejected, self._options)],
                    },
                    {
                        "task_id": row["id"],
                        "chosen": chosen.origin,
                        "rejected": rejected.origin,
                    },
                )
                for chosen, rejected in pairs
            )
        )

    def _nearest(self, pairs: list[tuple[Turn, Turn]]) -> list[tuple[Turn, Turn]]:
        """The pairs to write, by difference in length; the earlier sample first of equals."""
        alike: list[tuple[int, int, Turn, Turn]] = []
        for order, (chosen, rejected) in enumerate(pairs):
            shorter, longer = sorted((self._length(chosen), self._length(rejected)))
            if longer <= MAX_LENGTH_RATIO * shorter:
                alike.append((longer - shorter, order, chosen, rejected))
        found: list[tuple[Turn, Turn]] = []
        used: set[int] = set()
        for _, _, chosen, rejected in sorted(alike, key=lambda each: each[:2]):
            if len(found) == self._options.max_pairs:
                break
            if not used & {id(chosen), id(rejected)}:
                used |= {id(chosen), id(rejected)}
                found.append((chosen, rejected))
        return found

    def _length(self, turn: Turn) -> int:
        thinking = turn.reasoning if self._options.reasoning != "drop" else None
        return len(turn.text) + len(thinking or "")


def _is_wrong(row: RunRow) -> bool:
    return row["stop_reason"] == "completed" and not row["score"]["passed"]
