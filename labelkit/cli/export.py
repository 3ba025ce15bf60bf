"""`labelkit export`: a finished run's rows as the files that trainers read."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from labelkit.cli import app


@app.command()
def export(
    run: Annotated[Path, typer.Argument(help="The run directory.", show_default=False)],
    to: Annotated[str, typer.Option("--to", help="sft-messages, dpo or verl.")],
    output: Annotated[
        Path, typer.Option("-o", "--output", help="The file to write: .jsonl or .parquet.")
    ],
    reasoning: Annotated[
        Literal["keep", "drop", "think-tags"] | None,
        typer.Option(help="Reasoning in a field of its own (keep, the default), or in the text."),
    ] = None,
    system: Annotated[
        Literal["keep", "drop"] | None, typer.Option(help="System messages; default keep.")
    ] = None,
    prompt: Annotated[
        Literal["sent", "raw"] | None,
        typer.Option(help="Messages as sent (the default), or the task's own prompt."),
    ] = None,
    max_pairs: Annotated[
        int | None, typer.Option(help="dpo: pairs a task at most; default 1.", min=1)
    ] = None,
    data_source: Annotated[
        str | None, typer.Option(help="verl: data_source of all rows; default the metadata's.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace a file that is no earlier export.")
    ] = False,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Write a finished run's rows as training data for TRL or verl, with a sidecar."""
    from labelkit import codec
    from labelkit.exports import choose
    from labelkit.exports.export import export as write
    from labelkit.exports.source import FinishedRun
    from labelkit.report.text import plain

    options = choose(
        to,
        reasoning=reasoning,
        system=system,
        prompt=prompt,
        max_pairs=max_pairs,
        data_source=data_source,
    )
    finished = FinishedRun(run)
    head = write(finished, to, options, output, force=force)
    for warning in finished.warnings():
        sys.stderr.write(f"warning: {plain(warning)}\n")
    if json_:
        sys.stdout.write(codec.pretty(head).decode("utf-8"))
    else:
        sys.stdout.write(_text(head, output))
    raise SystemExit(0 if head["written"] else 3)


def _text(head: dict[str, Any], output: Path) -> str:
    from labelkit.report.text import number, plain

    counts = head["counts"]
    left_out = ", ".join(f"{reason} {count:,}" for reason, count in counts["left_out"].items())
    lines = [
        f"wrote {number(head['written'], 'row')} from {counts['used']:,} of "
        f"{number(counts['in'], counts['unit'])}" + (f", left out: {left_out}" if left_out else "")
    ]
    if head["written"]:
        lines.append(f"{head['format']}: {plain(str(output))}")
    else:
        lines.append("no file: nothing fits this format")
    return "\n".join(lines) + "\n"
