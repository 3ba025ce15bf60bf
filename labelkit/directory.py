"""A run directory: who holds it, what it was made for, and its small files.

`run.json` is a run's identity: what shaped its replies and scores. A spec that shapes others is
refused here, field by field; what only selects or operates may change freely.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from pydantic import JsonValue

from labelkit import codec
from labelkit.errors import RunMismatchError, StorageError, UsageError
from labelkit.ledger import Lock

FILES = ("rows.jsonl", "dropped.jsonl", "tasks.jsonl")

_RUN_ID = re.compile(r"[0-9A-Za-z-]{1,80}")


def open_directory(directory: Path, *, fresh: bool) -> Lock:
    """Make or take the run directory; --fresh sets an old run aside."""
    record = directory / "run.json"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        # A kill may have left nothing else.
        ours = ("lock", ".run.json.partial")
        strangers = [each.name for each in directory.iterdir() if each.name not in ours]
        if strangers and not record.exists():
            raise UsageError(
                f"{directory}: is not empty and no run directory (it holds {strangers[0]})",
                hint="choose another directory with -o",
            )
        lock = Lock(directory)
        if fresh and record.exists():
            lock = _set_aside(directory, read_identity(directory)["run_id"], lock)
    except OSError as error:
        raise UsageError(
            f"{directory}: cannot be a run directory: {error.strerror}",
            hint="choose another directory with -o",
        ) from None
    return lock


def _set_aside(directory: Path, run_id: str, lock: Lock) -> Lock:
    """Rename an old run, which `lock` holds, and take a new directory in its place."""
    if directory.name in ("", ".."):
        lock.release()
        raise UsageError(
            f"{directory}: cannot be set aside by this name",
            hint="name the directory itself, e.g. -o runs/mine",
        )
    os.rename(directory, directory.with_name(f"{directory.name}.{run_id}"))
    lock.release()
    directory.mkdir(exist_ok=True)
    return Lock(directory)


def refuse_changes(directory: Path, kept: dict[str, Any], now: dict[str, Any]) -> None:
    """Refuse a spec that shapes other replies or scores than the run's, naming the difference."""
    if kept["command"] != now["command"]:
        raise RunMismatchError(
            f"{directory}: was made by `{kept['command']}`, not `{now['command']}`",
            hint="choose another directory with -o; --from reuses its draws",
        )
    for part, hint in (
        ("reply", "--fresh sets the old run aside; -o starts another beside it"),
        ("score", "`labelkit rescore` scores the same draws anew; --fresh samples anew"),
    ):
        changed = _changed(kept[part], now[part], "")
        if changed:
            raise RunMismatchError(
                f"{directory}: the spec changed since this run began: {'; '.join(changed[:5])}",
                hint=hint,
            )


def _changed(before: Any, after: Any, at: str) -> list[str]:
    if isinstance(before, dict) and isinstance(after, dict):
        found: list[str] = []
        for name in dict.fromkeys((*before, *after)):
            place = f"{at}.{name}" if at else name
            found += _changed(before.get(name), after.get(name), place)
        return found
    if before == after:
        return []
    return [f"{at} was {_short(before)}, is {_short(after)}"]


def _short(value: Any) -> str:
    text = codec.dumps(value).decode()
    return text if len(text) <= 80 else text[:79] + "…"


def redact(value: Any, name: str = "") -> Any:
    """A copy without header values and without user info and query in URLs.

    `name` is the key that holds the value; it may be dotted, as overrides are.
    """
    if "headers" in name.split("."):
        return dict.fromkeys(value, "…") if isinstance(value, dict) else "…"
    if isinstance(value, dict):
        return {key: redact(inner, key) for key, inner in value.items()}
    if isinstance(value, list):
        return [redact(inner, name) for inner in value]
    if isinstance(value, str) and "://" in value:
        scheme, _, rest = value.partition("://")
        host, slash, path = rest.partition("/")
        return f"{scheme}://{host.rpartition('@')[2]}{slash}{path.partition('?')[0]}"
    return value


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object of a run directory. Raises UsageError naming the file."""
    try:
        value = codec.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: cannot be read: {error}") from None
    if not isinstance(value, dict):
        raise UsageError(f"{path}: is not a JSON object")
    return dict(value)


def read_identity(directory: Path) -> dict[str, Any]:
    """A run's own record. Raises UsageError where the directory is no run, or its record none."""
    path = directory / "run.json"
    if not path.is_file():
        raise UsageError(
            f"{directory}: is not a run directory",
            hint="name the directory that a command wrote; it holds run.json",
        )
    identity = read_json(path)
    sections = ("reply", "score", "spec")
    sound = all(isinstance(identity.get(name), dict) for name in sections) and all(
        isinstance(identity.get(name), str) for name in ("command", "created_at")
    )
    if not sound or not _RUN_ID.fullmatch(str(identity.get("run_id"))):
        raise UsageError(
            f"{path}: is damaged, or was not written by labelkit",
            hint="choose another directory with -o; nothing in this one was changed",
        )
    return identity


@contextlib.contextmanager
def no_trace_if_refused(new_directory: Path | None) -> Iterator[None]:
    """A run that is refused before its first draw leaves no directory that it made."""
    try:
        yield
    except UsageError:
        if new_directory is not None:
            shutil.rmtree(new_directory)
        raise


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of one of a run's final files. Raises UsageError naming the line."""
    with open(path, "rb") as file:
        for number, raw in enumerate(file, 1):
            try:
                line = codec.loads(raw)
            except ValueError:
                line = None
            if not isinstance(line, dict):
                raise UsageError(
                    f"{path}:{number}: is damaged",
                    hint="delete summary.json beside it and run the command again: "
                    "the files are made anew from the ledger, without a call",
                )
            yield dict(line)


def write_whole(path: Path, content: bytes) -> None:
    """Replace a file at once: temp, fsync, rename, fsync of the directory."""
    temporary = path.with_name(f".{path.name}.partial")
    with open(temporary, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    handle = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class RunFiles:
    """The final files of a run, written beside their places and put there all at once.

    temp → fsync → rename → fsync of the directory; the summary is renamed last, so a summary
    always speaks of the rows beside it or of rows that were complete before.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._open: dict[str, BinaryIO] = {
            name: open(self._temporary(name), "wb", buffering=1 << 18)  # noqa: SIM115
            for name in FILES
        }

    def _temporary(self, name: str) -> Path:
        return self._directory / f".{name}.partial"

    def write(self, name: str, line: JsonValue) -> None:
        try:
            self._open[name].write(codec.dumps(line) + b"\n")
        except OSError as error:
            raise self._unwritten(name, error) from None

    def publish(self, summary: JsonValue) -> None:
        """Put all files in place; until this returns the old ones stand."""
        for name, file in self._open.items():
            try:
                file.flush()
                os.fsync(file.fileno())
                file.close()
            except OSError as error:
                raise self._unwritten(name, error) from None
        for name in FILES:
            os.replace(self._temporary(name), self._directory / name)
        write_whole(self._directory / "summary.json", codec.pretty(summary))

    def discard(self) -> None:
        for name, file in self._open.items():
            self._temporary(name).unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # on a full disk what is left in its buffer
                file.close()

    def _unwritten(self, name: str, error: OSError) -> StorageError:
        return StorageError(
            f"{self._directory / name}: {error.strerror}",
            hint="free some space and run the same command again; no sample is lost",
        )
