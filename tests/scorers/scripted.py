"""Test doubles of the seams around a scorer: replies by hand, and a draw that follows a script."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from labelkit.records import (
    Attempt,
    Completion,
    DrawKey,
    Failure,
    NotRun,
    Reply,
    Request,
    Sampled,
    Task,
    Verdict,
)
from labelkit.scorers import Binding
from labelkit.scorers.parse import parse_scorer
from labelkit.seams import Draw, Scorer

CASES = Path(__file__).parents[1] / "data" / "verifier_cases.jsonl.gz"
Scripted = str | Failure | NotRun


def cases(kind: str) -> list[dict[str, Any]]:
    """The labelled rows of one kind."""
    rows = [json.loads(line) for line in gzip.decompress(CASES.read_bytes()).splitlines()]
    return [row for row in rows if row["kind"] == kind]


def reply_of(row: dict[str, Any]) -> Reply:
    """A row's response with its thinking taken out, as the engine hands it to a scorer."""
    text = re.sub(r"\A\s*<think>.*?</think>", "", row["response"], count=1, flags=re.DOTALL)
    return Reply(text=text, cut=row.get("finish_reason") == "length")


class ScriptedDraw:
    """Answers each draw from a script by (vote, ask); remembers the requests as asked.

    A draw that the script does not hold fails the test.
    """

    def __init__(self, script: dict[tuple[str, int], Scripted] | None = None) -> None:
        self.script = script or {}
        self.asked: list[tuple[Request, str, int, str]] = []

    waits = True

    async def __call__(
        self, request: Request, *, stage: str = "candidate", sample_index: int
    ) -> Attempt | NotRun:
        raise AssertionError("a scorer samples; it never asks for a scored candidate")

    async def sample(
        self, request: Request, *, stage: str, sample_index: int, role: str = "policy"
    ) -> Sampled | NotRun:
        self.asked.append((request, stage, sample_index, role))
        said = self.script[stage, sample_index]
        if isinstance(said, NotRun):
            return said
        key = DrawKey(task_id="t1", stage=stage, request=request.digest, sample_index=sample_index)
        if isinstance(said, Failure):
            return Sampled(key=key, failure=said)
        return Sampled(key=key, completion=Completion(text=said), reply=Reply(text=said))

    async def score(self, sampled: Sampled) -> Attempt:
        raise AssertionError("a scorer never asks for a score")


def scorer(section: JsonValue) -> Scorer:
    """The bound scorer of a spec section."""
    return parse_scorer(section).bind(Binding(folder=Path()))


def verdict(
    section: JsonValue,
    text: str | Reply,
    gold: JsonValue = None,
    *,
    draw: Draw | None = None,
    **task: Any,
) -> Verdict:
    """One reply scored by a section's scorer."""
    bound = scorer(section)
    reply = Reply(text=text) if isinstance(text, str) else text
    of = Task(id="t1", prompt=task.pop("prompt", "Do it."), gold=gold, **task)
    return asyncio.run(_scored(bound, of, reply, draw or ScriptedDraw()))


async def _scored(bound: Scorer, task: Task, reply: Reply, draw: Draw) -> Verdict:
    try:
        return await bound.score(task, reply, draw)
    finally:
        await bound.close()
