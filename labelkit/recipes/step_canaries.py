"""Corrupted steps: canaries that tell whether a completer builds on what it is given.

A right solution with one step made wrong must lose its score there. Where it does not, the
completer repairs or restarts, and the scores of the run measure how easily errors are mended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from pydantic import JsonValue

from labelkit.recipes import draw_all, off_loop, split
from labelkit.recipes.canaries import Canary, CorruptedStep, Sighting, named
from labelkit.recipes.prefixes import Prefixes
from labelkit.recipes.step_labels import rate
from labelkit.recipes.steps import Steps, corrupt_arithmetic
from labelkit.recipes.waves import counts
from labelkit.records import Attempt, NotRun, Request, Task
from labelkit.seams import Draw
from labelkit.spec import Problem, SectionError

UNFAITHFUL = (
    "the completer does not build on the planted step: step scores here measure how easily errors "
    "are mended, not whether steps are right"
)


class Labeller(Protocol):
    """The recipe, as far as its canaries need it."""

    prefixes: Prefixes

    @property
    def k(self) -> int: ...

    @property
    def canary_drop(self) -> float: ...

    def candidates(self, task: Task) -> tuple[Request, int]: ...

    def given(self, task: Task) -> Steps | None: ...

    def sampled(self, attempt: Attempt) -> Steps | None: ...


def plant_corrupted(
    labeller: Labeller, planted: Sequence[CorruptedStep], tasks: Mapping[str, Task]
) -> list[Canary]:
    """The canaries; raises SectionError for a step that the task's own solution does not have."""
    canaries: list[Canary] = []
    problems: list[Problem] = []
    for number, corrupted in enumerate(planted):
        task = tasks[corrupted.task]
        steps = labeller.given(task)
        if steps is not None and corrupt(steps, corrupted) is None:
            said = f"the solution of {task.id!r} has {len(steps)} steps, none to corrupt so"
            at = ("corrupted_steps", number, "step" if corrupted.step else "task")
            problems.append(Problem(at, said, "name one of its steps, from 1, or give a text"))
        else:
            canaries.append(_canary(labeller, number + 1, corrupted, task, steps))
    if problems:
        raise SectionError(problems)
    return canaries


def corrupt(steps: Steps, corrupted: CorruptedStep) -> tuple[Steps, int] | None:
    """The steps up to the corrupted one, and its number; None where there is no such step."""
    numbers = range(1, len(steps) + 1) if corrupted.step is None else [corrupted.step]
    for number in numbers:
        if number > len(steps):
            return None
        text = corrupted.text or corrupt_arithmetic(steps.texts[number - 1])
        if text is not None and text != steps.texts[number - 1]:
            return steps.replaced(number, text), number
    return None


def _canary(
    labeller: Labeller, number: int, corrupted: CorruptedStep, task: Task, given: Steps | None
) -> Canary:
    task = named(task, "corrupted_step", f"{number}/{task.id}")
    request, k = labeller.candidates(task)
    made = None if given is None else corrupt(given, corrupted)
    n_samples = 0 if made is not None and made[1] > 1 else k

    async def watch(task: Task, draw: Draw) -> Sighting:
        attempts, _ = split(await draw_all(draw, request, range(n_samples)))
        steps = given or await off_loop(attempts, _right_solution, labeller, attempts, corrupted)
        planted = None if steps is None else corrupt(steps, corrupted)
        if steps is None or planted is None:
            return Sighting(
                None, {"reason": "no sample of the solver is right and has such a step"}
            )
        wrong, step = planted
        before = attempts if step == 1 else await rolled(steps, step - 1, "", draw, task)
        after = await rolled(wrong, step, "-corrupted", draw, task)
        if isinstance(before, str) or isinstance(after, str):
            return Sighting(None, {"not_run": before if isinstance(before, str) else str(after)})
        return _fell(before, after, step, wrong.texts[-1], labeller.canary_drop)

    async def rolled(
        steps: Steps, step: int, suffix: str, draw: Draw, task: Task
    ) -> list[Attempt] | str:
        stage = f"prefix/canary{suffix}/{step}"
        drawn = await labeller.prefixes.rollouts(
            task, request, steps, step, stage, range(labeller.k), draw
        )
        attempts: list[Attempt] = []
        for each in drawn:
            if isinstance(each, NotRun):
                return each.reason
            attempts.append(each)
        return attempts

    return Canary("corrupted_step", task, watch, request, n_samples)


def _right_solution(
    labeller: Labeller, attempts: Sequence[Attempt], corrupted: CorruptedStep
) -> Steps | None:
    """The first right sample with a step to corrupt."""
    for attempt in attempts:
        steps = labeller.sampled(attempt) if attempt.state == "passed" else None
        if steps is not None and corrupt(steps, corrupted) is not None:
            return steps
    return None


def _fell(
    before: Sequence[Attempt], after: Sequence[Attempt], step: int, text: str, drop: float
) -> Sighting:
    high, low = rate(counts(before)), rate(counts(after))
    evidence: dict[str, JsonValue] = {
        "step": step,
        "text": text,
        "score_before": high,
        "score_at": low,
        "canary_drop": drop,
    }
    if high is None or low is None:
        return Sighting(None, {**evidence, "reason": "no continuation was scored"})
    if high < drop:
        return Sighting(None, {**evidence, "reason": "the score before it is too low to fall"})
    if high - low >= drop - 1e-9:
        return Sighting(True, evidence)
    return Sighting(False, {**evidence, "reason": UNFAITHFUL})
