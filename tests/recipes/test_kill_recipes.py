"""Every recipe killed at random moments and run again: the bytes of an uninterrupted run, and no
call bought twice beyond those in flight; judges' votes, prefixes and canaries included."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.runs import comparable, environment, labelkit, start, write_spec

KILLS, IN_FLIGHT, N_TASKS, K = 3, 4, 6, 4

JUDGED, COMPARED = "=== BEGIN REPLY", "=== BEGIN REPLY A"
SCRIPT: dict[str, Any] = {
    "reply": "First, {key}.\n\nThen more.\n\nSo the answer is {answer} ({key}).",
    "gold": r"gold=(?P<gold>\d+) share=(?P<share>[\d.]+)",
    "wrong": "nothing",
    "latency_ms": [15, 45],
    "rules": [
        {"contains": COMPARED, "change": {"reply": '{"reason": "=", "better": "A"}'}},
        {"contains": "answer is nothing", "change": {"reply": '{"reason": "-", "score": 2}'}},
        {"contains": JUDGED, "change": {"reply": '{"reason": "+", "score": 5}'}},
    ],
}


class Server(NamedTuple):
    url: str
    log: Path

    def seeds(self) -> Counter[int]:
        """How often each draw was asked for: its seed tells it, whatever nonce its text has."""
        lines = [json.loads(line) for line in self.log.read_bytes().splitlines()]
        return Counter(line["body"]["seed"] for line in lines if line.get("event") == "call")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    script, log = tmp_path / "script.json", tmp_path / "calls.jsonl"
    script.write_text(json.dumps(SCRIPT))
    command = [sys.executable, "-m", "tests.openai_server"]
    process = subprocess.Popen(
        [*command, "--script", str(script), "--log", str(log)],
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
    tasks = [
        {"id": f"t{i}", "prompt": f"gold={i} share={i % 3 / 2}", "gold": f"is {i} ("}
        for i in range(N_TASKS)
    ]
    at: dict[str, Any] = {"api_base": server.url, "concurrency": IN_FLIGHT}
    scale = {"min": 1, "max": 5}
    judge = {"model": "direct/judge", "rubric": "5 is best", "scale": scale, **at}
    return write_spec(
        folder,
        tasks=tasks,
        sampler={"model": "direct/fake", "seed": 7, **at},
        k=K,
        verify_traces={"want": 2},
        rl_select={"replicate": 3},
        best_of_n={"bar": 4, "mode": "pairwise", "judge": {**judge, "votes": 1}},
        canaries={
            "anchors": [{"id": "easy", "prompt": "gold=1 share=1.0", "gold": "is 1 ("}],
            "wrong": [{"task": "t1", "reply": "So the answer is nothing."}],
        },
    )


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "command", ["learning-zone", "verify-traces", "rl-select", "best-of-n", "step-rewards"]
)
def test_a_killed_run_ends_like_an_uninterrupted_one(
    tmp_path: Path, server: Server, command: str
) -> None:
    spec = spec_file(tmp_path, server)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    done = labelkit(command, spec, "-o", whole, "-q")
    assert done.returncode in (0, 3), done.stderr
    planned = server.seeds()
    assert set(planned.values()) == {1}
    rng = random.Random(command)
    moments = sorted(rng.sample(range(1, len(planned)), KILLS))
    for moment in moments:
        process = start(command, spec, "-o", killed, "-q")
        assert _killed_at(process, killed / "ledger.jsonl", moment)
    again = labelkit(command, spec, "-o", killed, "-q")
    assert again.returncode == done.returncode, again.stderr
    assert comparable(killed) == comparable(whole)
    bought = server.seeds() - planned
    assert set(bought) == set(planned)
    # The policy and the judge each have their own slots.
    assert bought.total() - len(planned) <= KILLS * 2 * IN_FLIGHT


def _killed_at(process: subprocess.Popen[bytes], ledger: Path, moment: int) -> bool:
    """SIGKILL once the ledger holds so many completions; False where the process ended before."""
    while process.poll() is None:
        if ledger.exists() and ledger.read_bytes().count(b'"kind":"completion"') >= moment:
            process.kill()
            break
        time.sleep(0.002)
    process.wait(10)
    assert process.stderr is not None
    process.stderr.close()
    return process.returncode == -signal.SIGKILL
