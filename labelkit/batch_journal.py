"""What was submitted to a batch API, written down before anyone waits for it.

`batches.jsonl` in the run directory, one event a line. An input file without an event was never
submitted; one that is `submitting` may have been; a batch that is not `collected` still owes its
results. Input files and the draws behind their rows stand beside it until then.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labelkit import codec


@dataclass(frozen=True)
class Submitted:
    """A file that may cost something: `batch_id` None where it is not known to have started."""

    number: int
    file_id: str
    api: str
    batch_id: str | None


class BatchJournal:
    """The journal of one run directory; opening it reads it."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "batches.jsonl"
        self._directory = directory
        self._submitted: dict[int, Submitted] = {}
        self._last = 0
        for event in self._events():
            self._take(event)

    def open_batches(self) -> list[Submitted]:
        """What was submitted and not collected, in order."""
        return [self._submitted[number] for number in sorted(self._submitted)]

    def next_number(self) -> int:
        """A number for a new input file."""
        self._last += 1
        return self._last

    def submitting(self, number: int, file_id: str, api: str) -> None:
        self._write({"event": "submitting", "number": number, "file_id": file_id, "api": api})

    def submitted(self, number: int, batch_id: str) -> None:
        self._write({"event": "submitted", "number": number, "batch_id": batch_id})

    def collected(self, number: int) -> None:
        self._write({"event": "collected", "number": number})
        for path in (self.rows(number), self.draws(number)):
            path.unlink(missing_ok=True)

    def rows(self, number: int) -> Path:
        """The input file of that number."""
        return self._directory / f"batch-{number:04}.jsonl"

    def draws(self, number: int) -> Path:
        """The draws behind its rows, a line each."""
        return self._directory / f"batch-{number:04}.draws.jsonl"

    def _events(self) -> Iterator[dict[str, Any]]:
        if not self._path.exists():
            return
        raw = self._path.read_bytes()
        whole, torn = raw.rpartition(b"\n")[0], not raw.endswith(b"\n")
        if torn:  # the event was never acknowledged
            os.truncate(self._path, len(whole) + 1 if whole else 0)
        for line in whole.split(b"\n"):
            event: Any = codec.loads(line)
            yield event

    def _take(self, event: dict[str, Any]) -> None:
        number = event["number"]
        self._last = max(self._last, number)
        if event["event"] == "collected":
            del self._submitted[number]
        elif event["event"] == "submitting":
            self._submitted[number] = Submitted(number, event["file_id"], event["api"], None)
        else:
            before = self._submitted[number]
            self._submitted[number] = Submitted(
                number, before.file_id, before.api, event["batch_id"]
            )

    def _write(self, event: dict[str, Any]) -> None:
        with open(self._path, "ab") as file:
            file.write(codec.dumps(event) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        self._take(event)
