"""Replies made elsewhere, verified in whole runs: GSM8K's published solutions, and what they cost.

The right verdicts are the data set's own: each solution carries its authors' `is_correct`.
"""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from labelkit.errors import UsageError
from tests.openai_server import OpenAIServer, Script
from tests.recorded import recorded_run
from tests.runs import (
    environment,
    go,
    labelkit,
    read_lines,
    run,
    summary,
    write_lines,
    write_spec,
)

ROOT = Path(__file__).parent.parent
SPEC = ROOT / "specs" / "gsm8k_recorded.yaml"
HEAVY = ("litellm", "aiohttp", "httpx", "openai", "xllamacpp", "sympy", "math_verify")


@pytest.fixture(scope="module")
def published() -> list[Any]:
    with gzip.open(ROOT / "data" / "gsm8k_model_solutions.jsonl.gz") as file:
        return [json.loads(line) for line in file]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, set[str]]:
    """The run's directory, and the top-level modules that it imported."""
    directory = tmp_path_factory.mktemp("gsm8k") / "run"
    command = [sys.executable, "-X", "importtime", "-m", "labelkit", "rollout", str(SPEC)]
    done = subprocess.run(
        [*command, "-o", str(directory)],
        capture_output=True,
        text=True,
        env=environment(),
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    imported = re.findall(r"^import time:.*\| +(\w+)", done.stderr, re.M)
    return directory, set(imported)


def test_published_solutions_pass_exactly_where_their_authors_say(
    finished: tuple[Path, set[str]], published: list[Any]
) -> None:
    models = ("6b_finetuning", "6b_verification", "175b_finetuning", "175b_verification")
    said = [[row[model]["is_correct"] for model in models] for row in published]
    found = [
        [outcome["state"] == "passed" for outcome in line["outcomes"]]
        for line in read_lines(finished[0] / "tasks.jsonl")
    ]
    assert found == said


def test_the_counts_of_gsm8k(finished: tuple[Path, set[str]]) -> None:
    done = summary(finished[0])
    assert (done["n_attempts"], done["n_passed"], done["n_unscored"]) == (5276, 2001, 0)
    assert done["n_scored"] == 5276
    assert done["pass_rate"] == 2001 / 5276
    right = Counter(line["n_passed"] for line in read_lines(finished[0] / "tasks.jsonl"))
    assert [right[n] for n in range(5)] == [432, 290, 236, 205, 156]
    # Chen et al. 2021: pass@2 of a task is 1 − C(n−c, 2)/C(n, 2), here with n = 4.
    assert done["pass_at_k"]["2"] == pytest.approx((290 * 3 + 236 * 5 + 361 * 6) / 6 / 1319)
    assert done["pass_at_k"]["4"] == pytest.approx((1319 - 432) / 1319)


def test_a_recorded_run_imports_no_model_library(finished: tuple[Path, set[str]]) -> None:
    imported = finished[1]
    assert "labelkit" in imported
    assert imported.isdisjoint(HEAVY)


def test_fewer_replies_than_k_are_not_failures(tmp_path: Path) -> None:
    rows = [
        {"prompt": f"q{i}", "gold": "yes", "said": ["yes", "no", "yes"][: i + 1]} for i in range(3)
    ]
    write_lines(tmp_path / "rows.jsonl", rows)
    spec = write_spec(
        tmp_path,
        tasks={"file": "rows.jsonl", "fields": {"prompt": "prompt", "gold": "gold"}},
        sampler={"recorded": {"file": "rows.jsonl", "text": "said"}},
        scorer="exact",
        k=4,
    )
    done = run(spec, tmp_path / "run")
    assert done["draws"] == {
        "planned": 12,
        "scored": 6,
        "unscored": 0,
        "not_needed": 0,
        "not_run": 6,
        "not_run_reasons": {"unavailable": 6},
    }
    assert (done["n_attempts"], done["n_passed"], done["failed"]) == (6, 4, {"wrong_answer": 2})
    assert done["exit_code"] == 0
    assert done["stopped_early"] is None
    before = (tmp_path / "run" / "summary.json").read_bytes()
    assert run(spec, tmp_path / "run")["n_attempts"] == 6
    assert (tmp_path / "run" / "summary.json").read_bytes() == before


def test_replies_that_were_appended_are_taken_and_changed_ones_refused(tmp_path: Path) -> None:
    rows = [{"task": "a", "text": "3"}, {"task": "b", "text": "4"}]
    replies = write_lines(tmp_path / "replies.jsonl", rows)
    spec = write_spec(
        tmp_path,
        tasks=[{"id": "a", "prompt": "q", "gold": 3}, {"id": "b", "prompt": "r", "gold": 3}],
        sampler={"recorded": {"file": "replies.jsonl", "id": "task", "text": "text"}},
        scorer="numeric",
    )
    first = run(spec, tmp_path / "run")
    assert (first["n_passed"], first["draws"]["not_run"]) == (1, 2)
    write_lines(replies, [*rows, {"task": "b", "text": "3"}])
    second = run(spec, tmp_path / "run")
    assert (second["n_passed"], second["draws"]["not_run"]) == (2, 1)
    write_lines(replies, [rows[0], {"task": "b", "text": "5"}, {"task": "b", "text": "3"}])
    with pytest.raises(UsageError, match="task b, sample 0: the recorded reply is another one"):
        run(spec, tmp_path / "run")
    assert run(spec, tmp_path / "run", fresh=True)["n_passed"] == 2


async def test_gsm8k_by_file_is_asked_of_any_model(
    tmp_path: Path, openai_server: OpenAIServer
) -> None:
    openai_server.script = Script(reply=r"So she makes \boxed{18} dollars.")
    overrides = ("sampler.model=direct/fake", f"sampler.api_base={openai_server.url}", "k=2")
    done = await go(ROOT / "specs" / "gsm8k.yaml", tmp_path / "run", *overrides, limit=3)
    assert (done["n_tasks"], done["n_attempts"]) == (3, 6)
    lines = read_lines(tmp_path / "run" / "tasks.jsonl")
    assert [line["n_passed"] for line in lines] == [2, 0, 0]
    rows = read_lines(tmp_path / "run" / "rows.jsonl")
    assert [row["gold"] for row in rows[::2]] == ["18", "3", "70000"]


def test_rescoring_reads_replies_from_the_ledger_alone(tmp_path: Path) -> None:
    replies = write_lines(tmp_path / "replies.jsonl", [{"task": "a", "text": "The answer is 3."}])
    spec = write_spec(
        tmp_path,
        tasks=[{"id": "a", "prompt": "q", "gold": 3}],
        sampler={"recorded": {"file": "replies.jsonl", "id": "task", "text": "text"}},
        scorer={"exact": {"answer": "whole"}},
        k=1,
    )
    assert labelkit("rollout", spec, "-o", tmp_path / "run", "-q").returncode == 0
    assert summary(tmp_path / "run")["n_passed"] == 0
    write_lines(replies, [{"task": "a", "text": "The answer is 4."}])
    again = labelkit(
        "rescore", tmp_path / "run", spec, "-o", tmp_path / "two", "--set", "scorer=numeric"
    )
    assert again.returncode == 0, again.stderr
    assert summary(tmp_path / "two")["n_passed"] == 1


def test_a_reply_that_nobody_can_check_against_the_schema_is_unscored(tmp_path: Path) -> None:
    nested: dict[str, Any] = {"items": {"$ref": "#/$defs/list"}}
    for _ in range(5):
        nested = {"allOf": [nested]}
    response = {"$defs": {"list": nested}, "$ref": "#/$defs/list"}
    deep = "[" * 95 + "]" * 95
    folder = recorded_run(
        tmp_path,
        {"t": ["[]", deep, '{"a"']},
        sampler={"recorded": {"file": "replies.jsonl", "texts": ["replies"]}, "response": response},
        scorer="exact",
    )
    done = summary(folder)
    assert done["unscored"] == {"abstained": 1}
    assert done["failed"] == {"wrong_answer": 1, "invalid_output": 1}
