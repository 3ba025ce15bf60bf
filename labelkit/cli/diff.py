"""`labelkit diff`: two runs of the same tasks, compared with intervals."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from labelkit.cli import app

if TYPE_CHECKING:
    from labelkit.gates import Gate


@app.command()
def diff(
    run: Annotated[Path, typer.Argument(help="The run directory.", show_default=False)],
    baseline: Annotated[
        Path, typer.Argument(help="The run directory to compare with.", show_default=False)
    ],
    across: Annotated[
        Literal["prompt"] | None,
        typer.Option(help="Let template, system, schema and tools differ (a prompt A/B)."),
    ] = None,
    gate: Annotated[
        list[str] | None,
        typer.Option("--gate", help="Exit 3 unless it holds: 'regressed == 0', 'delta >= -0.05'."),
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Compare a run with a baseline, task by task.

    A change is called one only where its 95% interval leaves out 0. Exit 3 where a gate fails.
    """
    from labelkit import __version__, codec
    from labelkit.diff import ACROSS_PROMPT, Side, compare
    from labelkit.report.comparison import comparison_text

    gates = _gates(gate or [])
    allowed = ACROSS_PROMPT if across == "prompt" else frozenset[str]()
    comparison: dict[str, Any] = compare(Side.read(run), Side.read(baseline), allowed)
    for each in gates:
        if each.per_task:
            for task in comparison["tasks"]:
                each.feed(task)
    comparison["gates"] = [each.judge(comparison).as_json() for each in gates]
    comparison["exit_code"] = 0 if all(each["holds"] for each in comparison["gates"]) else 3
    comparison["labelkit_version"] = __version__
    if json_:
        sys.stdout.write(codec.pretty(comparison).decode("utf-8"))
    else:
        sys.stdout.write(comparison_text(comparison))
    raise SystemExit(comparison["exit_code"])


def _gates(expressions: Sequence[str]) -> list[Gate]:
    """Raises UsageError for what is no gate on a comparison."""
    from labelkit.diff import NUMBERS, TASK_NUMBERS
    from labelkit.errors import UsageError
    from labelkit.gates import check_key, parse_gate

    gates = [parse_gate(expression) for expression in expressions]
    for gate in gates:
        wrong = check_key(gate, TASK_NUMBERS if gate.per_task else NUMBERS)
        if wrong is not None:
            raise UsageError(wrong.problem, hint=wrong.fix)
    return gates
