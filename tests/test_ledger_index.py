"""The index of a ledger: what it finds, and that it never stands above the ledger."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from labelkit.ledger_index import Index
from tests.test_ledger import completion, written


def stored_texts(index: Index, task: str) -> list[str]:
    found: list[Any] = list(index.stored(task).completions.values())
    return [record["completion"]["text"] for record in found]


def test_the_index_finds_a_task_among_many_and_follows_appends(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    written(path, *(completion(f"t{i % 50}", i, str(i)) for i in range(500)))
    index = Index(path, tmp_path / "index.sqlite")
    index.catch_up()
    assert stored_texts(index, "t7") == [str(i) for i in range(7, 500, 50)]
    written(path, completion("t7", 1000, "late"))
    assert "late" not in stored_texts(index, "t7")
    index.catch_up()
    assert stored_texts(index, "t7")[-1] == "late"
    index.close()


@pytest.mark.parametrize("harm", ["garbage", "other ledger", "missing"])
def test_the_index_is_rebuilt_when_it_does_not_fit(tmp_path: Path, harm: str) -> None:
    path, where = tmp_path / "ledger.jsonl", tmp_path / "index.sqlite"
    written(path, completion("a", 0, "old"))
    index = Index(path, where)
    index.catch_up()
    index.close()
    if harm == "garbage":
        where.write_bytes(b"no database" * 1000)
    elif harm == "missing":
        where.unlink()
    else:
        path.unlink()
    written(path, completion("a", 1, "new"), completion("b", 0, "b"))
    index = Index(path, where)
    totals = index.catch_up()
    expected = ["new"] if harm == "other ledger" else ["old", "new"]
    assert stored_texts(index, "a") == expected
    assert totals.answered == len(expected) + 1
    index.close()


def test_an_index_killed_at_any_write_misses_no_record(tmp_path: Path) -> None:
    """SIGXFSZ kills the child at its first write behind each page: between the pages that say how
    far the index reaches and those that hold the records, among others."""
    path, where, old = tmp_path / "ledger.jsonl", tmp_path / "index.sqlite", tmp_path / "old"
    written(path, *(completion(f"t{i}", 0, str(i)) for i in range(400)))
    index = Index(path, old)
    index.catch_up()
    index.close()
    written(path, *(completion(f"t{i}", 1, "late") for i in range(40)))
    code = f"""
        import resource, signal, sys
        from pathlib import Path
        from labelkit.ledger_index import Index
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), hard))
        Index(Path({str(path)!r}), Path({str(where)!r})).catch_up()
    """
    killed = 0
    for limit in range(4096, old.stat().st_size, 4096):
        where.write_bytes(old.read_bytes())
        child = [sys.executable, "-c", textwrap.dedent(code), str(limit)]
        killed += subprocess.run(child, timeout=60, check=False).returncode == -signal.SIGXFSZ
        index = Index(path, where)
        index.catch_up()
        assert [stored_texts(index, f"t{i}") for i in range(40)] == [
            [str(i), "late"] for i in range(40)
        ], limit
        index.close()
    assert killed


def test_an_index_that_finds_no_space_says_so(tmp_path: Path) -> None:
    path, where = tmp_path / "ledger.jsonl", tmp_path / "index.sqlite"
    written(path, *(completion(f"t{i}", 0) for i in range(400)))
    code = f"""
        import resource, signal
        from pathlib import Path
        from labelkit.errors import StorageError
        from labelkit.ledger_index import Index
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        for limit in 4096, 24576:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
            try:
                Index(Path({str(path)!r}), Path({str(where)!r})).catch_up()
            except StorageError as error:
                assert str(error).startswith({str(where)!r}), error
            else:
                raise SystemExit("an index without room for its records")
    """
    child = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(child, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    index = Index(path, where)
    assert index.catch_up().answered == 400
    index.close()


def test_the_first_completion_wins_and_a_success_replaces_a_failure(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    failure = {**completion("a", 0), "kind": "failure", "failure": {"owed": False}}
    written(path, failure, completion("a", 0, "first"), completion("a", 0, "second"))
    index = Index(path, tmp_path / "index.sqlite")
    index.catch_up()
    assert stored_texts(index, "a") == ["first"]
    assert index.stored("a").failures == {}
    index.close()


def test_a_call_without_an_answer_counts_as_spent(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    sent = {**completion("a", 0), "kind": "sent", "worst_usd": 0.5}
    answered = completion("a", 0, reserved_pico=500_000_000_000, spent_usd=0.125)
    written(path, sent, answered, {**sent, "sample_index": 1})
    index = Index(path, tmp_path / "index.sqlite")
    totals = index.catch_up()
    assert totals.unanswered == 1
    assert totals.spent_usd == pytest.approx(0.625)
    index.close()
