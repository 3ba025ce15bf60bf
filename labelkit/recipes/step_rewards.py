"""step-rewards: each step of a solution by how often it can still be completed to the gold.

Monte-Carlo values (Math-Shepherd, arXiv 2312.08935) measure value, not correctness: a wrong step
that is easily mended keeps its score. Continuations are never shared between prefixes.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import Field, JsonValue, model_validator

from labelkit import stats
from labelkit.recipes import Check, Context, Envelope, draw_all, off_loop, prompt_of, split
from labelkit.recipes.canaries import Canary, CanarySettings
from labelkit.recipes.prefixes import Completer, Prefixes, prefill_problem, prefix_mode
from labelkit.recipes.step_canaries import plant_corrupted
from labelkit.recipes.step_labels import ProcessBench, first_error, labels, rate
from labelkit.recipes.steps import Steps, split_steps
from labelkit.recipes.waves import counts, owed
from labelkit.records import Attempt, Dropped, NotRun, Outcome, Request, Row, Status, Task
from labelkit.rowfiles import MISSING, lookup
from labelkit.seams import Draw
from labelkit.spec import Path_, Problem, Section
from labelkit.stats import Counts

SECTION = "step_rewards"
SHARE_OF_FULL = 0.6
"""What the adaptive search may spend of the rollouts that all prefixes would take."""


class StepRewardsSettings(Section):
    """`solutions`: where a task's own solution stands (`metadata.steps`: a list, or a text to be
    split); without it the first `solutions_per_task` of the solver's K samples are labelled. K
    continuations a prefix, or with `search: adaptive` only as many as locate the first error.
    `sharp_drop`, `canary_drop`: how far a score falls, in [0, 1]."""

    solutions: Annotated[str, Field(pattern=r"^metadata\.[^.].*")] | None = None
    solutions_per_task: Annotated[int, Field(ge=1)] = 1
    prefix_mode: Literal["prompt", "prefill"] = "prompt"
    completer: Completer = Completer()
    search: Literal["full", "adaptive"] = "full"
    max_steps: Annotated[int, Field(ge=1)] = 64
    sharp_drop: Annotated[float, Field(gt=0, le=1)] = 0.5
    canary_drop: Annotated[float, Field(gt=0, le=1)] = 0.5
    evaluate: Literal["processbench"] | None = None

    @model_validator(mode="after")
    def _evaluated(self) -> Self:
        if self.evaluate is not None and self.solutions is None:
            raise ValueError("`evaluate` needs given solutions; set solutions: metadata.steps")
        return self


@dataclass(frozen=True)
class Solution:
    """A solution to label: the task's own, or a sample of the solver's."""

    name: str
    steps: Steps
    attempt: Attempt | None = None


@dataclass
class Rollouts:
    """The continuations of a solution's prefixes, by step from 0."""

    steps: Steps
    by_step: list[list[Attempt]]
    not_run: list[NotRun] = field(default_factory=list)

    @property
    def counts(self) -> list[Counts]:
        return [counts(attempts) for attempts in self.by_step]

    @property
    def all(self) -> list[Attempt]:
        return [attempt for attempts in self.by_step for attempt in attempts]


class Habits(NamedTuple):
    """How many continuations restate the prefix, and how many speak of an error."""

    restarts: int
    repairs: int


class StepRewards:
    """A row a labelled solution, right or wrong. The solver's other samples are v0, the pass rate
    of the bare problem; the labelled ones were chosen and do not count there."""

    Settings = StepRewardsSettings

    @staticmethod
    def check(settings: StepRewardsSettings, envelope: Envelope) -> Check:
        sampler, k = envelope.sampler, envelope.spec.k
        at: Path_ = (SECTION, "completer")
        found = Check(
            [
                Problem((*at, *where), said, fix)
                for where, said, fix in settings.completer.problems()
            ]
        )
        if sampler.recorded is not None:
            said = "samples continuations, and recorded replies hold none"
            found.problems.append(Problem((SECTION,), said, "name a model"))
        elif settings.prefix_mode == "prefill" and (refused := prefill_problem(sampler)):
            fix = "set prefix_mode: prompt, or api: completions with a model that takes raw text"
            found.problems.append(Problem((SECTION, "prefix_mode"), f"prefill {refused}", fix))
        if settings.solutions is None and settings.solutions_per_task > k:
            said = f"{settings.solutions_per_task} is more than k = {k} samples"
            found.problems.append(Problem((SECTION, "solutions_per_task"), said, "raise k"))
        elif settings.solutions is None and settings.solutions_per_task == k:
            said = "labels every sample, so that none is left to tell the problem's pass rate (v0)"
            found.warnings.append(Problem((SECTION, "solutions_per_task"), said, "raise k"))
        return found

    def __init__(self, settings: StepRewardsSettings, context: Context) -> None:
        self._settings = settings
        self._context = context
        sampler = context.envelope.sampler
        mode = prefix_mode(settings.prefix_mode, sampler)
        self.prefixes = Prefixes(mode, settings.completer, sampler)
        self._counts: Counter[str] = Counter()
        self._bench = ProcessBench()

    @property
    def k(self) -> int:
        return self._context.k

    @property
    def canary_drop(self) -> float:
        return self._settings.canary_drop

    def candidates(self, task: Task) -> tuple[Request, int]:
        return self._context.render(task), self._context.k

    async def __call__(self, task: Task, draw: Draw) -> Outcome:
        request, k = self.candidates(task)
        attempts, not_run = split(await draw_all(draw, request, range(k)))
        rows: list[Row] = []
        dropped: list[Dropped] = []
        found: list[JsonValue] = []
        solutions = await off_loop(attempts, self._solutions, task, attempts, not_run)
        for solution in solutions:
            if isinstance(solution, Dropped):
                dropped.append(solution)
                continue
            v0 = counts([a for a in attempts if not self._is_labelled(a)])
            rollouts = await self._rolled_out(task, request, solution, v0, draw)
            waiting = owed(rollouts.not_run)
            if waiting or not any(scored for _, scored in rollouts.counts):
                index = None if solution.attempt is None else solution.attempt.sample_index
                why = "not_run" if waiting else "unscored"
                dropped.append(Dropped(id=task.id, sample_index=index, reason=why, detail=waiting))
                continue
            habits = self._habits(rollouts)
            rows.append(self._row(task, request, solution, rollouts, v0, habits))
            found.append(self._told(task, rollouts, v0, habits))
        status, reason = _status(rows, dropped)
        return Outcome(
            task_id=task.id,
            status=status,
            reason=reason,
            rows=tuple(rows),
            dropped_rows=tuple(dropped),
            candidates=len(rows) + len(dropped),
            planned=k,
            attempts=attempts,
            not_run=not_run,
            line={"step_scores": [row.fields["step_scores"] for row in rows]},
            detail={"solutions": found},
        )

    def _is_labelled(self, attempt: Attempt) -> bool:
        given = self._settings.solutions is not None
        return not given and attempt.sample_index < self._settings.solutions_per_task

    def _solutions(
        self, task: Task, attempts: Sequence[Attempt], not_run: Sequence[NotRun]
    ) -> list[Solution | Dropped]:
        """The task's own solution, or the first samples; or why there is none to label."""
        if self._settings.solutions is not None:
            given = self.given(task)
            return [self._usable(task, Solution("given", given) if given else None, None)]
        found: list[Solution | Dropped] = []
        for attempt in attempts:
            if self._is_labelled(attempt):
                steps = self.sampled(attempt)
                name = str(attempt.sample_index)
                solution = Solution(name, steps, attempt) if steps else None
                found.append(self._usable(task, solution, attempt))
        for each in not_run:
            if each.key.sample_index < self._settings.solutions_per_task:
                index = each.key.sample_index
                reason = "unavailable" if each.reason == "unavailable" else "not_run"
                found.append(Dropped(id=task.id, sample_index=index, reason=reason))
        return found

    def _usable(
        self, task: Task, solution: Solution | None, attempt: Attempt | None
    ) -> Solution | Dropped:
        index = None if attempt is None else attempt.sample_index
        reason = "no_steps"
        detail = None if attempt is None else attempt.reason
        if solution is not None:
            n_steps = len(solution.steps)
            if n_steps <= self._settings.max_steps:
                return solution
            reason, detail = "too_many_steps", f"{n_steps} steps"
        elif attempt is not None and attempt.stop_reason not in ("completed", "no_answer"):
            reason = attempt.stop_reason
        elif attempt is not None and attempt.sampled.reply is not None:
            thought = attempt.sampled.reply.reasoning and self.prefixes.mode == "prefill"
            reason = "thinking" if thought else "no_steps"
        return Dropped(id=task.id, sample_index=index, reason=reason, detail=detail)

    def given(self, task: Task) -> Steps | None:
        """The task's own solution, None where it has none."""
        path = (self._settings.solutions or "").removeprefix("metadata.")
        value = lookup(task.metadata, path)
        if value is MISSING:
            return None
        if isinstance(value, str):
            return split_steps(value) or None
        return _listed(value)

    def sampled(self, attempt: Attempt) -> Steps | None:
        """The steps of a sample: the schema's, else its text split; None where it has none, was
        cut or, for prefill in chat, was thought up behind a think block."""
        reply = attempt.sampled.reply
        if reply is None or reply.cut or reply.invalid is not None:
            return None
        if self.prefixes.mode == "prefill" and reply.reasoning:
            return None
        if isinstance(reply.parsed, dict):
            return _listed(reply.parsed.get("steps"))
        return split_steps(reply.text) or None

    async def _rolled_out(
        self, task: Task, request: Request, solution: Solution, v0: Counts, draw: Draw
    ) -> Rollouts:
        done = Rollouts(solution.steps, [[] for _ in range(len(solution.steps))])
        k, drawn = self._context.k, [0] * len(solution.steps)

        async def roll(index: int, n: int) -> None:
            """n more continuations of the prefix that ends with step `index`, from 0."""
            indexes = range(drawn[index], drawn[index] + n)
            drawn[index] += n
            stage = f"prefix/{solution.name}/{index + 1}"
            made, missing = split(
                await self.prefixes.rollouts(
                    task, request, solution.steps, index + 1, stage, indexes, draw
                )
            )
            done.by_step[index] += made
            done.not_run += missing

        if self._settings.search == "full":
            every = [roll(index, k) for index in range(len(solution.steps))]
            if draw.waits:
                await asyncio.gather(*every)
            else:
                for each in every:
                    await each
            return done
        most = max(k, math.ceil(SHARE_OF_FULL * k * len(solution.steps)))
        while (
            probe := stats.next_probe(done.counts, k, max_rollouts=most, drawn=drawn, v0=v0)
        ) is not None and not owed(done.not_run):
            await roll(probe.index, probe.n)
        return done

    def _row(
        self,
        task: Task,
        request: Request,
        solution: Solution,
        rollouts: Rollouts,
        v0: Counts,
        habits: Habits,
    ) -> Row:
        attempt = solution.attempt
        labelled = labels(rollouts.counts, v0, self._settings.sharp_drop)
        n = len(rollouts.all)
        fields: dict[str, JsonValue] = {
            "id": task.id,
            "problem": prompt_of(task),
            "steps": list(solution.steps.texts),
            "step_scores": [rate(each) for each in rollouts.counts],
            "k": self._context.k,
            "first_sharp_drop": labelled.pop("first_sharp_drop"),
            **labelled,
            "gold": task.gold,
            "sample_index": None if attempt is None else attempt.sample_index,
            "solution_passed": None
            if attempt is None or attempt.score is None
            else attempt.score.passed,
            "prefix_mode": self.prefixes.mode,
            "restart_rate": habits.restarts / n,
            "repair_rate": habits.repairs / n,
        }
        behind = [*([attempt] if attempt is not None else []), *rollouts.all]
        return Row(fields=fields, request=request, attempts=tuple(behind))

    def _habits(self, rollouts: Rollouts) -> Habits:
        numbered = [
            (attempt, number)
            for number, attempts in enumerate(rollouts.by_step, 1)
            for attempt in attempts
        ]
        steps = rollouts.steps
        return Habits(
            sum(self.prefixes.restarts(attempt, steps, number) for attempt, number in numbered),
            sum(self.prefixes.repairs(attempt, steps, number) for attempt, number in numbered),
        )

    def _told(self, task: Task, rollouts: Rollouts, v0: Counts, habits: Habits) -> JsonValue:
        """What the summary takes from a solution."""
        found = first_error(rollouts.counts, v0)
        located = None if found is None or found.index is None else found.index + 1
        return {
            "n": len(rollouts.all),
            "restarts": habits.restarts,
            "repairs": habits.repairs,
            "located": located,
            "full": self._context.k * len(rollouts.steps),
            "label": task.metadata.get("label"),
        }

    def plant(self, settings: CanarySettings, tasks: Mapping[str, Task]) -> list[Canary]:
        return plant_corrupted(self, settings.corrupted_steps, tasks)

    def passes(self, attempt: Attempt) -> bool:
        return attempt.state == "passed"

    def summarise(self, outcome: Outcome) -> None:
        told: Any = outcome.detail["solutions"]
        for solution in told:
            self._counts["solutions"] += 1
            for name in ("n", "restarts", "repairs", "full"):
                self._counts[name] += solution[name]
            self._counts["located"] += solution["located"] is not None
            label = solution["label"]
            if self._settings.evaluate and isinstance(label, int):
                self._bench.add(label, solution["located"])

    def detail(self) -> Mapping[str, JsonValue]:
        n = self._counts["n"]
        told: dict[str, JsonValue] = {
            "prefix_mode": self.prefixes.mode,
            "search": self._settings.search,
            "n_solutions": self._counts["solutions"],
            "n_with_error": self._counts["located"],
            "rollouts": n,
            "rollouts_full": self._counts["full"],
            "restart_rate": self._counts["restarts"] / n if n else None,
            "repair_rate": self._counts["repairs"] / n if n else None,
        }
        if self._settings.evaluate:
            told["processbench"] = self._bench.as_json()
        return told


def _listed(steps: JsonValue) -> Steps | None:
    """Steps that came as a list, none of them blank."""
    if not isinstance(steps, list) or not steps:
        return None
    if not all(isinstance(step, str) and step.strip() for step in steps):
        return None
    return Steps.given([str(step) for step in steps])


def _status(rows: Sequence[Row], dropped: Sequence[Dropped]) -> tuple[Status, str | None]:
    if rows:
        return "kept", None
    reasons = [each.reason for each in dropped]
    if "not_run" in reasons or not reasons:
        return "not_run", next((d.detail for d in dropped if d.detail), "not_run")
    if set(reasons) == {"unscored"}:
        return "undecided", "unscored"
    return "dropped", reasons[0]
