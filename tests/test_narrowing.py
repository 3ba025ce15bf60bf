"""Flags that leave tasks or samples out never take rows from a run that holds them; a run grows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from labelkit.errors import RunMismatchError
from tests.recorded import recorded_run, recorded_spec
from tests.runs import comparable, read_lines, run

REPLIES = {name: ["yes", "no", "yes", "no"] for name in "abcdef"}


def ids(directory: Path) -> list[str]:
    return [line["id"] for line in read_lines(directory / "tasks.jsonl")]


@pytest.mark.parametrize(
    ("flags", "override", "said"),
    [
        ({"limit": 2}, (), "holds attempts of 6 tasks, 4 of which --limit 2 leaves out"),
        ({"task_ids": ["b"]}, (), "holds attempts of 6 tasks, 5 of which --task b leaves out"),
        ({"shard": (1, 2)}, (), "holds attempts of 6 tasks, 3 of which --shard 1/2 leaves out"),
        ({}, ("k=1",), "holds 4 attempts a task, 3 of which k = 1 leaves out"),
    ],
)
def test_fewer_are_refused_where_the_run_holds_more(
    tmp_path: Path, flags: dict[str, Any], override: tuple[str, ...], said: str
) -> None:
    directory = recorded_run(tmp_path, REPLIES)
    before = comparable(directory)
    with pytest.raises(RunMismatchError, match=said) as refused:
        run(tmp_path / "spec.yaml", directory, *override, **flags)
    assert "-o" in str(refused.value.hint)
    assert "--fresh" in str(refused.value.hint)
    assert comparable(directory) == before
    run(tmp_path / "spec.yaml", tmp_path / "few", *override, sources=[directory], **flags)
    assert len(read_lines(tmp_path / "few" / "rows.jsonl")) < 24


def test_a_trial_grows_to_the_whole(tmp_path: Path) -> None:
    spec, directory = recorded_spec(tmp_path, REPLIES), tmp_path / "run"
    for limit in (1, 3, 3, 6, 99):
        run(spec, directory, "k=2", limit=limit)
        assert ids(directory) == list("abcdef")[:limit]
    run(spec, directory)
    run(spec, tmp_path / "whole")
    assert comparable(directory) == comparable(tmp_path / "whole")


def test_tasks_by_name_are_added_to_and_not_exchanged(tmp_path: Path) -> None:
    spec, directory = recorded_spec(tmp_path, REPLIES), tmp_path / "run"
    run(spec, directory, task_ids=["c"])
    with pytest.raises(RunMismatchError, match="--task a leaves out"):
        run(spec, directory, task_ids=["a"])
    run(spec, directory, task_ids=["c", "a"])
    assert ids(directory) == ["a", "c"]


def test_fresh_may_leave_out_what_it_sets_aside(tmp_path: Path) -> None:
    directory = recorded_run(tmp_path, REPLIES)
    run(tmp_path / "spec.yaml", directory, limit=1, fresh=True)
    assert ids(directory) == ["a"]


def test_a_spec_that_asks_for_less_is_followed(tmp_path: Path) -> None:
    directory = recorded_run(tmp_path, REPLIES)
    run(recorded_spec(tmp_path, REPLIES, k=2), directory)
    assert len(read_lines(directory / "rows.jsonl")) == 12


def test_a_reordered_file_leaves_nothing_out(tmp_path: Path) -> None:
    directory = recorded_run(tmp_path, REPLIES)
    again = dict(reversed(REPLIES.items()))
    run(recorded_spec(tmp_path, again), directory, limit=6)
    assert ids(directory) == list("fedcba")


def test_tasks_that_a_stopped_run_never_reached_are_no_loss(tmp_path: Path) -> None:
    few = {name: REPLIES[name] if name < "c" else [] for name in REPLIES}
    directory = recorded_run(tmp_path, few, k=4)
    assert ids(directory) == list("abcdef")
    run(tmp_path / "spec.yaml", directory, limit=2)
    assert ids(directory) == list("ab")
