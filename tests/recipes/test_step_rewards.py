"""step-rewards against a scripted solver and completer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from scipy.stats import beta

from labelkit.errors import SpecError
from tests.openai_server import OpenAIServer
from tests.recipes.solvers import (
    RIGHT,
    WRONG,
    faithful,
    free_text,
    prefix_in,
    repairing,
    script,
    spec_file,
)
from tests.runs import go, read_lines, run

STEPS = "step-rewards"


async def rows_of(spec: Path, folder: Path, *overrides: str) -> tuple[Any, list[Any]]:
    done = await go(spec, folder, *overrides, command=STEPS)
    return done, read_lines(folder / "rows.jsonl")


async def test_a_wrong_step_drops_and_a_later_right_one_recovers(
    tmp_path: Path, openai_server: OpenAIServer
) -> None:
    openai_server.script = script(faithful)
    done, [row] = await rows_of(spec_file(tmp_path, openai_server.url), tmp_path / "run")
    assert list(row)[:6] == ["id", "problem", "steps", "step_scores", "k", "first_sharp_drop"]
    assert row["steps"] == WRONG
    assert row["step_scores"] == [1, 0, 1]
    assert row["counts"] == [[3, 3], [0, 3], [3, 3]]
    assert row["first_sharp_drop"] == 2
    assert row["advantages"] == [0, -1, 1]
    assert row["hard_labels"] == [True, False, True]
    assert (row["v0"], row["v0_counts"]) == (1, [3, 3])
    assert row["intervals"][0] == pytest.approx([beta.ppf(0.025, 3.5, 0.5), 1])
    assert row["intervals"][1] == pytest.approx([0, beta.ppf(0.975, 0.5, 3.5)])
    assert done["stages"]["prefix"]["calls"] == 9
    assert done["n_attempts"] == 3


async def test_the_prompt_quotes_the_prefix_and_asks_for_no_steps(
    tmp_path: Path, openai_server: OpenAIServer
) -> None:
    openai_server.script = script(faithful)
    await rows_of(spec_file(tmp_path, openai_server.url), tmp_path / "run")
    asked = [call for call in openai_server.calls if "so far" in str(call.body["messages"])]
    quoted = {
        str(call.body["messages"][-1]["content"]).split("so far:\n\n")[1].split("\n\nGo on")[0]
        for call in asked
    }
    assert quoted == {"\n\n".join(WRONG[:n]) for n in (1, 2, 3)}
    schemas = [call.body["response_format"]["json_schema"]["schema"] for call in asked]
    assert all(list(schema["properties"]) == ["reasoning", "final_answer"] for schema in schemas)
    assert len({call.body["seed"] for call in asked}) == 9


async def test_the_labelled_sample_is_no_part_of_v0(
    tmp_path: Path, openai_server: OpenAIServer
) -> None:
    openai_server.script = script(faithful, RIGHT)
    section = {"solutions_per_task": 2}
    spec = spec_file(tmp_path, openai_server.url, step_rewards=section)
    done, rows = await rows_of(spec, tmp_path / "run")
    assert [row["sample_index"] for row in rows] == [0, 1]
    assert [row["step_scores"] for row in rows] == [[1, 1, 1]] * 2
    assert [row["v0_counts"] for row in rows] == [[1, 1]] * 2
    assert [row["first_sharp_drop"] for row in rows] == [None, None]
    assert [row["first_error"]["step"] for row in rows] == [None, None]
    assert done["rows"] == {"candidates": 2, "kept": 2, "dropped": 0}


async def test_prefill_sends_the_prefix_as_the_assistants_turn(
    tmp_path: Path, openai_server: OpenAIServer
) -> None:
    openai_server.script = script(faithful, WRONG[:2], schema=False)
    spec = spec_file(tmp_path, openai_server.url, **free_text(openai_server.url))
    _, [row] = await rows_of(spec, tmp_path / "run")
    assert row["prefix_mode"] == "prefill"
    assert row["steps"] == [*WRONG[:2], "The answer is 67."]
    assert row["step_scores"] == [1, 0, 0]
    asked = [c.body for c in openai_server.calls if c.body["messages"][-1]["role"] == "assistant"]
    assert {body["messages"][-1]["content"] for body in asked} == {
        "\n\n".join(row["steps"][:n]) for n in (1, 2, 3)
    }
    assert all(body["continue_final_message"] for body in asked)
    assert not any(body["add_generation_prompt"] for body in asked)


async def test_prefill_through_raw_completions_is_a_continuation(
    tmp_path: Path, openai_server: OpenAIServer
) -> None:
    openai_server.script = script(faithful, WRONG[:2], schema=False)
    sections = free_text(openai_server.url, api="completions", template="{{ prompt }}\n\n")
    _, [row] = await rows_of(spec_file(tmp_path, openai_server.url, **sections), tmp_path / "run")
    assert (row["prefix_mode"], row["step_scores"]) == ("continuation", [1, 0, 0])
    prompts = {call.body["prompt"] for call in openai_server.calls}
    assert prompts == {"Problem\n\n" + "\n\n".join(row["steps"][:n]) for n in range(4)}


async def test_adaptive_search_draws_fewer_and_finds_the_same_step(
    tmp_path: Path, openai_server: OpenAIServer
) -> None:
    good = [f"{72} stays 72" for _ in range(8)]
    steps = [*good, "72 − 15 = 67", *["67 stays 67" for _ in range(7)]]
    task = {"id": "p1", "prompt": "Problem", "gold": 285, "metadata": {"steps": steps}}
    openai_server.script = script(faithful)
    spec = spec_file(tmp_path, openai_server.url, tasks=[task], k=8)
    done, [row] = await rows_of(spec, tmp_path / "run", "step_rewards.search=adaptive")
    assert row["first_error"]["step"] == 9
    assert row["first_error"]["posterior"][8] > 0.95
    assert done["detail"]["rollouts_full"] == 128
    assert done["detail"]["rollouts"] <= 77
    assert None in row["step_scores"]


async def test_restarts_and_repairs_are_counted(
    tmp_path: Path, openai_server: OpenAIServer
) -> None:
    def reply(ask: Any) -> str:
        prefix = prefix_in(ask)
        if prefix is None:
            return "\n\n".join([*RIGHT, "The answer is 285."])
        if prefix.endswith("72"):
            return f"{RIGHT[0]} … The answer is 285."
        return "Wait, that is a mistake. The answer is 285."

    openai_server.script = script(faithful).model_copy(update={"reply": reply})
    sections = {**free_text(openai_server.url), "step_rewards": {}}
    done, [row] = await rows_of(spec_file(tmp_path, openai_server.url, **sections), tmp_path / "r")
    assert row["restart_rate"] == pytest.approx(1 / 4)
    assert row["repair_rate"] == pytest.approx(3 / 4)
    assert done["detail"]["repair_rate"] == pytest.approx(3 / 4)


async def test_processbench_scores_located_errors(
    tmp_path: Path, openai_server: OpenAIServer
) -> None:
    openai_server.script = script(faithful)
    steps = [WRONG[0], WRONG[1], "67 × 5 = 335"]
    labelled = [("a", steps, 1), ("b", RIGHT, -1), ("c", steps, 0)]
    tasks = [
        {"id": i, "prompt": "Problem", "gold": 285, "metadata": {"steps": list(s), "label": label}}
        for i, s, label in labelled
    ]
    spec = spec_file(tmp_path, openai_server.url, tasks=tasks, k=8)
    done, _ = await rows_of(spec, tmp_path / "run", "step_rewards.evaluate=processbench")
    assert done["detail"]["processbench"] == {
        "n_error": 2,
        "accuracy_error": 0.5,
        "n_correct": 1,
        "accuracy_correct": 1.0,
        "f1": pytest.approx(2 / 3),
    }


async def test_samples_without_usable_steps_are_dropped_with_their_reason(
    tmp_path: Path, openai_server: OpenAIServer
) -> None:
    openai_server.script = script(faithful, RIGHT)
    task = {"id": "p1", "prompt": "Problem", "gold": 285}
    spec = spec_file(tmp_path, openai_server.url, tasks=[task], step_rewards={"max_steps": 2})
    done, rows = await rows_of(spec, tmp_path / "long")
    assert (rows, done["dropped"]) == ([], {"too_many_steps": 1})
    spec = spec_file(tmp_path, openai_server.url, tasks=[task])
    done, rows = await rows_of(spec, tmp_path / "none")
    assert (rows, done["dropped"]) == ([], {"no_steps": 1})
    done, rows = await rows_of(spec, tmp_path / "cut", "sampler.max_tokens=1", "step_rewards={}")
    assert (rows, done["dropped"]) == ([], {"truncated": 1})


@pytest.mark.parametrize(("continued", "exit_code"), [(faithful, 0), (repairing, 3)])
@pytest.mark.parametrize("planted", [{"step": 2, "text": WRONG[1]}, {"auto": "arithmetic"}])
async def test_a_completer_that_repairs_steps_fails_its_canary(
    tmp_path: Path,
    openai_server: OpenAIServer,
    continued: Any,
    exit_code: int,
    planted: dict[str, Any],
) -> None:
    openai_server.script = script(continued)
    task = {"id": "p1", "prompt": "Problem", "gold": 285, "metadata": {"steps": RIGHT}}
    canaries = {"corrupted_steps": [{"task": "p1", **planted}]}
    spec = spec_file(tmp_path, openai_server.url, tasks=[task], canaries=canaries)
    done, rows = await rows_of(spec, tmp_path / "run")
    assert done["exit_code"] == exit_code
    [canary] = done["canaries"]["each"]
    assert canary["holds"] is (exit_code == 0)
    assert canary["evidence"]["score_at"] == exit_code / 3
    assert ("mended" in canary["evidence"].get("reason", "")) is (exit_code == 3)
    assert [row["id"] for row in rows] == ["p1"]
    assert done["n_attempts"] == 3


async def test_a_canary_corrupts_a_right_sample_where_no_solution_is_given(
    tmp_path: Path, openai_server: OpenAIServer
) -> None:
    openai_server.script = script(repairing, RIGHT)
    canaries = {"corrupted_steps": [{"task": "p1", "step": 2, "auto": "arithmetic"}]}
    spec = spec_file(tmp_path, openai_server.url, canaries=canaries, step_rewards={})
    done, _ = await rows_of(spec, tmp_path / "run")
    [canary] = done["canaries"]["each"]
    assert (canary["holds"], canary["evidence"]["text"]) == (False, "72 − 15 = 67")


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        ({"step_rewards": {"prefix_mode": "prefill"}}, "`response` schema"),
        ({"step_rewards": {"sharp_drop": 1.5}}, "step_rewards.sharp_drop"),
        ({"step_rewards": {"solutions_per_task": 4}}, "more than k = 3"),
        ({"step_rewards": {"evaluate": "processbench"}}, "needs given solutions"),
        ({"step_rewards": {"completer": {"template": "{{ prompt }}"}}}, "shows no prefix"),
        ({"canaries": {"corrupted_steps": [{"task": "p9", "auto": "arithmetic"}]}}, "'p9' is no"),
        (
            {"canaries": {"corrupted_steps": [{"task": "p1", "step": 4, "text": "x"}]}},
            "has 3 steps",
        ),
        ({"canaries": {"corrupted_steps": [{"task": "p1", "text": "x"}]}}, "needs the `step`"),
    ],
)
def test_bad_settings_are_refused_before_anything_is_spent(
    tmp_path: Path, sections: dict[str, Any], said: str
) -> None:
    spec = spec_file(tmp_path, "http://127.0.0.1:1/v1", **sections)
    with pytest.raises(SpecError, match=said):
        run(spec, tmp_path / "run", command=STEPS)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("sampler", "said"),
    [
        ({"model": "openai/gpt-4o-mini"}, "is not taken by openai/gpt-4o-mini"),
        ({"model": "direct/x", "reasoning_effort": "high"}, "think blocks"),
        ({"model": "direct/x", "chat_template_kwargs": {"enable_thinking": True}}, "think blocks"),
        ({"recorded": {"file": "replies.jsonl"}}, "recorded replies hold none"),
    ],
)
def test_prefill_on_a_model_that_does_not_take_it_is_a_fault_of_the_spec(
    tmp_path: Path, sampler: dict[str, Any], said: str
) -> None:
    section = {"prefix_mode": "prefill"}
    spec = spec_file(tmp_path, "", sampler=sampler, scorer="numeric", step_rewards=section)
    with pytest.raises(SpecError, match=said):
        run(spec, tmp_path / "run", command=STEPS)
