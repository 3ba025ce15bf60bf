"""`--dry-run` on calls beyond candidates: judges, continuations, replicates."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from labelkit.prepare import Options, prepare
from labelkit.report.preview import preview
from labelkit.spec import load
from tests.openai_server import OpenAIServer, Script
from tests.recipes.judged import script, spec_file
from tests.runs import go, write_spec

NOWHERE = {"model": "direct/m", "api_base": "http://127.0.0.1:9/v1"}
JUDGE = {
    "model": "direct/judge",
    "api_base": "http://127.0.0.1:9/v1",
    "rubric": "Is it?",
    "temperature": 1.0,
    "votes": 3,
    "pass_at": 0.5,
    "asks": 2,
}
PRICE = {"input_per_mtok": 1000.0, "output_per_mtok": 10_000.0}
STEPS = {"id": "t", "prompt": "p", "gold": "1", "metadata": {"steps": ["a", "b", "c", "d", "e"]}}


def dry(folder: Path, command: str = "rollout", **sections: Any) -> str:
    """The dry run of a spec, by default of two tasks and two candidates each."""
    defaults = {
        "tasks": [{"prompt": f"p{n}", "gold": "1"} for n in range(2)],
        "sampler": NOWHERE,
    }
    return previewed(write_spec(folder, **{**defaults, **sections}), folder / "run", command)


def previewed(spec: Path, directory: Path, command: str, **options: Any) -> str:
    return preview(prepare(load(spec), command, Options(directory=directory, **options)))


@pytest.mark.parametrize(
    ("scorer", "said"),
    [
        # 2 tasks × 2 candidates × 3 votes, each of them asked for once or twice.
        ({"judge": JUDGE}, "judge calls to make: 12 to 24\n"),
        (["contains", {"judge": JUDGE}], "judge calls to make: 0 to 24\n"),
        (
            {"weighted": [{"weight": 1.0, "scorer": s} for s in ("contains", {"judge": JUDGE})]},
            "judge calls to make: 12 to 24\n",
        ),
        ("contains", None),
    ],
)
def test_votes_on_candidates_to_come_are_counted(
    tmp_path: Path, scorer: Any, said: str | None
) -> None:
    text = dry(tmp_path, scorer=scorer)
    assert "not counted" not in text
    if said is None:
        assert "judge" not in text
    else:
        assert said in text
        assert "  assumed: every reply is whole; 3 votes a reply, asked for once to 2 times" in text


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"a": "numeric", "b": {"math": {}}}, None),
        ({"a": "numeric", "b": {"judge": JUDGE}}, "judge calls to make: 0 to 24\n"),
    ],
)
def test_of_scorers_chosen_by_a_field_one_is_asked(
    tmp_path: Path, parts: Any, said: str | None
) -> None:
    tasks = [{"prompt": f"p{n}", "gold": "1", "metadata": {"kind": "a"}} for n in range(2)]
    text = dry(tmp_path, tasks=tasks, scorer={"by": {"field": "metadata.kind", "scorers": parts}})
    assert said in text if said else "judge" not in text


def test_a_knockout_may_take_two_comparisons_for_each_further_candidate(tmp_path: Path) -> None:
    section = {"bar": 0.5, "judge": JUDGE, "mode": "pairwise"}
    text = dry(tmp_path, "best-of-n", scorer=None, best_of_n=section, k=3)
    # 2 tasks: 3 candidates × 3 votes × 2 asks, and 2 × (3 − 1) comparisons × 2 asks.
    assert "judge calls to make: 18 to 52\n" in text


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"solutions": "metadata.steps"}, "continuations to make: 20\n"),
        # At least those of the first prefix; at most 60% of all.
        ({"solutions": "metadata.steps", "search": "adaptive"}, "continuations to make: 4 to 12\n"),
        ({"max_steps": 7}, "continuations to make: 4 to 28\n"),
        ({"max_steps": 7, "solutions_per_task": 3}, "continuations to make: 12 to 84\n"),
    ],
)
def test_continuations_are_counted_by_steps(
    tmp_path: Path, settings: dict[str, Any], said: str
) -> None:
    text = dry(tmp_path, "step-rewards", tasks=[STEPS], k=4, step_rewards=settings)
    assert said in text
    assert ("yet to come have 1 step" in text) is ("solutions" not in settings)


def test_a_judge_of_continuations_is_asked_about_each(tmp_path: Path) -> None:
    settings = {"solutions": "metadata.steps"}
    text = dry(
        tmp_path, "step-rewards", tasks=[STEPS], scorer={"judge": JUDGE}, step_rewards=settings
    )
    assert "continuations to make: 10\n" in text
    assert "judge calls to make: 36 to 72\n" in text  # of 2 candidates and 10 continuations


def test_replicates_are_at_most_those_of_every_task(tmp_path: Path) -> None:
    text = dry(tmp_path, "rl-select", rl_select={"replicate": 4}, k=8)
    assert "replicates to make: 0 to 8\n" in text


def test_the_cost_has_the_judge_in_it_and_beside_it(tmp_path: Path) -> None:
    tasks = [{"prompt": "x" * 1200, "gold": "1"}]
    sampler = {**NOWHERE, "price": {**PRICE}, "max_tokens": 500}
    judge = {**JUDGE, "price": {**PRICE}, "max_tokens": 100}
    text = dry(tmp_path, tasks=tasks, sampler=sampler, scorer={"judge": judge}, k=10, budget=70.0)
    ranges = {
        name: (float(least), float(most))
        for name, least, most in re.findall(r"(\w[\w ]*): \$([\d.]+) to \$([\d.]+)", text)
    }
    # Candidates as without a judge (see test_preview): $0.22 and $6.25 each.
    assert 2.1 <= ranges["candidates"][0] <= 2.3
    assert 62 <= ranges["candidates"][1] <= 63
    # Of a judge's call the task is 1,200 bytes, the reply up to 500 tokens, the verdict 1 to 100;
    # its instructions, fences and schema are at most 2,000 bytes more.
    assert 30 * 0.21 <= ranges["judge calls"][0] <= 30 * 0.6
    assert 60 * 2.7 <= ranges["judge calls"][1] <= 60 * 4.7
    for end in (0, 1):
        parts = ranges["candidates"][end] + ranges["judge calls"][end]
        assert ranges["cost"][end] == pytest.approx(parts, abs=0.02)
    assert "budget: $70.00: less than the longest replies would cost\n" in text


def test_a_judge_without_price_or_bound_is_named(tmp_path: Path) -> None:
    sampler = {**NOWHERE, "price": {**PRICE}, "max_tokens": 500}
    assert "cost: unknown; set scorer.judge.price: {" in dry(
        tmp_path, sampler=sampler, scorer={"judge": JUDGE}
    )
    assert "; scorer.judge.max_tokens would bound it\n" in dry(
        tmp_path, sampler=sampler, scorer={"judge": {**JUDGE, "price": {**PRICE}}}
    )


async def test_votes_on_replies_that_are_held_are_those_that_the_run_then_asks_for(
    tmp_path: Path, openai_server: OpenAIServer
) -> None:
    openai_server.script = script(lambda ask: f"text {ask.key[:8]}", lambda text: 4)
    tasks = [{"id": name, "prompt": f"write {name}", "gold": "text"} for name in "ab"]
    spec = spec_file(tmp_path, openai_server.url, tasks=tasks, scorer={"contains": {}})
    await go(spec, tmp_path / "rollout")
    run = tmp_path / "best"
    options: dict[str, Any] = {"sources": [tmp_path / "rollout"]}
    text = await asyncio.to_thread(previewed, spec, run, "best-of-n", **options)
    assert "\n  to make: 0\njudge calls to make: 6 to 18\n" in text
    await go(spec, run, command="best-of-n", **options)
    assert sum(call.body["model"] == "judge" for call in openai_server.calls) == 6
    text = await asyncio.to_thread(previewed, spec, run, "best-of-n", **options)
    assert "judge calls to make: 0\n" in text
    assert "assumed" not in text


async def test_continuations_that_are_held_are_not_counted_again(
    tmp_path: Path, openai_server: OpenAIServer
) -> None:
    openai_server.script = Script(reply="The answer is 1.")
    spec = write_spec(
        tmp_path,
        tasks=[STEPS],
        sampler={"model": "direct/m", "api_base": openai_server.url},
        step_rewards={"solutions": "metadata.steps"},
    )
    await go(spec, tmp_path / "run", command="step-rewards")
    n_calls = len(openai_server.calls)
    assert n_calls == 12
    spec.write_text(spec.read_text().replace("k: 2", "k: 3"))
    text = await asyncio.to_thread(previewed, spec, tmp_path / "run", "step-rewards")
    assert "\n  to make: 1\ncontinuations to make: 5\n" in text
    await go(spec, tmp_path / "run", command="step-rewards")
    assert len(openai_server.calls) == n_calls + 6
    text = await asyncio.to_thread(previewed, spec, tmp_path / "run", "step-rewards")
    assert "continuations to make: 0\n" in text
