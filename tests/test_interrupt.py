"""Runs that the world interrupts: signals, a full disk, readers that go away, closed streams."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.openai_server import OpenAIServer, Rule, Script
from tests.runs import environment, go, labelkit, read_lines, summary, write_lines, write_spec

N_TASKS, K = 20, 2
DEADLINE_S = 60
DISK_BYTES = 24_000


@pytest.fixture
async def server() -> AsyncIterator[OpenAIServer]:
    async with OpenAIServer(Script(reply="reply {key} " + "x" * 500, latency_ms=30)) as each:
        yield each


def spec_file(folder: Path, api_base: str, **sampler: Any) -> Path:
    write_lines(
        folder / "tasks.jsonl",
        ({"id": f"t{i}", "prompt": f"question {i}", "gold": "x"} for i in range(N_TASKS)),
    )
    settings = {"model": "direct/fake", "api_base": api_base, "seed": 1, "concurrency": 4}
    return write_spec(folder, tasks={"file": "tasks.jsonl"}, sampler={**settings, **sampler}, k=K)


async def begin(*arguments: object, **options: Any) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "labelkit",
        *map(str, arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # Under a limit on the size of files Python would leave half of a module's bytecode behind.
        env=environment(PYTHONDONTWRITEBYTECODE="1"),
        **options,
    )


async def ended(process: asyncio.subprocess.Process) -> tuple[int, str, str]:
    out, err = await asyncio.wait_for(process.communicate(), DEADLINE_S)
    assert process.returncode is not None
    assert b"Traceback" not in err, err.decode()
    assert b"Exception ignored" not in err, err.decode()
    return process.returncode, out.decode(), err.decode()


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def finish(spec: Path, directory: Path, server: OpenAIServer) -> int:
    """Run to the end; returns how many calls that took. The run must then be whole."""
    before = server.count
    done = await go(spec, directory)
    assert done["exit_code"] == 0
    assert done["n_attempts"] == N_TASKS * K
    texts = [row["text"] for row in read_lines(directory / "rows.jsonl")]
    assert len(set(texts)) == N_TASKS * K
    return server.count - before


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
async def test_one_signal_drains_and_the_same_command_goes_on(
    tmp_path: Path, server: OpenAIServer, number: signal.Signals, code: int
) -> None:
    spec = spec_file(tmp_path, server.url)
    process = await begin("rollout", spec, "-o", tmp_path / "run")
    await until(lambda: server.count >= 10)
    process.send_signal(number)
    found, out, err = await ended(process)
    assert found == code, err
    assert "stopping" in err
    done = summary(tmp_path / "run")
    assert done["stopped_early"] == "interrupted"
    assert done["exit_code"] == code
    # What was in flight came in: nothing is unscored, nothing was paid for and lost.
    assert done["n_attempts"] == done["n_scored"] == server.count < N_TASKS * K
    assert done["provenance"]["calls_without_an_answer"] == 0
    assert f"{done['n_attempts']:,}" in out
    assert await finish(spec, tmp_path / "run", server) == N_TASKS * K - done["n_attempts"]


async def test_two_signals_stop_now(tmp_path: Path, server: OpenAIServer) -> None:
    good = server.script
    server.script = good.model_copy(update={"rules": [Rule(fault="hang", after=9, delay_s=600)]})
    spec = spec_file(tmp_path, server.url)
    process = await begin("rollout", spec, "-o", tmp_path / "run")
    await until(lambda: server.count >= 12)
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    async with asyncio.timeout(DEADLINE_S):
        while b"stopping" not in await process.stderr.readline():
            pass
    process.send_signal(signal.SIGINT)
    code, _, _ = await ended(process)
    assert code == 130
    done = summary(tmp_path / "run")
    assert done["n_scored"] == 8
    assert done["unscored"] == {"cancelled": 4}
    server.script = good
    assert await finish(spec, tmp_path / "run", server) == N_TASKS * K - 8


async def test_a_signal_before_the_first_call_leaves_no_trace_of_harm(
    tmp_path: Path, server: OpenAIServer
) -> None:
    spec = spec_file(tmp_path, server.url)
    for delay_s in (0.05, 0.2, 0.4):
        process = await begin("rollout", spec, "-o", tmp_path / "run", "-q")
        await asyncio.sleep(delay_s)
        process.send_signal(signal.SIGINT)
        await asyncio.wait_for(process.communicate(), DEADLINE_S)
    assert await finish(spec, tmp_path / "run", server) <= N_TASKS * K


def limited(n_bytes: int) -> Any:
    """No file of the process may grow beyond so many bytes: a disk that is full."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, resource.RLIM_INFINITY))


async def test_a_full_disk_stops_the_run_and_holds_what_was_paid_for(
    tmp_path: Path, server: OpenAIServer
) -> None:
    spec = spec_file(tmp_path, server.url)
    process = await begin("rollout", spec, "-o", tmp_path / "run", preexec_fn=limited(DISK_BYTES))
    await until(lambda: server.count >= 6)
    await until(lambda: (tmp_path / "run" / "ledger.jsonl").stat().st_size >= DISK_BYTES)
    await asyncio.sleep(1.0)
    assert server.count < N_TASKS * K
    at_stop = server.count
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    code, _, err = await ended(process)
    assert code == 4, err
    assert summary(tmp_path / "run")["stopped_early"] == "disk"
    assert server.count == at_stop
    assert await finish(spec, tmp_path / "run", server) == N_TASKS * K - at_stop


async def test_a_disk_that_stays_full_is_told_and_the_run_can_go_on(
    tmp_path: Path, server: OpenAIServer
) -> None:
    spec = spec_file(tmp_path, server.url)
    process = await begin("rollout", spec, "-o", tmp_path / "run", preexec_fn=limited(DISK_BYTES))
    await until(lambda: server.count >= 6)
    await until(lambda: (tmp_path / "run" / "ledger.jsonl").stat().st_size >= DISK_BYTES)
    await asyncio.sleep(1.0)
    process.send_signal(signal.SIGINT)
    code, _, err = await ended(process)
    assert code in (1, 130), err
    assert not (tmp_path / "run" / "summary.json").exists()
    in_flight = 4
    assert await finish(spec, tmp_path / "run", server) <= N_TASKS * K
    assert server.count <= N_TASKS * K + in_flight


async def shell(command: str) -> tuple[str, str]:
    """Output and errors of a bash line in which `labelkit` is the command."""
    line = f'labelkit() {{ "{sys.executable}" -m labelkit "$@"; }}; {command}'
    done = await asyncio.to_thread(
        lambda: subprocess.run(
            ["bash", "-c", line],
            capture_output=True,
            text=True,
            env=environment(),
            timeout=DEADLINE_S,
            check=False,
        )
    )
    assert "Traceback" not in done.stderr, done.stderr
    assert "Exception ignored" not in done.stderr, done.stderr
    return done.stdout, done.stderr


STATUS = '; echo "status ${PIPESTATUS[0]}" >&2'


@pytest.mark.parametrize(
    "line",
    [
        "labelkit rollout {spec} -o {run} | head -c 1",
        "labelkit rollout {spec} -o {run} --json | true",
        "labelkit rollout {spec} -o {run} >&-",
        "labelkit rollout {spec} -o {run} 2>&-",
        "labelkit rollout {spec} -o {run} <&- >&- 2>&-",
        "labelkit rollout {spec} -o {run} 2>&1 >/dev/null | true",
        "labelkit rollout {spec} -o {run} 2>/dev/full",
    ],
)
async def test_a_run_outlives_whoever_watches_it(
    tmp_path: Path, server: OpenAIServer, line: str
) -> None:
    spec = spec_file(tmp_path, server.url)
    gate = ' --gate "n_passed > 0"'
    command = line.replace(" -o ", gate + " -o ").format(spec=spec, run=tmp_path / "run")
    _, err = await shell(command + '; echo "status ${PIPESTATUS[0]}" > ' + f"{tmp_path}/status")
    assert (tmp_path / "status").read_text() == "status 3\n", err
    assert summary(tmp_path / "run")["n_attempts"] == N_TASKS * K
    assert server.count == N_TASKS * K
    assert len(read_lines(tmp_path / "run" / "rows.jsonl")) == N_TASKS * K


async def test_looking_at_a_run_into_a_closed_pipe_is_quiet(
    tmp_path: Path, server: OpenAIServer
) -> None:
    spec = spec_file(tmp_path, server.url)
    await go(spec, tmp_path / "run")
    run = tmp_path / "run"
    for command in (
        f"labelkit show {run} | true",
        f"labelkit show {run} t0 | head -1",
        f"labelkit errors {run} | true",
        "labelkit schema | head -1",
        "labelkit --help | true",
        f"labelkit check {spec} | true",
        f"labelkit diff {run} {run} | true",
    ):
        _, err = await shell(command + STATUS)
        assert err == "status 0\n", command


async def test_output_that_cannot_be_written_is_an_error(
    tmp_path: Path, server: OpenAIServer
) -> None:
    spec = spec_file(tmp_path, server.url)
    _, err = await shell(f"labelkit check {spec} > /dev/full{STATUS}")
    assert "No space left" in err
    assert "status 1" in err


async def test_output_does_not_depend_on_the_locale(tmp_path: Path, server: OpenAIServer) -> None:
    spec = spec_file(tmp_path, server.url)
    await go(spec, tmp_path / "run")
    done = await asyncio.to_thread(
        lambda: labelkit("show", tmp_path / "run", LC_ALL="C", PYTHONIOENCODING="ascii")
    )
    assert done.returncode == 0, done.stderr
    assert "░" in done.stdout


async def test_a_directory_that_cannot_be_written_is_an_error_and_spends_nothing(
    tmp_path: Path, server: OpenAIServer
) -> None:
    spec = spec_file(tmp_path, server.url)
    (tmp_path / "file").write_text("mine")
    for directory in (tmp_path / "file", tmp_path / "file" / "run", Path("/proc/run")):
        done = await asyncio.to_thread(lambda: labelkit("rollout", spec, "-o", directory))  # noqa: B023
        assert done.returncode == 2, done.stderr
        assert "Traceback" not in done.stderr
        assert str(directory) in done.stderr
    assert server.count == 0
    assert (tmp_path / "file").read_text() == "mine"
    assert os.listdir(tmp_path).count("run") == 0


async def test_a_run_stopped_before_a_dead_endpoint_says_what_its_calls_failed_of(
    tmp_path: Path,
) -> None:
    spec = spec_file(tmp_path, "http://127.0.0.1:9/v1", max_tries=50)
    process = await begin("rollout", spec, "-o", tmp_path / "run")
    assert process.stderr is not None
    said = b""
    while b"failures in a row" not in said:
        line = await asyncio.wait_for(process.stderr.readline(), DEADLINE_S)
        assert line, said
        said += line
    assert b"Cannot connect to host 127.0.0.1:9" in said
    process.send_signal(signal.SIGINT)
    code, out, _ = await ended(process)
    assert code == 130
    assert "stopped by SIGINT" in out
    assert "Cannot connect to host 127.0.0.1:9" in out
    assert "Cannot connect to host 127.0.0.1:9" in labelkit("errors", tmp_path / "run").stdout
