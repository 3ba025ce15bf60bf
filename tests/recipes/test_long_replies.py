"""Recipes that look through long replies leave the event loop running."""

from __future__ import annotations

from typing import Any

import pytest

from labelkit.recipes import Context, Envelope
from labelkit.recipes.step_rewards import StepRewards, StepRewardsSettings
from labelkit.recipes.trace_filters import TraceFilters
from labelkit.recipes.verify_traces import VerifyTraces, VerifyTracesSettings
from labelkit.records import Attempt, Completion, DrawKey, Reply, Request, Sampled, Score, Task
from labelkit.samplers import SamplerSettings
from labelkit.scorers.parse import parse_scorer
from labelkit.seams import Recipe
from labelkit.spec import Spec
from tests.stalls import watched

REQUEST = Request(model="m")
TRACE = "".join(f"step {number}: {number} + 1 = {number + 1}\n\n" for number in range(12_000))


class LongReplies:
    """A draw whose replies are right and long, each in other words."""

    waits = False

    async def __call__(
        self, request: Request, *, stage: str = "candidate", sample_index: int
    ) -> Attempt:
        key = DrawKey(task_id="t", stage=stage, request="r", sample_index=sample_index)
        text = TRACE.replace("step", f"word{sample_index}")
        sampled = Sampled(key=key, completion=Completion(text=text), reply=Reply(text=text))
        score = Score(value=1.0, passed=True)
        return Attempt(sampled=sampled, stop_reason="completed", score=score)

    async def sample(self, *args: Any, **options: Any) -> Any:
        raise NotImplementedError

    async def score(self, sampled: Any) -> Any:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("kind", "section", "adaptive"),
    [
        (VerifyTraces, VerifyTracesSettings(filters=TraceFilters(max_repeated_share=0.5)), False),
        (VerifyTraces, VerifyTracesSettings(max_per_task=3, dedupe="answer_path"), True),
        (StepRewards, StepRewardsSettings(solutions_per_task=4, max_steps=2), False),
    ],
)
async def test_the_loop_runs_on_while_long_replies_are_looked_through(
    kind: Any, section: Any, adaptive: bool
) -> None:
    spec = Spec(name="s", tasks=[{"prompt": "p"}], sampler={}, k=4, adaptive=adaptive)
    scorer: Any = None
    envelope = Envelope(spec, SamplerSettings(), parse_scorer("exact"))
    recipe: Recipe = kind(section, Context(envelope, lambda _: REQUEST, scorer))
    async with watched() as watch:
        outcome = await recipe(Task(id="t", prompt="p"), LongReplies())
    assert len(outcome.attempts) == 4
    assert watch.longest_s < watch.elapsed_s / 3
