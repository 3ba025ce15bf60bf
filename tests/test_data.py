"""The golds of the example data, computed anew."""

from __future__ import annotations

import contextlib
import io
import math
from pathlib import Path
from typing import Any

import pytest

from labelkit.spec import FieldMap, GoldFrom, TaskFile
from labelkit.tasks import TaskStream, survey

DATA = Path(__file__).parent.parent / "data"


def golds(file: str) -> dict[str, Any]:
    return {task.id: task.gold for task in TaskStream(TaskFile(file=file), DATA)}


def prompts(file: str) -> dict[str, str]:
    return {task.id: str(task.prompt) for task in TaskStream(TaskFile(file=file), DATA)}


def printed(prompt: str) -> int:
    """What the program in a prompt prints."""
    program = prompt.split("\n\n", 1)[1]
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(program, {})
    return int(out.getvalue())


def prime(n: int) -> int:
    """The n-th prime, by the sieve of Eratosthenes."""
    limit = 200_000
    composite = bytearray(limit)
    for i in range(2, limit):
        if not composite[i]:
            n -= 1
            if n == 0:
                return i
            composite[i * i :: i] = b"\1" * len(range(i * i, limit, i))
    raise AssertionError


def test_word_problems_have_the_computed_golds() -> None:
    said = prompts("word_problems.jsonl")
    assert golds("word_problems.jsonl") == {
        "p1": (12 * 6 - 15) * 5,
        "p2": math.comb(7, 3),
        "p3": printed(said["p3"]),
        "p4": 180 * 60 // 60 + 120 * 60 // 40,
        "p5": sum(len(set(str(n))) == 3 for n in range(100, 1000)),
        "p6": printed(said["p6"]),
    }


def test_difficulty_ladder_has_the_computed_golds() -> None:
    term = 7
    for _ in range(60):
        term = (term**2 + 1) % 1013
    assert golds("difficulty_ladder.jsonl") == {
        "r1": 7 + 5,
        "r2": 12 * 11,
        "r3": 17 * 24 - 350,
        "r4": sum(sum(map(int, str(n))) % 7 == 0 for n in range(1, 501)),
        "r5": term,
        "r6": prime(613),
        "r7": 73482915684921637 * 91827364550918273,
        "r8": prime(12345),
    }


def test_chained_arithmetic_has_the_computed_golds_and_asks_for_them() -> None:
    tasks = list(TaskStream(TaskFile(file="chained_arithmetic.jsonl"), DATA))
    assert len(tasks) == 6
    for task in tasks:
        a, b, m, r = (int(str(task.metadata[name])) for name in "abmr")
        product = a * b
        assert task.gold == sum(map(int, str(product))) * m - product % r
        assert all(str(number) in str(task.prompt) for number in (a, b, m, r))


def test_anchors_have_the_computed_golds() -> None:
    assert list(golds("chained_anchors.jsonl").values()) == [17 * 23, 29 * 31, 127 * 89 - 41]


@pytest.mark.parametrize(
    ("file", "gold"),
    [
        ("gsm8k_test.jsonl.gz", GoldFrom(column="answer", after="####")),
        ("gsm8k_model_solutions.jsonl.gz", GoldFrom(column="ground_truth", after="A:")),
    ],
)
def test_gsm8k_is_read_whole(file: str, gold: GoldFrom) -> None:
    source = TaskFile(file=file, fields=FieldMap(prompt="question", gold=gold))
    stream = TaskStream(source, DATA)
    assert survey(stream).n_tasks == 1319
    assert next(iter(stream)).gold == "18"
