"""`labelkit errors`: what kept attempts from being scored, by class."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from labelkit.cli import app


@app.command()
def errors(
    run: Annotated[Path, typer.Argument(help="The run directory.", show_default=False)],
) -> None:
    """Failed calls and unscored attempts by class; what to do."""
    from labelkit.report.faults import faults_text
    from labelkit.report.run_view import RunView

    with RunView(run) as view:
        for line in faults_text(view):
            sys.stdout.write(line + "\n")
