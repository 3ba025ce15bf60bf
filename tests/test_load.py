"""Whole runs under load on a real server: dead keys, dying servers, refusals, many calls."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from labelkit.ledger import records
from tests.openai_server import Ask, OpenAIServer, Rule, Script
from tests.runs import (
    ServerProcess,
    read_lines,
    run,
    serving,
    start,
    summary,
    write_lines,
    write_spec,
)

YES = Script(reply="yes {key}")


def spec_file(
    folder: Path,
    servers: Iterable[OpenAIServer | ServerProcess],
    n_tasks: int,
    k: int = 2,
    gold: Any = "yes",
    scorer: Any = None,
    **sampler: Any,
) -> Path:
    write_lines(
        folder / "tasks.jsonl",
        ({"id": f"t{i}", "prompt": f"{i}: say yes", "gold": gold} for i in range(n_tasks)),
    )
    urls = [server.url for server in servers]
    return write_spec(
        folder,
        tasks={"file": "tasks.jsonl"},
        sampler={"model": "direct/fake", "api_base": urls, **sampler},
        scorer=scorer or {"contains": {"mention": "anywhere"}},
        k=k,
    )


async def go(*arguments: Any, **options: Any) -> Any:
    return await asyncio.to_thread(run, *arguments, **options)


async def holds(condition: Callable[[], bool], within_s: float = 30) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


async def test_a_dead_key_stops_ten_thousand_tasks_after_one_probe(tmp_path: Path) -> None:
    async with OpenAIServer(Script(api_key="right")) as server:
        done = await go(spec_file(tmp_path, [server], 10_000), tmp_path / "run")
        assert len(server.calls) == 1
    assert done["stopped_early"] == "fatal"
    assert done["exit_code"] == 4
    assert "401" in done["incomplete"][0]
    assert done["draws"]["planned"] == 20_000


async def test_a_server_that_dies_opens_the_breaker_and_the_run_resumes_from_there(
    tmp_path: Path,
) -> None:
    in_flight, alive = 8, 100
    dead = Script(reply="yes {key}", latency_ms=5, rules=[Rule(fault="refuse", after=alive + 1)])
    async with OpenAIServer(dead) as server:
        spec = spec_file(tmp_path, [server], 60, k=4, concurrency=in_flight)
        directory = tmp_path / "run"
        process = start("rollout", spec, "-o", directory, "-q")
        try:
            await holds(lambda: len(server.calls) >= alive + 20)
            # Its tries fail one after another, each after a wait; then nothing more goes out.
            seen = 0
            while seen != len(server.calls):
                seen = len(server.calls)
                await asyncio.sleep(5)
            assert alive + 20 <= seen <= alive + 20 + in_flight
            process.send_signal(signal.SIGINT)
            assert await asyncio.to_thread(process.wait, 30) == 130
        finally:
            process.kill()
        stopped = summary(directory)
        assert stopped["stopped_early"] == "interrupted"
        assert stopped["n_passed"] == alive
        server.script = YES
        done = await go(spec, directory)
        assert len(server.calls) == seen + 240 - alive
    assert done["n_passed"] == 240
    assert done["exit_code"] == 0


async def test_a_server_process_that_is_killed_loses_nothing(tmp_path: Path) -> None:
    """Nobody listens any more, and what was in flight is cut off."""
    in_flight, n_draws = 8, 240
    script = {"reply": "yes {key}", "latency_ms": 20}
    directory = tmp_path / "run"

    def journalled(kind: str) -> int:
        ledger = directory / "ledger.jsonl"
        if not ledger.exists():
            return 0
        return sum(record["kind"] == kind for _, _, record in records(ledger))

    with serving(tmp_path, script) as server:
        spec = spec_file(tmp_path, [server], n_draws // 4, k=4, concurrency=in_flight)
        process = start("rollout", spec, "-o", directory, "-q")
        try:
            await holds(lambda: journalled("completion") >= 50)
            server.process.kill()
            server.process.wait(10)
            sent = 0
            while sent != journalled("sent"):
                sent = journalled("sent")
                await asyncio.sleep(5)
            answered = journalled("completion")
            assert 20 <= sent - answered <= 20 + in_flight
            process.send_signal(signal.SIGINT)
            assert await asyncio.to_thread(process.wait, 30) == 130
        finally:
            process.kill()
        assert summary(directory)["n_passed"] == answered < n_draws
    port = int(server.url.rsplit(":", 1)[1].removesuffix("/v1"))
    with serving(tmp_path, script, port=port):
        done = await go(spec, directory)
    assert (done["n_passed"], done["exit_code"]) == (n_draws, 0)
    assert journalled("completion") == n_draws


async def test_the_other_replica_takes_over_and_nothing_is_lost(tmp_path: Path) -> None:
    in_flight, alive = 8, 40
    dying = Script(reply="yes {key}", latency_ms=5, rules=[Rule(fault="refuse", after=alive + 1)])
    async with OpenAIServer(YES) as one, OpenAIServer(dying) as other:
        spec = spec_file(tmp_path, [one, other], 60, k=4, concurrency=in_flight)
        done = await go(spec, tmp_path / "run")
        assert len(other.calls) <= alive + 20 + in_flight
    assert done["n_passed"] == 240
    assert done["exit_code"] == 0
    slots = {(row["id"], row["sample_index"]) for row in read_lines(tmp_path / "run/rows.jsonl")}
    assert len(slots) == 240


async def test_five_hundred_calls_wait_at_once_and_none_times_out(tmp_path: Path) -> None:
    """No pool of the client is in the way: whoever waits there would time out there."""
    script = Script(reply="yes {key}", latency_ms=1000)
    async with OpenAIServer(script) as server:
        spec = spec_file(tmp_path, [server], 500, k=6, concurrency=500, timeout_s=4.0, max_tries=1)
        done = await go(spec, tmp_path / "run")
        assert server.max_in_flight >= 450
    assert done["n_passed"] == 3000
    assert done["n_unscored"] == 0


async def test_a_thousand_attempts_stay_small_on_disk_and_leave_no_file_open(
    tmp_path: Path,
) -> None:
    """Disk: at most 2.2 times the reply text and 2 kB an attempt; a tenth are 20 kB long."""

    def reply(ask: Ask) -> str:
        size = 20_000 if ask.chance("size") < 0.1 else 200
        return f"{ask.key} ".ljust(size, "x") + ".\nThe answer is 7."

    def open_files() -> int:
        return len(os.listdir("/proc/self/fd"))

    async with OpenAIServer(Script(reply=reply)) as server:
        spec = spec_file(tmp_path, [server], 125, k=8, gold=7, scorer="numeric", concurrency=64)
        await go(spec, tmp_path / "warm", limit=1)
        before = open_files()
        done = await go(spec, tmp_path / "run")
        await holds(lambda: open_files() <= before + 2)
        texts = sum(len(call.text or "") for call in server.calls[8:])
    assert done["n_passed"] == 1000
    on_disk = sum(each.stat().st_size for each in (tmp_path / "run").iterdir())
    assert on_disk <= 2.2 * texts + 2_000 * 1000


async def test_tasks_are_taken_up_as_their_draws_go_out(tmp_path: Path) -> None:
    """However many tasks could be under way, their draws do not pile up before the limit."""
    async with OpenAIServer(Script(reply="yes {key}", latency_ms=20)) as server:
        spec = spec_file(
            tmp_path,
            [server],
            200,
            k=20,
            concurrency=10,
            max_tokens=2,
            price={"input_per_mtok": 1, "output_per_mtok": 1},
        )
        cap_usd = 4000e-6
        done = await go(spec, tmp_path / "run", f"budget={cap_usd}", "max_unscored=1.0")
    assert done["stopped_early"] == "budget"
    lines = read_lines(tmp_path / "run" / "tasks.jsonl")
    begun = [line for line in lines if line["n_scored"]]
    assert 3 <= len(begun) <= 100
    # One task's draws are in flight, those of another wait; a third may have come in between.
    taken_up = {record["task"] for _, _, record in records(tmp_path / "run" / "ledger.jsonl")}
    assert len(taken_up) <= len(begun) + 2
