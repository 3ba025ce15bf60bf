"""Examples as a .jsonl or .parquet file; the same examples give the same bytes.

Memory is that of a batch. The writers know neither runs nor formats.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from pydantic import JsonValue

from labelkit import codec
from labelkit.errors import UsageError

Fields = dict[str, JsonValue]

SUFFIXES = (".jsonl", ".parquet")
_BATCH_BYTES = 16 << 20


def check_suffix(path: Path) -> None:
    """Raises UsageError for a file that cannot be written, for want of a format or a library."""
    if path.suffix not in SUFFIXES:
        raise UsageError(
            f"{path}: is of no format that exports write", hint="end its name in .jsonl or .parquet"
        )
    if path.suffix == ".parquet":
        _pyarrow()


def write_jsonl(file: BinaryIO, examples: Iterable[Fields]) -> None:
    for fields in examples:
        file.write(codec.dumps(fields) + b"\n")


def parquet_schema(examples: Iterable[Fields]) -> Any:
    """The columns that hold all examples, nothing widened but absence. Raises UsageError."""
    pyarrow = _pyarrow()
    schema = pyarrow.schema([])
    for batch in _batches(examples):
        try:
            found = pyarrow.Table.from_pylist(batch).schema
            schema = pyarrow.unify_schemas([schema, found])
        except (pyarrow.ArrowException, OverflowError) as error:
            raise _no_columns(error) from None
    text = pyarrow.string()
    empty = pyarrow.types.is_null
    return pyarrow.schema([each.with_type(text) if empty(each.type) else each for each in schema])


def write_parquet(file: BinaryIO, schema: Any, examples: Iterable[Fields]) -> None:
    """A row group a batch. Raises UsageError where the schema cannot be stored."""
    pyarrow = _pyarrow()
    from pyarrow.parquet import ParquetWriter

    try:
        with ParquetWriter(file, schema) as writer:
            for batch in _batches(examples):
                writer.write_table(pyarrow.Table.from_pylist(batch, schema=schema))
    except pyarrow.ArrowException as error:
        raise _no_columns(error) from None


def _batches(examples: Iterable[Fields]) -> Iterator[list[Fields]]:
    batch: list[Fields] = []
    size = 0
    for fields in examples:
        batch.append(fields)
        size += len(codec.dumps(fields))
        if size >= _BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _no_columns(error: Exception) -> UsageError:
    said = str(error).partition("\n")[0][:200]
    hint = "export to .jsonl, which takes messages of any shape"
    return UsageError(f"the messages fit no parquet columns: {said}", hint=hint)


def _pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError:
        hint = "pip install 'labelkit[parquet]', or export to .jsonl"
        raise UsageError("writing .parquet needs pyarrow", hint=hint) from None
    return pyarrow
