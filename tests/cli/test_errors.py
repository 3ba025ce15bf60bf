"""`labelkit errors`, against a provider that fails in every way."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.openai_server import OpenAIServer, Rule, Script
from tests.recorded import printed, recorded_run, recorded_spec
from tests.runs import run, write_spec


async def failing_run(folder: Path, server: OpenAIServer, *faults: str, **sampler: Any) -> Path:
    """A run with a task for each fault, and one that is answered."""
    rules = [Rule(contains=f"task {fault}", fault=fault) for fault in faults]
    server.script = Script(reply="yes", rules=rules)
    prompts = [*faults, "fine"]
    spec = write_spec(
        folder,
        tasks=[{"id": name, "prompt": f"task {name}", "gold": "yes"} for name in prompts],
        sampler={"model": "direct/fake", "api_base": server.url, "max_tries": 1, **sampler},
        scorer={"exact": {"answer": "whole"}},
        k=2,
    )
    await asyncio.to_thread(run, spec, folder / "run")
    return folder / "run"


async def test_failed_calls_stand_under_their_class_with_advice(
    tmp_path: Path, openai_server: OpenAIServer
) -> None:
    faults = ("server_error", "context_length", "garbage", "content_filter")
    directory = await failing_run(tmp_path, openai_server, *faults)
    blocks = printed("errors", directory).split(" × ")[1:]
    assert len(blocks) == 4
    by_task = {
        next(name for name in faults if f"{name} sample 0" in block): block for block in blocks
    }
    assert "500 (transient)" in by_task["server_error"]
    assert "--retry-errors" in by_task["server_error"]
    assert "(row)" in by_task["context_length"]
    assert "maximum context length" in by_task["context_length"]
    assert "(unreadable)" in by_task["garbage"]
    assert by_task["content_filter"].startswith("content_filter")
    assert "fine" not in "".join(blocks)


async def test_timeouts_say_what_to_raise(tmp_path: Path, openai_server: OpenAIServer) -> None:
    directory = await failing_run(tmp_path, openai_server, "hang", timeout_s=0.3)
    text = printed("errors", directory)
    assert text.startswith("2 × timeout")
    assert "raise sampler.timeout_s" in text
    assert f"next: labelkit show {directory} hang 0" in text


async def test_a_dead_key_is_named_as_such(tmp_path: Path, openai_server: OpenAIServer) -> None:
    directory = await failing_run(tmp_path, openai_server, "unauthorized", concurrency=1)
    text = printed("errors", directory)
    assert "401 (fatal)" in text
    assert "check the key" in text
    assert "not run: fatal" in text


def test_scorer_errors_are_grouped_by_exception(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "def score(attempt, gold):\n"
        "    if 'bad' in attempt.text:\n"
        "        raise KeyError(attempt.text)\n"
        "    return True\n"
    )
    replies = {"a": ["bad one", "bad two"], "b": ["fine", "bad three"]}
    spec = recorded_spec(tmp_path, replies, scorer={"python": "mine.py:score"})
    from labelkit.plan import Permissions

    run(spec, tmp_path / "run", permissions=Permissions(allow_code=True))
    text = printed("errors", tmp_path / "run")
    assert "3 × scorer_error · KeyError" in text
    assert "at a sample 0, a sample 1, b sample 1" in text
    assert "--retry-errors scores them again" in text


def test_nothing_wrong_is_said_so(tmp_path: Path) -> None:
    directory = recorded_run(tmp_path, {"a": ["yes", "no"]})
    assert printed("errors", directory) == "no errors: every attempt was scored\n"


def test_replies_waiting_for_a_score_are_told(tmp_path: Path) -> None:
    directory = recorded_run(tmp_path, {"a": ["yes", "no"]})
    ledger = directory / "ledger.jsonl"
    kept = [line for line in ledger.read_bytes().splitlines(True) if b'"kind":"score"' not in line]
    ledger.write_bytes(b"".join(kept))
    for name in ("summary.json", "tasks.jsonl", "index.sqlite"):
        (directory / name).unlink()
    text = printed("errors", directory)
    assert text.startswith("2 × not scored yet")


@pytest.mark.parametrize("reply", ["\x1b[2Jboom"])
def test_foreign_messages_are_plain_text(tmp_path: Path, reply: str) -> None:
    (tmp_path / "mine.py").write_text(
        "def score(attempt, gold):\n    raise ValueError(attempt.text)\n"
    )
    spec = recorded_spec(tmp_path, {"a": [reply]}, scorer={"python": "mine.py:score"})
    from labelkit.plan import Permissions

    run(spec, tmp_path / "run", permissions=Permissions(allow_code=True))
    text = printed("errors", tmp_path / "run")
    assert "boom" in text
    assert "\x1b" not in text
