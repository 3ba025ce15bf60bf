"""`command`: a program of any language that answers JSON lines."""

from __future__ import annotations

import asyncio
import sys
import textwrap
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, cast

import pytest

from labelkit.errors import UsageError
from labelkit.records import Abstention, Reply, Score, Task
from labelkit.sandbox.pool import WorkerDiedError, WorkerError, WorkerLateError
from labelkit.scorers import Binding
from labelkit.scorers.command import CommandSettings
from labelkit.scorers.user_code import RewardError
from labelkit.seams import Draw, Scorer

NO_DRAW = cast(Draw, None)
TASK = Task(id="t1", prompt="2+2?", gold="4", metadata={"source": "sums"})
PROGRAM = """\
import json, os, sys, time
for line in sys.stdin:
    asked = json.loads(line)
    text, gold = asked["reply"]["text"], asked["task"]["gold"]
    answer = {"id": asked["id"], "value": float(text == gold)}
LINES
    print(json.dumps(answer), flush=True)
"""

Bind = Callable[..., Scorer]


@pytest.fixture
async def bind(tmp_path: Path) -> AsyncIterator[Bind]:
    """Binds a scorer to a `PROGRAM` with the given lines in it."""
    bound: list[Scorer] = []

    def make(lines: str = "", **more: Any) -> Scorer:
        body = textwrap.indent(textwrap.dedent(lines), "    ")
        (tmp_path / "verify.py").write_text(PROGRAM.replace("LINES", body))
        limits = {"timeout_s": 20.0, "start_timeout_s": 20.0, **more}
        settings = CommandSettings(argv=[sys.executable, "verify.py"], **limits)
        bound.append(settings.bind(Binding(folder=tmp_path, allow_code=True, processes=1)))
        return bound[-1]

    yield make
    for scorer in bound:
        await scorer.close()


async def test_program_is_asked_line_by_line_and_stays_up(bind: Bind) -> None:
    scorer = bind('answer["detail"] = {"pid": os.getpid(), "task": asked["task"]}')
    right = await scorer.score(TASK, Reply(text="4"), NO_DRAW)
    wrong = await scorer.score(TASK, Reply(text="5\u2028"), NO_DRAW)
    assert isinstance(right, Score)
    assert isinstance(wrong, Score)
    assert (right.value, right.passed, wrong.value, wrong.passed) == (1.0, True, 0.0, False)
    assert right.detail == wrong.detail
    assert right.detail["task"] == TASK.model_dump(mode="json")


async def test_program_may_abstain_or_report_a_fault(bind: Bind) -> None:
    scorer = bind("""
        if text == "?":
            answer = {"id": asked["id"], "abstained": True, "reason": "no idea"}
        if text == "!":
            answer = {"id": asked["id"], "error": "database is away"}
    """)
    verdict = await scorer.score(TASK, Reply(text="?"), NO_DRAW)
    assert verdict == Abstention(reason="no idea")
    with pytest.raises(RewardError, match="database is away"):
        await scorer.score(TASK, Reply(text="!"), NO_DRAW)


@pytest.mark.parametrize(
    "lines",
    [
        'answer["id"] += 1',
        'del answer["id"]',
        'answer["value"] = 2',
        'answer["value"] = "1"',
        'answer["value"] = float("nan")',
        'del answer["value"]',
        "answer = 1.0",
        'print("log line")',
        'print("not json"); continue',
    ],
)
async def test_what_is_no_answer_to_the_question_is_a_fault(bind: Bind, lines: str) -> None:
    scorer = bind(lines)
    with pytest.raises((RewardError, WorkerError)):
        await scorer.score(TASK, Reply(text="4"), NO_DRAW)


async def test_answer_that_comes_late_is_never_taken_for_the_next_one(bind: Bind) -> None:
    """A second line for the first call must not decide the second call."""
    scorer = bind("""
        if text == "4":
            print(json.dumps(answer), flush=True)
            time.sleep(0.1)
    """)
    await scorer.score(TASK, Reply(text="4"), NO_DRAW)
    await asyncio.sleep(0.3)
    verdict = await scorer.score(TASK, Reply(text="5"), NO_DRAW)
    assert verdict == Score(value=0.0, passed=False)


async def test_hung_program_is_killed_and_started_again(bind: Bind) -> None:
    scorer = bind('time.sleep(60 if text == "hang" else 0)', timeout_s=0.3)
    assert isinstance(await scorer.score(TASK, Reply(text="4"), NO_DRAW), Score)
    with pytest.raises(WorkerLateError):
        await scorer.score(TASK, Reply(text="hang"), NO_DRAW)
    assert isinstance(await scorer.score(TASK, Reply(text="4"), NO_DRAW), Score)


async def test_dead_program_says_its_last_words(bind: Bind) -> None:
    scorer = bind('sys.exit("out of licences")')
    with pytest.raises(WorkerDiedError, match="out of licences"):
        await scorer.score(TASK, Reply(text="4"), NO_DRAW)


def test_command_needs_allow_code(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        CommandSettings(argv=["true"]).bind(Binding(folder=tmp_path))
    assert "--allow-code" in (caught.value.hint or "")


@pytest.mark.parametrize("program", ["no-such-program-here", "./missing", "./plain.txt"])
def test_program_that_cannot_run_is_told_when_it_is_bound(tmp_path: Path, program: str) -> None:
    (tmp_path / "plain.txt").write_text("")
    with pytest.raises(UsageError, match="not a program"):
        CommandSettings(argv=[program]).bind(Binding(folder=tmp_path, allow_code=True))


def test_fingerprint_follows_the_files_that_the_command_names(bind: Bind) -> None:
    first = bind("").fingerprint
    assert first == bind("").fingerprint
    assert first != bind("pass").fingerprint
    assert first != bind("", pass_threshold=0.9).fingerprint
