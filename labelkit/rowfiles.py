"""Rows of a file somebody else wrote, whatever its format: .jsonl, .json, .csv, .parquet.

Rows come one by one, each with its place; a row that cannot be read comes as a Fault, so that a
caller can report all of them. Nothing here knows what a task is, and no value is guessed or
repaired: csv cells stay text, integers stay exact.
"""

from __future__ import annotations

import csv
import datetime
import gzip
import io
import json
import math
import os
import random
import re
import tempfile
import zlib
from array import array
from collections.abc import Iterator
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple, cast

from pydantic import JsonValue

from labelkit.codec import UTF_16, strict_loads
from labelkit.errors import Fault, SpecError, UsageError

FORMATS = (".jsonl", ".json", ".csv", ".parquet")
_ENDINGS = tuple(ending + packed for ending in FORMATS for packed in ("", ".gz", ".zst"))
_CONTENT_ADDRESS = re.compile(r"[0-9a-f]{30,128}")
"""Names that a cache of data sets gives to contents, and links to."""
_MAX_CELL = 2**31 - 1
_AS_UTF_8 = "save it as UTF-8"


class SourceRow(NamedTuple):
    """A row as read. `line` counts from 1: the line of the file, or the row where a format has no
    lines (.json, .parquet). Csv has a header, so its first row is on line 2."""

    line: int
    values: dict[str, JsonValue]


class Missing(Enum):
    """What `lookup` finds where there is nothing; None is a value of its own."""

    MISSING = "missing"


MISSING: Final = Missing.MISSING


def lookup(values: JsonValue, path: str) -> JsonValue | Missing:
    """The value at a dotted path (`choices.0.text`), or MISSING. A key that contains the dots
    itself goes first."""
    if isinstance(values, dict) and path in values:
        return values[path]
    found = values
    for part in path.split("."):
        if isinstance(found, dict) and part in found:
            found = found[part]
        elif isinstance(found, list) and part.isdecimal() and int(part) < len(found):
            found = found[int(part)]
        else:
            return MISSING
    return found


class RowFile:
    """A file of rows. Iterating opens it anew.

    `columns` is known before the first row where the format has a header, else None. Raises
    SpecError where the file as a whole cannot be used, UsageError where a library is missing.
    """

    def __init__(self, path: Path, shown: str | None = None) -> None:
        self.path = path
        self.shown = shown or str(path)
        suffixes = path.name.lower().rsplit(".", 2)[1:]
        self.compression = suffixes.pop() if suffixes and suffixes[-1] in ("gz", "zst") else None
        self.format = f".{suffixes[-1]}" if suffixes else ""
        if self.format not in FORMATS or (self.format == ".parquet" and self.compression):
            fix = "use .jsonl, .json, .csv (also .gz and .zst of these) or .parquet"
            raise SpecError([Fault("is of no format that labelkit reads", self.shown, fix=fix)])
        if not path.is_file():
            problem = "is not a file" if path.exists() else "does not exist"
            fix = f"the path starts at the spec's folder, {os.fspath(path.parent.resolve())} here"
            raise SpecError([Fault(problem, self.shown, fix=fix)])
        target = path.resolve().name.lower()
        if not (target.endswith(_ENDINGS) or _CONTENT_ADDRESS.fullmatch(target)):
            # A link in a stranger's folder must not make a table of a key or a password file.
            problem = f"is a link to {path.resolve()}, which is of no format that labelkit reads"
            raise SpecError([Fault(problem, self.shown, fix="name a file of rows")])
        if self.format == ".parquet":
            _pyarrow()
        if self.compression == "zst":
            _zstandard()

    def __iter__(self) -> Iterator[SourceRow | Fault]:
        if self.format == ".parquet":
            yield from self._parquet()
            return
        try:
            with self.path.open("rb") as raw, self._plain(raw) as plain:
                if cast(io.BufferedReader, plain).peek(2).startswith(UTF_16):
                    yield Fault("is UTF-16 text", self.shown, fix=_AS_UTF_8)
                elif self.format == ".jsonl":
                    yield from self._jsonl(plain)
                elif self.format == ".json":
                    yield from self._json(plain)
                else:
                    yield from self._csv(plain)
        except (OSError, EOFError, zlib.error) as error:
            reason = getattr(error, "strerror", None) or str(error)
            yield Fault(f"cannot be read: {reason}", self.shown, fix="check that it is whole")

    @property
    def signature(self) -> tuple[int, int]:
        """Size and modification time; another one means that the file has changed."""
        status = self.path.stat()
        return status.st_size, status.st_mtime_ns

    @property
    def columns(self) -> list[str] | None:
        """The header's columns; None where rows name their own."""
        if self.format == ".parquet":
            return list(self._parquet_columns())
        if self.format == ".csv":
            with self.path.open("rb") as raw, self._plain(raw) as plain:
                try:
                    return next(csv.reader(_text(plain), strict=True), [])
                except (csv.Error, UnicodeDecodeError, OSError, EOFError, zlib.error):
                    return None  # iterating reports it
        return None

    def _plain(self, raw: BinaryIO) -> BinaryIO:
        if self.compression == "gz":
            return cast(BinaryIO, gzip.GzipFile(fileobj=raw))
        if self.compression == "zst":
            return cast(BinaryIO, io.BufferedReader(_ZstdStream(raw), 1 << 16))
        return raw

    def _jsonl(self, plain: BinaryIO) -> Iterator[SourceRow | Fault]:
        # A file in binary mode splits on \n alone, so U+2028 inside a string stays where it is.
        for line, raw in enumerate(plain, 1):
            if line == 1:
                raw = raw.removeprefix(b"\xef\xbb\xbf")
            if raw.isspace() or not raw:
                continue
            try:
                values = strict_loads(raw)
            except ValueError as error:
                problem, fix = _json_problem(error, "write one JSON object")
                yield Fault(problem, self.shown, line, fix=fix)
                continue
            yield self._object(line, values)

    def _json(self, plain: BinaryIO) -> Iterator[SourceRow | Fault]:
        fix = "write an array of objects, or one object a line in a .jsonl file"
        try:
            rows = strict_loads(plain.read().removeprefix(b"\xef\xbb\xbf"))
        except ValueError as error:
            problem, fix = _json_problem(error, fix)
            yield Fault(problem, self.shown, getattr(error, "lineno", None), fix=fix)
            return
        if not isinstance(rows, list):
            yield Fault("is not a JSON array", self.shown, 1, fix=fix)
            return
        for line, values in enumerate(rows, 1):
            yield self._object(line, values)

    def _object(self, line: int, values: JsonValue) -> SourceRow | Fault:
        if isinstance(values, dict):
            return SourceRow(line, values)
        problem = f"is not a JSON object: {_short(values)}"
        return Fault(problem, self.shown, line, fix='write {"prompt": …, "gold": …}')

    def _csv(self, plain: BinaryIO) -> Iterator[SourceRow | Fault]:
        csv.field_size_limit(_MAX_CELL)
        reader = csv.reader(_text(plain), strict=True)
        columns: list[str] | None = None
        line = 1
        try:
            for cells in reader:
                if columns is None:
                    columns = cells
                    twice = sorted({name for name in cells if cells.count(name) > 1})
                    if twice:
                        problem = f"has the column {twice[0]!r} twice"
                        yield Fault(problem, self.shown, line, fix="give each its own name")
                        return
                elif len(cells) == len(columns):
                    yield SourceRow(line, dict(zip(columns, cells, strict=True)))
                elif cells:
                    problem = f"has {len(cells)} cells where the header has {len(columns)}"
                    fix = 'put "…" around cells that contain commas or line breaks'
                    yield Fault(problem, self.shown, line, fix=fix)
                line = reader.line_num + 1
        except csv.Error as error:
            yield Fault(f"is not csv: {error}", self.shown, line, fix="check its quotes")
        except UnicodeDecodeError:
            yield Fault("is not UTF-8 text", self.shown, line, fix=_AS_UTF_8)

    def _parquet_columns(self) -> list[str]:
        pyarrow = _pyarrow()
        with self._parquet_file(pyarrow) as file:
            return [f.name for f in file.schema_arrow if not _is_binary(pyarrow, f.type)]

    def _parquet(self) -> Iterator[SourceRow | Fault]:
        pyarrow = _pyarrow()
        line = 0
        columns = self._parquet_columns()
        try:
            with self._parquet_file(pyarrow) as file:
                for batch in file.iter_batches(batch_size=256, columns=columns):
                    for values in batch.to_pylist():
                        line += 1
                        try:
                            row = {name: _plain_value(cell) for name, cell in values.items()}
                        except ValueError as error:
                            yield Fault(str(error), self.shown, line)
                            continue
                        yield SourceRow(line, row)
        except (pyarrow.ArrowException, OSError) as error:
            yield Fault(f"cannot be read: {_first_line(error)}", self.shown, line + 1)

    def _parquet_file(self, pyarrow: Any) -> Any:
        from pyarrow.parquet import ParquetFile

        try:
            return ParquetFile(self.path, pre_buffer=False)
        except (pyarrow.ArrowException, OSError) as error:
            problem = f"is not a parquet file: {_first_line(error)}"
            raise SpecError([Fault(problem, self.shown, fix="check that it is whole")]) from None


class RowSpool:
    """Rows laid down on disk and read back in a shuffled order, each with a number of its own; an
    offset a row stays in memory."""

    def __init__(self) -> None:
        self._file = cast(BinaryIO, tempfile.TemporaryFile())  # noqa: SIM115 (lives as we do)
        self._offsets = array("q")

    def append(self, row: SourceRow, number: int) -> None:
        self._offsets.append(self._file.tell())
        self._file.write(json.dumps([number, *row]).encode() + b"\n")

    def shuffle(self, seed: int) -> None:
        """Fisher-Yates over `Random.random`, whose sequence no Python version changes."""
        draw = random.Random(seed).random
        for i in range(len(self._offsets) - 1, 0, -1):
            j = int(draw() * (i + 1))
            self._offsets[i], self._offsets[j] = self._offsets[j], self._offsets[i]

    def __iter__(self) -> Iterator[tuple[SourceRow, int]]:
        for offset in self._offsets:
            self._file.seek(offset)
            number, line, values = json.loads(self._file.readline())
            yield SourceRow(line, values), number


class _ZstdStream(io.RawIOBase):
    """Zstandard frames as plain bytes; unlike the library's own reader, a cut file is an error."""

    def __init__(self, raw: BinaryIO) -> None:
        self._raw = raw
        self._frame: Any = None
        self._compressed = self._plain = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        zstandard = _zstandard()
        while not self._plain:
            self._compressed = self._compressed or self._raw.read(8192)
            if not self._compressed:
                if self._frame is not None:
                    raise EOFError("the compressed file ends early")
                return 0
            self._frame = self._frame or zstandard.ZstdDecompressor().decompressobj()
            try:
                self._plain = self._frame.decompress(self._compressed)
            except zstandard.ZstdError as error:
                raise OSError(f"is not zstandard: {error}") from None
            self._compressed = b""
            if self._frame.eof:
                self._compressed, self._frame = self._frame.unused_data, None
        size = min(len(buffer), len(self._plain))
        buffer[:size], self._plain = self._plain[:size], self._plain[size:]
        return size


def _text(plain: BinaryIO) -> io.TextIOWrapper:
    return io.TextIOWrapper(plain, encoding="utf-8-sig", newline="")


def _pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError:
        hint = "pip install 'labelkit[parquet]'"
        raise UsageError("reading .parquet needs pyarrow", hint=hint) from None
    return pyarrow


def _zstandard() -> Any:
    try:
        import zstandard
    except ImportError:
        hint = "pip install 'labelkit[zstd]'"
        raise UsageError("reading .zst needs zstandard", hint=hint) from None
    return zstandard


def _is_binary(pyarrow: Any, kind: Any) -> bool:
    """Pictures and the like have no place in JSON; such columns are left out."""
    types = pyarrow.types
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return True
    return any(_is_binary(pyarrow, kind.field(i).type) for i in range(kind.num_fields))


def _plain_value(cell: Any) -> JsonValue:
    """A parquet cell as JSON: NaN, pandas' missing value, is null; decimals and times are text."""
    if cell is None or isinstance(cell, str | bool | int):
        return cell
    if isinstance(cell, float):
        if math.isinf(cell):
            raise ValueError("has an infinite number")
        return None if math.isnan(cell) else cell
    if isinstance(cell, list | tuple):
        return [_plain_value(item) for item in cell]
    if isinstance(cell, dict):
        return {str(key): _plain_value(item) for key, item in cell.items()}
    if isinstance(cell, Decimal):
        return int(cell) if cell == cell.to_integral_value() else str(cell)
    if isinstance(cell, datetime.date | datetime.time):
        return cell.isoformat()
    return str(cell)


def _json_problem(error: ValueError, fix: str) -> tuple[str, str]:
    """What is wrong with text that is no JSON, and its fix: `fix` where it is text."""
    if isinstance(error, UnicodeDecodeError):
        return f"is not UTF-8 text (byte {error.start + 1})", _AS_UTF_8
    return f"is not JSON: {_first_line(error)}", fix


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0][:200]


def _short(value: JsonValue) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"
