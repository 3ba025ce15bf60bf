"""--pilot: some tasks in full first, a projection of the whole, and perhaps the end."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from labelkit.errors import SpecError
from labelkit.pilot import Pilot, choose
from labelkit.records import Task
from tests.openai_server import OpenAIServer, Rule, Script
from tests.runs import Silent, comparable, run, write_lines, write_spec

K = 4
PRICE = {"input_per_mtok": 1.0, "output_per_mtok": 10.0}


@pytest.fixture
async def server() -> AsyncIterator[OpenAIServer]:
    """Answers with 10 tokens, those to even tasks right; 1000 tokens a prompt."""
    usage = {"prompt_tokens": 1000, "completion_tokens": 10, "total_tokens": 1010}
    script = Script(reply="yes {key}", usage=usage, rules=[
        Rule(contains="odd", change={"reply": "no {key}"})
    ])  # fmt: skip
    async with OpenAIServer(script) as each:
        yield each


def spec_file(folder: Path, server: OpenAIServer, n_tasks: int = 30) -> Path:
    write_lines(
        folder / "tasks.jsonl",
        (
            {"id": f"t{i}", "prompt": f"{i} {'odd' if i % 2 else 'even'}", "gold": "yes"}
            for i in range(n_tasks)
        ),
    )
    sampler = {"model": "direct/fake", "api_base": server.url, "seed": 1, "price": PRICE}
    return write_spec(folder, tasks={"file": "tasks.jsonl"}, sampler=sampler, k=K)


async def go(*arguments: Any, **options: Any) -> Any:
    return await asyncio.to_thread(run, *arguments, **options)


async def test_the_pilot_comes_first_and_its_draws_are_kept(
    tmp_path: Path, server: OpenAIServer
) -> None:
    spec = spec_file(tmp_path, server)
    progress = Silent()
    done = await go(spec, tmp_path / "run", pilot=5, progress=progress)
    assert done["exit_code"] == 0
    prompts = [call.body["messages"][0]["content"] for call in server.calls]
    assert set(Counter(prompts[: 5 * K]).values()) == {K}
    assert Counter(prompts) == dict.fromkeys(prompts, K)
    assert len(prompts) == 30 * K
    await go(spec, tmp_path / "whole")
    assert comparable(tmp_path / "run") == comparable(tmp_path / "whole")


async def test_the_pilot_tells_what_the_whole_will_take(
    tmp_path: Path, server: OpenAIServer
) -> None:
    spec = spec_file(tmp_path, server)
    progress = Silent()
    done = await go(spec, tmp_path / "run", pilot=6, progress=progress)
    said = "\n".join(progress.messages)
    assert "pilot: 6 of 30 tasks, 24 attempts" in said
    # 120 calls of 1000 tokens in and 10 out: 0.0011 USD each.
    assert "121,200 ± 0 tokens" in said
    assert "$0.13 ± $0.00" in said
    assert done["cost_usd"] == pytest.approx(0.132)
    assert "p50 10, p95 10" in said
    assert re.search(r"\d s at this speed", said)
    block = done["provenance"]["pilot"]
    assert (block["n_tasks"], block["n_tasks_of_the_whole"], block["n_attempts"]) == (6, 30, 24)
    assert block["projected_tokens"] == 121_200
    assert block["projected_cost_usd"] == pytest.approx(0.132)


async def test_stop_if_ends_after_the_pilot_and_the_run_goes_on_without_it(
    tmp_path: Path, server: OpenAIServer
) -> None:
    good = server.script
    server.script = good.model_copy(update={"finish_reason": "length", "rules": []})
    spec = spec_file(tmp_path, server)
    stop = {"pilot": 5, "stop_if": ["unscored > 0.5", "truncated > 0.1"]}
    done = await go(spec, tmp_path / "run", **stop)
    assert done["exit_code"] == 4
    assert done["stopped_early"] == "pilot"
    assert "truncated > 0.1: it is 1" in done["incomplete"][0]
    assert len(server.calls) == done["n_attempts"] == 5 * K
    again = await go(spec, tmp_path / "run", **stop)
    assert again["stopped_early"] == "pilot"
    assert len(server.calls) == 5 * K
    server.script = good
    done = await go(spec, tmp_path / "run", "max_unscored=1.0")
    assert done["exit_code"] == 0
    assert len(server.calls) == 30 * K


async def test_a_pilot_that_a_budget_cuts_short_tells_what_was_drawn(
    tmp_path: Path, server: OpenAIServer
) -> None:
    progress = Silent()
    spec = spec_file(tmp_path, server)
    # A call costs 0.0011 USD; its worst case is more.
    settings = ["budget=0.02", "sampler.max_tokens=20", "sampler.concurrency=1"]
    done = await go(spec, tmp_path / "run", *settings, pilot=20, progress=progress)
    assert done["stopped_early"] == "budget"
    n = done["n_attempts"]
    assert 4 < n < 20
    said = "\n".join(progress.messages)
    assert f"tasks, {n} attempts" in said
    assert f"cut short: {80 - n} of its draws were not run" in said
    block = done["provenance"]["pilot"]
    assert (block["n_attempts"], block["n_not_run"]) == (n, 80 - n)
    assert block["n_tasks"] == sum(block["tasks_by_passed"].values()) <= n // 4
    assert len(server.calls) == n


async def test_the_pilot_names_what_its_attempts_failed_of(
    tmp_path: Path, server: OpenAIServer
) -> None:
    server.script = Script(
        reply="no", rules=[Rule(contains="even", change={"reply": "yes"}),
                           Rule(contains="7 odd", change={"finish_reason": "length"})],
    )  # fmt: skip
    progress = Silent()
    spec, judged = spec_file(tmp_path, server, 10), "scorer={exact: {answer: whole}}"
    done = await go(spec, tmp_path / "run", judged, pilot=10, progress=progress)
    said = "\n".join(progress.messages)
    assert "  wrong_answer 40.0%, truncated 10.0%" in said
    block = done["provenance"]["pilot"]
    assert (block["wrong_answer"], block["truncated"], block["pass_rate"]) == (0.4, 0.1, 0.5)
    assert block["tasks_by_passed"] == {"0": 5, "4": 5}


async def test_a_run_without_a_pilot_has_no_block_of_it(
    tmp_path: Path, server: OpenAIServer
) -> None:
    done = await go(spec_file(tmp_path, server, n_tasks=2), tmp_path / "run")
    assert done["provenance"]["pilot"] is None


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"pilot": 5, "stop_if": ["truncatd > 0.1"]}, "did you mean `truncated`"),
        ({"pilot": 5, "stop_if": ["truncated"]}, "operator"),
        ({"stop_if": ["truncated > 0.1"]}, "--pilot"),
    ],
)
async def test_a_condition_that_cannot_be_judged_is_refused_before_spending(
    tmp_path: Path, server: OpenAIServer, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(SpecError, match=said):
        await go(spec_file(tmp_path, server), tmp_path / "run", **options)
    assert server.calls == []


def test_the_choice_is_random_but_the_same_each_time() -> None:
    tasks = [Task(id=f"t{i}", prompt="x") for i in range(1000)]
    chosen = {task.id for task in choose(iter(tasks), 100)}
    assert chosen == {task.id for task in choose(reversed(tasks), 100)}
    assert 30 <= sum(int(each[1:]) < 500 for each in chosen) <= 70


def test_quantiles_are_of_the_replies_themselves() -> None:
    pilot = Pilot(n_tasks=10, output_tokens=[*range(1, 101)])
    assert pilot.numbers()["output_tokens_p50"] == 50
    assert pilot.numbers()["output_tokens_p95"] == 95
