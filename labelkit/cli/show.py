"""`labelkit show`: a run's grid, one task's attempts, or one attempt's transcript."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from labelkit.cli import app


@app.command()
def show(
    run: Annotated[Path, typer.Argument(help="The run directory.", show_default=False)],
    task: Annotated[
        str | None, typer.Argument(help="Show this task's attempts.", show_default=False)
    ] = None,
    sample: Annotated[
        int | None,
        typer.Argument(metavar="N", help="Show sample N in full.", min=0, show_default=False),
    ] = None,
    only: Annotated[
        Literal["failed", "errors", "passed"] | None,
        typer.Option(help="Only such attempts (in the grid: tasks that have one)."),
    ] = None,
) -> None:
    """A run's grid, a task's attempts, or one attempt in full.

    Works from the run directory alone, also while the run goes on.
    """
    from labelkit.report import show as views
    from labelkit.report.run_view import RunView

    with RunView(run) as view:
        if task is None:
            lines = views.grid(view, only)
        elif sample is None:
            lines = views.task(view, task, only)
        else:
            lines = views.transcript(view, task, sample)
        for line in lines:
            sys.stdout.write(line + "\n")
