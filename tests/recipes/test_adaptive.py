"""Stopping early never changes what is kept, whatever the draws bring, unscored ones included."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from labelkit.recipes import Context, Envelope
from labelkit.recipes.band import BandField
from labelkit.recipes.learning_zone import LearningZone, LearningZoneSettings
from labelkit.recipes.rl_select import RlSelect, RlSelectSettings
from labelkit.recipes.verify_traces import VerifyTraces, VerifyTracesSettings
from labelkit.recipes.waves import waves
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
)
from labelkit.reply import read_reply
from labelkit.samplers import SamplerSettings
from labelkit.scorers.parse import parse_scorer
from labelkit.seams import Recipe
from labelkit.spec import Spec

REQUEST = Request(model="m")
TASK = Task(id="t", prompt="p", gold="yes")
DRAWS = st.lists(st.sampled_from("pfu"), min_size=2, max_size=16).map("".join)
SETTINGS = settings(max_examples=300, deadline=None)


class Scripted:
    """A draw that passes (p), fails (f), stays unscored (u), or is owed (o) to a later run."""

    waits = False

    def __init__(self, outcomes: str) -> None:
        self.outcomes = outcomes
        self.n_drawn = 0

    async def __call__(
        self, request: Request, *, stage: str = "candidate", sample_index: int
    ) -> Attempt | NotRun:
        self.n_drawn += 1
        key = DrawKey(task_id="t", stage=stage, request="r", sample_index=sample_index)
        kind = self.outcomes[sample_index]
        if kind == "o":
            return NotRun(key=key, reason="budget")
        said = Completion(text=f"trace {sample_index % 3}", finish_reason="stop")
        reply = read_reply(request, said, key)
        sampled = Sampled(key=key, completion=said, reply=reply)
        if kind == "u":
            return Attempt(sampled=sampled, stop_reason="abstained")
        score = Score(value=float(kind == "p"), passed=kind == "p")
        return Attempt(sampled=sampled, stop_reason="completed", score=score)

    async def sample(self, *args: Any, **options: Any) -> Any:
        raise NotImplementedError

    async def score(self, sampled: Any) -> Any:
        raise NotImplementedError


def outcome(kind: Any, section: Any, draws: str, *, adaptive: bool) -> tuple[Outcome, int]:
    spec = Spec(name="s", tasks=[{"prompt": "p"}], sampler={}, k=len(draws), adaptive=adaptive)
    scorer: Any = None
    envelope = Envelope(spec, SamplerSettings(), parse_scorer("exact"))
    recipe: Recipe = kind(section, Context(envelope, lambda _: REQUEST, scorer))
    draw = Scripted(draws)
    return asyncio.run(_called(recipe, draw)), draw.n_drawn


async def _called(recipe: Recipe, draw: Scripted) -> Outcome:
    return await recipe(TASK, draw)


def assert_alike(kind: Any, section: Any, draws: str) -> None:
    full, _ = outcome(kind, section, draws, adaptive=False)
    early, n_drawn = outcome(kind, section, draws, adaptive=True)
    assert early.status == full.status
    assert [row.fields.get("sample_index") for row in early.rows] == [
        row.fields.get("sample_index") for row in full.rows
    ]
    assert early.stopped_early is (n_drawn < len(draws))
    assert early.not_needed == len(draws) - n_drawn == full.detail["saved"]
    assert early.planned == len(early.attempts) + len(early.not_run) + early.not_needed


@SETTINGS
@given(DRAWS)
def test_learning_zone(draws: str) -> None:
    assert_alike(LearningZone, LearningZoneSettings(), draws)


@SETTINGS
@given(
    DRAWS,
    st.sampled_from(["(0, 1)", "[0.2, 0.8]", "(0, 0.5]", "[0, 1)", "[0.5, 0.5]", "(0.3, 0.9)"]),
)
def test_rl_select(draws: str, band: str) -> None:
    assert_alike(RlSelect, RlSelectSettings(band=BandField.parse(band)), draws)


@SETTINGS
@given(DRAWS, st.integers(1, 4), st.sampled_from([None, "exact"]))
def test_verify_traces(draws: str, most: int, dedupe: Any) -> None:
    assert_alike(VerifyTraces, VerifyTracesSettings(max_per_task=most, dedupe=dedupe), draws)


@SETTINGS
@given(st.text("pfuo", min_size=2, max_size=12), st.data())
def test_a_decision_made_while_draws_are_owed_stands_once_they_are_made(
    draws: str, data: st.DataObject
) -> None:
    """What a halted run keeps or drops, the resumed one keeps or drops, too."""
    later = "".join(data.draw(st.sampled_from("pfu")) if each == "o" else each for each in draws)
    for band in ("(0, 1)", "[0.2, 0.8]", "(0, 0.5]"):
        section = RlSelectSettings(band=BandField.parse(band))
        for adaptive in (False, True):
            halted, _ = outcome(RlSelect, section, draws, adaptive=adaptive)
            whole, _ = outcome(RlSelect, section, later, adaptive=False)
            if halted.status in ("kept", "dropped"):
                assert whole.status == halted.status


def test_waves_double_what_was_drawn() -> None:
    assert [len(wave) for wave in waves(8)] == [2, 2, 4]
    assert [len(wave) for wave in waves(13)] == [2, 2, 4, 5]
    assert [len(wave) for wave in waves(9, 4)] == [4, 4, 1]
    assert [len(wave) for wave in waves(1)] == [1]
