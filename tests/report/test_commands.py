"""What each command says of its own at the end."""

from __future__ import annotations

from typing import Any

from labelkit.report.commands import canary_lines, command_lines, task_note


def said(command: str, detail: dict[str, Any], **summary: Any) -> str:
    return "\n".join(command_lines({"command": command, "detail": detail, **summary}))


def test_rl_select_says_what_was_kept_and_dropped() -> None:
    reasons = ("out_of_band", "uncertain", "not_replicated", "below_top", "undecided")
    detail = {"band": "(0, 1)", "preset": None, "always_solved": 7, "never_solved": 0}
    detail |= {"gold_conflict": 0, **dict.fromkeys(reasons, 0)}
    text = said("rl-select", detail, kept=1, tasks={"in": 8})
    assert "kept 1 of 8 prompts, dropped 7 always-solved, dropped 0 never-solved" in text
    detail |= {"gold_conflict": 2, "never_solved": 1}
    assert "dropped 3 never-solved (2 with" in said("rl-select", detail, kept=0, tasks={"in": 8})


def test_verify_traces_says_how_many_problems_were_solved() -> None:
    detail = {"n_tasks_solved": 5, "n_tasks_scored": 6, "draws_saved": 3}
    text = said("verify-traces", detail)
    assert "pass@K: 5/6 problems with at least one correct sample" in text
    assert "adaptive draws saved 3" in text


def test_designed_difficulty_and_scores_stand_beside_the_task() -> None:
    assert task_note({"designed": "impossible"}) == "designed impossible"
    assert task_note({"scores": [5.0, None, 4.5]}) == "scores [5, –, 4.5]"
    assert task_note({"step_scores": [[1.0, 0.0, 1.0]]}) == "steps [1, 0, 1]"


def test_a_canary_that_fails_comes_first_with_its_reason_and_no_control_character() -> None:
    held = {"id": "canary/anchor/a", "holds": True, "evidence": {"n_passed": 4, "n_scored": 4}}
    failed = {"id": "canary/wrong/1/b", "holds": False, "evidence": {"reason": "\x1b[2J same"}}
    lines = canary_lines({"n": 2, "held": 1, "failed": 1, "each": [held, failed]})
    assert lines[0] == "canaries: 1 of 2 hold"
    assert lines[1].startswith("  canary/wrong/1/b FAILS: ")
    assert "\x1b" not in lines[1]
    assert lines[2] == "  canary/anchor/a 4/4 holds"
