"""Replicas are one policy: whoever serves another model gets no call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from labelkit import ledger
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


def begins_to_answer_as_another(server: OpenAIServer, after: int) -> None:
    """From that call on, with many others in flight."""
    changed = Rule(after=after, change={"served_model": "other", "reply": "yes two {key}"})
    server.script = Script(reply="yes one {key}", served_model="m", latency_ms=30, rules=[changed])


def crowded_spec(folder: Path, server: OpenAIServer) -> Path:
    spec_file(folder, server)
    return write_spec(
        folder,
        tasks={"file": "tasks.jsonl"},
        sampler={"model": "direct/test-model", "api_base": server.url, "concurrency": 16},
        scorer={"regex": "^yes"},
    )


async def test_replies_of_another_model_are_kept_for_their_cost_and_become_no_rows(
    tmp_path: Path, pair: Pair
) -> None:
    server, directory = pair[0], tmp_path / "run"
    begins_to_answer_as_another(server, after=41)
    spec = crowded_spec(tmp_path, server)
    done = await go(spec, directory)
    assert (done["exit_code"], done["stopped_early"]) == (4, "policy_changed")
    rows = read_lines(directory / "rows.jsonl")
    assert {row["text"].split()[1] for row in rows} == {"one"}
    n_others = len(server.calls) - 40
    assert n_others > 1
    assert done["n_attempts"] == done["n_passed"] == len(rows) == 40
    assert done["draws"]["not_run_reasons"] == {
        "another_model": n_others,
        "not_run": 80 - len(server.calls),
    }
    assert done["stages"]["candidate"]["calls"] == len(server.calls)
    assert b"yes two" in (directory / "ledger.jsonl").read_bytes()

    server.script = server.script.model_copy(update={"rules": []})
    again = await go(spec, directory)
    assert (again["exit_code"], again["n_passed"]) == (0, 80)
    assert again["stages"]["candidate"]["calls"] == len(server.calls) == 80 + n_others
    rows = read_lines(directory / "rows.jsonl")
    assert {row["text"].split()[1] for row in rows} == {"one"}


async def test_replies_of_another_model_than_the_source_s_are_no_rows_either(
    tmp_path: Path, pair: Pair
) -> None:
    server = pair[0]
    server.script = Script(reply="yes one {key}", served_model="m")
    spec = crowded_spec(tmp_path, server)
    await go(spec, tmp_path / "first", "k=1")
    server.script = Script(reply="yes two {key}", served_model="other")
    sources = {"sources": [tmp_path / "first"], "top_up": True}
    done = await go(spec, tmp_path / "run", **sources)
    assert done["stopped_early"] == "policy_changed"
    assert done["draws"]["not_run_reasons"]["another_model"] == len(server.calls) - 40
    rows = read_lines(tmp_path / "run" / "rows.jsonl")
    assert rows
    assert {row["text"].split()[1] for row in rows} == {"one"}


async def test_a_ledger_that_holds_them_as_completions_is_read_alike(
    tmp_path: Path, pair: Pair
) -> None:
    """As earlier versions wrote it."""
    server, directory = pair[0], tmp_path / "run"
    begins_to_answer_as_another(server, after=41)
    spec = crowded_spec(tmp_path, server)
    first = await go(spec, directory)
    path = directory / "ledger.jsonl"
    records = [dict(record) for _, _, record in ledger.records(path)]
    path.unlink()
    writer = ledger.Writer(path)
    for record in records:
        kind = "completion" if record["kind"] == "set_aside" else record["kind"]
        writer.append({**record, "kind": kind})
    writer.close()
    server.script = server.script.model_copy(update={"rules": []})
    again = await go(spec, directory)
    assert (again["exit_code"], again["n_passed"]) == (0, 80)
    assert len(server.calls) == 80 + first["draws"]["not_run_reasons"]["another_model"]
    rows = read_lines(directory / "rows.jsonl")
    assert {row["text"].split()[1] for row in rows} == {"one"}
