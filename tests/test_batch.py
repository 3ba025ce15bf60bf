"""--batch: nothing is submitted twice, and the rows are those of a direct run."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import subprocess
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from labelkit.errors import SpecError, UsageError
from tests.openai_server import OpenAIServer, Rule, Script
from tests.runs import Silent, comparable, run, start, write_lines, write_spec

N_TASKS, K = 6, 4
GOLD = r"gold=(?P<gold>\d+) share=(?P<share>[\d.]+)"
GOOD = Script(reply="the answer is {answer} ({key})", gold=GOLD, wrong="nothing")


@pytest.fixture
async def server() -> AsyncIterator[OpenAIServer]:
    async with OpenAIServer(GOOD) as each:
        yield each


def spec_file(folder: Path, server: OpenAIServer, **sections: Any) -> Path:
    write_lines(
        folder / "tasks.jsonl",
        (
            {"id": f"t{i}", "prompt": f"gold={i} share=0.5", "gold": f"is {i} ("}
            for i in range(N_TASKS)
        ),
    )
    sampler = {
        "model": "openai/fake",
        "api_base": server.url,
        "seed": 1,
        "max_tokens": 20,
        "price": {"input_per_mtok": 1.0, "output_per_mtok": 2.0},
        "batch": {"poll_s": 0.05, "max_requests": 10},
        **sections.pop("more", {}),
    }
    return write_spec(
        folder, **{"tasks": {"file": "tasks.jsonl"}, "sampler": sampler, "k": K, **sections}
    )


async def go(*arguments: Any, **options: Any) -> Any:
    return await asyncio.to_thread(run, *arguments, **options)


def submitted(server: OpenAIServer) -> list[str]:
    """The seeds of all rows of all batches: a draw each."""
    files = [
        server.batches.files[each["input_file_id"]] for each in server.batches.batches.values()
    ]
    lines = [json.loads(line) for file in files for line in file.splitlines()]
    return [str(line["body"]["seed"]) for line in lines]


async def test_rows_equal_those_of_the_direct_run(tmp_path: Path, server: OpenAIServer) -> None:
    spec = spec_file(tmp_path, server)
    await go(spec, tmp_path / "direct")
    server.script = GOOD.model_copy(update={"batch_polls": 3})
    calls = len(server.calls)
    progress = Silent()
    done = await go(spec, tmp_path / "batch", batch=True, progress=progress)
    assert done["exit_code"] == 0
    assert [call.path for call in server.calls[calls:]] == ["/v1/batches"] * N_TASKS * K
    assert comparable(tmp_path / "batch") == comparable(tmp_path / "direct")
    bodies = [{**call.body, "messages": str(call.body["messages"])} for call in server.calls]
    as_set = {json.dumps(body, sort_keys=True) for body in bodies}
    assert len(as_set) == N_TASKS * K
    # 24 draws in files of at most 10.
    assert len(server.batches.batches) == 3
    assert any("10 draws submitted as batch-1" in said for said in progress.messages)
    assert not list((tmp_path / "batch").glob("batch-*"))


async def test_failed_rows_are_tried_again_and_refused_ones_are_final(
    tmp_path: Path, server: OpenAIServer
) -> None:
    rules = [
        Rule(fault="content_filter", contains="gold=1 "),
        Rule(fault="rate_limit", contains="gold=2 ", first_tries=1),
        Rule(fault="hang", contains="gold=3 ", first_tries=1),
    ]
    server.script = GOOD.model_copy(update={"rules": rules})
    done = await go(spec_file(tmp_path, server, max_unscored=0.5), tmp_path / "run", batch=True)
    assert done["unscored"] == {"content_filter": K}
    assert done["n_attempts"] == N_TASKS * K
    assert len(submitted(server)) == N_TASKS * K + 2 * K
    assert done["provenance"]["calls_without_an_answer"] == 0


async def test_what_batches_never_bring_is_drawn_the_ordinary_way(
    tmp_path: Path, server: OpenAIServer
) -> None:
    rules = [Rule(fault="server_error", contains="gold=2 ", first_tries=3)]
    server.script = GOOD.model_copy(update={"rules": rules})
    done = await go(spec_file(tmp_path, server), tmp_path / "run", batch=True)
    assert done["n_unscored"] == 0
    assert len(submitted(server)) == N_TASKS * K + 2 * K
    assert sum(call.path == "/v1/chat/completions" for call in server.calls) == K


@pytest.mark.parametrize("stage", ["upload", "before create", "create", "retrieve", "content"])
async def test_a_kill_at_any_stage_submits_nothing_twice(
    tmp_path: Path, server: OpenAIServer, stage: Any
) -> None:
    spec = spec_file(tmp_path, server)
    server.script = GOOD.model_copy(update={"batch_hold": stage, "batch_polls": 2})
    process = start("rollout", spec, "-o", tmp_path / "run", "--batch", "-q")
    try:
        await _held(server, stage, process)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait(10)
    server.script = GOOD.model_copy(update={"batch_polls": 2})
    if stage != "upload":
        with pytest.raises(UsageError, match="not collected"):
            await go(spec, tmp_path / "run")
    done = await go(spec, tmp_path / "run", batch=True)
    assert done["exit_code"] == 0
    assert done["n_attempts"] == N_TASKS * K
    rows = submitted(server)
    assert len(rows) == len(set(rows)) == N_TASKS * K
    assert done["provenance"]["calls_without_an_answer"] == 0
    await go(spec, tmp_path / "direct")
    assert comparable(tmp_path / "run") == comparable(tmp_path / "direct")


async def _held(server: OpenAIServer, stage: str, process: subprocess.Popen[bytes]) -> None:
    """Wait until the held call has been carried out."""
    deadline = time.monotonic() + 60
    while server.batches.held != stage:
        assert process.poll() is None, process.stderr.read() if process.stderr else ""
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


async def test_results_taken_in_part_are_not_counted_twice(
    tmp_path: Path, server: OpenAIServer
) -> None:
    """A kill between the ledger's records of one result file: each of its prefixes is resumed."""
    rules = [Rule(fault="rate_limit", contains="gold=2 ", first_tries=1)]
    server.script = GOOD.model_copy(update={"rules": rules})
    spec = spec_file(tmp_path, server, more={"batch": {"poll_s": 0.05}})
    whole = tmp_path / "run"
    kept = tmp_path / "kept"
    process = start("rollout", spec, "-o", whole, "--batch", "-q")
    server.script = server.script.model_copy(update={"batch_hold": "content"})
    try:
        await _held(server, "content", process)
    finally:
        process.kill()
        process.wait(10)
    server.script = server.script.model_copy(update={"batch_hold": None})
    shutil.copytree(whole, kept)
    before = (kept / "ledger.jsonl").stat().st_size
    await go(spec, whole, batch=True)
    full = (whole / "ledger.jsonl").read_bytes()
    cuts = [at + 1 for at in range(before, len(full)) if full[at : at + 1] == b"\n"]
    for cut in cuts[: N_TASKS * K : 7]:
        directory = tmp_path / f"cut-{cut}"
        shutil.copytree(kept, directory)
        (directory / "ledger.jsonl").write_bytes(full[:cut])
        done = await go(spec, directory, batch=True)
        assert done["n_attempts"] == N_TASKS * K
        assert done["provenance"]["calls_without_an_answer"] == 0


async def test_a_budget_holds_in_batches_too(tmp_path: Path, server: OpenAIServer) -> None:
    spec = spec_file(tmp_path, server)
    whole = await go(spec, tmp_path / "whole", batch=True)
    cap_usd = whole["cost_usd"] * 0.7
    short = await go(spec, tmp_path / "run", f"budget={cap_usd}", batch=True)
    assert short["stopped_early"] == "budget"
    assert 0 < short["provenance"]["spent_usd_at_most"] <= cap_usd
    done = await go(spec, tmp_path / "run", "budget=1.0", batch=True)
    assert done["exit_code"] == 0
    assert done["cost_usd"] == pytest.approx(whole["cost_usd"])


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        ({"more": {"model": "direct/fake"}}, "has no batch API"),
        ({"adaptive": True}, "adaptive"),
    ],
)
async def test_what_cannot_go_in_batches_is_refused_before_spending(
    tmp_path: Path, server: OpenAIServer, sections: dict[str, Any], said: str
) -> None:
    with pytest.raises(SpecError, match=said):
        await go(spec_file(tmp_path, server, **sections), tmp_path / "run", batch=True)
    assert server.calls == []


async def test_the_provider_s_rates_for_batches_count(tmp_path: Path, server: OpenAIServer) -> None:
    """gpt-4o: 2.50 and 10.00 USD a million tokens, half of it in batches."""
    server.script = GOOD.model_copy(
        update={"usage": {"prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100}}
    )
    spec = spec_file(tmp_path, server, more={"model": "openai/gpt-4o", "price": None})
    done = await go(spec, tmp_path / "run", batch=True)
    assert done["cost_usd"] == pytest.approx(N_TASKS * K * (0.00125 + 0.0005))
