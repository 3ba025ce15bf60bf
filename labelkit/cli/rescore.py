"""`labelkit rescore`: a run's draws scored by another scorer, without a single model call."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from labelkit.cli import app
from labelkit.cli.recipes import (
    AllowCode,
    GateOption,
    Json,
    Limit,
    Model,
    NoSandbox,
    Quiet,
    Set,
    Spec,
    TaskIds,
    run_and_print,
)


@app.command()
def rescore(
    run: Annotated[Path, typer.Argument(help="The run to score anew.", show_default=False)],
    spec: Spec,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="New run directory; default RUN-rescored-…."),
    ] = None,
    model: Model = None,
    limit: Limit = None,
    task: TaskIds = None,
    set_: Set = None,
    gate: GateOption = None,
    allow_code: AllowCode = False,
    unsafe_no_sandbox: NoSandbox = False,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Score a run's draws anew, into a new run; samples nothing.

    A task whose decision needs draws that the run never made is not run.
    """
    from dataclasses import replace

    from labelkit.fingerprint import digest
    from labelkit.plan import Permissions
    from labelkit.prepare import Options, prepare
    from labelkit.report.run_view import RunView
    from labelkit.spec import load

    with RunView(run) as view:
        command, k = str(view.identity["command"]), _attempts_a_task(view)
        # Of a run that stopped early, rates over all that was drawn would be biased.
        adaptive = view.identity["spec"].get("adaptive") or None
    flags: dict[str, Any] = {"k": k, "sampler.model": model, "adaptive": adaptive}
    document = load(spec, set_ or [], {at: v for at, v in flags.items() if v is not None})
    options = Options(
        directory=output,
        sources=[run],
        limit=limit,
        task_ids=task or [],
        gates=gate or [],
        never_buy=True,
        permissions=Permissions(allow_code, unsafe_no_sandbox),
    )
    prepared = prepare(document, command, options)
    if output is None:
        scorer = digest(prepared.plan.score_identity)[:8]
        path = run if run.name not in ("", "..") else run.resolve()
        prepared = replace(prepared, directory=path.with_name(f"{path.name}-rescored-{scorer}"))
    raise SystemExit(run_and_print(prepared, as_json=json_, quiet=quiet))


def _attempts_a_task(view: Any) -> int:
    """The K of a run: as last finished, else as its spec said when it began."""
    summary = view.summary
    return int(summary["k"] if summary is not None else view.identity["spec"].get("k", 8))
