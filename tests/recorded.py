"""Small runs over recorded replies, and verbs run in this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from labelkit.cli import VERBS, app
from tests.runs import run, write_lines, write_spec

Replies = Mapping[str, Sequence[str]]


def recorded_spec(folder: Path, replies: Replies, **sections: Any) -> Path:
    """A spec whose tasks are named by `replies` (each task's replies, in sample order).

    The gold of every task is `yes`, which a reply must be; the prompt is `Prompt <id>`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rows = [
        {"name": name, "question": f"Prompt {name}", "gold": "yes", "replies": list(texts)}
        for name, texts in replies.items()
    ]
    write_lines(folder / "replies.jsonl", rows)
    defaults: dict[str, Any] = {
        "tasks": {
            "file": "replies.jsonl",
            "fields": {"id": "name", "prompt": "question", "gold": "gold"},
        },
        "sampler": {"recorded": {"file": "replies.jsonl", "texts": ["replies"]}},
        "scorer": {"exact": {"answer": "whole"}},
        "k": max(len(texts) for texts in replies.values()),
    }
    return write_spec(folder, **{**defaults, **sections})


def recorded_run(folder: Path, replies: Replies, name: str = "run", **sections: Any) -> Path:
    """Run such a spec; returns its run directory."""
    spec = recorded_spec(folder, replies, **sections)
    run(spec, folder / name)
    return folder / name


def invoke(*arguments: object) -> Any:
    """Run a verb in this process; returns typer's result (`stdout`, `exit_code`, `exception`)."""
    for verb in VERBS:
        import_module(f"labelkit.cli.{verb}")
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def printed(*arguments: object) -> str:
    """What a verb that succeeds prints on stdout."""
    done = invoke(*arguments)
    assert done.exit_code == 0, (done.output, done.exception)
    return str(done.stdout)
