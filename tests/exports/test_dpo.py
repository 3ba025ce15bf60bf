"""dpo: TRL's preference rows; a rejected reply is whole and wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from labelkit.errors import UsageError
from tests.exports.written import (
    body,
    exported,
    left_out,
    rewrite_rows,
    rows_of,
    run_of,
    sidecar,
)
from tests.runs import run


def pairs(rows: list[Any]) -> list[tuple[str, str]]:
    return [(row["chosen"][0]["content"], row["rejected"][0]["content"]) for row in rows]


CONTAINS = "contains"


def test_a_row_has_trls_documented_shape(tmp_path: Path) -> None:
    run = run_of(tmp_path, {"replies": ["no!", "yes"]}, sampler={"system": "Be brief."})
    assert rows_of(run, "dpo") == [
        {
            "prompt": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": "Say yes."},
            ],
            "chosen": [{"role": "assistant", "content": "yes"}],
            "rejected": [{"role": "assistant", "content": "no!"}],
        }
    ]
    assert sidecar(tmp_path / "dpo.jsonl")["rows"] == [
        {
            "task_id": "t0",
            "chosen": {"sample_index": 1, "score": 1.0},
            "rejected": {"sample_index": 0, "score": 0.0},
        }
    ]


def test_the_pair_nearest_in_length_is_taken_the_earlier_of_equals(tmp_path: Path) -> None:
    replies = ["yes + 12345678", "else", "yes, yes", "either", "neighs"]
    run = run_of(tmp_path, {"replies": replies}, scorer=CONTAINS)
    assert pairs(rows_of(run, "dpo")) == [("yes, yes", "either")]


def test_more_pairs_on_request_each_attempt_in_one_at_most(tmp_path: Path) -> None:
    replies = ["yes", "yes!!", "so", "or so", "otherwise"]
    run = run_of(tmp_path, {"replies": replies}, scorer=CONTAINS)
    assert pairs(rows_of(run, "dpo", max_pairs=9)) == [("yes!!", "or so"), ("yes", "so")]


def test_a_pair_longer_than_twice_is_left_out(tmp_path: Path) -> None:
    inside = {"replies": ["yes", "noooo!"]}
    outside = {"replies": ["yes", "noooo!!"]}
    run = run_of(tmp_path, inside, outside)
    assert pairs(rows_of(run, "dpo")) == [("yes", "noooo!")]
    assert left_out(run, "dpo") == {"length_ratio": 1}


def test_kept_reasoning_counts_as_length_and_dropped_does_not(tmp_path: Path) -> None:
    run = run_of(tmp_path, {"replies": ["<think>so very long</think>yes", "no"]})
    assert left_out(run, "dpo") == {"length_ratio": 1}
    assert pairs(rows_of(run, "dpo", reasoning="drop")) == [("yes", "no")]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (body("no", "length"), "no_wrong"),
        (body("", "stop"), "no_wrong"),
        (body("no", "content_filter"), "no_wrong"),
    ],
)
def test_what_is_cut_empty_or_filtered_is_never_rejected(
    tmp_path: Path, bad: dict[str, Any], reason: str
) -> None:
    run = run_of(tmp_path, {"replies": [body("yes"), bad]}, max_unscored=1.0)
    assert left_out(run, "dpo") == {reason: 1}


@pytest.mark.parametrize("stop_reason", ["truncated", "invalid_output", "no_answer"])
def test_a_row_that_did_not_complete_is_never_rejected(tmp_path: Path, stop_reason: str) -> None:
    run = run_of(tmp_path, {"replies": ["yes", "nay"]})
    rewrite_rows(
        run,
        "rollout",
        lambda row: row if row["score"]["passed"] else {**row, "stop_reason": stop_reason},
    )
    assert left_out(run, "dpo") == {"no_wrong": 1}


def test_malformed_output_is_never_rejected(tmp_path: Path) -> None:
    run = run_of(
        tmp_path,
        {"replies": ['{"final_answer": "yes"}', "no"]},
        sampler={"response": {"final_answer": "str"}},
        scorer={"exact": {"answer": {"field": "final_answer"}}},
    )
    assert left_out(run, "dpo") == {"no_wrong": 1}


def test_tasks_without_both_kinds_are_left_out_by_reason(tmp_path: Path) -> None:
    run = run_of(
        tmp_path, {"replies": ["yes", "yes"]}, {"replies": ["no", "no"]}, {"replies": ["yes", "no"]}
    )
    assert len(rows_of(run, "dpo")) == 1
    assert left_out(run, "dpo") == {"no_passed": 1, "no_wrong": 1}


def test_equal_texts_make_no_pair(tmp_path: Path) -> None:
    run = run_of(tmp_path, {"replies": ["<think>a</think>yes", "<think>b</think>no"]})
    rewrite_rows(run, "rollout", lambda row: {**row, "text": "yes"})
    assert left_out(run, "dpo") == {"same_text": 1}


def test_best_of_n_gives_its_own_pairs_with_their_reasoning(tmp_path: Path) -> None:
    replies = [body("no", reasoning_content="so not"), body("yes", reasoning_content="so yes")]
    tasks = {"replies": replies}, {"replies": [replies[1], replies[1]]}
    section = {"bar": 1, "pairs": True}
    run = run_of(tmp_path, *tasks, command="best-of-n", best_of_n=section)
    rows = rows_of(run, "dpo")
    assert pairs(rows) == [("yes", "no")]
    assert rows[0]["chosen"][0]["reasoning_content"] == "so yes"
    assert rows[0]["rejected"][0]["reasoning_content"] == "so not"
    assert left_out(run, "dpo") == {"no_rejected": 1}


@pytest.mark.parametrize("name", ["dpo", "sft-messages"])
def test_best_of_n_rows_of_before_they_kept_reasoning_are_refused_and_can_be_made_anew(
    tmp_path: Path, name: str
) -> None:
    replies = [body("no", reasoning_content="so not"), body("yes", reasoning_content="so yes")]
    section = {"bar": 1, "pairs": True}
    old = run_of(tmp_path, {"replies": replies}, command="best-of-n", best_of_n=section)
    rows = rows_of(old, name)

    def as_it_was(row: Any) -> Any:
        return {key: value for key, value in row.items() if not key.endswith("reasoning")}

    rewrite_rows(old, "best-of-n", as_it_was)
    output = tmp_path / "out.jsonl"
    with pytest.raises(UsageError, match="task t0: an older labelkit wrote this row") as caught:
        exported(old, name, output)
    assert not output.exists()
    assert "best-of-n SPEC -o DIR --from" in str(caught.value.hint)
    run(tmp_path / "spec.yaml", tmp_path / "new", command="best-of-n", sources=[old])
    assert rows_of(tmp_path / "new", name) == rows
