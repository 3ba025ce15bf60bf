"""A finished run as exports read it: what it is, and its rows task by task.

Only rows.jsonl, run.json and summary.json are read; nothing in the directory is changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from labelkit import codec
from labelkit.directory import read_identity, read_json
from labelkit.errors import UsageError
from labelkit.exports import RunRow

_AGAIN = "run the command again that made it; it goes on where it stopped"


class FinishedRun:
    """Raises UsageError where the directory holds no run that came to its end."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._rows = directory / "rows.jsonl"
        self.identity = read_identity(directory)
        if not (directory / "summary.json").is_file() or not self._rows.is_file():
            raise UsageError(f"{directory}: the run has not finished, it has no rows", hint=_AGAIN)
        self.summary = read_json(directory / "summary.json")

    @property
    def command(self) -> str:
        return str(self.summary["command"])

    @property
    def n_rows(self) -> int:
        return int(self.summary["rows"]["kept"])

    @property
    def facts(self) -> dict[str, JsonValue]:
        """What an exported file says of its source."""
        return {
            "run_id": self.identity["run_id"],
            "name": self.summary["name"],
            "command": self.command,
            "env_fingerprint": self.summary["env_fingerprint"],
            "policy_fingerprint": self.summary["policy_fingerprint"],
            "labelkit_version": self.summary["labelkit_version"],
            "exit_code": self.summary["exit_code"],
            "incomplete": self.summary["incomplete"],
        }

    def warnings(self) -> Iterator[str]:
        """Why the rows may not be what the user takes them for; a sentence each."""
        exit_code, why = self.summary["exit_code"], self.summary["incomplete"]
        if why or exit_code not in (0, 3):
            yield f"the run is incomplete: {'; '.join(map(str, why)) or 'it was interrupted'}"
        failed = [str(gate["expr"]) for gate in self.summary["gates"] if not gate["holds"]]
        if failed or exit_code == 3:
            yield f"a gate of the run failed: {', '.join(failed) or 'see its summary.json'}"
        ledger = self.directory / "ledger.jsonl"
        written = (self.directory / "summary.json").stat().st_mtime
        if ledger.exists() and ledger.stat().st_mtime > written:
            yield f"the run went on since its rows were written; {_AGAIN}"

    def tasks(self) -> Iterator[list[RunRow]]:
        """The rows of each task; memory is that of one task. Raises UsageError where they are not
        the rows that the summary speaks of."""
        for _, rows in groupby(self._read(), key=lambda row: row["id"]):
            yield list(rows)

    def _read(self) -> Iterator[RunRow]:
        number = 0
        with open(self._rows, "rb") as file:
            for number, raw in enumerate(file, 1):
                try:
                    row: Any = codec.loads(raw)
                except ValueError as error:
                    raise UsageError(
                        f"{self._rows}:{number}: cannot be read: {error}", hint=_AGAIN
                    ) from None
                yield row
        if number != self.n_rows:
            raise UsageError(
                f"{self._rows}: holds {number:,} rows where summary.json says {self.n_rows:,}",
                hint=_AGAIN,
            )
