"""`labelkit export`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from labelkit.errors import UsageError
from tests.exports.written import run_of
from tests.recorded import invoke, printed, recorded_run
from tests.runs import labelkit, read_lines, run, summary, write_lines, write_spec

REPLIES = {"a": ["yes", "no"], "b": ["no", "no"], "c": ["yes", "yes"]}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return recorded_run(tmp_path, REPLIES)


def test_the_counts_and_the_file_are_printed(tmp_path: Path, directory: Path) -> None:
    output = tmp_path / "out.jsonl"
    assert printed("export", directory, "--to", "sft-messages", "-o", output) == (
        f"wrote 3 rows from 3 of 6 rows, left out: failed 3\nsft-messages: {output}\n"
    )
    assert len(read_lines(output)) == 3


def test_json_prints_the_report(tmp_path: Path, directory: Path) -> None:
    report = json.loads(
        printed("export", directory, "--to", "dpo", "-o", tmp_path / "out.jsonl", "--json")
    )
    assert report["written"] == 1
    assert report["counts"]["left_out"] == {"no_passed": 1, "no_wrong": 1}


def test_an_empty_export_exits_3_and_writes_nothing(tmp_path: Path) -> None:
    run_directory = recorded_run(tmp_path, {"a": ["no", "no"]})
    output = tmp_path / "out.jsonl"
    done = labelkit("export", run_directory, "--to", "sft-messages", "-o", output)
    assert done.returncode == 3
    assert done.stdout == (
        "wrote 0 rows from 0 of 2 rows, left out: failed 2\nno file: nothing fits this format\n"
    )
    assert not list(tmp_path.glob("*out*"))


@pytest.mark.parametrize(
    ("arguments", "said", "fix"),
    [
        (["--to", "dop"], "--to dop: is no format", "did you mean dpo?"),
        (["--to", "dpo", "--data-source", "x"], "--data-source: is not for dpo", "--max-pairs"),
        (["--to", "verl", "--reasoning", "drop"], "--reasoning: is not for verl", "--prompt"),
        (["--to", "sft-messages", "--max-pairs", "2"], "--max-pairs: is not for", "--system"),
    ],
)
def test_what_makes_no_sense_is_refused(
    tmp_path: Path, directory: Path, arguments: list[str], said: str, fix: str
) -> None:
    done = invoke("export", directory, *arguments, "-o", tmp_path / "out.jsonl")
    assert isinstance(done.exception, UsageError)
    assert said in str(done.exception)
    assert fix in str(done.exception.hint)


def test_a_directory_that_is_no_finished_run_is_refused(tmp_path: Path, directory: Path) -> None:
    output = tmp_path / "out.jsonl"
    done = invoke("export", tmp_path, "--to", "dpo", "-o", output)
    assert "is not a run directory" in str(done.exception)
    (directory / "summary.json").unlink()
    done = invoke("export", directory, "--to", "dpo", "-o", output)
    assert "the run has not finished" in str(done.exception)


def test_an_incomplete_run_is_exported_with_a_warning(tmp_path: Path) -> None:
    """A recorded draw that failed is unscored; over max_unscored of them the run exits 4."""
    refused = {"custom_id": "a", "response": {"status_code": 500, "body": {}}}
    said = {"message": {"role": "assistant", "content": "yes"}, "finish_reason": "stop"}
    good = {"custom_id": "b", "response": {"status_code": 200, "body": {"choices": [said]}}}
    write_lines(tmp_path / "batch.jsonl", [refused, good])
    spec = write_spec(
        tmp_path,
        tasks=[{"id": name, "prompt": "Say yes.", "gold": "yes"} for name in "ab"],
        sampler={"recorded": {"file": "batch.jsonl", "id": "custom_id"}},
        k=1,
    )
    assert run(spec, tmp_path / "run")["exit_code"] == 4
    done = labelkit("export", tmp_path / "run", "--to", "sft-messages", "-o", tmp_path / "o.jsonl")
    assert done.returncode == 0
    assert "warning: the run is incomplete: 1 of 2 attempts are unscored" in done.stderr
    assert len(read_lines(tmp_path / "o.jsonl")) == 1


def test_a_failed_gate_is_told_and_does_not_fail_the_export(tmp_path: Path) -> None:
    directory = run_of(tmp_path, {"replies": ["yes", "no"]}, gates=["pass_rate > 0.9"])
    assert summary(directory)["exit_code"] == 3
    done = labelkit("export", directory, "--to", "dpo", "-o", tmp_path / "out.jsonl")
    assert done.returncode == 0
    assert done.stderr == "warning: a gate of the run failed: pass_rate > 0.9\n"
