"""The example specs end to end, against a provider scripted to answer as the sets' first runs did:
the observed counts must come out."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.openai_server import Ask, OpenAIServer, Script
from tests.recipes import judged, solvers
from tests.recorded import printed
from tests.runs import go, read_lines

ROOT = Path(__file__).parent.parent.parent


def tasks(name: str) -> dict[str, Any]:
    """Tasks of a data file by prompt."""
    return {task["prompt"]: task for task in read_lines(ROOT / "data" / name)}


def answering(known: dict[str, Any], misses: dict[str, int]) -> Script:
    """The gold, but for so many wrong answers to each task that has an entry in `misses`."""
    asked: Counter[str] = Counter()

    def reply(ask: Ask) -> str:
        task = known[ask.prompt]
        asked[task["id"]] += 1
        answer = -1 if asked[task["id"]] <= misses.get(task["id"], 0) else task["gold"]
        said = f"attempt {asked[task['id']]}"
        return json.dumps({"reasoning": said, "final_answer": answer})

    return Script(reply=reply)


async def finished(
    name: str, command: str, server: OpenAIServer, folder: Path, *overrides: str
) -> Any:
    fake = ("sampler.model=direct/fake", f"sampler.api_base={server.url}")
    return await go(ROOT / "specs" / name, folder / "run", *fake, *overrides, command=command)


@pytest.mark.parametrize("spec", sorted((ROOT / "specs").glob("*.yaml")), ids=lambda p: p.stem)
def test_every_example_spec_is_without_fault(spec: Path) -> None:
    server = ("--model", "direct/x", "--set", "sampler.api_base=http://localhost:8000/v1")
    model = () if "recorded" in spec.stem else server
    assert "no fault found" in printed("check", spec, *model)


async def test_verify_traces_keeps_23_of_24(tmp_path: Path, openai_server: OpenAIServer) -> None:
    openai_server.script = answering(tasks("word_problems.jsonl"), {"p5": 1})
    done = await finished("verify_traces.yaml", "verify-traces", openai_server, tmp_path)
    assert done["rows"] == {"candidates": 24, "kept": 23, "dropped": 1}
    assert done["dropped"] == {"wrong_answer": 1}
    assert done["detail"]["n_tasks_solved"] == 6
    rows = read_lines(tmp_path / "run" / "rows.jsonl")
    assert list(rows[0])[:5] == ["id", "prompt", "reasoning", "final_answer", "sample_index"]
    assert {(row["id"], row["final_answer"]) for row in rows} == {
        ("p1", 285),
        ("p2", 35),
        ("p3", 11),
        ("p4", 360),
        ("p5", 648),
        ("p6", 13),
    }
    assert all(row["reasoning"].startswith("attempt") for row in rows)
    passed = {line["id"]: line["n_passed"] for line in read_lines(tmp_path / "run" / "tasks.jsonl")}
    assert passed == {"p1": 4, "p2": 4, "p3": 4, "p4": 4, "p5": 3, "p6": 4}


async def test_rl_select_keeps_one_of_eight(tmp_path: Path, openai_server: OpenAIServer) -> None:
    openai_server.script = answering(tasks("difficulty_ladder.jsonl"), {"r8": 2})
    done = await finished("rl_select.yaml", "rl-select", openai_server, tmp_path)
    assert done["dropped"] == {"always_solved": 7}
    [row] = read_lines(tmp_path / "run" / "rows.jsonl")
    assert list(row)[:4] == ["id", "prompt", "gold", "pass_rate"]
    assert (row["id"], row["gold"], row["pass_rate"]) == ("r8", 132241, 0.5)
    assert (row["learnability"], row["bin"]) == (pytest.approx(1 / 3), "(.2, .5]")
    lines = read_lines(tmp_path / "run" / "tasks.jsonl")
    assert [line["designed"] for line in lines] == [
        "trivial",
        "trivial",
        "easy",
        "medium",
        "medium",
        "hard",
        "hard",
        "impossible",
    ]


async def test_a_gold_beyond_64_bits_survives(tmp_path: Path, openai_server: OpenAIServer) -> None:
    openai_server.script = answering(tasks("difficulty_ladder.jsonl"), {"r7": 2})
    await finished("rl_select.yaml", "rl-select", openai_server, tmp_path)
    [row] = read_lines(tmp_path / "run" / "rows.jsonl")
    assert row["gold"] == 73482915684921637 * 91827364550918273


async def test_learning_zone_shows_its_anchors_beside_the_candidates(
    tmp_path: Path, openai_server: OpenAIServer
) -> None:
    known = tasks("chained_arithmetic.jsonl") | tasks("chained_anchors.jsonl")
    misses = {"chain-1": 4, "chain-2": 1, "chain-3": 3}
    openai_server.script = answering(known, misses)
    done = await finished("learning_zone.yaml", "learning-zone", openai_server, tmp_path)
    rows = read_lines(tmp_path / "run" / "rows.jsonl")
    assert [(row["id"], row["n_passed"]) for row in rows] == [("chain-2", 3), ("chain-3", 1)]
    assert done["detail"] == {
        "in_zone": 2,
        "saturated": 3,
        "hopeless": 1,
        "undecided": 0,
        "draws_adaptive_would_save": done["detail"]["draws_adaptive_would_save"],
    }
    assert [(each["id"], each["holds"]) for each in done["canaries"]["each"]] == [
        ("canary/anchor/anchor-1", True),
        ("canary/anchor/anchor-2", True),
        ("canary/anchor/anchor-3", True),
        ("canary/wrong/1/chain-1", True),
    ]
    assert (done["n_tasks"], done["n_attempts"], done["exit_code"]) == (6, 24, 0)


async def test_best_of_n_saturates_on_all_four_prompts(
    tmp_path: Path, openai_server: OpenAIServer
) -> None:
    written = {
        "lantern": "It drinks the sun by day. It lights your camp by night.",
        "process": "A process has memory of its own; threads share that of their process.",
        "every word starts with x": "Xenial xylophonists xerox xanthic xylographs, "
        "xeroxing xenon-xeric xebecs xyloidally, xenophilically.",
        "winter": "Cold mornings bring a hush to our world. Frost sits on lawns, birds sing low, "
        "and a thin sun climbs slowly. I walk with warm coat and hat, watching my own soft "
        "fog drift up.",
    }

    def candidate(ask: Ask) -> str:
        return next(text for part, text in written.items() if part in ask.prompt)

    def score(text: str) -> int:
        return 1 if text == "lantern good buy now" else 5

    openai_server.script = judged.script(candidate, score)
    judge = f"best_of_n.judge={{model: direct/judge, api_base: '{openai_server.url}'"
    judge += ", scale: {min: 1, max: 5}, rubric: be strict}"
    done = await finished("best_of_n.yaml", "best-of-n", openai_server, tmp_path, judge)
    rows = read_lines(tmp_path / "run" / "rows.jsonl")
    assert [row["id"] for row in rows] == ["lantern", "processes", "ten-x", "winter"]
    assert [row["all_scores"] for row in rows] == [[5, 5, 5]] * 4
    assert done["detail"]["saturation"] == 1.0
    assert "stricter rubric" in done["detail"]["warning"]
    assert done["exit_code"] == 0


async def test_step_rewards_drops_at_the_corrupted_step(
    tmp_path: Path, openai_server: OpenAIServer
) -> None:
    openai_server.script = solvers.script(solvers.faithful)
    done = await finished("step_rewards.yaml", "step-rewards", openai_server, tmp_path)
    [row] = read_lines(tmp_path / "run" / "rows.jsonl")
    assert (row["step_scores"], row["first_sharp_drop"]) == ([1, 0, 1], 2)
    assert done["canaries"]["held"] == 1
    assert done["exit_code"] == 0


@pytest.mark.parametrize(
    ("scorer", "kind"),
    [("{contains: {text: '{'}}", "wrong"), ("{contains: {text: nowhere}}", "anchor")],
)
async def test_a_scorer_that_passes_or_fails_everything_is_found_out(
    tmp_path: Path, openai_server: OpenAIServer, scorer: str, kind: str
) -> None:
    known = tasks("chained_arithmetic.jsonl") | tasks("chained_anchors.jsonl")
    openai_server.script = answering(known, {})
    done = await finished(
        "learning_zone.yaml", "rollout", openai_server, tmp_path, f"scorer={scorer}"
    )
    failed = {each["kind"] for each in done["canaries"]["each"] if each["holds"] is not True}
    assert failed == {kind}
    assert done["exit_code"] == 3
    gate = done["gates"][-1]
    assert (gate["expr"], gate["holds"]) == ("canaries.failed == 0", False)
