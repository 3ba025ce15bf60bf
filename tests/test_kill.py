"""A run killed at any moment and run again ends with the bytes of an uninterrupted one."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from labelkit.ledger import decode
from tests.runs import comparable, environment, labelkit, start, write_lines, write_spec

N_TASKS, K, IN_FLIGHT = 250, 8, 16
KILLS_SAMPLING, KILLS_FINALISING = 24, 8

SCRIPT = {
    "reply": "the answer is {answer} ({key})",
    "gold": r"gold=(?P<gold>\d+) share=(?P<share>[\d.]+)",
    "wrong": "nothing",
    "latency_ms": [20, 80],
}


class Server(NamedTuple):
    url: str
    log: Path

    def calls(self) -> list[Any]:
        """The chat calls that arrived, in order."""
        lines = [json.loads(line) for line in self.log.read_bytes().splitlines()]
        return [line for line in lines if line.get("event") == "call"]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    script, log = tmp_path / "script.json", tmp_path / "calls.jsonl"
    script.write_text(json.dumps(SCRIPT))
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "tests.openai_server",
            "--script",
            str(script),
            "--log",
            str(log),
        ],
        stdout=subprocess.PIPE,
        env=environment(),
    )
    assert process.stdout is not None
    try:
        yield Server(process.stdout.readline().decode().strip(), log)
    finally:
        process.kill()
        process.wait(10)


def spec_file(folder: Path, server: Server) -> Path:
    write_lines(
        folder / "tasks.jsonl",
        (
            {"id": f"t{i}", "prompt": f"gold={i} share={i % 5 / 4}", "gold": f"is {i}"}
            for i in range(N_TASKS)
        ),
    )
    return write_spec(
        folder,
        tasks={"file": "tasks.jsonl"},
        sampler={
            "model": "direct/fake",
            "api_base": server.url,
            "seed": 7,
            "concurrency": IN_FLIGHT,
        },
        k=K,
    )


@pytest.mark.timeout(300)
def test_a_run_killed_at_random_ends_like_an_uninterrupted_one(
    tmp_path: Path, server: Server
) -> None:
    spec = spec_file(tmp_path, server)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert labelkit("rollout", spec, "-o", whole, "-q").returncode == 0
    before = len(server.calls())
    assert before == N_TASKS * K
    rng = random.Random(20)
    for number in range(KILLS_SAMPLING):
        process = start("rollout", spec, "-o", killed, "-q")
        if number % 4:
            _await_growth(process, killed / "ledger.jsonl", rng.randrange(40_000))
        _kill(process, within_s=0.3 * rng.random())
    assert 0 < len(_completions(killed)) < N_TASKS * K
    assert labelkit("rollout", spec, "-o", killed, "-q").returncode == 0
    in_finalise = 0
    while in_finalise < KILLS_FINALISING:
        (killed / "summary.json").unlink(missing_ok=True)
        partial = killed / ".rows.jsonl.partial"
        partial.unlink(missing_ok=True)
        process = start("rollout", spec, "-o", killed, "-q")
        while process.poll() is None and not partial.exists():
            time.sleep(0.001)
        in_finalise += _kill(process, within_s=0.15 * rng.random())
    done = labelkit("rollout", spec, "-o", killed, "-q")
    assert done.returncode == 0, done.stderr
    assert comparable(killed) == comparable(whole)
    calls = len(server.calls()) - before
    assert N_TASKS * K <= calls <= N_TASKS * K + KILLS_SAMPLING * IN_FLIGHT
    done_draws = _completions(killed)
    slots = {(record["task"], record["sample_index"]) for record in done_draws}
    texts = {record["completion"]["text"] for record in done_draws}
    assert len(done_draws) == len(slots) == len(texts) == N_TASKS * K


def _await_growth(process: subprocess.Popen[bytes], ledger: Path, n_bytes: int) -> None:
    """Until the ledger has grown by so many bytes, however slow the machine is."""
    before = ledger.stat().st_size if ledger.exists() else 0
    while process.poll() is None:
        if ledger.exists() and ledger.stat().st_size > before + n_bytes:
            return
        time.sleep(0.002)


def _kill(process: subprocess.Popen[bytes], *, within_s: float) -> bool:
    """SIGKILL after a while; False where the process had ended by itself, which it must do well."""
    try:
        process.wait(within_s)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        process.wait(10)
        return True
    assert process.stderr is not None
    assert process.returncode == 0, process.stderr.read().decode()
    return False


def _completions(directory: Path) -> list[Any]:
    """The completion records of a ledger; an unterminated last line is none."""
    lines = (directory / "ledger.jsonl").read_bytes().splitlines(keepends=True)
    found: list[Any] = [decode(line) for line in lines if line.endswith(b"\n")]
    return [record for record in found if record["kind"] == "completion"]


def test_a_tail_torn_at_every_byte_of_the_last_record_is_resumed(
    tmp_path: Path, server: Server
) -> None:
    spec = spec_file(tmp_path, server)
    directory = tmp_path / "run"
    few = ("--limit", 2, "-k", 2, "-o", directory, "-q")
    assert labelkit("rollout", spec, *few).returncode == 0
    expected = comparable(directory)
    ledger = (directory / "ledger.jsonl").read_bytes()
    last = ledger[:-1].rfind(b"\n") + 1
    for cut in range(last, len(ledger), max(1, (len(ledger) - last) // 8)):
        (directory / "ledger.jsonl").write_bytes(ledger[:cut])
        done = labelkit("rollout", spec, *few)
        assert done.returncode == 0, done.stderr
        assert comparable(directory) == expected
