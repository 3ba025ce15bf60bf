"""The engine: tasks to workers to draws to the ledger.

`TaskDraws` is the durable draw for one task. It needs the task, its stored records and the rules of
scoring; with a `Live` side it may also sample, without one it only reads back. So recipes run the
same way when a run is made, resumed and finalised, and could run on another machine. The engine
knows no recipe, no provider and no file format.
"""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from labelkit import codec
from labelkit.attempts import (
    first_difference,
    judged,
    read_attempt,
    read_draw,
    settled_by_rule,
)
from labelkit.errors import DrawNotMadeError, StorageError, UsageError
from labelkit.ledger_index import Index, Stored
from labelkit.limits import Halt, Halted
from labelkit.live import Live, Observer
from labelkit.recipes.canaries import Canary, Sighting
from labelkit.records import (
    Attempt,
    Completion,
    DrawKey,
    NotRun,
    Outcome,
    Request,
    Sampled,
    Score,
    Task,
    Verdict,
)
from labelkit.seams import Recipe, Scorer

T = TypeVar("T")


@dataclass(frozen=True)
class Rules:
    """How a reply becomes an attempt: the scorer, and what counts as failed before it is asked."""

    scorer: Scorer
    truncated_fails: bool = True
    invalid_fails: bool = True
    draws_nothing: bool = False
    """The policy is never asked: what no ledger holds is `not_drawn`."""

    def score_context(self, task: Task) -> bytes:
        """All that a verdict on this task depends on, but for the reply."""
        read = task.model_dump(mode="json", include=set(self.scorer.reads))
        return codec.canonical([self.scorer.fingerprint, task.gold, read])


class TaskDraws:
    """The durable draw for one task (`records.Draw`). Without `live` nothing is drawn or scored."""

    def __init__(self, task: Task, stored: Stored, rules: Rules, live: Live | None) -> None:
        self._task = task
        self._stored = stored
        self._rules = rules
        self._live = live
        self._context: bytes | None = None

    @property
    def waits(self) -> bool:
        return self._live is not None

    async def __call__(
        self, request: Request, *, stage: str = "candidate", sample_index: int
    ) -> Attempt | NotRun:
        sampled = await self.sample(request, stage=stage, sample_index=sample_index)
        drawn = sampled if isinstance(sampled, NotRun) else await self.score(sampled)
        if self._live is not None and stage == "candidate":
            self._live.observer.attempt(self._task, drawn)
        return drawn

    async def sample(
        self, request: Request, *, stage: str, sample_index: int, role: str = "policy"
    ) -> Sampled | NotRun:
        key = DrawKey(
            task_id=self._task.id, stage=stage, request=request.digest, sample_index=sample_index
        )
        slot = (stage, key.request, sample_index)
        outcome: Any = self._stored.completions.get(slot) or self._stored.failures.get(slot)
        if outcome is not None and not self._owed(outcome):
            if self._live is not None:
                await self._live.check_reread(self._task, request, key, role, outcome)
            return await read_draw(outcome, key, request)
        if self._live is None:
            if outcome is not None:
                return await read_draw(outcome, key, request)
            return NotRun(key=key, reason=self._missing(slot, role))
        return await self._draw(request, key, role)

    async def score(self, sampled: Sampled) -> Attempt | NotRun:
        rules = self._rules
        early = settled_by_rule(
            sampled, truncated_fails=rules.truncated_fails, invalid_fails=rules.invalid_fails
        )
        if early is not None:
            return early
        assert sampled.reply is not None
        assert sampled.completion is not None
        score_key = self._score_key(sampled.completion)
        slot = (sampled.key.stage, sampled.key.request, sampled.key.sample_index)
        record: Any = self._stored.scores.get((slot, score_key))
        if record is not None and self._live is not None and self._live.retry_errors:
            record = record if "error" not in record else None
        if record is not None:
            return read_attempt(sampled, record)
        scored = None if self._live is None else await self._ask_scorer(sampled, score_key)
        if scored is not None:
            return scored
        halted = self._live and self._live.halt.reason
        return NotRun(key=sampled.key, reason=halted or "not_scored")

    def _missing(self, slot: Stored.Slot, role: str) -> str:
        reason = self._stored.missing(slot)
        never = self._rules.draws_nothing and role == "policy" and reason == "not_run"
        return "not_drawn" if never else reason

    def _owed(self, outcome: Any) -> bool:
        if self._live is None or outcome["kind"] == "completion":
            return False
        return bool(outcome["failure"]["owed"]) or self._live.retry_errors

    async def _draw(self, request: Request, key: DrawKey, role: str) -> Sampled | NotRun:
        live = self._live
        assert live is not None
        if live.sources:
            for record in live.from_sources(self._task, key):
                self._journal_request(request, key)
                live.writer.append(record)
                self._stored.add(record)
            slot = (key.stage, key.request, key.sample_index)
            found: Any = self._stored.completions.get(slot) or self._stored.failures.get(slot)
            if found is not None and not self._owed(found):
                return await read_draw(found, key, request)
            if self._rules.draws_nothing and role == "policy":
                return NotRun(key=key, reason=self._missing(slot, role))
        if live.halt.reason is not None:
            return NotRun(key=key, reason=live.halt.reason)
        self._refuse_other_prompt(request, key)
        self._journal_request(request, key)
        try:
            record, completion = await live.draw(self._task, request, key, role)
        except Halted as halted:
            return NotRun(key=key, reason=halted.reason)
        if record["kind"] == "unavailable":
            return NotRun(key=key, reason="unavailable")
        self._stored.add(record)
        live.observer.spent(record.get("spent_usd"), record.get("spent_tokens") or 0)
        return await read_draw(record, key, request, completion)

    def announce(self, request: Request, key: DrawKey) -> None:
        """Journal a request that is about to be drawn; refuses one that replaces another."""
        self._refuse_other_prompt(request, key)
        self._journal_request(request, key)

    def _journal_request(self, request: Request, key: DrawKey) -> None:
        if key.request in self._stored.requests:
            return
        assert self._live is not None
        body = request.model_dump(mode="json", exclude_defaults=True)
        record: dict[str, Any] = {
            "kind": "request",
            "task": key.task_id,
            "stage": key.stage,
            "request": key.request,
            "body": body,
        }
        self._live.writer.append(record, with_next=True)
        self._stored.add(record)

    def _refuse_other_prompt(self, request: Request, key: DrawKey) -> None:
        """A task id whose prompt changed would silently mix two prompts in one task."""
        if key.stage != "candidate" or key.request in self._stored.requests:
            return
        for record in self._stored.requests.values():
            fields: Any = record
            if fields["stage"] == "candidate":
                where = first_difference(fields["body"], request)
                raise UsageError(
                    f"task {key.task_id}: {where} differs from what this run sampled",
                    hint="give the changed task another id, or start anew with --fresh",
                )

    def _score_key(self, completion: Completion) -> str:
        if self._context is None:
            self._context = self._rules.score_context(self._task)
        seen = self._context + completion.digest.encode("ascii")
        return hashlib.sha256(seen).hexdigest()[:32]

    async def _ask_scorer(self, sampled: Sampled, score_key: str) -> Attempt | None:
        """The foreign border of the scorer call. None: the run stopped before it could decide."""
        assert sampled.reply is not None
        assert self._live is not None
        key = sampled.key
        record: dict[str, Any] = {
            "kind": "score",
            "task": key.task_id,
            "stage": key.stage,
            "request": key.request,
            "sample_index": key.sample_index,
            "key": score_key,
        }
        verdict: Verdict | None = None
        try:
            verdict = await self._rules.scorer.score(self._task, sampled.reply, self)
        except DrawNotMadeError:
            return None
        except (UsageError, StorageError):
            raise
        except Exception as error:
            record["error"] = f"{type(error).__name__}: {codec.clean_text(str(error))}"[:1000]
        else:
            name = "score" if isinstance(verdict, Score) else "abstention"
            record[name] = verdict.as_json()
        self._live.writer.append(record, with_next=True)
        self._stored.add(record)
        if verdict is None or verdict.detail:  # a detail is what its JSON says
            return read_attempt(sampled, record)
        return judged(sampled, verdict)


async def run_tasks(
    tasks: Iterator[Task],
    recipe: Recipe,
    rules: Rules,
    index: Index,
    live: Live,
    *,
    workers: int,
) -> None:
    """Run the recipe on every task with a fixed set of workers on one iterator.

    Ends early when `live.halt` stops. An error that is not a draw's (a full disk, a changed prompt)
    cancels the other workers and is raised.
    """

    async def run(task: Task) -> None:
        await live.room()
        live.observer.task(await recipe(task, TaskDraws(task, index.stored(task.id), rules, live)))

    await _by_workers(tasks, run, live.halt, workers)


async def watch_canaries(
    canaries: Sequence[Canary], rules: Rules, index: Index, live: Live, *, workers: int
) -> list[Sighting]:
    """Put every canary to its test; one that was not reached does not hold."""
    sightings = [Sighting(None, {"not_run": "not reached"}) for _ in canaries]
    quiet = dataclasses.replace(live, observer=_Spending(live.observer))

    async def watch(numbered: tuple[int, Canary]) -> None:
        number, canary = numbered
        draw = TaskDraws(canary.task, index.stored(canary.id), rules, quiet)
        sightings[number] = await canary.watch(canary.task, draw)

    await _by_workers(enumerate(canaries), watch, live.halt, workers)
    return sightings


async def _by_workers(
    items: Iterator[T], work: Callable[[T], Awaitable[None]], halt: Halt, workers: int
) -> None:
    async def take() -> None:
        for item in items:
            await work(item)
            await asyncio.sleep(0)
            if halt.reason is not None:
                return

    group = [asyncio.create_task(take()) for _ in range(workers)]
    try:
        await asyncio.gather(*group)
    finally:
        for worker in group:
            worker.cancel()
        await asyncio.gather(*group, return_exceptions=True)


class _Spending:
    """Passes on what canaries cost, but not their attempts, which are not among the tasks'."""

    def __init__(self, observer: Observer) -> None:
        self.spent = observer.spent

    def attempt(self, task: Task, attempt: Attempt | NotRun) -> None: ...

    def task(self, outcome: Outcome) -> None: ...


async def replay(
    tasks: Iterator[Task],
    recipe: Recipe,
    rules: Rules,
    index: Index,
    take: Callable[[Task, Outcome, Stored], None],
) -> None:
    """Hand every task's outcome to `take` in task order, from the ledger alone."""
    with index.unchanged():
        for task in tasks:
            stored = index.stored(task.id)
            take(task, await recipe(task, TaskDraws(task, stored, rules, None)), stored)


async def replay_canaries(
    canaries: Sequence[Canary],
    rules: Rules,
    index: Index,
    take: Callable[[Canary, Sighting, Stored], None],
) -> None:
    """Hand what became of every canary to `take` in order, from the ledger alone."""
    for canary in canaries:
        stored = index.stored(canary.id)
        draw = TaskDraws(canary.task, stored, rules, None)
        take(canary, await canary.watch(canary.task, draw), stored)
