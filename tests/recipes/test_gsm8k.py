"""The filters on GSM8K's published solutions; what is right is what their authors labelled."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from labelkit import stats
from labelkit.errors import UsageError
from tests.runs import Silent, comparable, read_lines, run

ROOT = Path(__file__).parent.parent.parent
SPEC = ROOT / "specs" / "gsm8k_recorded.yaml"
MODELS = ("6b_finetuning", "6b_verification", "175b_finetuning", "175b_verification")


@pytest.fixture(scope="module")
def labels() -> list[list[bool]]:
    """Whether each of the four solutions to each question is right."""
    with gzip.open(ROOT / "data" / "gsm8k_model_solutions.jsonl.gz") as file:
        rows = [json.loads(line) for line in file]
    return [[row[model]["is_correct"] for model in MODELS] for row in rows]


@pytest.fixture(scope="module")
def rollout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gsm8k") / "rollout"
    run(SPEC, folder)
    return folder


def filtered(command: str, folder: Path, rollout: Path, *overrides: str) -> Any:
    """A filter over the rollout's draws; returns its summary. Fails where it draws anything."""
    progress = Silent()
    done = run(SPEC, folder, *overrides, command=command, sources=[rollout], progress=progress)
    assert progress.messages[-1] == "--from holds 5,276 of 5,276 candidate draws"
    ledger = read_lines_of_ledger(folder)
    completions = [record for record in ledger if record["kind"] == "completion"]
    assert all("from" in record for record in completions)
    return done


def read_lines_of_ledger(folder: Path) -> list[Any]:
    from labelkit.ledger import records

    return [record for _, _, record in records(folder / "ledger.jsonl", 0)]


def test_learning_zone_keeps_the_mixed_questions(
    tmp_path: Path, rollout: Path, labels: list[list[bool]]
) -> None:
    done = filtered("learning-zone", tmp_path / "run", rollout)
    lines = read_lines(tmp_path / "run" / "tasks.jsonl")
    kept = [line["status"] == "kept" for line in lines]
    assert kept == [0 < sum(right) < 4 for right in labels]
    assert done["kept"] == 731
    assert done["dropped"] == {"hopeless": 432, "saturated": 156}
    rows = read_lines(tmp_path / "run" / "rows.jsonl")
    row = next(row for row in rows if row["n_passed"] == 1)
    assert (row["n_scored"], row["pass_rate"]) == (4, 0.25)
    # Jeffreys prior: the chance that four fresh draws with one of four seen are mixed.
    assert row["p_in_zone"] == pytest.approx(stats.p_in_zone(1, 4, 4))


def test_verify_traces_keeps_every_right_solution(
    tmp_path: Path, rollout: Path, labels: list[list[bool]]
) -> None:
    done = filtered("verify-traces", tmp_path / "run", rollout)
    rows = read_lines(tmp_path / "run" / "rows.jsonl")
    ids = [line["id"] for line in read_lines(tmp_path / "run" / "tasks.jsonl")]
    expected = [
        (task, index)
        for task, right in zip(ids, labels, strict=True)
        for index in range(4)
        if right[index]
    ]
    assert [(row["id"], row["sample_index"]) for row in rows] == expected
    assert len(rows) == done["kept"] == 2001
    assert done["rows"] == {"candidates": 5276, "kept": 2001, "dropped": 3275}
    assert done["detail"]["n_tasks_solved"] == 1319 - 432
    dropped = read_lines(tmp_path / "run" / "dropped.jsonl")
    assert len(dropped) == 3275
    assert {line["reason"] for line in dropped} <= {"wrong_answer", "no_answer"}


def test_rl_select_keeps_the_open_band(
    tmp_path: Path, rollout: Path, labels: list[list[bool]]
) -> None:
    done = filtered("rl-select", tmp_path / "run", rollout)
    lines = read_lines(tmp_path / "run" / "tasks.jsonl")
    assert [line["status"] == "kept" for line in lines] == [0 < sum(right) < 4 for right in labels]
    assert done["kept"] == 731
    dropped = done["dropped"]
    assert dropped["always_solved"] == 156
    assert dropped["never_solved"] + dropped["gold_conflict"] == 432


def test_the_top_by_learnability_are_the_even_ones(
    tmp_path: Path, rollout: Path, labels: list[list[bool]]
) -> None:
    """Of four, two right ones are the most learnable count, then one and three alike."""
    some = labels[:300]
    even = [i for i, right in enumerate(some) if sum(right) == 2]
    odd = [i for i, right in enumerate(some) if sum(right) in (1, 3)]
    section = f"rl_select={{rank_by: learnability, top: {len(even) + 4}}}"
    run(SPEC, tmp_path / "run", section, command="rl-select", sources=[rollout], limit=300)
    rows = read_lines(tmp_path / "run" / "rows.jsonl")
    ids = [line["id"] for line in read_lines(tmp_path / "run" / "tasks.jsonl")]
    by_rank = [row["id"] for row in sorted(rows, key=lambda row: row["rank"])]
    assert by_rank == [ids[i] for i in [*even, *odd[:4]]]


def test_adaptive_draws_keep_the_same_questions_with_fewer_draws(
    tmp_path: Path, rollout: Path, labels: list[list[bool]]
) -> None:
    full = filtered("learning-zone", tmp_path / "full", rollout)
    done = run(SPEC, tmp_path / "run", "adaptive=true", command="learning-zone")
    kept = [row["id"] for row in read_lines(tmp_path / "run" / "rows.jsonl")]
    assert kept == [row["id"] for row in read_lines(tmp_path / "full" / "rows.jsonl")]
    # In waves of two, a question is decided early exactly where its first two solutions differ.
    saved = 2 * sum(right[0] != right[1] for right in labels)
    assert done["detail"]["draws_saved"] == full["detail"]["draws_adaptive_would_save"] == saved
    assert done["n_attempts"] == 5276 - saved
    assert (done["pass_rate"], done["pass_rate_interval"], done["mean_value"]) == (None,) * 3
    stopped = [
        line for line in read_lines(tmp_path / "run" / "tasks.jsonl") if line["stopped_early"]
    ]
    assert len(stopped) == saved // 2
    assert {line["pass_rate"] for line in stopped} == {None}


def test_adaptive_rl_select_keeps_the_same_questions(
    tmp_path: Path, labels: list[list[bool]]
) -> None:
    band = "rl_select={band: '(0, 0.5]'}"
    done = run(SPEC, tmp_path / "run", band, "adaptive=true", command="rl-select", limit=300)
    lines = read_lines(tmp_path / "run" / "tasks.jsonl")
    assert [line["status"] == "kept" for line in lines] == [
        sum(right) in (1, 2) for right in labels[:300]
    ]
    # After two of four draws the rate may still end on either side of a half.
    assert done["detail"]["draws_saved"] == 0


def test_want_stops_a_question_at_so_many(tmp_path: Path, labels: list[list[bool]]) -> None:
    section = "verify_traces={want: 1}"
    done = run(SPEC, tmp_path / "run", section, command="verify-traces", limit=300)
    rows = read_lines(tmp_path / "run" / "rows.jsonl")
    some = labels[:300]
    assert [row["sample_index"] for row in rows] == [r.index(True) for r in some if any(r)]
    assert done["n_attempts"] == sum(2 if any(right[:2]) else 4 for right in some)


def test_a_filter_gives_the_same_bytes_from_a_source_as_by_itself(
    tmp_path: Path, rollout: Path
) -> None:
    run(SPEC, tmp_path / "own", command="verify-traces", limit=100)
    run(SPEC, tmp_path / "from", command="verify-traces", limit=100, sources=[rollout])
    assert comparable(tmp_path / "from") == comparable(tmp_path / "own")


def test_another_prompt_is_refused_as_a_source(tmp_path: Path, rollout: Path) -> None:
    with pytest.raises(UsageError, match="differs in `messages"):
        filtered("learning-zone", tmp_path / "run", rollout, "sampler.system=Think.")
