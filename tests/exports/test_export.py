"""From run to file: what is replaced, what the sidecar says, and equal bytes."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from labelkit.errors import UsageError
from tests.exports.written import exported, rewrite_rows, run_of, sidecar
from tests.runs import environment, read_lines, summary

TASKS = [
    {"replies": ["<think>Sure?</think>yes", "nonono"], "about": {"data_source": "d", "n": 2**70}},
    {"replies": ["yes", "yes"], "about": {"data_source": "d", "other": [1, {"a": None}]}},
    {"replies": ["no", "no"], "about": {"data_source": "e"}},
]
FORMATS = ("sft-messages", "dpo", "verl")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return run_of(tmp_path, *TASKS)


def files(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.glob("*out*")) + [
        each.name for each in folder.glob(".*")
    ]


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_exporting_twice_gives_equal_bytes(
    tmp_path: Path, run: Path, name: str, suffix: str
) -> None:
    for folder in ("a", "b"):
        exported(run, name, tmp_path / folder / f"out{suffix}", prompt="raw")
    for file in (f"out{suffix}", f"out{suffix}.meta.json"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


@pytest.mark.parametrize("name", FORMATS)
def test_parquet_holds_what_jsonl_holds(tmp_path: Path, run: Path, name: str) -> None:
    for suffix in (".jsonl", ".parquet"):
        exported(run, name, tmp_path / f"out{suffix}")
    table = pyarrow.parquet.read_table(tmp_path / "out.parquet")
    assert table.to_pylist() == read_lines(tmp_path / "out.jsonl")
    assert sidecar(tmp_path / "out.parquet")["rows"] == sidecar(tmp_path / "out.jsonl")["rows"]


@pytest.mark.parametrize("name", FORMATS)
def test_rows_have_the_same_keys_throughout(tmp_path: Path, run: Path, name: str) -> None:
    """A reader that infers types from JSON fills missing keys (datasets#6699)."""

    def keys(value: Any) -> Any:
        if isinstance(value, dict):
            return [(key, keys(member)) for key, member in value.items()]
        return sorted({str(keys(member)) for member in value}) if isinstance(value, list) else None

    exported(run, name, tmp_path / "out.jsonl")
    assert len({str(keys(row)) for row in read_lines(tmp_path / "out.jsonl")}) == 1


def test_the_sidecar_names_source_options_sums_and_every_row(tmp_path: Path, run: Path) -> None:
    output = tmp_path / "out.jsonl"
    report = exported(run, "sft-messages", output, system="drop")
    written = sidecar(output)
    assert len(written["rows"]) == written["written"] == len(read_lines(output)) == 3
    assert written["counts"] == {"unit": "row", "in": 6, "used": 3, "left_out": {"failed": 3}}
    assert written["sha256"] == hashlib.sha256(output.read_bytes()).hexdigest()
    assert written["options"] == {"reasoning": "keep", "system": "drop", "prompt": "sent"}
    done = summary(run)
    for name in ("env_fingerprint", "policy_fingerprint", "command", "name", "exit_code"):
        assert written["source"][name] == done[name]
    assert written["source"]["run_id"] == done["provenance"]["run_id"]
    assert {key: value for key, value in written.items() if key != "rows"} == report


@pytest.mark.parametrize("name", FORMATS)
def test_what_goes_in_is_used_or_left_out(tmp_path: Path, run: Path, name: str) -> None:
    counts = exported(run, name, tmp_path / "out.jsonl")["counts"]
    assert counts["in"] == counts["used"] + sum(counts["left_out"].values())
    assert counts["in"] == (6 if counts["unit"] == "row" else 3)


def test_an_earlier_export_is_replaced_and_nothing_else(tmp_path: Path, run: Path) -> None:
    output = tmp_path / "out.jsonl"
    exported(run, "sft-messages", output)
    exported(run, "dpo", output, reasoning="drop")
    assert set(read_lines(output)[0]) == {"prompt", "chosen", "rejected"}
    assert files(tmp_path) == ["out.jsonl", "out.jsonl.meta.json"]
    output.with_name("out.jsonl.meta.json").unlink()
    before = output.read_bytes()
    with pytest.raises(UsageError, match="is no earlier export") as raised:
        exported(run, "sft-messages", output)
    assert output.read_bytes() == before
    assert "--force" in str(raised.value.hint)
    exported(run, "sft-messages", output, force=True)
    assert set(read_lines(output)[0]) == {"messages"}


def test_an_empty_export_removes_the_stale_file(tmp_path: Path, run: Path) -> None:
    output = tmp_path / "out.jsonl"
    exported(run, "sft-messages", output)
    rewrite_rows(run, "rollout", lambda row: {**row, "score": {**row["score"], "passed": False}})
    report = exported(run, "sft-messages", output)
    assert (report["written"], report["counts"]["left_out"]) == (0, {"failed": 6})
    assert files(tmp_path) == []


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_an_export_that_fails_leaves_the_earlier_one(
    tmp_path: Path, run: Path, suffix: str
) -> None:
    output = tmp_path / f"out{suffix}"
    exported(run, "verl", output)
    before = output.read_bytes()
    rows = (run / "rows.jsonl").read_bytes()
    (run / "rows.jsonl").write_bytes(rows[: rows.rindex(b"\n", 0, -1) + 1])
    with pytest.raises(UsageError, match=r"rows\.jsonl: holds 5 rows where summary.json says 6"):
        exported(run, "verl", output)
    (run / "rows.jsonl").write_bytes(rows[:-9])
    with pytest.raises(UsageError, match=r"rows\.jsonl:6: cannot be read"):
        exported(run, "verl", output)
    assert output.read_bytes() == before
    assert files(tmp_path) == [f"out{suffix}", f"out{suffix}.meta.json"]


def test_the_runs_own_files_are_never_replaced(run: Path) -> None:
    before = (run / "rows.jsonl").read_bytes()
    with pytest.raises(UsageError, match="is a file of the run itself"):
        exported(run, "sft-messages", run / "rows.jsonl", force=True)
    assert (run / "rows.jsonl").read_bytes() == before


def test_messages_of_mixed_shape_fit_jsonl_only(tmp_path: Path) -> None:
    parts = [{"role": "user", "content": [{"type": "text", "text": "Say yes."}]}]
    run = run_of(tmp_path, {"replies": ["yes"]}, {"replies": ["yes"], "question": parts})
    with pytest.raises(UsageError, match="fit no parquet columns") as raised:
        exported(run, "sft-messages", tmp_path / "out.parquet")
    assert ".jsonl" in str(raised.value.hint)
    assert files(tmp_path) == []
    assert exported(run, "sft-messages", tmp_path / "out.jsonl")["written"] == 2


@pytest.mark.parametrize("name", ["out.csv", "out", "out.jsonl.gz"])
def test_other_files_are_refused(tmp_path: Path, run: Path, name: str) -> None:
    with pytest.raises(UsageError, match="is of no format that exports write"):
        exported(run, "sft-messages", tmp_path / name)


def test_a_command_whose_rows_do_not_fit_is_named(tmp_path: Path) -> None:
    run = run_of(tmp_path, TASKS[0], command="learning-zone")
    with pytest.raises(UsageError, match="dpo cannot be made of learning-zone rows") as raised:
        exported(run, "dpo", tmp_path / "out.jsonl")
    assert "rollout, best-of-n" in str(raised.value.hint)


def test_without_pyarrow_parquet_says_what_to_install(tmp_path: Path, run: Path) -> None:
    code = (
        "import sys; sys.modules['pyarrow'] = None; "
        "from labelkit.cli import main; sys.argv[0] = 'labelkit'; main()"
    )
    command = [sys.executable, "-c", code, "export", run, "--to", "dpo", "-o"]
    done = subprocess.run(
        [*map(str, command), str(tmp_path / "out.parquet")],
        capture_output=True,
        text=True,
        env=environment(),
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert "labelkit[parquet]" in done.stderr
    assert files(tmp_path) == []
