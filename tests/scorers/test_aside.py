"""Long replies and slow patterns: another process gives the same verdict, and the loop runs on."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from labelkit.records import Abstention, Reply, Score, Task, ToolCall, Verdict
from labelkit.scorers import Binding
from labelkit.scorers.aside import LONGEST_INLINE, Aside, bound
from labelkit.scorers.parse import parse_scorer
from tests.scorers.scripted import ScriptedDraw, verdict
from tests.stalls import Watch, watched

BINDING = Binding(folder=Path(), processes=1)
FILLER = "The quick brown fox — née Ünal — counts 3 of 12. " * (2 * LONGEST_INLINE // 50)
LOOKAROUND = {"json": {"schema": {"type": "string", "pattern": "^(?!z)(a|aa)+$"}}}
BACKTRACKING = '"' + "a" * 60 + '!"'


async def _scored(
    section: Any, reply: Reply, gold: Any = None, **limits: float
) -> tuple[Verdict, Watch]:
    """The verdict of a run's scorer, and what was seen of the loop meanwhile."""
    settings = parse_scorer(section)
    scorer = bound(settings, BINDING)
    if limits:
        scorer = Aside(settings.bind(BINDING), settings, BINDING, **limits)
    task = Task(id="t", prompt="p", gold=gold, metadata={"options": ["Paris", "Rome"]})
    try:
        async with watched() as watch:
            return await scorer.score(task, reply, ScriptedDraw()), watch
    finally:
        await scorer.close()


@pytest.mark.parametrize(
    ("section", "ending", "gold"),
    [
        ({"exact": {"answer": {"tag": "a"}, "fold": False}}, "<a>Zürich</a>", "zürich"),
        ("contains", "\nIt is Paris.", "Paris"),
        ({"contains": {"text": ["Rome", "Oslo"], "mention": "anywhere"}}, "in Oslo", None),
        ({"regex": r"\bO\w+o\b"}, "in Oslo", None),
        ({"numeric": {"tolerance": {"rel": 0.1}, "unit": "cm"}}, r"\boxed{41}", "40"),
        ({"numeric": {"answer": {"regex": r"(\d+)"}}}, "41", "41"),
        ({"math": {"form": "same"}}, r"\boxed{\frac{1}{2}}", r"\frac12"),
        ("math", r"\boxed{\sin^2 x + \cos^2 x}", "1"),
        ("choice", "The answer is B.", "B"),
        ({"choice": {"options": {"A": "x", "B": "y"}}}, "The answer is (A).", "B"),
        ({"json": {"schema": {"type": "object"}, "paths": ["a"]}}, '{"a": [1, "é"]}', {"a": [1]}),
        ({"tool_calls": {"schema": {"f": {"x": "integer=1 (optional)"}}}},
         '<tool_call>{"name": "f", "arguments": {}}</tool_call>',
         [{"name": "f", "arguments": {"x": 1}}]),
        ({"constraints": {"words": {"min": 5}, "no_comma": True}}, "", None),
    ],
)  # fmt: skip
async def test_a_long_reply_gets_the_verdict_that_it_would_get_here(
    section: Any, ending: str, gold: Any
) -> None:
    reply = Reply(text=FILLER + ending)
    here = await asyncio.to_thread(
        verdict, section, reply, gold, metadata={"options": ["Paris", "Rome"]}
    )
    aside, _ = await _scored(section, reply, gold)
    assert aside == here


async def test_what_a_schema_parsed_and_what_a_model_called_travel_along() -> None:
    parsed = {"final_answer": 10**30, "pad": "x" * LONGEST_INLINE}
    found, _ = await _scored("numeric", Reply(text=" " * 2 * LONGEST_INLINE, parsed=parsed), 10**30)
    assert found.answer == str(10**30)
    calls = (ToolCall(name="f", arguments='{"x": "' + "y" * LONGEST_INLINE + '"}'),)
    gold = [{"name": "f", "arguments": {"x": "y" * LONGEST_INLINE}}]
    found, _ = await _scored("tool_calls", Reply(text="", tool_calls=calls), gold)
    assert isinstance(found, Score)
    assert found.passed


async def test_halves_of_surrogate_pairs_travel_along() -> None:
    found, _ = await _scored({"exact": "whole"}, Reply(text="\ud83d" + FILLER), "x")
    assert isinstance(found, Score)
    assert not found.passed


@pytest.mark.parametrize("section", ["contains", {"exact": "whole"}, {"constraints": {"words": 3}}])
async def test_the_loop_runs_on_while_megabytes_are_scored(section: Any) -> None:
    _, watch = await _scored(section, Reply(text="x y, " * 600_000), "Paris")
    assert watch.longest_s < watch.elapsed_s / 3


async def test_a_pattern_that_takes_too_long_abstains() -> None:
    found, watch = await _scored(LOOKAROUND, Reply(text=BACKTRACKING))
    assert isinstance(found, Abstention)
    assert "took over 2 s" in found.reason
    assert watch.longest_s < 1


async def test_a_pattern_with_too_many_slow_matches_abstains() -> None:
    section = {"exact": {"answer": {"regex": "(?s)(.*z|a)"}}}
    found, watch = await _scored(section, Reply(text="a" * 300_000), "a")
    assert isinstance(found, Abstention)
    assert watch.longest_s < 1


async def test_what_is_not_scored_in_time_abstains() -> None:
    section = {"regex": "(?:a?b?c?d?e?f?g?h?){1000}[^a]x"}
    found, _ = await _scored(section, Reply(text="abcdefgh" * 100_000), wall_s=0.3)
    assert found == Abstention(reason="scoring took over 0.3 s and was stopped")


async def test_members_of_a_composition_are_scored_aside_too() -> None:
    section = ["contains", LOOKAROUND]
    found, watch = await _scored(section, Reply(text=BACKTRACKING), "a" * 60)
    assert isinstance(found, Abstention)
    assert watch.longest_s < 1


async def test_another_scorer_is_left_alone() -> None:
    settings = parse_scorer({"judge": {"model": "m", "rubric": "r"}})
    assert not isinstance(bound(settings, BINDING), Aside)
