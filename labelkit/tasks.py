"""Task sources: an inline list or a file becomes a stream of tasks, in order, any number of times.

Before anything is spent, one `survey` reads the whole source and reports every fault at once. It
leaves an int a row behind, which says what later passes yield, so that memory stays bounded however
long the file is. Task text is never repaired.
"""

from __future__ import annotations

import hashlib
import sqlite3
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import JsonValue

from labelkit.codec import canonical, dumps
from labelkit.errors import Fault, SpecError, UsageError
from labelkit.records import Dropped, Task
from labelkit.rowfiles import MISSING, RowFile, RowSpool, SourceRow, lookup
from labelkit.spec import Document, Path_, SectionError, TaskFile, dotted
from labelkit.task_fields import Draft, RowReader, missing_column

MAX_FAULTS = 50
MAX_WARNINGS = 20

GoldCheck = Callable[[Task], str | None]
"""Why a task's gold cannot be used, or None."""

_BAD_GOLD, _DUPLICATE = -1, -2


@dataclass(frozen=True)
class Survey:
    """What one pass over a task source found.

    `n_tasks` are yielded, `n_bad_golds` and `n_duplicates` dropped. `n_same_prompt` counts tasks
    whose prompt an earlier one has (dropped or not), `n_conflicting` those of them with another
    gold. `digest` is sha256 hex over (id, prompt, gold) of every task in the order of the stream.
    """

    n_tasks: int
    n_bad_golds: int
    n_duplicates: int
    n_same_prompt: int
    n_conflicting: int
    warnings: tuple[str, ...]
    digest: str


class TaskStream:
    """A source of tasks; each iteration reads it anew, and two may go on side by side.

    `folder` is where relative paths start; with the `document` of the spec, faults name its lines,
    and `at` is where the source stands there. `shown` names the source in messages. Iterating a
    stream that was not surveyed surveys it first (without a check of golds), so iterating may raise
    SpecError, and UsageError where the file changes between two passes.
    """

    def __init__(
        self,
        source: TaskFile | list[dict[str, JsonValue]],
        folder: Path,
        document: Document | None = None,
        at: Path_ = ("tasks",),
    ) -> None:
        self._document = document
        self._at = at
        self._survey: Survey | None = None
        self._check: GoldCheck | None = None
        self._fates = array("i")
        self._shuffled: RowSpool | None = None
        if isinstance(source, list):
            self.settings = TaskFile(file="")
            self._file: RowFile | None = None
            self._inline = source
            self.shown = document.shown if document else "tasks"
            self._reader = RowReader(None)
            return
        self.settings = source
        self._inline = []
        self.shown = str(folder / source.file)
        try:
            self._file = RowFile(folder / source.file, self.shown)
        except SpecError as error:
            [fault] = error.faults
            problem = f"{self.shown} {fault.problem}"
            raise SpecError([self._spec_fault(("file",), problem, fault.fix)]) from None
        try:
            self._reader = RowReader(source.fields)
        except SectionError as error:
            raise SpecError(
                [self._spec_fault(("fields", *at), said, fix) for at, said, fix in error.problems]
            ) from None
        self._signature = self._file.signature

    def __iter__(self) -> Iterator[Task]:
        if self._survey is None:
            survey(self)
        if self._shuffled is not None:
            for row, fate in self._shuffled:
                draft = self._reader.read(row)
                assert isinstance(draft, Draft)
                yield self._task(draft, fate)
            return
        for draft, fate in self._settled():
            if fate > 0:
                yield self._task(draft, fate)

    def dropped(self) -> Iterator[Dropped]:
        """The tasks that the stream leaves out, in the source's order."""
        if self._survey is None:
            survey(self)
        for draft, fate in self._settled():
            if fate == _BAD_GOLD:
                task = self._task(draft, 1)
                reason = draft.bad_gold or (self._check and self._check(task))
                yield Dropped(id=task.id, reason="bad_gold", detail=reason or None)
            elif fate == _DUPLICATE:
                detail = f"line {draft.source.line} has the prompt of an earlier task"
                yield Dropped(id=self._task(draft, 1).id, reason="duplicate_prompt", detail=detail)

    def _settled(self) -> Iterator[tuple[Draft, int]]:
        """Every draft with what the survey decided: its occurrence from 1, or why it is dropped."""
        self._check_unchanged()
        fates = iter(self._fates)
        for row in self._rows():
            if not isinstance(row, Fault) and not self._wanted(row):
                continue
            draft = None if isinstance(row, Fault) else self._reader.read(row)
            fate = next(fates, None)
            if not isinstance(draft, Draft) or fate is None:
                self._check_unchanged()
                raise UsageError(f"{self.shown} reads otherwise than before")
            yield draft, fate

    def _check_unchanged(self) -> None:
        if self._file is not None and self._file.signature != self._signature:
            hint = "run the command again"
            raise UsageError(f"{self.shown} has changed since it was first read", hint=hint)

    def _task(self, draft: Draft, occurrence: int) -> Task:
        """`occurrence` counts tasks of the same prompt and gold, from 1."""
        identity = draft.id
        if identity is None and self._file is None:
            identity = f"t{draft.source.line}"
        if identity is None:
            identity = hashlib.sha256(canonical([*_content(draft)])).hexdigest()[:16]
            identity += f"-{occurrence}" if occurrence > 1 else ""
        return Task(
            id=identity,
            prompt=draft.prompt,
            gold=draft.gold,
            metadata=draft.metadata,
            row=draft.source.values,
            line=draft.source.line,
        )

    def _rows(self) -> Iterator[SourceRow | Fault]:
        if self._file is not None:
            return iter(self._file)
        return (SourceRow(line, values) for line, values in enumerate(self._inline, 1))

    def _wanted(self, row: SourceRow) -> bool:
        in_csv = self._file is not None and self._file.format == ".csv"
        for column, value in self.settings.where.items():
            found = lookup(row.values, column)
            if in_csv and isinstance(found, str) and not isinstance(value, str):
                value = "" if value is None else dumps(value).decode()
                found = found.strip().lower()
            if found != value or isinstance(found, bool) != isinstance(value, bool):
                return False
        return True

    def _fault(self, line: int, at: Path_, problem: str, fix: str | None) -> Fault:
        """A fault of a row: in its file, or in the spec where tasks stand in it."""
        if self._file is None:
            return self._spec_fault((line - 1, *at), problem, fix)
        return Fault(problem, self.shown, line, dotted(at), fix)

    def _spec_fault(self, at: Path_, problem: str, fix: str | None) -> Fault:
        """A fault of the section of the spec that names the source."""
        if self._document is not None:
            return self._document.fault((*self._at, *at), problem, fix)
        return Fault(problem, None, None, dotted((*self._at, *at)), fix)


def survey(stream: TaskStream, check: GoldCheck | None = None) -> Survey:
    """Read the whole source once, before anything is spent.

    `check` says what is wrong with a gold; with `on_bad_gold: drop` such tasks are left out of the
    stream from then on. Raises SpecError with all faults (the first 50, and how many more).
    """
    return _Surveyor(stream, check).run()


def faults_in(stream: TaskStream, check: GoldCheck | None) -> tuple[Fault, ...]:
    """What a survey would raise."""
    try:
        survey(stream, check)
    except SpecError as error:
        return tuple(error.faults)
    return ()


class _Surveyor:
    """The state of one pass. What was seen is kept in a temporary database on disk, which sqlite
    deletes by itself, so that a million tasks do not fill the memory."""

    def __init__(self, stream: TaskStream, check: GoldCheck | None) -> None:
        self.stream = stream
        self.check = check
        self.fates = array("i")
        self.faults: list[Fault] = []
        self.n_faults = 0
        self.warnings: list[str] = []
        self.n_same = self.n_conflicting = self.n_warned = 0
        self.sha = hashlib.sha256()
        self.spool = RowSpool() if stream.settings.shuffle is not None else None
        self.seen = sqlite3.connect("", isolation_level=None)

    def run(self) -> Survey:
        self.seen.executescript(
            "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;"
            "CREATE TABLE ids (key BLOB PRIMARY KEY, line INT, n INT) WITHOUT ROWID;"
            "CREATE TABLE prompts (key BLOB PRIMARY KEY, line INT, gold BLOB) WITHOUT ROWID;"
            "BEGIN"
        )
        stream = self.stream
        try:
            if self._header():
                self._rows()
                stream._check_unchanged()
        finally:
            self.seen.close()
        if self.faults:
            if self.n_faults > len(self.faults):
                more = f"and {self.n_faults - len(self.faults):,} more faults"
                self.faults.append(Fault(more, stream.shown))
            raise SpecError(self.faults)
        seed = stream.settings.shuffle
        if self.spool is not None and seed is not None:
            self.spool.shuffle(seed)
            self.sha.update(b"shuffle %d" % seed)
        if self.n_warned > len(self.warnings):
            self.warnings.append(f"and {self.n_warned - len(self.warnings):,} more like these")
        n_bad_golds, n_duplicates = self.fates.count(_BAD_GOLD), self.fates.count(_DUPLICATE)
        found = Survey(
            n_tasks=len(self.fates) - n_bad_golds - n_duplicates,
            n_bad_golds=n_bad_golds,
            n_duplicates=n_duplicates,
            n_same_prompt=self.n_same,
            n_conflicting=self.n_conflicting,
            warnings=tuple(self.warnings),
            digest=self.sha.hexdigest(),
        )
        stream._survey, stream._check = found, self.check
        stream._fates, stream._shuffled = self.fates, self.spool
        return found

    def _header(self) -> bool:
        """Whether the columns, where a header names them, are those that are asked for."""
        columns = self.stream._file.columns if self.stream._file else None
        if columns is None:
            return True
        for problem in self.stream._reader.header(columns):
            self._add(self.stream._fault(1, *problem))
        for column in self.stream.settings.where:
            if lookup(dict.fromkeys(columns), column.partition(".")[0]) is MISSING:
                problem = missing_column(f"where.{column}", column, columns)
                self._add(self.stream._spec_fault(*problem))
        return not self.faults

    def _rows(self) -> None:
        stream = self.stream
        sought = {("where", name): name for name in stream.settings.where}
        for name, column in stream._reader.columns.items():
            if name.startswith("metadata."):
                sought["fields", name] = column
        keys: list[str] = []
        n_wanted = 0
        for row in stream._rows():
            if isinstance(row, Fault):
                self._add(row)
                continue
            keys = list(row.values)
            for at in [
                at for at, name in sought.items() if lookup(row.values, name) is not MISSING
            ]:
                del sought[at]
            if not stream._wanted(row):
                continue
            n_wanted += 1
            draft = stream._reader.read(row)
            if isinstance(draft, Draft):
                self.fates.append(self._settle(draft))
            else:
                for problem in draft:
                    self._add(stream._fault(row.line, *problem))
        if keys:
            for at, name in sought.items():
                self._add(stream._spec_fault(at, *missing_column(name, name, keys)[1:]))
        if self.faults or any(fate > 0 for fate in self.fates):
            return
        said, fix = "has no tasks", "add at least one"
        if n_wanted:
            said, fix = f"has {n_wanted:,} tasks, and the gold of each is bad", "mend the golds"
        elif keys:
            said, fix = "has rows, but none that `where` lets through", "check tasks: {where: …}"
        self._add(Fault(said, stream.shown, fix=fix))

    def _settle(self, draft: Draft) -> int:
        """What becomes of a task: its occurrence, or why it is dropped."""
        stream, line = self.stream, draft.source.line
        task = stream._task(draft, 1)
        bad_gold = draft.bad_gold or (self.check and self.check(task))
        if bad_gold:
            if stream.settings.on_bad_gold == "drop":
                return _BAD_GOLD
            fix = None if stream._file is None else "mend it, or tasks: {on_bad_gold: drop}"
            self._add(stream._fault(line, ("gold",), bad_gold, fix))
        if self._is_duplicate(draft) and stream.settings.dedupe:
            return _DUPLICATE
        occurrence = self._occurrence(task.id, line)
        if occurrence > 1 and draft.id is None and stream._file is not None:
            task = stream._task(draft, occurrence)
            occurrence_of_id = self._occurrence(task.id, line)
        else:
            occurrence_of_id, occurrence = occurrence, 1
        if occurrence_of_id > 1:
            self._add(self._same_id(task, line))
        self.sha.update(canonical([task.id, *_content(draft)]) + b"\n")
        if self.spool is not None:
            self.spool.append(draft.source, occurrence)
        return occurrence

    def _is_duplicate(self, draft: Draft) -> bool:
        """Whether an earlier task has the prompt; noted with what is different."""
        prompt, gold = (_key(canonical(part)) for part in _content(draft))
        line = draft.source.line
        new = "INSERT OR IGNORE INTO prompts VALUES (?, ?, ?)"
        if self.seen.execute(new, (prompt, line, gold)).rowcount:
            return False
        known = "SELECT line, gold FROM prompts WHERE key = ?"
        first, first_gold = self.seen.execute(known, (prompt,)).fetchone()
        self.n_same += 1
        self.n_conflicting += gold != first_gold
        if gold == first_gold and self.stream.settings.dedupe:
            return True
        self.n_warned += 1
        if len(self.warnings) < MAX_WARNINGS:
            other = "with another gold" if gold != first_gold else "and the same gold"
            place = f"{self.stream.shown}:{line}" if self.stream._file else f"task {line}"
            self.warnings.append(f"{place}: has the prompt of {self._named(first)}, {other}")
        return True

    def _occurrence(self, identity: str, line: int) -> int:
        key = _key(identity.encode())
        new = "INSERT OR IGNORE INTO ids VALUES (?, ?, 1)"
        if self.seen.execute(new, (key, line)).rowcount:
            return 1
        self.seen.execute("UPDATE ids SET n = n + 1 WHERE key = ?", (key,))
        (n,) = self.seen.execute("SELECT n FROM ids WHERE key = ?", (key,)).fetchone()
        return int(n)

    def _same_id(self, task: Task, line: int) -> Fault:
        known = "SELECT line FROM ids WHERE key = ?"
        (first,) = self.seen.execute(known, (_key(task.id.encode()),)).fetchone()
        problem = f"{task.id!r} is also the id of {self._named(first)}"
        fix = "give each task its own"
        if "provenance" in (task.row or {}):
            fix += "; of rows that share a prompt, tasks: {dedupe: true} keeps the first"
        return self.stream._fault(line, ("id",), problem, fix)

    def _named(self, line: int) -> str:
        return f"line {line}" if self.stream._file else f"task {line}"

    def _add(self, fault: Fault) -> None:
        self.n_faults += 1
        if len(self.faults) < MAX_FAULTS:
            self.faults.append(fault)


def _content(draft: Draft) -> tuple[JsonValue, JsonValue]:
    """What a task without an id is known by: prompt and gold."""
    prompt = draft.prompt if isinstance(draft.prompt, str) else list[JsonValue](draft.prompt)
    return prompt, draft.gold


def _key(raw: bytes) -> bytes:
    return hashlib.sha256(raw).digest()[:16]
