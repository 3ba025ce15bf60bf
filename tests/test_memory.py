"""Memory is bounded by concurrency, never by the number of tasks or attempts.

Ten times the work in processes of their own, whose peaks Linux counts. The bounds catch
anything of a kilobyte that is kept for each task; on-disk indexes have page caches that fill.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.runs import environment, summary, write_lines, write_spec

FEW, MANY = 1_000, 10_000
MORE_MB = 8.0


WATCHED = """
import re, sys
from labelkit.cli import main
try:
    main()
finally:
    status = open("/proc/self/status").read()
    sys.stderr.write("peak " + re.search(r"VmHWM:\\s+(\\d+) kB", status)[1])
"""
"""The command line, and its own peak at the end. `ru_maxrss` would not do: it begins with what the
process that started it holds."""


def peak_mb(spec: Path, directory: Path) -> float:
    """The peak memory of a whole run, which must succeed."""
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, "rollout", str(spec), "-o", str(directory), "-q"],
        capture_output=True,
        text=True,
        env=environment(),
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return int(done.stderr.rpartition("peak ")[2]) / 1024


def recorded(folder: Path, n_tasks: int, k: int) -> Path:
    folder.mkdir()
    write_lines(
        folder / "rows.jsonl",
        (
            {
                "id": f"task-{i}",
                "prompt": f"What is {i} + {i}? {'pad ' * 20}",
                "gold": 2 * i,
                "said": [f"{'step ' * 20} \\boxed{{{2 * i + (j + i) % 2}}}" for j in range(k)],
            }
            for i in range(n_tasks)
        ),
    )
    return write_spec(
        folder,
        tasks={
            "file": "rows.jsonl",
            "fields": {"id": "id", "prompt": "prompt", "gold": "gold"},
        },
        sampler={"recorded": {"file": "rows.jsonl", "text": "said"}},
        scorer={"numeric": {"answer": {"boxed": "last"}}},
        k=k,
    )


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.timeout(400)
@pytest.mark.parametrize("k", [1, 5])
def test_ten_times_the_attempts_take_no_more_memory(tmp_path: Path, k: int) -> None:
    """Sampling and finalising together, then finalising alone over a finished ledger."""
    peaks: dict[str, list[float]] = {"run": [], "finalise": []}
    for n_attempts in (FEW, MANY):
        folder = tmp_path / str(n_attempts)
        spec = recorded(folder, n_attempts // k, k)
        peaks["run"].append(peak_mb(spec, folder / "run"))
        assert summary(folder / "run")["n_scored"] == n_attempts
        (folder / "run" / "summary.json").unlink()
        peaks["finalise"].append(peak_mb(spec, folder / "run"))
        assert summary(folder / "run")["n_scored"] == n_attempts
    for what, (few_mb, many_mb) in peaks.items():
        assert many_mb <= 1.25 * few_mb, (what, peaks)
        assert many_mb <= few_mb + MORE_MB, (what, peaks)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_peak_counts_what_a_run_keeps(tmp_path: Path) -> None:
    """The measure itself: one reply of 30 MB shows."""
    folder = tmp_path / "big"
    spec = recorded(folder, 1, 1)
    few_mb = peak_mb(spec, folder / "run")
    rows = [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]
    rows[0]["said"] = ["x" * 30_000_000]
    write_lines(folder / "rows.jsonl", rows)
    assert peak_mb(spec, folder / "other") > few_mb + 30
