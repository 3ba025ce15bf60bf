"""Recorded replies: outputs made elsewhere, verified and filtered without a model.

A reply is found by its task's own row, or by an id field in a file of its own; in what order they
stand is their sample index. Only candidate draws are served. Nothing here needs a network library,
and memory does not grow with the file.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from pydantic import JsonValue

from labelkit import codec
from labelkit.errors import Fault, ProviderError, SpecError
from labelkit.records import Call, Completion, Request, Usage
from labelkit.rowfiles import MISSING, RowFile, lookup
from labelkit.samplers import Recorded, SamplerSettings, protocol
from labelkit.samplers.faults import Secrets

CANDIDATE = "candidate"
MAX_FAULTS = 50
_BATCH_ROWS = 1_000
_SHAPES = "OpenAI chat completions, batch output or messages that end with the assistant's"

Stored = dict[str, JsonValue]
"""A reply as the index keeps it: a completion payload, or `refused` with status and body."""


class RecordedSampler:
    """See `Sampler`. Free, seedless, never retried: what the file does not hold is no failure."""

    paid = False
    supports_seed = False
    endpoints = 1
    slots = None

    def __init__(self, settings: SamplerSettings, folder: Path) -> None:
        if settings.recorded is None:
            raise ValueError("a recorded sampler needs the `recorded` section")
        self._recorded = settings.recorded
        self._path = folder / settings.recorded.file
        self._secrets = Secrets({}, ())
        self._index: sqlite3.Connection | None = None

    async def sample(self, call: Call) -> Completion | None:
        """Raises SpecError where the file holds no replies of the form that the spec says, and
        ProviderError for a draw recorded as failed."""
        if call.key.stage != CANDIDATE:
            return None
        stored = self._by_row(call) if self._recorded.id is None else self._by_id(call)
        return None if stored is None else self._completion(stored)

    def price_usd(self, usage: Usage) -> float | None:
        return 0.0

    def check(self, request: Request) -> list[str]:
        """Reads the whole file where replies are joined by id; raises SpecError on its faults."""
        if self._recorded.text is not None and self._recorded.texts is not None:
            return ["recorded: give `text` (one path) or `texts` (several), not both"]
        if self._recorded.id is not None and self._index is None:
            self._index = self._read()
        return []

    async def served(self, endpoint: int) -> str | None:
        return None

    async def close(self) -> None:
        if self._index is not None:
            self._index.close()
            self._index = None

    def _by_row(self, call: Call) -> Stored | None:
        task = call.task
        if task.row is None:
            problem = f"task {task.id!r} has no row in {self._recorded.file}"
            fix = (
                "set recorded.id to the field that names the task, or read the tasks from this file"
            )
            raise SpecError([Fault(problem, field="recorded", fix=fix)])
        try:
            index = call.key.sample_index
            return next(islice(_replies(task.row, self._recorded), index, None), None)
        except ValueError as error:
            fault = Fault(str(error), self._recorded.file, task.line, "recorded")
            raise SpecError([fault]) from None

    def _by_id(self, call: Call) -> Stored | None:
        if self._index is None:
            self._index = self._read()
        found = self._index.execute(
            "SELECT stored FROM replies WHERE task = ? ORDER BY rowid LIMIT 1 OFFSET ?",
            (_short(call.task.id), call.key.sample_index),
        ).fetchone()
        if found is None:
            return None
        stored = codec.loads(found[0])
        return stored if isinstance(stored, dict) else None

    def _read(self) -> sqlite3.Connection:
        """The file's replies in a private temporary database, which the system keeps on disk and
        removes with the connection."""
        index = sqlite3.connect("", check_same_thread=False, isolation_level=None)
        index.execute("CREATE TABLE replies (task BLOB, stored BLOB)")
        index.execute("BEGIN")
        faults: list[Fault] = []
        pending: list[tuple[bytes, bytes]] = []
        for row in RowFile(self._path, self._recorded.file):
            if isinstance(row, Fault):
                faults.append(row)
            else:
                try:
                    task = _task_id(row.values, str(self._recorded.id))
                    pending += [
                        (_short(task), codec.dumps(stored))
                        for stored in _replies(row.values, self._recorded)
                    ]
                except ValueError as error:
                    faults.append(Fault(str(error), self._recorded.file, row.line, "recorded"))
            if len(faults) >= MAX_FAULTS:
                break
            if len(pending) >= _BATCH_ROWS:
                index.executemany("INSERT INTO replies VALUES (?, ?)", pending)
                pending.clear()
        if faults:
            index.close()
            raise SpecError(faults)
        index.executemany("INSERT INTO replies VALUES (?, ?)", pending)
        index.execute("CREATE INDEX by_task ON replies (task)")
        index.execute("COMMIT")
        return index

    def _completion(self, stored: Stored) -> Completion:
        refused = stored.get("refused")
        if isinstance(refused, dict):
            raise self._refused(refused)
        try:
            return protocol.completion(stored)
        except protocol.Unreadable as error:
            raise self._secrets.error(
                "unreadable", str(error), error_type=error.error_type
            ) from None

    def _refused(self, refused: dict[str, JsonValue]) -> ProviderError:
        """A request that failed when it was recorded: it cannot be tried again here, nor does it
        say anything about this run."""
        status = refused["status"]
        told = self._secrets.refused(
            status if isinstance(status, int) else 500, codec.dumps(refused["body"]).decode(), {}
        )
        if told.kind != "content_filter":
            told.kind = "row"
        return told


def _replies(row: dict[str, JsonValue], recorded: Recorded) -> Iterator[Stored]:
    """A row's replies in sample order. Raises ValueError, in words, where it holds none."""
    if recorded.text is None and recorded.texts is None:
        yield from _openai_replies(row)
        return
    for path in recorded.texts or [str(recorded.text)]:
        found = lookup(row, path)
        if found is MISSING:
            raise ValueError(f"has no `{path}`: {_columns(row)}")
        for value in found if isinstance(found, list) else [found]:
            if isinstance(value, str):
                yield _said({"content": value})
            elif isinstance(value, dict):
                yield from _openai_replies(value)
            elif value is not None:
                raise ValueError(f"`{path}` is {type(value).__name__}, not a text")


def _openai_replies(row: dict[str, JsonValue]) -> Iterator[Stored]:
    response = row.get("response")
    if isinstance(response, dict):
        status, body = response.get("status_code", 200), response.get("body")
        if status != 200 or not isinstance(body, dict):
            yield {"refused": {"status": status, "body": row.get("error") or body}}
            return
        row = body
    elif row.get("error"):
        yield {"refused": {"status": 500, "body": row["error"]}}
        return
    choices, messages = row.get("choices"), row.get("messages")
    if isinstance(choices, list):
        for choice in choices:
            yield {**row, "choices": [choice]}
        return
    last = messages[-1] if isinstance(messages, list) and messages else None
    if isinstance(last, dict) and last.get("role") == "assistant":
        yield _said(last)
        return
    raise ValueError(f"holds no reply ({_SHAPES}): {_columns(row)}; set recorded.text to its field")


def _said(message: dict[str, JsonValue]) -> Stored:
    """A bare message as a completion payload."""
    cleaned: dict[str, JsonValue] = protocol.clean(message)
    return {"choices": [{"message": cleaned}]}


def _task_id(row: dict[str, JsonValue], path: str) -> str:
    found = lookup(row, path)
    if found is MISSING:
        raise ValueError(f"has no `{path}`: {_columns(row)}")
    if isinstance(found, bool) or not isinstance(found, str | int) or found == "":
        raise ValueError(f"`{path}` is no id: {str(found)[:40]!r}")
    return str(found)


def _columns(row: dict[str, JsonValue]) -> str:
    names = ", ".join(list(row)[:12])
    return f"it has {names}" if names else "it is empty"


def _short(task: str) -> bytes:
    return hashlib.blake2b(codec.clean_text(task).encode(), digest_size=16).digest()
