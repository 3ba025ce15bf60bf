"""One export from run to file: examples, the sums, the sidecar, and both put in place at once.

The sidecar `<file>.meta.json` says where every row comes from and marks the file as an export:
only such a file is ever replaced unasked. Exporting twice gives the same bytes, so neither holds a
time or a path.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

from pydantic import JsonValue

from labelkit import __version__, codec
from labelkit.errors import AccountingError, StorageError, UsageError
from labelkit.exports import Example, Format, Options, files, load_format
from labelkit.exports.chat import has_reasoning
from labelkit.exports.source import FinishedRun

_OF_THE_RUN = ("rows.jsonl", "dropped.jsonl", "tasks.jsonl", "ledger.jsonl")


@dataclass
class Tally:
    """What became of every unit: `n_in` = `used` + those left out."""

    n_in: int = 0
    used: int = 0
    written: int = 0
    left_out: Counter[str] = field(default_factory=Counter)

    def check(self) -> None:
        accounted = self.used + self.left_out.total()
        if self.n_in != accounted:
            raise AccountingError(f"export: {self.n_in} units in, {accounted} accounted for")


def sidecar_of(output: Path) -> Path:
    return output.with_name(f"{output.name}.meta.json")


def export(
    run: FinishedRun, name: str, options: Options, output: Path, *, force: bool = False
) -> dict[str, Any]:
    """Write `output` and its sidecar; returns the sidecar without its rows.

    Where there is nothing to write, an earlier export there is removed and none is written; then
    `written` is 0. Raises UsageError, before anything is touched, where the export cannot be.
    """
    form = load_format(name)
    if run.command not in form.COMMANDS:
        raise UsageError(
            f"{run.directory}: {name} cannot be made of {run.command} rows",
            hint=f"{name} reads the rows of {', '.join(form.COMMANDS)}; "
            "such a command reuses this run's draws with --from",
        )
    _check_output(run, output, force=force)
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        return _Job(run, name, form, options, output).write()
    except OSError as error:
        place = error.filename or output
        raise StorageError(
            f"{place}: {error.strerror}", hint="free the disk or name another file with -o"
        ) from error


def _check_output(run: FinishedRun, output: Path, *, force: bool) -> None:
    files.check_suffix(output)
    if output.name in _OF_THE_RUN and output.resolve().parent == run.directory.resolve():
        raise UsageError(f"{output}: is a file of the run itself", hint="name another file with -o")
    if output.is_dir():
        raise UsageError(f"{output}: is a directory", hint="name a file with -o")
    if output.exists() and not sidecar_of(output).exists() and not force:
        raise UsageError(
            f"{output}: exists and is no earlier export (it has no {sidecar_of(output).name})",
            hint="name another file with -o, or replace it with --force",
        )


class _Job:
    """Walks over the rows as often as it must look ahead: whether there is reasoning, and which
    columns a .parquet has. Memory is that of a task and a batch."""

    def __init__(
        self, run: FinishedRun, name: str, form: type[Format], options: Options, output: Path
    ) -> None:
        self._run = run
        self._name = name
        self._form = form
        self._options = options
        self._output = output

    def write(self) -> dict[str, Any]:
        paths = [_partial(each) for each in (self._output, sidecar_of(self._output))]
        origins_path = _partial(self._output.with_name(f"{self._output.name}.origins"))
        with ExitStack() as cleaning:
            for path in (*paths, origins_path):
                cleaning.callback(path.unlink, missing_ok=True)
            self._drop_unused_key()
            with open(origins_path, "w+b") as origins:
                tally = Tally()
                with open(paths[0], "wb", buffering=1 << 18) as file:
                    self._write_examples(file, tally, origins)
                    _sync(file)
                tally.check()
                head = self._head(paths[0], tally)
                with open(paths[1], "wb", buffering=1 << 18) as file:
                    _write_sidecar(file, head, origins)
                    _sync(file)
            self._put(paths, tally)
        return head

    def _drop_unused_key(self) -> None:
        """Where no example has reasoning, `keep` would only add an empty key to each."""
        keep = "reasoning" in self._form.TAKES and self._options.reasoning == "keep"
        if keep and not any(has_reasoning(each.fields) for each in self._examples(Tally())):
            self._options = replace(self._options, reasoning_key=False)

    def _write_examples(self, file: BinaryIO, tally: Tally, origins: BinaryIO) -> None:
        if self._output.suffix == ".parquet":
            schema = files.parquet_schema(each.fields for each in self._examples(Tally()))
            files.write_parquet(file, schema, self._traced(tally, origins))
        else:
            files.write_jsonl(file, self._traced(tally, origins))

    def _traced(self, tally: Tally, origins: BinaryIO) -> Iterator[files.Fields]:
        for example in self._examples(tally):
            origins.write(codec.dumps(example.origin) + b"\n")
            yield example.fields

    def _examples(self, tally: Tally) -> Iterator[Example]:
        form = self._form(self._options)
        for task_rows in self._run.tasks():
            tally.n_in += len(task_rows) if form.UNIT == "row" else 1
            for unit in form.units(task_rows):
                if unit.left_out is not None:
                    tally.left_out[unit.left_out] += 1
                    continue
                tally.used += 1
                tally.written += len(unit.examples)
                yield from unit.examples

    def _head(self, written: Path, tally: Tally) -> dict[str, Any]:
        with open(written, "rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        return {
            "format": self._name,
            "file": self._output.name,
            "sha256": sha256,
            "written": tally.written,
            "counts": {
                "unit": self._form.UNIT,
                "in": tally.n_in,
                "used": tally.used,
                "left_out": {reason: tally.left_out[reason] for reason in sorted(tally.left_out)},
            },
            "options": {name: getattr(self._options, name) for name in self._form.TAKES},
            "source": self._run.facts,
            "labelkit_version": __version__,
        }

    def _put(self, paths: list[Path], tally: Tally) -> None:
        """Rename the sidecar first: a crash in between leaves no export that looks foreign."""
        for place, path in zip((sidecar_of(self._output), self._output), paths[::-1], strict=True):
            if tally.written:
                os.replace(path, place)
            else:
                place.unlink(missing_ok=True)
        handle = os.open(self._output.parent, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _write_sidecar(file: BinaryIO, head: dict[str, JsonValue], origins: BinaryIO) -> None:
    """The head, then `rows`: a line each row of the file, in its order."""
    file.write(codec.pretty(head).removesuffix(b"\n}\n") + b',\n  "rows": [')
    origins.seek(0)
    separator = b"\n    "
    for line in origins:
        file.write(separator + line.rstrip(b"\n"))
        separator = b",\n    "
    file.write(b"\n  ]\n}\n")


def _partial(path: Path) -> Path:
    return path.with_name(f".{path.name}.partial")


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())
