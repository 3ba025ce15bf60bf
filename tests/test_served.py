"""Replicas are one policy: whoever serves another model gets no call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from labelkit.errors import UsageError
from tests.openai_server import Ask, OpenAIServer, Rule, Script
from tests.runs import read_lines, run, write_lines, write_spec

Pair = tuple[OpenAIServer, OpenAIServer]


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    async with (
        OpenAIServer(Script(reply="yes one {key}", root="org/one")) as first,
        OpenAIServer(Script(reply="yes one {key}", root="org/one")) as second,
    ):
        yield first, second


def spec_file(folder: Path, *servers: OpenAIServer, n_tasks: int = 40) -> Path:
    write_lines(
        folder / "tasks.jsonl",
        ({"id": f"t{i}", "prompt": f"{i}: say yes", "gold": "yes one"} for i in range(n_tasks)),
    )
    urls = [server.url for server in servers]
    sampler = {"model": "direct/test-model", "api_base": urls, "concurrency": 1, "max_tries": 3}
    return write_spec(folder, tasks={"file": "tasks.jsonl"}, sampler=sampler)


async def go(*arguments: Any, **options: Any) -> Any:
    return await asyncio.to_thread(run, *arguments, **options)


async def test_a_task_stays_on_its_replica_and_both_work(tmp_path: Path, pair: Pair) -> None:
    spec = spec_file(tmp_path, *pair, n_tasks=12)
    done = await go(spec, tmp_path / "run", "sampler.concurrency=50")
    assert done["n_passed"] == 24
    asked = [{call.body["messages"][0]["content"] for call in server.calls} for server in pair]
    assert min(map(len, asked)) >= 2
    assert not asked[0] & asked[1]


async def test_replicas_of_different_models_are_refused_before_spending(
    tmp_path: Path, pair: Pair
) -> None:
    pair[1].script = pair[1].script.model_copy(update={"root": "org/two"})
    with pytest.raises(UsageError, match=f"{pair[1].url} 'org/two'"):
        await go(spec_file(tmp_path, *pair), tmp_path / "run")
    assert pair[0].calls == pair[1].calls == []


def comes_back_as_another(server: OpenAIServer, after: int) -> None:
    """From that call on the server is gone once, and then serves another model."""
    other = Script(
        reply="no two {key}",
        root="org/two",
        rules=[Rule(fault="refuse", times=1)],
    )

    def reply(ask: Ask) -> str:
        if ask.number == after:
            server.script = other
        return f"yes one {ask.key}"

    server.script = server.script.model_copy(update={"reply": reply})


async def test_a_replica_that_comes_back_with_another_model_is_left_alone(
    tmp_path: Path, pair: Pair
) -> None:
    comes_back_as_another(pair[1], after=5)
    done = await go(spec_file(tmp_path, *pair), tmp_path / "run")
    assert done["n_passed"] == 80
    assert done["exit_code"] == 0
    assert len(pair[1].calls) == 6
    assert all(" one " in row["text"] for row in read_lines(tmp_path / "run" / "rows.jsonl"))


async def test_a_server_that_comes_back_with_another_model_ends_the_run(
    tmp_path: Path, pair: Pair
) -> None:
    comes_back_as_another(pair[0], after=5)
    spec = spec_file(tmp_path, pair[0])
    done = await go(spec, tmp_path / "run")
    assert done["stopped_early"] == "policy_changed"
    assert done["exit_code"] == 4
    assert "org/two" in done["incomplete"][0]
    assert done["n_passed"] == done["n_attempts"] == 5
    pair[0].script = pair[1].script
    done = await go(spec, tmp_path / "run")
    assert done["n_passed"] == 80
    assert len(pair[0].calls) == 81


async def test_a_first_run_stops_where_another_model_begins_to_answer(
    tmp_path: Path, pair: Pair
) -> None:
    """Even where the server never went away and says nothing of it in /models."""
    server = pair[0]
    swapped = Rule(after=20, change={"served_model": "other"})
    server.script = Script(reply="yes one {key}", served_model="m", rules=[swapped])
    done = await go(spec_file(tmp_path, server), tmp_path / "run")
    assert (done["exit_code"], done["stopped_early"]) == (4, "policy_changed")
    assert len(server.calls) <= 22
    again = await go(spec_file(tmp_path, server), tmp_path / "run")
    assert again["stopped_early"] == "policy_changed"
    assert len(server.calls) <= 24
