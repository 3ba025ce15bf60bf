"""Specs, task files and whole `labelkit` processes for tests of runs."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import yaml


def write_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def write_spec(folder: Path, **sections: Any) -> Path:
    """A spec with what most tests need; None leaves a section out."""
    values: dict[str, Any] = {"name": "test", "scorer": {"contains": {}}, "k": 2, **sections}
    path = folder / "spec.yaml"
    kept = {name: value for name, value in values.items() if value is not None}
    path.write_text(yaml.safe_dump(kept, sort_keys=False), encoding="utf-8")
    return path


def environment(**extra: str) -> dict[str, str]:
    """This process's environment as a user has it: no provider's key, Python as it comes."""
    ours = ("PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE")
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.endswith("_API_KEY") and name not in ours
    }
    return {**kept, "PYTHONPATH": os.getcwd(), **extra}


def labelkit(*arguments: object, timeout_s: float = 100, **env: str) -> Any:
    """Run the command to its end; returns the CompletedProcess with text output."""
    return subprocess.run(
        [sys.executable, "-m", "labelkit", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        env=environment(**env),
        check=False,
    )


def start(*arguments: object, **env: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "labelkit", *map(str, arguments)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=environment(**env),
    )


class ServerProcess(NamedTuple):
    """The fake provider in a process of its own; `log` is its calls, as JSONL."""

    url: str
    log: Path
    process: subprocess.Popen[bytes]


@contextmanager
def serving(folder: Path, script: dict[str, Any], *, port: int = 0) -> Iterator[ServerProcess]:
    (folder / "script.json").write_text(json.dumps(script))
    log = folder / "calls.jsonl"
    told = f"--script={folder / 'script.json'}", f"--log={log}", f"--port={port}"
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.openai_server", *told],
        stdout=subprocess.PIPE,
        env=environment(),
    )
    assert process.stdout is not None
    try:
        yield ServerProcess(process.stdout.readline().decode().strip(), log, process)
    finally:
        process.kill()
        process.wait(10)


def read_lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def comparable(directory: Path) -> dict[str, Any]:
    """A run's final files without what may differ between equal runs; order of keys included."""
    found: dict[str, Any] = {}
    for name in ("rows.jsonl", "dropped.jsonl", "tasks.jsonl"):
        lines = read_lines(directory / name)
        for line in lines:
            line.pop("provenance", None)
        found[name] = [json.dumps(line) for line in lines]
    summary = json.loads((directory / "summary.json").read_bytes())
    summary.pop("provenance")
    summary.pop("duration_s")
    found["summary.json"] = json.dumps(summary)
    return found


def summary(directory: Path) -> Any:
    return json.loads((directory / "summary.json").read_bytes())


class Silent:
    """A `run.Progress` that keeps the messages."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    def message(self, text: str) -> None:
        self.messages.append(text)

    def start(self, n_tasks: int, k: int, fleets: Any) -> None: ...

    def attempt(self, task: Any, attempt: Any) -> None: ...

    def spent(self, usd: float | None, tokens: int) -> None: ...

    def task(self, outcome: Any) -> None: ...

    def finish(self) -> None: ...


def run(
    spec: Path,
    directory: Path,
    *overrides: str,
    command: str = "rollout",
    progress: Silent | None = None,
    **options: Any,
) -> Any:
    """A whole run in this process; returns the summary. For threads beside a server's loop."""
    from labelkit.prepare import Options, prepare
    from labelkit.run import execute
    from labelkit.spec import load

    prepared = prepare(load(spec, overrides), command, Options(directory=directory, **options))
    return execute(prepared, progress or Silent())


async def go(*args: Any, **options: Any) -> Any:
    """`run` beside the event loop that serves the fake provider."""
    return await asyncio.to_thread(run, *args, **options)
