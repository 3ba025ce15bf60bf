"""Looking at runs in every state: finished, killed, held by another process, read-only."""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path

import pytest

from labelkit.errors import UsageError
from labelkit.ledger import Lock
from labelkit.report.run_view import RunView
from tests.recorded import recorded_run
from tests.runs import summary

REPLIES = {"a": ["yes", "no"], "b": ["no", "no"]}
FINAL = ("summary.json", "tasks.jsonl", "rows.jsonl", "dropped.jsonl")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return recorded_run(tmp_path, REPLIES)


def states(directory: Path) -> dict[str, list[str]]:
    with RunView(directory) as view:
        return {
            line["id"]: [outcome["state"] for outcome in line["outcomes"]] for line in view.lines()
        }


EXPECTED = {"a": ["passed", "failed"], "b": ["failed", "failed"]}


def test_a_run_killed_before_its_files_were_written_is_read_from_the_ledger(
    directory: Path,
) -> None:
    for name in (*FINAL, "index.sqlite"):
        (directory / name).unlink()
    with RunView(directory) as view:
        assert not view.finished
        assert view.summary is None
    assert states(directory) == EXPECTED


def test_a_torn_last_record_is_ignored(directory: Path) -> None:
    for name in FINAL:
        (directory / name).unlink()
    with open(directory / "ledger.jsonl", "ab") as file:
        file.write(b'{"kind":"completion","ta')
    assert states(directory) == EXPECTED


def test_what_was_drawn_since_the_files_were_written_is_seen(directory: Path) -> None:
    later = time.time() + 5
    os.utime(directory / "ledger.jsonl", (later, later))
    with RunView(directory) as view:
        assert not view.finished
        assert {line["status"] for line in view.lines()} == {"under way"}
    assert states(directory) == EXPECTED


def test_a_run_held_by_another_process_is_read_and_left_alone(directory: Path) -> None:
    (directory / "index.sqlite").unlink()
    lock = Lock(directory)
    try:
        with RunView(directory) as view:
            assert len(view.drawn("a")) == 2
        assert not (directory / "index.sqlite").exists()
    finally:
        lock.release()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_directory_is_read(directory: Path) -> None:
    (directory / "index.sqlite").unlink()
    for path in directory.iterdir():
        path.chmod(0o444)
    directory.chmod(0o555)
    try:
        assert states(directory) == EXPECTED
        with RunView(directory) as view:
            assert len(view.drawn("a")) == 2
    finally:
        directory.chmod(0o755)


def test_a_look_takes_no_lock_and_changes_nothing(directory: Path) -> None:
    (directory / "lock").unlink()
    ledger = (directory / "ledger.jsonl").read_bytes()
    (directory / "ledger.jsonl").write_bytes(ledger + ledger.splitlines(keepends=True)[-1])
    before = {path.name: path.read_bytes() for path in directory.iterdir()}
    with RunView(directory) as view:
        assert len(view.drawn("a")) == 2
        Lock(directory).release()
    (directory / "lock").unlink()
    assert {path.name: path.read_bytes() for path in directory.iterdir()} == before


def emptied_index(directory: Path) -> None:
    """An index that says it reaches to the ledger's end and holds nothing."""
    with sqlite3.connect(directory / "index.sqlite") as database:
        database.execute("DELETE FROM records")


def test_an_index_that_is_whole_is_not_made_again(directory: Path) -> None:
    emptied_index(directory)
    with RunView(directory) as view:
        assert view.drawn("a") == []


def test_an_index_within_a_commit_is_not_trusted(directory: Path) -> None:
    emptied_index(directory)
    (directory / "index.sqlite-journal").touch()
    with RunView(directory) as view:
        assert len(view.drawn("a")) == 2


def test_attempts_read_back_equal_those_of_the_finished_run(directory: Path) -> None:
    with RunView(directory) as view:
        drawn = view.drawn("a")
        verdicts = [
            each.attempt.score.passed for each in drawn if each.attempt and each.attempt.score
        ]
    assert verdicts == [True, False]
    assert summary(directory)["n_passed"] == 1


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a run directory"):
        RunView(tmp_path)
