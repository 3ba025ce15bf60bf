"""`labelkit diff`: output, gates, exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from labelkit.errors import UsageError
from tests.recorded import invoke, printed, recorded_spec
from tests.runs import run


@pytest.fixture
def runs(tmp_path: Path) -> tuple[Path, Path]:
    """Two runs of one spec: all of its tasks, and all but the first."""
    spec = recorded_spec(tmp_path, {"a": ["yes", "no"], "b": ["no", "no"], "c": ["yes", "yes"]})
    run(spec, tmp_path / "run")
    run(spec, tmp_path / "base", task_ids=["b", "c"])
    return tmp_path / "run", tmp_path / "base"


def test_the_text_says_the_verdict_and_lists_unmatched_tasks(runs: tuple[Path, Path]) -> None:
    text = printed("diff", *runs)
    assert "2 tasks: 0 improved, 0 regressed, 2 the same" in text
    assert "policy    unchanged" in text
    assert "only in this run (1): a" in text
    assert ": same" in text


def test_gates_decide_the_exit_code(runs: tuple[Path, Path]) -> None:
    assert invoke("diff", *runs, "--gate", "regressed == 0").exit_code == 0
    failed = invoke("diff", *runs, "--gate", "regressed == 0", "--gate", "delta > 0.1")
    assert failed.exit_code == 3
    assert "gate delta > 0.1: 0, FAILS" in failed.stdout
    assert invoke("diff", *runs, "--gate", "every_task.delta >= -0.25").exit_code == 0


def test_json_is_one_document_with_gates_and_exit_code(runs: tuple[Path, Path]) -> None:
    done = invoke("diff", *runs, "--json", "--gate", "n_tasks > 5")
    document = json.loads(done.stdout)
    assert done.exit_code == document["exit_code"] == 3
    assert document["gates"] == [{"expr": "n_tasks > 5", "actual": 2, "holds": False}]
    assert [task["id"] for task in document["tasks"]] == ["b", "c"]


@pytest.mark.parametrize("gate", ["regresed == 0", "every_task.regressed == 0", "delta"])
def test_a_gate_that_names_nothing_is_refused_before_comparing(
    runs: tuple[Path, Path], gate: str
) -> None:
    error = invoke("diff", *runs, "--gate", gate).exception
    assert isinstance(error, UsageError)
    assert error.hint
