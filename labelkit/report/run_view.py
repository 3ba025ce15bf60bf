"""A run directory as anyone may look at it: finished, going on, killed half-way, or read-only.

Needs neither spec nor tasks. Changes nothing in the directory and takes no lock there, so that no
look ever stands in the way of a run: its index is a copy in a temporary folder.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from labelkit import codec
from labelkit.attempts import read_attempt, read_sampled, settled_by_rule
from labelkit.directory import read_identity, read_json, read_lines
from labelkit.ledger_index import Index, Stored, Totals
from labelkit.records import Attempt, DrawKey, Outcome, Request, Sampled, Task
from labelkit.rows import task_line


@dataclass(frozen=True)
class Drawn:
    """One draw as the ledger has it; `attempt` None: a candidate not scored yet, or a draw of
    another stage, which only its candidate's score reads."""

    request: Request
    sampled: Sampled
    attempt: Attempt | None

    @property
    def key(self) -> DrawKey:
        return self.sampled.key


class RunView:
    """Reads a run; to be used as a context. Raises UsageError where there is no run."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.identity = read_identity(directory)
        self._summary = directory / "summary.json"
        self._stack = ExitStack()
        self._index: Index | None = None
        self._totals = Totals()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def summary(self) -> dict[str, Any] | None:
        """The summary, None where the run never came so far."""
        return read_json(self._summary) if self._summary.exists() else None

    @property
    def finished(self) -> bool:
        """The files speak of all that is in the ledger: nothing was drawn since."""
        ledger = self.directory / "ledger.jsonl"
        if not self._summary.exists() or not (self.directory / "tasks.jsonl").exists():
            return False
        return not ledger.exists() or ledger.stat().st_mtime <= self._summary.stat().st_mtime

    @property
    def totals(self) -> Totals:
        self._opened()
        return self._totals

    def lines(self) -> Iterator[dict[str, Any]]:
        """A line a task as in tasks.jsonl; of a run under way, from the ledger as it stands."""
        if self.finished:
            yield from read_lines(self.directory / "tasks.jsonl")
            return
        for task_id in self._opened().task_ids():
            yield self._line(task_id)

    def _line(self, task_id: str) -> dict[str, Any]:
        candidates = [each for each in self.drawn(task_id) if each.key.stage == "candidate"]
        attempts = tuple(each.attempt for each in candidates if each.attempt is not None)
        outcome = Outcome(task_id=task_id, status="not_run", attempts=attempts)
        line: dict[str, Any] = task_line(Task(id=task_id, prompt=""), outcome)
        return {**line, "status": "under way", "n_not_run": len(candidates) - len(attempts)}

    def drawn(self, task_id: str) -> list[Drawn]:
        """Every draw of a task: candidates first, then the other stages, each in sample order."""
        stored = self._opened().stored(task_id)
        outcomes = {**stored.failures, **stored.completions}
        slots = sorted(outcomes, key=lambda slot: (slot[0] != "candidate", slot[0], slot[2]))
        scores: dict[Stored.Slot, Any] = {
            slot: record for (slot, _), record in stored.scores.items()
        }
        found: list[Drawn] = []
        for slot in slots:
            stage, digest, sample_index = slot
            body: Any = stored.requests.get(digest)
            if body is None:
                continue
            request = Request.model_validate(body["body"])
            key = DrawKey(task_id=task_id, stage=stage, request=digest, sample_index=sample_index)
            sampled = read_sampled(outcomes[slot], key, request)
            found.append(Drawn(request, sampled, self._attempt(sampled, scores.get(slot))))
        return found

    def _attempt(self, sampled: Sampled, score: Any) -> Attempt | None:
        rules: Mapping[str, Any] = self.identity.get("score", {})
        settled = settled_by_rule(
            sampled,
            truncated_fails=rules.get("on_truncated") == "fail",
            invalid_fails=rules.get("on_invalid_output") == "fail",
        )
        if settled is not None or score is None:
            return settled
        return read_attempt(sampled, score)

    def gold(self, task_id: str) -> tuple[bool, Any]:
        """(known, gold) of a task, from the first row that carries it."""
        path = self.directory / "rows.jsonl"
        if path.exists():
            mark = codec.dumps(task_id)
            with open(path, "rb") as file:
                for raw in file:
                    row: Any = codec.loads(raw) if mark in raw else {}
                    if row.get("id") == task_id and "gold" in row:
                        return True, row["gold"]
        return False, None

    def _opened(self) -> Index:
        """The ledger's index, caught up, in a temporary folder."""
        if self._index is None:
            folder = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="labelkit-"))
            path = Path(folder) / "index.sqlite"
            _copy_index(self.directory / "index.sqlite", path)
            self._index = Index(self.directory / "ledger.jsonl", path)
            self._stack.callback(self._index.close)
            self._totals = self._index.catch_up()
        return self._index


def _copy_index(source: Path, target: Path) -> None:
    """Copy a run's index, so that only what was appended since is to be indexed.

    sqlite is not asked: its locks could make the run's own commit fail. Where a commit is under way
    or comes in between, nothing is left at `target`, and the index is made from the ledger.
    """
    before = _committed(source)
    if before is None:
        return
    try:
        shutil.copyfile(source, target)
        torn = _committed(source) != before
    except OSError:
        torn = True
    if torn:
        target.unlink(missing_ok=True)


def _committed(index: Path) -> bytes | None:
    """sqlite's count of commits (bytes 24 to 27); None within one, and where there is no file.

    https://www.sqlite.org/fileformat2.html: a journal stands beside the file while it changes.
    """
    try:
        with open(index, "rb") as file:
            counter = file.read(28)[24:]
    except OSError:
        return None
    return None if index.with_name(f"{index.name}-journal").exists() else counter
