"""The ledger under kills, torn tails, damage, a full disk and a second opener."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labelkit import ledger
from labelkit.errors import LedgerCorruptError, LedgerLockedError, StorageError
from labelkit.ledger import Lock, Writer, decode, encode, records, repair
from labelkit.ledger_index import Index


def completion(task: str, index: int, text: str = "hi", **more: Any) -> dict[str, Any]:
    return {
        "kind": "completion",
        "task": task,
        "stage": "candidate",
        "request": "r",
        "sample_index": index,
        "completion": {"text": text},
        "tries": 1,
        **more,
    }


def written(path: Path, *rows: dict[str, Any]) -> None:
    writer = Writer(path)
    for row in rows:
        writer.append(row)
    writer.close()


def texts(path: Path) -> list[str]:
    found: list[Any] = [record for _, _, record in records(path)]
    return [record["completion"]["text"] for record in found]


@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"])),
        st.integers() | st.text(st.characters(exclude_categories=["Cs"])) | st.none(),
        min_size=1,
    )
)
def test_a_record_survives_its_line_exactly(fields: dict[str, Any]) -> None:
    line = encode(fields)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert decode(line) == fields


@given(st.data())
def test_a_line_with_any_byte_changed_is_not_a_record(data: st.DataObject) -> None:
    line = bytearray(encode(completion("t", 0)))
    at = data.draw(st.integers(0, len(line) - 2))
    line[at] ^= data.draw(st.integers(1, 255))
    assert decode(bytes(line)) is None


def test_a_tail_torn_at_every_byte_loses_only_the_torn_record(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    first, last = encode(completion("a", 0, "one")), encode(completion("a", 1, "two"))
    for cut in range(len(last) + 1):
        path.write_bytes(first + last[:cut])
        written(path, completion("a", 2, "three"))
        whole = cut >= len(last) - 1
        assert texts(path) == (["one", "two", "three"] if whole else ["one", "three"])


def test_a_torn_tail_is_set_aside_not_deleted(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    path.write_bytes(encode(completion("a", 0)) + b'{"kind":"comp')
    written(path)
    assert (tmp_path / "ledger.jsonl.torn").read_bytes() == b'{"kind":"comp\n'


def test_damage_inside_is_refused_with_its_place_and_repaired_on_request(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    rows = [encode(completion("a", i, str(i))) for i in range(3)]
    path.write_bytes(rows[0] + rows[1].replace(b'"1"', b'"9"') + rows[2])
    with pytest.raises(LedgerCorruptError, match=f"byte {len(rows[0])}"):
        Index(path, tmp_path / "index.sqlite").catch_up()
    assert repair(path) == 1
    assert texts(path) == ["0", "2"]
    assert b'"9"' in (tmp_path / "ledger.jsonl.damaged").read_bytes()


def test_a_second_opener_is_told_who_holds_the_run(tmp_path: Path) -> None:
    lock = Lock(tmp_path)
    with pytest.raises(LedgerLockedError, match=f"pid {os.getpid()}"):
        Lock(tmp_path)
    lock.release()
    Lock(tmp_path).release()


def test_a_lock_is_of_the_directory_that_stands_there_now(tmp_path: Path) -> None:
    """A run that is set aside takes its lock along; who opened it before must not hold that one."""
    directory = tmp_path / "run"
    directory.mkdir()
    done = threading.Event()

    def set_aside() -> None:
        number = 0
        while not done.is_set():
            with contextlib.suppress(LedgerLockedError):
                lock = Lock(directory)
                number += 1
                directory.rename(tmp_path / str(number))
                lock.release()
                directory.mkdir()

    thread = threading.Thread(target=set_aside)
    thread.start()
    held = 0
    try:
        while held < 300:
            try:
                lock = Lock(directory)
            except (LedgerLockedError, FileNotFoundError):
                continue
            held += 1
            assert f"pid {os.getpid()}" in (directory / "lock").read_text()
            lock.release()
    finally:
        done.set()
        thread.join()


def test_acknowledged_records_survive_kill_nine(tmp_path: Path) -> None:
    """The child prints each index after its append returned; all printed ones must be there."""
    path = tmp_path / "ledger.jsonl"
    child = subprocess.Popen(
        [
            sys.executable,
            "-c",
            textwrap.dedent(
                f"""
                from pathlib import Path
                from labelkit.ledger import Writer
                from tests.test_ledger import completion
                writer = Writer(Path({str(path)!r}))
                for i in range(1_000_000):
                    writer.append(completion("t", i, str(i)))
                    print(i, flush=True)
                """
            ),
        ],
        stdout=subprocess.PIPE,
    )
    assert child.stdout is not None
    for _ in range(200):
        child.stdout.readline()
    child.send_signal(signal.SIGKILL)
    acknowledged = 200 + len(child.stdout.read().split(b"\n")) - 1
    child.wait(10)
    written(path)
    assert len(texts(path)) >= acknowledged


def test_what_can_be_made_again_is_written_with_the_next_record(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    writer = Writer(path)
    next_one = partial(writer.append, completion("t", 0, "next"))
    ends: list[Callable[[], None]] = [
        next_one,
        writer.tick,
        writer.flush,
        writer.sync,
        writer.close,
    ]
    for end in ends:
        before = path.stat().st_size
        writer.append(completion("t", 1, "cheap"), with_next=True)
        assert path.stat().st_size == before
        end()
        assert path.stat().st_size > before
    assert texts(path) == ["cheap", "next", *["cheap"] * 4]


def test_many_of_them_do_not_wait(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    writer = Writer(path)
    for i in range(9):
        writer.append(completion("t", i, "x" * 10_000), with_next=True)
    assert len(texts(path)) == 7
    writer.close()


def test_a_full_disk_holds_records_and_says_so(tmp_path: Path) -> None:
    """RLIMIT_FSIZE stands in for the full disk: first a short write, then EFBIG."""
    path = tmp_path / "ledger.jsonl"
    code = f"""
        import resource, signal
        from pathlib import Path
        from labelkit import ledger
        from labelkit.errors import StorageError
        from tests.test_ledger import completion
        ledger.HOLD_S = 0.1
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
        why = []
        writer = ledger.Writer(Path({str(path)!r}), on_blocked=why.append)
        for i in range(20):
            writer.append(completion("t", i, str(i)), with_next=i % 3 == 0)
        assert why and "large" in why[0], why
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        writer.tick()
        writer.close()
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
        writer = ledger.Writer(Path({str(path)!r}))
        writer.append(completion("t", 20, "20"))
        try:
            writer.close()
        except StorageError as error:
            assert "disk is full" in str(error)
        else:
            raise SystemExit("close lost a record without a word")
    """
    assert resource.getrlimit(resource.RLIMIT_FSIZE)
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    written(path)
    assert texts(path) == [str(i) for i in range(20)]
    assert StorageError.exit_code == 1


def test_a_hundred_records_are_put_on_the_disk_at_once_and_the_rest_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    safe: list[int] = []
    monkeypatch.setattr(os, "fdatasync", lambda file: safe.append(os.fstat(file).st_size))
    path = tmp_path / "ledger.jsonl"
    writer = Writer(path)
    for i in range(99):
        writer.append(completion("t", i))
    assert safe == []
    writer.append(completion("t", 99))
    size = path.stat().st_size
    while not safe:
        time.sleep(0.001)
    assert safe == [size]
    writer.append(completion("t", 100))
    writer.close()
    assert safe == [size, path.stat().st_size]


def test_a_disk_that_takes_over_a_second_to_sync_holds_up_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = threading.Event()
    monkeypatch.setattr(os, "fdatasync", lambda file: free.wait())
    monkeypatch.setattr(ledger, "SYNC_EVERY_S", 0.2)
    writer = Writer(tmp_path / "ledger.jsonl")
    for i in range(200):
        writer.append(completion("t", i))
    time.sleep(0.2)
    threading.Timer(0.2, free.set).start()
    writer.append(completion("t", 200))
    assert free.is_set()
    writer.close()


def test_a_ledger_that_was_deleted_stops_the_run(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    why: list[str] = []
    writer = Writer(path, on_blocked=why.append)
    writer.append(completion("t", 0))
    writer.tick()
    assert not why
    path.unlink()
    writer.tick()
    assert why == [f"{path}: was deleted while the run went on"]
    with pytest.raises(StorageError, match="was deleted"):
        writer.close()


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=400), st.integers(0, 2))
def test_any_bytes_are_recovered_or_refused_never_lost_silently(
    tmp_path_factory: pytest.TempPathFactory, junk: bytes, place: int
) -> None:
    """Junk behind the records is a torn tail or damage; records before it stay readable."""
    path = tmp_path_factory.mktemp("ledger") / "ledger.jsonl"
    rows = [encode(completion("a", i, str(i))) for i in range(3)]
    path.write_bytes(b"".join(rows[:place]) + junk + b"".join(rows[place:]))
    try:
        written(path)
        found = texts(path)
    except LedgerCorruptError:
        repair(path)
        found = texts(path)
    kept = [str(i) for i in range(3)]
    glued = kept.copy()
    if place < 3 and junk and not junk.endswith(b"\n"):
        glued.remove(str(place))
    assert found in (kept, glued)
