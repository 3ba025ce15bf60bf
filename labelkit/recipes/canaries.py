"""Canaries: inputs planted in a run whose right outcome is known, so that a broken part shows.

Anchors must pass, wrong replies must fail; recipes with judges or completers plant their own. They
have ids of their own (`canary/…`) in the same ledger, so they are as durable as any draw, and never
count as tasks. A canary that cannot be decided does not hold: it proves nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, Protocol, runtime_checkable

from pydantic import Field, JsonValue, model_validator

from labelkit import codec
from labelkit.recipes import answer_of, draw_all, split
from labelkit.records import Attempt, Completion, DrawKey, NotRun, Request, Sampled, Task
from labelkit.reply import read_reply
from labelkit.seams import Draw, Recipe
from labelkit.spec import Problem, Section, SectionError, TaskFile

PREFIX = "canary/"

Kind = Literal["anchor", "wrong", "bad_candidate", "corrupted_step"]


class PlantedReply(Section):
    """A reply known to be wrong, or a candidate known to be bad, for a task of the spec."""

    task: str
    reply: str | dict[str, JsonValue] | list[JsonValue]

    @property
    def text(self) -> str:
        return self.reply if isinstance(self.reply, str) else codec.dumps(self.reply).decode()


class BrokenConstraint(Section):
    """A bad candidate by rule: one of the task's own, changed until it breaks a constraint."""

    task: str
    auto: Literal["constraints"]


class CorruptedStep(Section):
    """A step (from 1) of a task's solution replaced by a wrong one: by `text`, or by rule (`auto:
    arithmetic` changes a computed result; without `step` the first one that it can)."""

    task: str
    step: Annotated[int, Field(ge=1)] | None = None
    text: str | None = None
    auto: Literal["arithmetic"] | None = None

    @model_validator(mode="after")
    def _one_way(self) -> CorruptedStep:
        if (self.text is None) == (self.auto is None):
            raise ValueError("needs `text` or `auto: arithmetic`, one of them")
        if self.text is not None and self.step is None:
            raise ValueError("`text` needs the `step` that it replaces")
        return self


class CanarySettings(Section):
    """`anchors`: tasks, inline or from a file, of which every attempt must pass. `wrong`: replies
    that the scorer must fail. `bad_candidates`: replies that best-of-n's judge must score under
    the bar. `corrupted_steps`: steps at which step-rewards' score must fall."""

    anchors: TaskFile | list[dict[str, JsonValue]] = []
    wrong: list[PlantedReply] = []
    bad_candidates: list[PlantedReply | BrokenConstraint] = []
    corrupted_steps: list[CorruptedStep] = []

    @property
    def task_ids(self) -> dict[str, tuple[str | int, ...]]:
        """The tasks that canaries name, with a place in the section that names them."""
        return {
            planted.task: (name, number, "task")
            for name in ("wrong", "bad_candidates", "corrupted_steps")
            for number, planted in enumerate(getattr(self, name))
        }


@dataclass(frozen=True)
class Sighting:
    """What became of a canary. `holds` None: it could not be decided, for the reason in the
    evidence; it counts as failed then."""

    holds: bool | None
    evidence: dict[str, JsonValue]


@dataclass(frozen=True)
class Canary:
    """One canary. `task` carries its own id; `k` candidate draws of `request` are planned."""

    kind: Kind
    task: Task
    watch: Callable[[Task, Draw], Awaitable[Sighting]]
    request: Request
    k: int = 0

    @property
    def id(self) -> str:
        return self.task.id


@runtime_checkable
class Planter(Protocol):
    """A recipe with canaries of its own, or with its own idea of a passing attempt."""

    def plant(self, settings: CanarySettings, tasks: Mapping[str, Task]) -> list[Canary]:
        """Raises SectionError, with paths inside the section, for what cannot be planted."""
        ...

    def passes(self, attempt: Attempt) -> bool: ...


def plant(
    settings: CanarySettings,
    anchors: Iterable[Task],
    tasks: Mapping[str, Task],
    recipe: Recipe,
) -> list[Canary]:
    """All canaries of a run. `tasks` are those of the spec by id, at least the ones named.

    Raises SectionError, with paths inside the section, for replies and steps that fit no task.
    """
    passes = recipe.passes if isinstance(recipe, Planter) else _passes
    planted = [_anchor(task, recipe, passes) for task in anchors]
    problems: list[Problem] = []
    for number, wrong in enumerate(settings.wrong, 1):
        canary, unfit = planted_reply("wrong", number, wrong, tasks[wrong.task], recipe, passes)
        planted.append(canary)
        if unfit:
            said = f"does not fit the response schema: {unfit}"
            fix = "write a reply that is well-formed and wrong"
            problems.append(Problem(("wrong", number - 1, "reply"), said, fix))
    if problems:
        raise SectionError(problems)
    return planted + (recipe.plant(settings, tasks) if isinstance(recipe, Planter) else [])


def planted_reply(
    kind: Kind,
    number: int,
    planted: PlantedReply,
    task: Task,
    recipe: Recipe,
    passes: Callable[[Attempt], bool],
) -> tuple[Canary, str | None]:
    """A canary that holds where the scorer refuses a reply; with why the reply is malformed, which
    no scorer would be asked about."""
    task = named(task, kind, f"{number}/{task.id}")
    request, _ = recipe.candidates(task)
    key = DrawKey(task_id=task.id, stage="candidate", request=request.digest, sample_index=0)
    completion = Completion(text=planted.text, finish_reason="stop")
    reply = read_reply(request, completion, key)
    sampled = Sampled(key=key, completion=completion, reply=reply)

    async def watch(task: Task, draw: Draw) -> Sighting:
        attempt = await draw.score(sampled)
        if isinstance(attempt, NotRun):
            return Sighting(None, {"not_run": attempt.reason})
        holds = None if attempt.state == "unscored" else not passes(attempt)
        return Sighting(holds, seen(attempt))

    return Canary(kind, task, watch, request), reply.invalid


def named(task: Task, kind: Kind, name: str) -> Task:
    """The task under a canary's own id."""
    return task.model_copy(update={"id": f"{PREFIX}{kind}/{name}"})


def seen(attempt: Attempt) -> dict[str, JsonValue]:
    """An attempt as evidence."""
    return {
        "sample_index": attempt.sample_index,
        "state": attempt.state,
        "stop_reason": attempt.stop_reason,
        "value": None if attempt.score is None else attempt.score.value,
        "answer": answer_of(attempt),
        "reason": attempt.reason,
    }


def _anchor(task: Task, recipe: Recipe, passes: Callable[[Attempt], bool]) -> Canary:
    task = named(task, "anchor", task.id)
    request, k = recipe.candidates(task)

    async def watch(task: Task, draw: Draw) -> Sighting:
        attempts, not_run = split(await draw_all(draw, request, range(k)))
        return _all_passed(attempts, not_run, k, passes)

    return Canary("anchor", task, watch, request, k)


def _all_passed(
    attempts: Sequence[Attempt],
    not_run: Sequence[NotRun],
    k: int,
    passes: Callable[[Attempt], bool],
) -> Sighting:
    scored = [attempt for attempt in attempts if attempt.state != "unscored"]
    failed = [attempt for attempt in scored if not passes(attempt)]
    evidence: dict[str, JsonValue] = {
        "n_passed": len(scored) - len(failed),
        "n_scored": len(scored),
        "k": k,
        "not_passed": list(map(seen, [a for a in attempts if a.score is None or a in failed][:5])),
    }
    if not_run:
        evidence["not_run"] = not_run[0].reason
    return Sighting(False if failed else None if len(scored) < k else True, evidence)


def _passes(attempt: Attempt) -> bool:
    return attempt.state == "passed"
