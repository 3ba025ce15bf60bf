"""HumanEval: all canonical solutions pass, all mutants fail, and no process stays behind."""

from __future__ import annotations

import asyncio
import gzip
import json
import random
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from labelkit.records import Reply, Score, Task, Verdict
from labelkit.scorers import Binding
from labelkit.scorers.program import ProgramSettings
from labelkit.seams import Draw
from tests.sandbox.leftovers import wait_until_gone

NO_DRAW = cast(Draw, None)
DATA = Path(__file__).parents[2] / "data" / "HumanEval.jsonl.gz"
BREAK = """
def _changed(value):
    if value is None:
        return 0
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return value + 1
    if isinstance(value, str):
        return value + "x"
    if isinstance(value, dict):
        return {**value, 0: 0}
    return value + type(value)([0])
_right = ENTRY
def ENTRY(*args):
    return _changed(_right(*args))
"""

Row = dict[str, Any]


def rows() -> list[Row]:
    with gzip.open(DATA, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


async def verdicts(reply_to: Callable[[Row], str]) -> list[tuple[str, Verdict]]:
    memory_mib = 512 + random.randrange(100_000)
    settings = ProgramSettings(timeout_s=30.0, memory_mib=memory_mib)
    scorer = settings.bind(Binding(folder=Path(), processes=2))

    async def one(row: Row) -> tuple[str, Verdict]:
        gold = {key: row[key] for key in ("prompt", "test", "entry_point")}
        task = Task(id=row["task_id"], prompt=row["prompt"], gold=gold)
        assert scorer.check_gold(task) is None
        return task.id, await scorer.score(task, Reply(text=reply_to(row)), NO_DRAW)

    judged = await asyncio.gather(*(one(row) for row in rows()))
    await wait_until_gone(str(memory_mib * 1024**2))
    return judged


def not_(passed: bool, judged: list[tuple[str, Verdict]]) -> list[tuple[str, Verdict]]:
    """The verdicts that are not scores with that outcome."""
    return [
        (task_id, verdict)
        for task_id, verdict in judged
        if not isinstance(verdict, Score) or verdict.passed is not passed
    ]


async def test_canonical_solutions_pass_as_continuations_within_a_minute() -> None:
    start = time.monotonic()
    judged = await verdicts(lambda row: str(row["canonical_solution"]))
    assert len(judged) == 164
    assert not_(True, judged) == []
    assert time.monotonic() - start < 60.0


async def test_mutants_fail() -> None:
    """The rule: every value that the canonical solution returns is changed by its type.

    None becomes 0, a bool its opposite, a number one more, a text gets an `x`, a list or tuple a
    further 0, a dict a further member. The mutant comes as a whole function in a fenced block.
    """

    def mutant(row: Row) -> str:
        wrapper = textwrap.dedent(BREAK).replace("ENTRY", row["entry_point"])
        return f"```python\n{row['prompt']}{row['canonical_solution']}\n{wrapper}```"

    assert not_(False, await verdicts(mutant)) == []
