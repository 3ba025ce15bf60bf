"""Recipes: what a subcommand does with a task. One file a subcommand; this page is the registry.

A recipe is plain async code over one task and its durable draw. It holds no state between tasks
but what `summarise` sums, reads no file, and knows neither ledger nor provider.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ParamSpec, TypeVar

from pydantic import JsonValue

from labelkit.records import Attempt, NotRun, Request, Task
from labelkit.samplers import SamplerSettings
from labelkit.scorers import ScorerSettings
from labelkit.seams import Draw, Scorer
from labelkit.spec import Problem, Spec

P = ParamSpec("P")
Decision = TypeVar("Decision")

_MUCH_TEXT = 100_000
"""Characters of a task's replies that a filter or a split looks through in some 50 ms."""

REGISTRY: dict[str, str] = {
    "rollout": "labelkit.recipes.rollout:Rollout",
    "learning-zone": "labelkit.recipes.learning_zone:LearningZone",
    "rl-select": "labelkit.recipes.rl_select:RlSelect",
    "verify-traces": "labelkit.recipes.verify_traces:VerifyTraces",
    "best-of-n": "labelkit.recipes.best_of_n:BestOfN",
    "step-rewards": "labelkit.recipes.step_rewards:StepRewards",
}
"""Subcommand → `module:Class`; each class has a `Settings` model for its section of the spec.

Its static methods say what no model of one section can: `check(settings, envelope)` what does not
fit the rest of the spec, and where it judges for itself, `scorer_settings(settings, spec)` by what.
"""


@dataclass(frozen=True)
class Envelope:
    """The rest of the spec, as far as a recipe depends on it."""

    spec: Spec
    sampler: SamplerSettings
    scorer: ScorerSettings


@dataclass(frozen=True)
class Check:
    """What is wrong with a section within its spec, and what is only unwise; paths from the root.

    Problems are faults of the spec. Warnings are shown by `check` and before a run.
    """

    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)


@dataclass(frozen=True)
class Context:
    """What a recipe is made with: its spec, the request of a task, and the bound scorer."""

    envelope: Envelope
    render: Callable[[Task], Request]
    scorer: Scorer

    @property
    def k(self) -> int:
        return self.envelope.spec.k

    @property
    def adaptive(self) -> bool:
        return self.envelope.spec.adaptive


async def draw_all(
    draw: Draw, request: Request, indexes: Sequence[int], stage: str = "candidate"
) -> list[Attempt | NotRun]:
    """Draw several samples at once, in the order of `indexes`; one error cancels the others."""
    if not draw.waits:
        return [await draw(request, stage=stage, sample_index=index) for index in indexes]
    loop = asyncio.get_running_loop()
    pending = [
        loop.create_task(draw(request, stage=stage, sample_index=index)) for index in indexes
    ]
    try:
        return await asyncio.gather(*pending)
    except BaseException:
        for each in pending:
            each.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
        raise


def split(
    drawn: Sequence[Attempt | NotRun],
) -> tuple[tuple[Attempt, ...], tuple[NotRun, ...]]:
    """Draws that were made, and those that were not, each in order."""
    attempts = tuple(each for each in drawn if isinstance(each, Attempt))
    return attempts, tuple(each for each in drawn if isinstance(each, NotRun))


async def off_loop(
    attempts: Sequence[Attempt], decide: Callable[P, Decision], *args: P.args, **kwargs: P.kwargs
) -> Decision:
    """What a pure function makes of the attempts' texts: in a thread where they are long.

    A megabyte takes a second, most of it in Python, so that the loop runs on.
    """
    completions = [attempt.sampled.completion for attempt in attempts]
    n_characters = sum(
        len(each.text) + len(each.reasoning or "") for each in completions if each is not None
    )
    if n_characters <= _MUCH_TEXT:
        return decide(*args, **kwargs)
    return await asyncio.to_thread(decide, *args, **kwargs)


def prompt_of(task: Task) -> JsonValue:
    """The task's prompt as a row shows it: text, or chat messages."""
    return task.prompt if isinstance(task.prompt, str) else list(task.prompt)


def tool_calls_of(attempt: Attempt) -> list[JsonValue]:
    """The tool calls of a reply as a row shows them; empty where there is none."""
    reply = attempt.sampled.reply
    return [call.model_dump(mode="json") for call in reply.tool_calls] if reply else []


def answer_of(attempt: Attempt) -> JsonValue:
    """What the attempt answered: the extracted text, else the parsed object, else nothing."""
    verdict = attempt.score or attempt.abstention
    if verdict is not None and verdict.answer is not None:
        return verdict.answer
    reply = attempt.sampled.reply
    return None if reply is None else reply.parsed
