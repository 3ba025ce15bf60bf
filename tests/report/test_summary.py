"""What a finished command prints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from labelkit.report.summary import summary_text
from tests.recorded import recorded_run
from tests.runs import summary

MIXED = {"easy": ["yes", "yes"], "mixed": ["yes", "no"], "hard": ["no", ""]}


def text_of(directory: Path, **changes: Any) -> str:
    return summary_text({**summary(directory), **changes}, directory)


def test_few_tasks_are_listed_with_glyphs_and_rates(tmp_path: Path) -> None:
    text = text_of(recorded_run(tmp_path, MIXED))
    easy, mixed, hard = (
        next(line for line in text.splitlines() if line.startswith(name))
        for name in ("easy", "mixed", "hard")
    )
    assert easy.split()[1:4] == ["██", "2/2", "100.0%"]
    assert easy.endswith("saturated")
    assert mixed.split()[1:4] == ["█░", "1/2", "50.0%"]
    assert hard.split()[1:4] == ["░░", "0/2", "0.0%"]
    assert "hopeless" in hard


def test_counts_rates_and_reasons_are_said(tmp_path: Path) -> None:
    text = text_of(recorded_run(tmp_path, MIXED))
    assert "wrote 5 rows from 6 samples, dropped 1 (no_answer 1)" in text
    assert "pass rate 50.0%" in text
    assert "over 6 scored attempts" in text
    assert "pass@1 50.0%, pass@2 66.7% over 3 tasks" in text
    assert "failed: wrong_answer 2, no_answer 1" in text


def test_many_tasks_become_a_histogram(tmp_path: Path) -> None:
    replies = {f"t{i}": ["yes", "yes" if i % 2 else "no"] for i in range(60)}
    text = text_of(recorded_run(tmp_path, replies))
    assert "60 tasks by attempts passed" in text
    assert "30 saturated, 30 mixed, 0 hopeless" in text
    assert "t17" not in text


def test_missing_replies_are_counted_as_not_run(tmp_path: Path) -> None:
    directory = recorded_run(tmp_path, {"a": ["yes"], "b": ["yes", "yes"]})
    text = text_of(directory)
    assert "not run: unavailable 1" in text
    assert next(line for line in text.splitlines() if line.startswith("a ")).split()[1] == "█·"
    assert "incomplete" not in text


def test_failed_gates_stand_out_and_next_steps_name_the_directory(tmp_path: Path) -> None:
    gates = ["pass_rate >= 0.9", "n_unscored == 0"]
    directory = recorded_run(tmp_path, MIXED, name="my run", gates=gates)
    text = text_of(directory)
    assert "gate pass_rate >= 0.9: 0.5, FAILS" in text
    assert "gate n_unscored == 0: 0, holds" in text
    assert f"next: labelkit show '{directory}' --only failed" in text


def test_unscored_attempts_show_both_rates_and_point_at_errors(tmp_path: Path) -> None:
    directory = recorded_run(tmp_path, MIXED)
    unscored = {"n_unscored": 2, "unscored": {"timeout": 2}, "pass_rate_with_unscored": 0.375}
    text = text_of(directory, **unscored)
    assert "37.5% with 2 unscored as failures" in text
    assert "unscored: timeout 2" in text
    assert f"next: labelkit errors {directory}" in text


def test_an_unfinished_run_says_why_and_how_to_go_on(tmp_path: Path) -> None:
    directory = recorded_run(tmp_path, MIXED)
    text = text_of(
        directory,
        incomplete=["stopped early: budget: the budget of $1 has no room for another call"],
        provenance={"complete": False},
    )
    assert "incomplete: stopped early: budget" in text
    assert "run the same command again" in text
    for reason, flag in (("budget", "with a higher --budget"), ("pilot", "without --stop-if")):
        stopped = text_of(directory, provenance={"complete": False}, stopped_early=reason)
        assert f"next: run it again {flag}" in stopped


def test_hostile_names_do_not_reach_the_terminal(tmp_path: Path) -> None:
    replies = {"a\x1b[2Jb": ["yes"]}
    directory = recorded_run(tmp_path, replies)
    slices = {"\x1b]0;x\x07evil": {"n_passed": 1, "n_scored": 1, "pass_rate": 1.0}}
    text = text_of(directory, slices=slices)
    assert "\x1b" not in text
    assert "evil" in text


def test_every_number_of_a_command_is_shown(tmp_path: Path) -> None:
    directory = recorded_run(tmp_path, MIXED)
    detail = {"n_in_zone": 1, "expected_draws": 3.25, "bins": {"0": 1}}
    assert "detail: n_in_zone 1, expected_draws 3.25, bins (0 1)" in text_of(
        directory, detail=detail
    )
