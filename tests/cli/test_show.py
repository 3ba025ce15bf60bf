"""`labelkit show`."""

from __future__ import annotations

from pathlib import Path

import pytest

from labelkit.errors import UsageError
from tests.recorded import invoke, printed, recorded_run, recorded_spec
from tests.runs import labelkit, run, write_lines, write_spec

REPLIES = {"a": ["yes", "no"], "b": ["no", "no"], "c": ["yes", "yes"]}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return recorded_run(tmp_path, REPLIES)


def test_the_grid_has_a_line_a_task_in_order(directory: Path) -> None:
    lines = printed("show", directory).splitlines()
    assert [line.split()[:3] for line in lines[:3]] == [
        ["a", "█░", "1/2"],
        ["b", "░░", "0/2"],
        ["c", "██", "2/2"],
    ]


@pytest.mark.parametrize(
    ("only", "ids"), [("failed", ["a", "b"]), ("passed", ["a", "c"]), ("errors", [])]
)
def test_only_keeps_tasks_with_such_an_attempt(directory: Path, only: str, ids: list[str]) -> None:
    lines = printed("show", directory, "--only", only).splitlines()
    assert [line.split()[0] for line in lines if "/2" in line] == ids


def test_a_task_shows_its_prompt_gold_and_attempts(directory: Path) -> None:
    text = printed("show", directory, "a")
    assert "Prompt a" in text
    assert "gold: yes" in text
    assert "   0 █ passed" in text
    assert "   1 ░ failed" in text
    assert "passed" not in printed("show", directory, "a", "--only", "failed").split("\n\n")[1]


def test_a_transcript_has_messages_reasoning_reply_span_verdict_and_provenance(
    tmp_path: Path,
) -> None:
    text = "<think>six times seven</think>So the answer is \\boxed{42}."
    write_lines(tmp_path / "r.jsonl", [{"q": "What is 6 × 7?", "gold": "42", "text": text}])
    spec = write_spec(
        tmp_path,
        tasks={"file": "r.jsonl", "fields": {"prompt": "q", "gold": "gold"}},
        sampler={"recorded": {"file": "r.jsonl", "text": "text"}, "system": "Be exact."},
        scorer={"numeric": {"answer": "boxed"}},
        k=1,
    )
    run(spec, tmp_path / "run")
    task_id = printed("show", tmp_path / "run").split()[0]
    shown = printed("show", tmp_path / "run", task_id, "0")
    order = [
        "[system]\nBe exact.",
        "[user]\nWhat is 6 × 7?",
        "── reasoning",
        "six times seven",
        "── reply",
        "So the answer is \\boxed{⟦42⟧}.",
        "── verdict · passed",
        "value: 1",
        "rule: ",
        "gold: 42",
        "── provenance",
        "at: ",
    ]
    places = [shown.find(part) for part in order]
    assert -1 not in places, order[places.index(-1)]
    assert places == sorted(places)


def test_what_a_model_wrote_is_plain_text(tmp_path: Path) -> None:
    hostile = "\x1b]0;owned\x07\x1b[2J[red]no[/red]\u202e"
    directory = recorded_run(tmp_path, {"a": [hostile]})
    for arguments in (["a"], ["a", "0"]):
        shown = printed("show", directory, *arguments)
        assert "\x1b" not in shown
        assert "\u202e" not in shown
        assert "[red]no[/red]" in shown


def test_a_run_that_never_finished_can_be_shown(directory: Path) -> None:
    for name in ("summary.json", "tasks.jsonl", "rows.jsonl"):
        (directory / name).unlink()
    shown = printed("show", directory)
    assert shown.splitlines()[0].split()[:3] == ["a", "█░", "1/2"]
    assert "from the ledger" in shown
    assert "── verdict · failed" in printed("show", directory, "a", "1")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["nope"], "holds no draw of a task 'nope'"), (["a", "7"], "has no sample 7")],
)
def test_what_is_not_there_is_said(directory: Path, arguments: list[str], message: str) -> None:
    error = invoke("show", directory, *arguments).exception
    assert isinstance(error, UsageError)
    assert message in str(error)
    assert error.hint


def test_a_misspelt_task_is_told_with_the_nearest(tmp_path: Path) -> None:
    directory = recorded_run(tmp_path, {"289c1f8101ec": ["yes"], "word-problem": ["no"]})
    for said, meant in (("289c", "289c1f8101ec"), ("word_problem", "word-problem")):
        error = invoke("show", directory, said).exception
        assert isinstance(error, UsageError)
        assert error.hint == f"did you mean {meant}?"


def test_unfinished_scoring_is_told_apart_from_a_wrong_answer(tmp_path: Path) -> None:
    spec = recorded_spec(tmp_path, {"a": ["yes"]})
    run(spec, tmp_path / "run")
    ledger = tmp_path / "run" / "ledger.jsonl"
    kept = [line for line in ledger.read_bytes().splitlines(True) if b'"kind":"score"' not in line]
    ledger.write_bytes(b"".join(kept))
    for name in ("summary.json", "tasks.jsonl", "index.sqlite"):
        (tmp_path / "run" / name).unlink()
    assert "not scored yet" in printed("show", tmp_path / "run", "a")
    assert "a  ·" in printed("show", tmp_path / "run")


def test_glyphs_are_printed_whatever_the_locale(directory: Path) -> None:
    done = labelkit("show", directory, LC_ALL="C", PYTHONUTF8="0", PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    assert "█░" in done.stdout
