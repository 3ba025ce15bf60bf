"""Long replies and slow patterns are scored in another process, so that no verdict holds up a run.

A run is one event loop, and a text of megabytes takes seconds to look through, most of them inside
single calls that no thread can interrupt. Around every scorer whose verdict needs nothing but its
settings, the task and the reply stands one wrapper: what is short is scored where it is, the rest
by the same scorer in a worker, under a wall clock. The wrapper never changes a verdict.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from pydantic import JsonValue

from labelkit.codec import dumps, loads
from labelkit.patterns import PatternLateError, patience
from labelkit.records import Abstention, Reply, Score, Task, Verdict
from labelkit.sandbox.keeper import KeeperSettings
from labelkit.sandbox.pool import WorkerLateError, WorkerPool
from labelkit.scorers import REGISTRY, Binding, ScorerSettings
from labelkit.scorers.parse import parse_scorer
from labelkit.seams import Draw, Scorer

LONGEST_INLINE = 50_000
"""Characters that no scorer takes over some 50 ms for."""

_WALL_S = 120.0
_MEMORY_BYTES = 4 << 30
_SEEN = ("text", "parsed", "invalid", "finish_reason", "cut", "stage", "index")


def bound(settings: ScorerSettings, binding: Binding) -> Scorer:
    """The scorer of a run, as `bind` makes it, that never holds up the event loop."""
    scorer = settings.bind(binding)
    return Aside(scorer, settings, binding) if settings.PURE else scorer


class Aside:
    """A scorer that hands long replies and slow patterns to worker processes."""

    def __init__(
        self,
        scorer: Scorer,
        settings: ScorerSettings,
        binding: Binding,
        *,
        wall_s: float = _WALL_S,
    ) -> None:
        self.fingerprint = scorer.fingerprint
        self.reads = scorer.reads
        self.check_gold = scorer.check_gold
        self._scorer = scorer
        self._made_of = _made_of(settings, binding)
        self._wall_s = wall_s
        self._slots = asyncio.Semaphore(binding.processes)
        keeper = KeeperSettings(
            entry=f"{__name__}:start", argument=settings.KIND, memory_bytes=_MEMORY_BYTES
        )
        self._pool = WorkerPool(keeper, workers=binding.processes)

    async def score(self, task: Task, reply: Reply, draw: Draw) -> Verdict:
        length = len(reply.text)
        if reply.tool_calls:
            length += sum(len(call.arguments) for call in reply.tool_calls)
        if length <= LONGEST_INLINE:
            try:
                return await self._scorer.score(task, reply, draw)
            except PatternLateError:
                pass
        return await self._score_aside(task, reply)

    async def close(self) -> None:
        await self._scorer.close()
        await self._pool.close()

    async def _score_aside(self, task: Task, reply: Reply) -> Verdict:
        async with self._slots:
            shown: dict[str, Any] = {name: getattr(reply, name) for name in _SEEN}
            shown["tool_calls"] = [call.model_dump() for call in reply.tool_calls]
            question: Any = [self._made_of, task.model_dump(mode="json"), shown]
            try:
                answer: Any = await self._pool.call(question, self._wall_s)
            except WorkerLateError:
                return Abstention(reason=f"scoring took over {self._wall_s:g} s and was stopped")
        kind, verdict, is_span = answer
        if is_span:
            verdict["answer"] = reply.text[slice(*verdict["span"])]
        return (Score if kind == "score" else Abstention).model_validate(verdict)


def _made_of(settings: ScorerSettings, binding: Binding) -> str:
    """All that a worker makes the scorer from, as JSON."""
    given = settings.model_dump(mode="json", by_alias=True, exclude_unset=True)
    tools: JsonValue = [*binding.tools]
    folder = str(binding.folder)
    return dumps([{settings.KIND: given}, folder, binding.response_schema, tools]).decode()


def start(kind: JsonValue) -> Callable[[JsonValue], JsonValue]:
    """The function that answers calls in a worker; what it imports is imported by now."""
    import_module(REGISTRY[str(kind)].partition(":")[0])
    return answer


def answer(question: JsonValue) -> JsonValue:
    """`[what the scorer is made of, task, reply]` → `[score or abstention, its fields, is the
    answer the text at its span]`, which is then left out of the fields."""
    made_of, asked, shown = cast(tuple[str, Any, Any], question)
    task, reply = Task.model_validate(asked), Reply.model_validate(shown)
    try:
        with patience():
            verdict = _loop().run_until_complete(_scorer(made_of).score(task, reply, _NO_DRAW))
    except PatternLateError as late:
        verdict = Abstention(reason=str(late))
    fields = verdict.as_json()
    is_span = verdict.span is not None and verdict.answer == reply.text[slice(*verdict.span)]
    if is_span:
        del fields["answer"]
    return ["score" if isinstance(verdict, Score) else "abstention", fields, is_span]


# A pure scorer draws nothing.
_NO_DRAW = cast(Draw, None)


@cache
def _loop() -> asyncio.AbstractEventLoop:
    return asyncio.new_event_loop()


@cache
def _scorer(made_of: str) -> Scorer:
    section, folder, response_schema, tools = cast(Any, loads(made_of.encode()))
    binding = Binding(
        folder=Path(folder), processes=1, response_schema=response_schema, tools=tuple(tools)
    )
    return parse_scorer(section).bind(binding)
