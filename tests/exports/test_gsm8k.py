"""Exports of GSM8K's published solutions; what is right is what their authors say."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from tests.exports.written import exported, sidecar
from tests.runs import read_lines, run

ROOT = Path(__file__).parent.parent.parent
MODELS = ("6b_finetuning", "6b_verification", "175b_finetuning", "175b_verification")


@pytest.fixture(scope="module")
def published() -> dict[str, tuple[list[str], list[str]]]:
    """Question → its right and its wrong solutions."""
    with gzip.open(ROOT / "data" / "gsm8k_model_solutions.jsonl.gz") as file:
        rows = [json.loads(line) for line in file]
    found: dict[str, tuple[list[str], list[str]]] = {}
    for row in rows:
        right, wrong = found.setdefault(row["question"], ([], []))
        for each in (row[model] for model in MODELS):
            (right if each["is_correct"] else wrong).append(each["solution"])
    return found


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("gsm8k") / "run"
    run(ROOT / "specs" / "gsm8k_recorded.yaml", directory)
    return directory


def export_all(directory: Path, name: str, folder: Path) -> list[Any]:
    """Export twice and to parquet; returns the rows, once their sums and bytes are checked."""
    for each in ("one.jsonl", "two.jsonl", "one.parquet"):
        exported(directory, name, folder / each)
    assert (folder / "one.jsonl").read_bytes() == (folder / "two.jsonl").read_bytes()
    rows = read_lines(folder / "one.jsonl")
    assert pyarrow.parquet.read_table(folder / "one.parquet").to_pylist() == rows
    written = sidecar(folder / "one.jsonl")
    counts = written["counts"]
    assert counts["in"] == counts["used"] + sum(counts["left_out"].values())
    assert written["written"] == len(written["rows"]) == len(rows)
    return rows


def test_sft_messages_are_the_right_solutions(
    tmp_path: Path, finished: Path, published: dict[str, tuple[list[str], list[str]]]
) -> None:
    rows = export_all(finished, "sft-messages", tmp_path)
    assert len(rows) == 2001
    found = Counter(tuple(each["content"] for each in row["messages"]) for row in rows)
    assert found == Counter(
        (question, text.strip()) for question, (right, _) in published.items() for text in right
    )


def test_dpo_pairs_are_the_nearest_of_the_mixed_questions(
    tmp_path: Path, finished: Path, published: dict[str, tuple[list[str], list[str]]]
) -> None:
    mixed = {question for question, (right, wrong) in published.items() if right and wrong}
    assert len(mixed) == 731
    rows = export_all(finished, "dpo", tmp_path)
    questions = [row["prompt"][0]["content"] for row in rows]
    assert len(set(questions)) == len(questions)
    assert set(questions) <= mixed
    for row in rows:
        right, wrong = published[row["prompt"][0]["content"]]
        chosen, rejected = row["chosen"][0]["content"], row["rejected"][0]["content"]
        assert (chosen in right, rejected in wrong) == (True, True)
        whole = [text for text in wrong if "A:" in text]
        gaps = [abs(len(a) - len(b)) for a, b in product(right, whole) if a.strip() != b.strip()]
        assert abs(len(chosen) - len(rejected)) == min(gaps)
    reasons = sidecar(tmp_path / "one.jsonl")["counts"]["left_out"]
    assert reasons["no_passed"] == 432
    apart = 731 - len(rows)
    assert sum(reasons.values()) == 1319 - len(rows) == 432 + 156 + apart
