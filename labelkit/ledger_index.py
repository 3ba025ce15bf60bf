"""Where a task's records stand in a ledger, what they say, and what the whole ledger sums to.

`index.sqlite` maps tasks to byte ranges on disk, so that memory never grows with the number of
tasks. It is rebuildable and never trusted over the ledger: it catches up with what was appended,
and starts anew where it does not fit.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sqlite3
import zlib
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from labelkit.errors import LedgerCorruptError, StorageError
from labelkit.ledger import RecordFields, decode, records


class Stored:
    """One task's part of a ledger: what was drawn, and how it was scored.

    Draws are told apart by (stage, request digest, sample index). The first completion wins; a
    later outcome replaces a failure. Kept in step by the engine while the task runs.
    `set_aside`: replies of another model than the run's, which count for their cost alone. Earlier
    versions wrote them as completions; `served`, the run's model by stage family, tells them.
    """

    Slot = tuple[str, str, int]

    def __init__(self, served: Mapping[str, str] | None = None) -> None:
        self._served = served or {}
        self.requests: dict[str, RecordFields] = {}
        self.completions: dict[Stored.Slot, RecordFields] = {}
        self.failures: dict[Stored.Slot, RecordFields] = {}
        self.unavailable: set[Stored.Slot] = set()
        self.scores: dict[tuple[Stored.Slot, str], RecordFields] = {}
        self.set_aside: list[RecordFields] = []

    def add(self, record: RecordFields) -> None:
        """Take in one record of this task. Raises KeyError for a record that is none of ours."""
        fields: Any = record
        kind = fields["kind"]
        if kind == "request":
            self.requests.setdefault(fields["request"], record)
            return
        slot = (fields["stage"], fields["request"], fields["sample_index"])
        if kind == "set_aside" or (kind == "completion" and self._is_anothers(fields)):
            self.set_aside.append(record)
        elif kind == "completion":
            self.completions.setdefault(slot, record)
            self.failures.pop(slot, None)
            self.unavailable.discard(slot)
        elif kind == "failure" and slot not in self.completions:
            self.failures[slot] = record
        elif kind == "unavailable":
            self.unavailable.add(slot)
        elif kind == "score":
            self.scores[slot, fields["key"]] = record

    def _is_anothers(self, fields: Any) -> bool:
        """What was copied from another run was judged there."""
        name = fields["completion"].get("model_served")
        first = self._served.get(fields["stage"].partition("/")[0])
        return None not in (name, first) and name != first and "from" not in fields

    def missing(self, slot: Stored.Slot) -> str:
        """Why a draw has no outcome here: the reason of its NotRun."""
        if slot in self.unavailable:
            return "unavailable"
        aside: list[Any] = list(self.set_aside)
        slots = [(each["stage"], each["request"], each["sample_index"]) for each in aside]
        return "another_model" if slot in slots else "not_run"

    def final(self, stage: str, request: str) -> set[int]:
        """The sample indexes of a request that need no call: there is a reply, a failure that is
        not owed, or the sampler has no such sample."""
        failed = (slot for slot, record in self.failures.items() if not _is_owed(record))
        return {
            index
            for at, digest, index in (*self.completions, *failed, *self.unavailable)
            if at == stage and digest == request
        }


class Index:
    """Byte ranges of each task's records but `sent`, and the totals of the whole ledger, on disk.

    Rebuilt from the ledger whenever it is missing, damaged or of another ledger.
    """

    VERSION = 5

    def __init__(self, ledger: Path, index: Path) -> None:
        self._ledger = ledger
        self._path = index
        self._file: int | None = None
        try:
            self._open()
        except sqlite3.DatabaseError:
            self._database.close()
            self._path.unlink(missing_ok=True)
            with self._named():
                self._open()

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        """sqlite's errors, which name no file, as StorageError."""
        try:
            yield
        except sqlite3.Error as error:
            raise StorageError(
                f"{self._path}: {error}",
                hint="free some space, or delete this file: it is made again from the ledger",
            ) from None

    def _open(self) -> None:
        self._database = sqlite3.connect(self._path, isolation_level=None)
        run = self._database.execute
        # sqlite's journal stays on disk: a kill inside a commit must not leave an index that is
        # said to reach further than its records do, as what it misses would be bought again.
        run("PRAGMA cache_size=-8000")
        run("CREATE TABLE IF NOT EXISTS state (name TEXT PRIMARY KEY, value TEXT)")
        run("CREATE TABLE IF NOT EXISTS records (task INTEGER, offset INTEGER, length INTEGER)")
        run("CREATE INDEX IF NOT EXISTS by_task ON records (task)")
        if self._state("version") != self.VERSION or self._stale():
            run("DELETE FROM records")
            run("DELETE FROM state")
            self._keep("version", self.VERSION)
        self._is_empty = self._state("indexed_to") is None
        self._served = Totals(self._state("totals")).first_served

    def _state(self, name: str) -> Any:
        row = self._database.execute("SELECT value FROM state WHERE name = ?", (name,)).fetchone()
        return None if row is None else json.loads(row[0])

    def _keep(self, name: str, value: Any) -> None:
        self._database.execute("REPLACE INTO state VALUES (?, ?)", (name, json.dumps(value)))

    def _stale(self) -> bool:
        """The last indexed line must still stand where it stood."""
        last = self._state("last")
        if last is None:
            return False
        offset, length, checksum = last
        try:
            with open(self._ledger, "rb") as file:
                file.seek(offset)
                return bool(zlib.crc32(file.read(length)) != checksum)
        except OSError:
            return True

    def catch_up(self) -> Totals:
        """Index what was appended since; verifies every record it passes. Returns the totals.

        Raises LedgerCorruptError, and StorageError where the index cannot be kept.
        """
        with self._named():
            return self._caught_up()

    def _caught_up(self) -> Totals:
        totals = Totals(self._state("totals"))
        start = self._state("indexed_to") or 0
        if not self._ledger.exists():
            return totals
        self._database.execute("BEGIN")
        try:
            rows: list[tuple[int, int, int]] = []
            last: tuple[int, int] | None = None
            for offset, length, record in records(self._ledger, start):
                totals.add(record)
                last = offset, length
                if record["kind"] != "sent":  # counted, and of no use to its task
                    rows.append((_task_key(str(record["task"])), offset, length))
                if len(rows) >= 10_000:
                    self._database.executemany("INSERT INTO records VALUES (?, ?, ?)", rows)
                    rows.clear()
            self._database.executemany("INSERT INTO records VALUES (?, ?, ?)", rows)
            if last is not None:
                with open(self._ledger, "rb") as file:
                    file.seek(last[0])
                    self._keep("last", [*last, zlib.crc32(file.read(last[1]))])
                self._keep("indexed_to", last[0] + last[1])
                self._keep("totals", totals.state())
            self._database.execute("COMMIT")
            self._is_empty &= last is None
            self._served = totals.first_served
        except BaseException:
            if self._database.in_transaction:  # sqlite may have ended it
                self._database.execute("ROLLBACK")
            raise
        return totals

    def stored(self, task_id: str) -> Stored:
        """What the ledger (as last caught up with) holds of a task, in order of writing."""
        stored = Stored(self._served)
        if self._is_empty:
            return stored
        with self._named():
            found = self._database.execute(
                "SELECT offset, length FROM records WHERE task = ? ORDER BY offset",
                (_task_key(task_id),),
            ).fetchall()
        for offset, length in found:
            record = self._read(offset, length)
            if record["task"] == task_id:
                stored.add(record)
        return stored

    @contextlib.contextmanager
    def unchanged(self) -> Iterator[None]:
        """While nothing is added, looking up a task need not ask each time whether it was."""
        with self._named():
            self._database.execute("BEGIN")
            try:
                yield
            finally:
                self._database.execute("ROLLBACK")

    def task_ids(self) -> Iterator[str]:
        """Every task that the ledger (as last caught up with) names, in order of appearance."""
        found = self._database.execute(
            "SELECT MIN(offset) AS first, length FROM records GROUP BY task ORDER BY first"
        )
        for offset, length in found:
            yield str(self._read(offset, length)["task"])

    def _read(self, offset: int, length: int) -> RecordFields:
        if self._file is None:
            self._file = os.open(self._ledger, os.O_RDONLY)
        record = decode(os.pread(self._file, length, offset))
        if record is None:
            raise LedgerCorruptError(f"{self._ledger}: the record at byte {offset:,} changed")
        return record

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
        self._database.close()


class Totals:
    """Sums over a whole ledger, in integers so that their order never matters.

    `spent_pico` (1e-12 USD): settled costs, plus the worst case of every call that was sent and
    never answered; `spent_tokens` likewise. `unanswered`: such calls. `unpriced_tokens`: of replies
    that came while no price was known, which no dollars count. `served`: served model names by
    stage family.
    """

    def __init__(self, state: Any = None) -> None:
        state = state or {}
        self.sent: int = state.get("sent", 0)
        self.answered: int = state.get("answered", 0)
        self.sent_pico: int = state.get("sent_pico", 0)
        self.answered_pico: int = state.get("answered_pico", 0)
        self.cost_pico: int = state.get("cost_pico", 0)
        self.tokens: int = state.get("tokens", 0)
        self.unpriced_tokens: int = state.get("unpriced_tokens", 0)
        self.sent_tokens: int = state.get("sent_tokens", 0)
        self.answered_tokens: int = state.get("answered_tokens", 0)
        self.served: dict[str, list[str]] = state.get("served", {})

    def state(self) -> dict[str, Any]:
        return dict(vars(self))

    @property
    def unanswered(self) -> int:
        return self.sent - self.answered

    @property
    def spent_usd(self) -> float:
        return (self.cost_pico + self.sent_pico - self.answered_pico) / 1e12

    @property
    def spent_tokens(self) -> int:
        return self.tokens + self.sent_tokens - self.answered_tokens

    @property
    def first_served(self) -> dict[str, str]:
        """The model that the run was sampled from, by stage family, where any was named."""
        return {family: names[0] for family, names in self.served.items() if names}

    def add(self, record: RecordFields) -> None:
        fields: Any = record
        kind = fields["kind"]
        if kind == "sent":
            self.sent += 1
            self.sent_pico += to_pico(fields.get("worst_usd"))
            self.sent_tokens += fields.get("worst_tokens") or 0
        elif kind in ("completion", "set_aside", "failure", "halted") and "from" not in fields:
            self.answered += fields["tries"]
            self.answered_pico += fields.get("reserved_pico", 0)
            self.answered_tokens += fields.get("reserved_tokens", 0)
            self.cost_pico += to_pico(fields.get("spent_usd"))
            self.tokens += fields.get("spent_tokens") or 0
        bought = kind in ("completion", "set_aside") and fields["tries"] and "from" not in fields
        if bought and "spent_usd" not in fields:
            self.unpriced_tokens += fields.get("spent_tokens") or 0
        if kind == "completion":
            name = fields["completion"].get("model_served")
            seen = self.served.setdefault(fields["stage"].partition("/")[0], [])
            if name and name not in seen and len(seen) < 20:
                seen.append(name)


def to_pico(usd: float | None) -> int:
    """USD in whole picodollars; 0 for unknown."""
    return round(usd * 1e12) if usd else 0


def _is_owed(record: RecordFields) -> bool:
    failure = record["failure"]
    return isinstance(failure, dict) and bool(failure["owed"])


@lru_cache(maxsize=4096)
def _task_key(task_id: str) -> int:
    """A signed 64-bit stand-in for a task id; collisions are told apart by the record itself."""
    short = hashlib.blake2b(task_id.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(short, "big", signed=True)
