"""The sums of a run hold whatever the provider, the scorer and the user's patience do.

A run's own check of its sums is not relied on: they are formed anew from the files and compared
with what the server counted.
"""

from __future__ import annotations

import asyncio
import random
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest

from labelkit.plan import Permissions
from tests.openai_server import OpenAIServer, Rule, Script
from tests.openai_server.script import FaultName
from tests.runs import go, read_lines, start, summary, write_lines, write_spec

N_TASKS, K = 14, 3
FATAL = ("insufficient_quota", "unauthorized", "payment_required", "forbidden", "unknown_model")
SLOW = ("hang", "slow_loris", "big")
PASSING = [name for name in get_args(FaultName) if name not in (*FATAL, *SLOW)]
ALLOWED: Any = {"permissions": Permissions(allow_code=True)}
SCORER = """
def f(attempt, gold):
    if "3" in attempt.text[-9:]:
        raise RuntimeError("no verdict")
    return "a" in attempt.text[-9:]
"""


def random_script(rng: random.Random) -> Script:
    rules = [
        Rule(fault=fault, share=rng.uniform(0.02, 0.1), per_try=rng.random() < 0.5)
        for fault in rng.sample(PASSING, rng.randint(1, 6))
    ]
    rules.append(Rule(change={"finish_reason": "length"}, share=0.1))
    rules.append(Rule(change={"reply": " "}, share=0.1))
    if rng.random() < 0.5:
        rules.insert(0, Rule(fault=rng.choice(FATAL), after=rng.randint(1, N_TASKS * K)))
    return Script(
        reply="some reply {key} {answer}", gold=r"gold=(?P<gold>\w+)", latency_ms=(0, 20),
        rules=rules,
    )  # fmt: skip


def spec_file(folder: Path, server: OpenAIServer, rng: random.Random) -> Path:
    (folder / "s.py").write_text(SCORER)
    write_lines(
        folder / "tasks.jsonl",
        (
            {"id": f"t{i}", "prompt": f"question gold={i % 11}", "gold": i % 11}
            for i in range(N_TASKS)
        ),
    )
    return write_spec(
        folder,
        tasks={"file": "tasks.jsonl", "dedupe": rng.random() < 0.5},
        sampler={
            "model": "direct/fake",
            "api_base": server.url,
            "max_tries": 2,
            "concurrency": rng.choice([1, 4, 16]),
            "seed": 1,
        },
        scorer=rng.choice([{"contains": {"mention": "anywhere"}}, "numeric", "exact"])
        if rng.random() < 0.5
        else {"python": "s.py:f"},
        on_truncated=rng.choice(["fail", "unscored"]),
        k=K,
        max_unscored=1.0,
    )


async def holds(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def check_sums(directory: Path) -> Any:
    """Form the sums of DESIGN §2 from the files; returns the summary."""
    done = summary(directory)
    rows, dropped, lines = (
        read_lines(directory / f"{name}.jsonl") for name in ("rows", "dropped", "tasks")
    )
    states: Counter[str] = Counter()
    reasons: dict[str, Counter[str]] = {"unscored": Counter(), "failed": Counter()}
    for line in lines:
        for each in line["outcomes"]:
            states[each["state"]] += 1
            if each["state"] != "passed":
                wrong = each["state"] == "failed" and each["stop_reason"] == "completed"
                reasons[each["state"]]["wrong_answer" if wrong else each["stop_reason"]] += 1
        assert len(line["outcomes"]) == line["n_scored"] + line["n_unscored"]
        assert len(line["outcomes"]) + line["n_not_run"] == K
    tasks, draws, kept = done["tasks"], done["draws"], done["rows"]
    assert tasks["in"] == sum(tasks[s] for s in ("kept", "dropped", "undecided", "not_run"))
    assert tasks["in"] == N_TASKS
    assert draws["planned"] == len(lines) * K
    assert draws["planned"] == sum(
        draws[part] for part in ("scored", "unscored", "not_needed", "not_run")
    )
    assert kept["candidates"] == kept["kept"] + kept["dropped"]
    assert (kept["kept"], kept["dropped"]) == (len(rows), len(dropped))
    assert done["dropped"] == dict(Counter(each["reason"] for each in dropped))
    assert done["n_passed"] == states["passed"]
    assert done["n_scored"] == draws["scored"] == states["passed"] + states["failed"]
    assert done["n_unscored"] == draws["unscored"] == states["unscored"]
    assert (done["unscored"], done["failed"]) == (
        dict(reasons["unscored"]),
        dict(reasons["failed"]),
    )
    # A row holds a whole answer: nothing cut, empty or unscored is ever kept.
    assert all(row["stop_reason"] == "completed" and row["text"].strip() for row in rows)
    assert len({(row["id"], row["sample_index"]) for row in rows}) == len(rows)
    return done


@pytest.mark.parametrize("seed", range(10))
async def test_sums_hold_under_any_mix_of_faults(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    async with OpenAIServer(random_script(rng)) as server:
        spec = spec_file(tmp_path, server, rng)
        await go(spec, tmp_path / "run", **ALLOWED)
        done = check_sums(tmp_path / "run")
        replies = sum(call.status == 200 and call.fault is None for call in server.calls)
        assert done["stages"].get("candidate", {}).get("calls", 0) >= replies
        # Once the provider is well, what is owed is drawn, and only that.
        server.script = Script(reply="some reply {key} 1")
        before = len(server.calls)
        await go(spec, tmp_path / "run", retry_errors=True, **ALLOWED)
        done = check_sums(tmp_path / "run")
        assert done["draws"]["not_run"] == 0
        assert len(server.calls) - before <= done["draws"]["planned"] - replies
        assert done["n_attempts"] == done["draws"]["planned"]


@pytest.mark.parametrize("seed", range(100, 104))
async def test_sums_hold_for_interrupted_runs(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    async with OpenAIServer(random_script(rng)) as server:
        spec = spec_file(tmp_path, server, rng)
        directory = tmp_path / "run"
        ledger, size = directory / "ledger.jsonl", 0
        for _ in range(2):
            process = start("rollout", spec, "-o", directory, "-q", "--allow-code")
            await holds(lambda: process.poll() is not None or _size(ledger) != size)  # noqa: B023
            await asyncio.sleep(rng.uniform(0.0, 0.6))
            number = rng.choice([signal.SIGINT, signal.SIGTERM])
            process.send_signal(number)
            _, errors = await asyncio.to_thread(process.communicate, timeout=60)
            size = _size(ledger)
            assert b"Traceback" not in errors, errors.decode()
            assert process.returncode in (0, 3, 4, 130, 143, -number)
            if (directory / "summary.json").exists():
                check_sums(directory)
        server.script = Script(reply="some reply {key} 1")
        await go(spec, directory, retry_errors=True, **ALLOWED)
        done = check_sums(directory)
        assert done["draws"]["not_run"] == 0
        assert done["provenance"]["complete"]
