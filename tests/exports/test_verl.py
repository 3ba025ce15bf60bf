"""verl: a prompt a task, with a reward function's name and the ground truth as text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from labelkit.errors import UsageError
from tests.exports.written import exported, left_out, rows_of, run_of, sidecar
from tests.runs import run, write_lines, write_spec

ABOUT = {"data_source": "openai/gsm8k", "ability": "math", "level": 3}


def test_a_row_has_verls_documented_fields(tmp_path: Path) -> None:
    directory = run_of(tmp_path, {"replies": ["yes", "no"], "about": ABOUT})
    [row] = rows_of(directory, "verl")
    assert json.loads(row["extra_info"].pop("metadata")) == ABOUT
    assert row == {
        "data_source": "openai/gsm8k",
        "prompt": [{"role": "user", "content": "Say yes."}],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": "yes"},
        "extra_info": {"split": "train", "index": 0, "id": "t0"},
    }


@pytest.mark.parametrize(
    ("gold", "text"),
    [
        ("007", "007"),
        (18, "18"),
        (2**70 + 1, "1180591620717411303425"),
        (0.1, "0.1"),
        (True, "true"),
        (["a", 1], '["a",1]'),
    ],
)
def test_ground_truth_is_the_exact_text_of_the_gold(tmp_path: Path, gold: Any, text: str) -> None:
    directory = run_of(tmp_path, {"replies": ["x"], "gold": gold}, scorer={"regex": "x"})
    [row] = rows_of(directory, "verl", data_source="d")
    assert row["reward_model"]["ground_truth"] == text


def test_every_task_has_its_own_index(tmp_path: Path) -> None:
    directory = run_of(tmp_path, *({"replies": ["yes", "no"]} for _ in range(3)))
    rows = rows_of(directory, "verl", data_source="d")
    assert [row["extra_info"]["index"] for row in rows] == [0, 1, 2]
    assert [row["extra_info"]["id"] for row in rows] == ["t0", "t1", "t2"]


def test_split_and_index_of_a_verl_file_are_kept(tmp_path: Path) -> None:
    about = {"data_source": "d", "extra_info": {"split": "test", "index": 41, "answer": "#"}}
    [row] = rows_of(run_of(tmp_path, {"replies": ["yes"], "about": about}), "verl")
    assert (row["extra_info"]["split"], row["extra_info"]["index"]) == ("test", 41)


@pytest.mark.parametrize(("source", "said"), [(None, "is missing"), (7, "7, which is no name")])
def test_data_source_is_never_guessed(tmp_path: Path, source: Any, said: str) -> None:
    directory = run_of(tmp_path, {"replies": ["yes"], "about": {"data_source": source}})
    with pytest.raises(UsageError, match=said) as raised:
        exported(directory, "verl", tmp_path / "x.jsonl")
    assert "--data-source" in str(raised.value.hint)
    assert not (tmp_path / "x.jsonl").exists()
    [row] = rows_of(directory, "verl", data_source="mine")
    assert row["data_source"] == "mine"


def test_tasks_without_a_gold_are_left_out(tmp_path: Path) -> None:
    tasks = [{"id": "a", "prompt": "Say x."}, {"id": "b", "prompt": "Say x.", "gold": "x"}]
    write_lines(tmp_path / "replies.jsonl", [{"id": each["id"], "text": "x"} for each in tasks])
    sampler = {"recorded": {"file": "replies.jsonl", "id": "id", "text": "text"}}
    spec = write_spec(tmp_path, tasks=tasks, sampler=sampler, scorer={"regex": "x"}, k=1)
    run(spec, tmp_path / "run")
    assert left_out(tmp_path / "run", "verl", data_source="d") == {"no_gold": 1}


@pytest.mark.parametrize("command", ["rl-select", "learning-zone"])
def test_selected_tasks_are_exported_with_their_counts_in_the_sidecar(
    tmp_path: Path, command: str
) -> None:
    mixed, solved = {"replies": ["yes", "no"]}, {"replies": ["yes", "yes"]}
    directory = run_of(tmp_path, mixed, solved, command=command)
    rows = rows_of(directory, "verl", data_source="d")
    assert [row["extra_info"]["id"] for row in rows] == ["t0"]
    assert sidecar(tmp_path / "verl.jsonl")["rows"] == [
        {"task_id": "t0", "n_passed": 1, "n_scored": 2}
    ]
