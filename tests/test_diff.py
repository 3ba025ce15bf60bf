"""Comparing runs: what may be compared, and what counts as a change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from labelkit.diff import ACROSS_PROMPT, Side, compare
from labelkit.errors import RunMismatchError, UsageError
from tests.recorded import recorded_run, recorded_spec
from tests.runs import run, write_lines, write_spec

TASKS = [{"id": name, "prompt": f"Prompt {name}", "gold": "yes"} for name in "abcdefgh"]


def make(folder: Path, name: str, passes: dict[str, str], **sections: Any) -> Path:
    """A run over TASKS (or those of `sections`) with recorded replies; `1` passes, `0` fails."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [
        {"name": task, "replies": ["yes" if mark == "1" else "no" for mark in marks]}
        for task, marks in passes.items()
    ]
    write_lines(folder / f"{name}.jsonl", rows)
    defaults: dict[str, Any] = {
        "tasks": TASKS,
        "sampler": {"recorded": {"file": f"{name}.jsonl", "id": "name", "texts": ["replies"]}},
        "scorer": {"exact": {"answer": "whole"}},
        "k": 8,
    }
    sections = {
        **defaults,
        **sections,
        "sampler": {**defaults["sampler"], **sections.get("sampler", {})},
    }
    run(write_spec(folder, **sections), folder / name)
    return folder / name


def diff(run_: Path, baseline: Path, across: frozenset[str] = frozenset()) -> dict[str, Any]:
    return compare(Side.read(run_), Side.read(baseline), across)


def verdicts(comparison: dict[str, Any]) -> dict[str, str]:
    return {task["id"]: task["verdict"] for task in comparison["tasks"]}


def test_a_change_is_called_one_only_where_its_interval_says_so(tmp_path: Path) -> None:
    before = {"a": "11111111", "b": "00000000", "c": "11111111", "d": "10101010"}
    after = {"a": "11111110", "b": "11111111", "c": "00000000", "d": "10101010"}
    found = diff(make(tmp_path, "after", after), make(tmp_path, "before", before))
    told = verdicts(found)
    assert told["a"] == "same"
    assert told["b"] == "improved"
    assert told["c"] == "regressed"
    assert told["d"] == "same"
    assert (found["improved"], found["regressed"], found["same"]) == (1, 1, 2)
    task_a = found["tasks"][0]
    assert (task_a["n_passed"], task_a["baseline_n_passed"]) == (7, 8)
    assert task_a["delta"] == -0.125
    low, high = task_a["delta_interval"]
    assert low < -0.125 < 0 < high


def test_runs_with_tasks_in_common_only_list_the_others(tmp_path: Path) -> None:
    spec = recorded_spec(tmp_path, {name: ["yes"] for name in "abcd"})
    run(spec, tmp_path / "one", task_ids=["a", "b"])
    run(spec, tmp_path / "two", task_ids=["b", "c", "d"])
    found = diff(tmp_path / "one", tmp_path / "two")
    assert [task["id"] for task in found["tasks"]] == ["b"]
    assert found["only_in_run"] == ["a"]
    assert found["only_in_baseline"] == ["c", "d"]
    assert (found["n_only_in_run"], found["n_only_in_baseline"]) == (1, 2)


def test_the_overall_change_is_a_paired_test_over_tasks(tmp_path: Path) -> None:
    names = "abcdefgh"
    before = dict.fromkeys(names, "11000000")
    after = {name: "1111" + "1" * (i % 2) + "0" * (4 - i % 2) for i, name in enumerate(names)}
    found = diff(make(tmp_path, "after", after), make(tmp_path, "before", before))
    # deltas: four of 2/8 and four of 3/8; t = mean/(sd/√8), 7 degrees of freedom
    assert found["delta"] == pytest.approx(2.5 / 8)
    low, high = found["delta_interval"]
    half = 2.364624 * (0.125 / 2) * (8 / 7) ** 0.5 / 8**0.5
    assert (low, high) == pytest.approx((2.5 / 8 - half, 2.5 / 8 + half), rel=1e-5)
    assert found["test"] == "paired t"
    assert found["p_value"] < 1e-4
    assert found["verdict"] == "improved"
    assert found["baseline_pass_rate"] == pytest.approx(0.25)


def test_one_sample_a_task_is_tested_exactly(tmp_path: Path) -> None:
    before = dict.fromkeys("abcdefgh", "0")
    after = {**dict.fromkeys("abcde", "1"), **dict.fromkeys("fgh", "0")}
    found = diff(make(tmp_path, "after", after, k=1), make(tmp_path, "before", before, k=1))
    assert found["test"] == "exact McNemar"
    assert found["p_value"] == pytest.approx(2 / 2**5)
    assert found["verdict"] == "same"


def test_tasks_without_scored_attempts_are_not_compared(tmp_path: Path) -> None:
    before = {"a": "11111111", "b": "11111111"}
    found = diff(make(tmp_path, "after", {"a": "11111111"}), make(tmp_path, "before", before))
    assert verdicts(found)["b"] == "not_compared"
    assert found["not_compared"] == len(TASKS) - 1


def test_equal_runs_are_the_same_and_say_that_the_policy_is(tmp_path: Path) -> None:
    marks = {"a": "11111111", "b": "00000000"}
    directory = make(tmp_path, "one", marks)
    run(tmp_path / "spec.yaml", tmp_path / "again")
    found = diff(tmp_path / "again", directory)
    assert found["policy_changed"] is False
    assert found["verdict"] == "same"
    assert found["differs"] == []
    assert diff(make(tmp_path, "two", marks), directory)["policy_changed"] is True


@pytest.mark.parametrize(
    ("sections", "part", "hint"),
    [
        ({"scorer": {"contains": {}}}, "scorer", "rescore"),
        ({"sampler": {"system": "Be brief."}}, "prompt", "--across prompt"),
        ({"tasks": TASKS[:4]}, "tasks", "--across prompt"),
        ({"tasks": TASKS[:4], "scorer": {"contains": {}}}, "scorer, tasks", "of the same tasks"),
    ],
)
def test_what_makes_rates_incomparable_is_refused_by_name(
    tmp_path: Path, sections: dict[str, Any], part: str, hint: str
) -> None:
    marks = {"a": "11111111"}
    one, two = make(tmp_path, "one", marks), make(tmp_path, "two", marks, **sections)
    with pytest.raises(RunMismatchError, match=f"they differ in {part}") as refused:
        diff(two, one)
    assert hint in str(refused.value.hint)


def test_across_prompt_compares_prompts_on_the_same_tasks_and_says_so(tmp_path: Path) -> None:
    marks = {"a": "11111111", "b": "00000000"}
    one = make(tmp_path, "one", marks)
    changed = {"system": "Be brief.", "template": "Q: {{ prompt }}"}
    two = make(tmp_path, "two", marks, sampler=changed, tasks=TASKS[:4])
    found = diff(two, one, ACROSS_PROMPT)
    assert found["differs"] == ["prompt", "tasks"]
    assert found["n_tasks"] == 4
    assert found["n_only_in_baseline"] == 4


def test_across_prompt_still_refuses_another_scorer_or_other_tasks(tmp_path: Path) -> None:
    marks = {"a": "11111111"}
    one = make(tmp_path, "one", marks)
    other = make(tmp_path, "two", marks, scorer={"contains": {}})
    with pytest.raises(RunMismatchError, match="scorer"):
        diff(other, one, ACROSS_PROMPT)
    gold = [{**task, "gold": "no"} if task["id"] == "c" else task for task in TASKS]
    regolded = make(tmp_path, "three", marks, tasks=gold)
    with pytest.raises(RunMismatchError, match=r"another prompt or gold \(first: c\)"):
        diff(regolded, one, ACROSS_PROMPT)


@pytest.mark.parametrize("name", ["summary.json", "tasks.jsonl"])
def test_an_unfinished_run_cannot_be_compared(tmp_path: Path, name: str) -> None:
    directory = recorded_run(tmp_path, {"a": ["yes"]})
    (directory / name).unlink()
    with pytest.raises(UsageError, match=f"holds no {name}"):
        Side.read(directory)
