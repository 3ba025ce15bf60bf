"""Exports of small runs, and what stands in the files."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from labelkit.exports import choose
from labelkit.exports.export import export, sidecar_of
from labelkit.exports.source import FinishedRun
from tests.runs import read_lines, run, write_lines, write_spec

Task = Mapping[str, Any]


def run_of(folder: Path, *tasks: Task, command: str = "rollout", **sections: Any) -> Path:
    """A finished run over tasks as given, each with its recorded replies under `replies`: texts, or
    whole chat completion bodies. The gold is what a reply must be."""
    folder.mkdir(parents=True, exist_ok=True)
    bodies = all(isinstance(reply, dict) for task in tasks for reply in task["replies"])
    rows = [
        {"name": f"t{i}", "question": "Say yes.", "gold": "yes", "about": {}, **task}
        for i, task in enumerate(tasks)
    ]
    if bodies:
        rows = [{**row, "choices": row["replies"]} for row in rows]
    write_lines(folder / "replies.jsonl", rows)
    fields: dict[str, Any] = {"id": "name", "prompt": "question", "gold": "gold"}
    metadata = {key: f"about.{key}" for key in rows[0]["about"]}
    recorded = {"file": "replies.jsonl"} | ({} if bodies else {"texts": ["replies"]})
    sampler = {"recorded": recorded, **sections.pop("sampler", {})}
    spec = write_spec(
        folder,
        tasks={"file": "replies.jsonl", "fields": {**fields, "metadata": metadata}},
        sampler=sampler,
        **{"scorer": {"exact": {"answer": "whole"}}, **sections},
        k=max(len(task["replies"]) for task in tasks),
    )
    run(spec, folder / "run", command=command)
    return folder / "run"


def body(text: str, finish_reason: str = "stop", **message: Any) -> dict[str, Any]:
    """A choice of a recorded chat completion."""
    said = {"role": "assistant", "content": text, **message}
    return {"finish_reason": finish_reason, "message": said}


def exported(
    directory: Path, name: str, output: Path, *, force: bool = False, **options: Any
) -> Any:
    """Export; returns the report."""
    return export(FinishedRun(directory), name, choose(name, **options), output, force=force)


def rows_of(directory: Path, name: str, **options: Any) -> list[Any]:
    """The rows that an export writes."""
    output = directory.with_name(f"{name}.jsonl")
    exported(directory, name, output, **options)
    return read_lines(output)


def left_out(directory: Path, name: str, **options: Any) -> Any:
    """Units left out by reason, whether or not anything is written."""
    report = exported(directory, name, directory.with_name(f"{name}.jsonl"), **options)
    return report["counts"]["left_out"]


def sidecar(output: Path) -> Any:
    return json.loads(sidecar_of(output).read_bytes())


def rewrite_rows(directory: Path, command: str, change: Callable[[Any], Any]) -> None:
    """Make a run's rows those of another command, with the sums that go with them."""
    rows = [change(row) for row in read_lines(directory / "rows.jsonl")]
    for row in rows:
        row["provenance"]["command"] = command
    write_lines(directory / "rows.jsonl", rows)
    summary = json.loads((directory / "summary.json").read_bytes())
    summary["command"] = command
    summary["rows"]["kept"] = len(rows)
    (directory / "summary.json").write_text(json.dumps(summary))


def contents(messages: Sequence[Mapping[str, Any]]) -> list[tuple[Any, Any]]:
    return [(message["role"], message["content"]) for message in messages]
