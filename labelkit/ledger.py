"""The ledger: a run's append-only journal of what was paid for and how it was scored.

One JSON record a line, its CRC-32 as the last member, one writer for the life of a run (flock). A
record is acknowledged when its write returned: a killed process loses nothing that it paid for, a
power cut at most the last hundred records or, where more come in, the last second's. An
unterminated last line is what a kill leaves and is set aside; a bad record anywhere else is
corruption and is refused.

Nothing here knows what a recipe or a scorer is.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import time
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

from pydantic import JsonValue

from labelkit import codec
from labelkit.errors import LedgerCorruptError, LedgerLockedError, StorageError

RecordFields = dict[str, JsonValue]

SYNC_EVERY_RECORDS = 100
SYNC_EVERY_S = 1.0
SYNC_APART_S = 0.25
HOLD_S = 30.0
GATHERED_BYTES = 65_536

_CRC_BYTES = len(',"crc":"00000000"}\n')


class Lock:
    """Exclusive hold of a run directory for the life of this process; `path` names the holder."""

    def __init__(self, directory: Path) -> None:
        path = directory / "lock"
        self._file = self._taken(path)
        while not _is_file_at(self._file, path):
            # The directory was set aside between opening and locking: that is another run's lock.
            os.close(self._file)
            self._file = self._taken(path)
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, f"host {socket.gethostname()} pid {os.getpid()}\n".encode(), 0)

    def _taken(self, path: Path) -> int:
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(file, 200).decode("utf-8", "replace").strip()
            os.close(file)
            raise LedgerLockedError(
                f"{path.parent}: another process works on this run ({holder or 'unknown'})",
                hint="wait for it to end, or stop it: the run then resumes where it was",
            ) from None
        return file

    def release(self) -> None:
        os.close(self._file)


def _is_file_at(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return False


def encode(record: RecordFields) -> bytes:
    """A record as its line: compact JSON with `crc` (CRC-32 of the record without it) appended."""
    body = codec.dumps(record)
    return b'%b,"crc":"%08x"}\n' % (body[:-1], zlib.crc32(body))


def decode(line: bytes) -> RecordFields | None:
    """The record of a whole line with its newline, None where the line is not intact."""
    body = line[:-_CRC_BYTES] + b"}"
    if len(line) <= _CRC_BYTES or line[-_CRC_BYTES:] != b',"crc":"%08x"}\n' % zlib.crc32(body):
        return None
    record = codec.loads(body)
    return record if isinstance(record, dict) else None


class Writer:
    """Appends to a ledger file. One at a time, under the run's `Lock`.

    `sync_records`: from how many unsynced records on they are synced, though no more often than
    every `SYNC_APART_S`; None: only the clock counts.
    When the disk refuses a write, `on_blocked` is told once and records are held in memory, to be
    written when space is free again; `close` gives up after `HOLD_S` and raises StorageError.
    """

    def __init__(
        self,
        path: Path,
        *,
        sync_records: int | None = SYNC_EVERY_RECORDS,
        on_blocked: Callable[[str], None] = lambda why: None,
    ) -> None:
        _mend_tail(path)
        self._path = path
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._sync_records = sync_records
        self._on_blocked = on_blocked
        self._held = bytearray()
        self._gathered = bytearray()
        self._wrote = False
        self._unsynced = 0
        self._synced_at = time.monotonic()
        self._syncer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="ledger-sync")
        self._syncing: Future[None] | None = None
        self._sync_begun_at = -SYNC_APART_S
        self._covered = 0
        _sync_directory(path.parent)

    def append(self, record: RecordFields, *, with_next: bool = False) -> None:
        """Write one record; it is safe from a kill of this process when this returns.

        `with_next`: it is written with the next one, at the latest by `tick`. For records that cost
        nothing to make again.
        """
        line = encode(record)
        self._wrote = True
        self._unsynced += 1
        if self._held:
            self._held += line
            self._retry()
            return
        self._gathered += line
        if with_next and len(self._gathered) < GATHERED_BYTES:
            return
        self.flush()
        if self._sync_records is not None:
            self._sync_behind(self._sync_records)

    def flush(self) -> None:
        """Write what waits for a next record."""
        if self._gathered:
            gathered, self._gathered = self._gathered, bytearray()
            self._write(gathered)

    def tick(self) -> None:
        """To be called about once a second: syncs by the clock, retries held records, and tells
        `on_blocked` of a ledger that was deleted: what is bought from then on would be lost."""
        if self._is_deleted():
            self._on_blocked(f"{self._path}: was deleted while the run went on")
        if self._held:
            self._retry()
        self.flush()
        if self._unsynced and time.monotonic() - self._synced_at >= SYNC_EVERY_S:
            self.sync()

    def _sync_behind(self, limit: int) -> None:
        """Sync in a thread, so that the disk holds up the event loop only where it takes longer
        than the time whose records may be lost. Syncs stand apart, as each one slows the writes
        beside it."""
        if self._unsynced < limit:
            return
        since_s = time.monotonic() - self._sync_begun_at
        if self._syncing is not None and (self._syncing.done() or since_s >= SYNC_EVERY_S):
            self._settle()
        if self._syncing is None and self._unsynced >= limit and since_s >= SYNC_APART_S:
            self._covered, self._sync_begun_at = self._unsynced, time.monotonic()
            self._syncing = self._syncer.submit(os.fdatasync, self._file)

    def _settle(self) -> None:
        """Wait for the sync under way. Raises what it raised."""
        if self._syncing is not None:
            syncing, self._syncing = self._syncing, None
            syncing.result()
            self._unsynced -= self._covered
            self._synced_at = time.monotonic()

    def sync(self) -> None:
        self.flush()
        self._settle()
        os.fdatasync(self._file)
        self._unsynced = 0
        self._synced_at = time.monotonic()

    def close(self) -> None:
        self.flush()
        deadline = time.monotonic() + HOLD_S
        while self._held and time.monotonic() < deadline:
            time.sleep(0.2)
            self._retry()
        held = len(self._held)
        if not held:
            self.sync()
        self._syncer.shutdown()
        deleted = self._wrote and self._is_deleted()
        os.close(self._file)
        if deleted:
            raise StorageError(f"{self._path}: was deleted while the run went on; it is lost")
        if held:
            raise StorageError(
                f"{self._path}: the disk is full; {held:,} bytes of the ledger were not written",
                hint="free some space and run the same command again",
            )

    def _is_deleted(self) -> bool:
        return os.fstat(self._file).st_nlink == 0

    def _retry(self) -> None:
        waiting, self._held = self._held, bytearray()
        self._write(waiting)

    def _write(self, lines: bytearray) -> None:
        rest = memoryview(lines)
        while rest:
            try:
                rest = rest[os.write(self._file, rest) :]
            except InterruptedError:
                continue
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT):
                    raise StorageError(f"{self._path}: {error.strerror}") from error
                self._held = bytearray(rest)
                self._on_blocked(f"{self._path}: {error.strerror}")
                return


def _mend_tail(path: Path) -> None:
    """Complete or set aside an unterminated last line, so that the next append starts a line."""
    try:
        file = open(path, "r+b")  # noqa: SIM115
    except FileNotFoundError:
        return
    with file:
        start = _last_line_start(file)
        file.seek(start)
        tail = file.read()
        if not tail:
            return
        if decode(tail + b"\n") is not None:
            file.write(b"\n")
        else:
            with open(path.with_name(path.name + ".torn"), "ab") as aside:
                aside.write(tail + b"\n")
            file.truncate(start)
        file.flush()
        os.fsync(file.fileno())


def _last_line_start(file: BinaryIO) -> int:
    """Offset just behind the last newline."""
    position = file.seek(0, os.SEEK_END)
    while position > 0:
        begin = max(0, position - 65_536)
        file.seek(begin)
        found = file.read(position - begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        position = begin
    return 0


def _sync_directory(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def records(path: Path, start: int = 0) -> Iterator[tuple[int, int, RecordFields]]:
    """Every record from byte `start` on as (offset, length, record).

    An unterminated last line is not a record. Raises LedgerCorruptError with the place.
    """
    with open(path, "rb") as file:
        file.seek(start)
        offset = start
        for line in file:
            if not line.endswith(b"\n"):
                return
            record = decode(line)
            if record is None:
                raise LedgerCorruptError(
                    f"{path}: the record at byte {offset:,} is damaged",
                    hint="run again with --repair: it moves them to ledger.jsonl.damaged",
                )
            yield offset, len(line), record
            offset += len(line)


def repair(path: Path) -> int:
    """Move every damaged line to `<name>.damaged` beside the ledger; returns how many."""
    temporary = path.with_name(path.name + ".repaired")
    damaged = 0
    with (
        open(path, "rb") as source,
        open(temporary, "wb") as sound,
        open(path.with_name(path.name + ".damaged"), "ab") as aside,
    ):
        for line in source:
            if not line.endswith(b"\n"):
                line += b"\n"
            if decode(line) is None:
                aside.write(line)
                damaged += 1
            else:
                sound.write(line)
        for file in (sound, aside):
            file.flush()
            os.fsync(file.fileno())
    os.replace(temporary, path)
    _sync_directory(path.parent)
    path.with_name("index.sqlite").unlink(missing_ok=True)
    return damaged
