"""The subcommands that make data, one a recipe, all with the same options."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from labelkit.cli import app
from labelkit.cli.streams import ReaderGoneError

RECIPES = {
    "rollout": "K scored attempts of every task: pass rates, pass@k, intervals.",
    "learning-zone": "Keep the tasks that the model sometimes passes and sometimes fails.",
    "verify-traces": "Keep every sample that verifies, as traces to train on.",
    "best-of-n": "Keep the best of K candidates, where a judge finds it good enough.",
    "rl-select": "Keep the prompts whose pass rate lies in a band.",
    "step-rewards": "Score each step of a solution by how often it can be completed.",
}

ADAPTIVE = ("learning-zone", "verify-traces", "rl-select")

Spec = Annotated[Path, typer.Argument(help="The YAML spec.", show_default=False)]
K = Annotated[int | None, typer.Option("-k", help="Attempts a task (the spec's `k`).", min=1)]
Output = Annotated[
    Path | None,
    typer.Option("-o", "--output", help="Run directory; default runs/NAME/MODEL/COMMAND."),
]
Model = Annotated[str | None, typer.Option(help="Another model than the spec's.")]
Limit = Annotated[int | None, typer.Option(help="Only the first N tasks.", min=1)]
TaskIds = Annotated[
    list[str] | None, typer.Option("--task", help="Only this task id (repeatable).")
]
Set = Annotated[
    list[str] | None, typer.Option("--set", help="Override a spec value: sampler.temperature=0.7.")
]
Sources = Annotated[
    list[Path] | None, typer.Option("--from", help="Reuse another run's draws (repeatable).")
]
TopUp = Annotated[bool, typer.Option("--top-up", help="Buy the draws that --from lacks.")]
GateOption = Annotated[
    list[str] | None, typer.Option("--gate", help="Exit 3 unless it holds: 'pass_rate >= 0.6'.")
]
BudgetOption = Annotated[float | None, typer.Option("--budget", help="Spend at most so many USD.")]
TokenCap = Annotated[
    int | None, typer.Option("--max-tokens-total", help="Spend at most so many tokens.", min=1)
]
Batch = Annotated[
    bool, typer.Option("--batch", help="Draw through the provider's batch API: slow and cheap.")
]
PilotTasks = Annotated[
    int | None,
    typer.Option("--pilot", help="Run N random tasks first and project the whole.", min=1),
]
StopIf = Annotated[
    list[str] | None,
    typer.Option("--stop-if", help="End after the pilot where this holds: 'truncated > 0.1'."),
]
Shard = Annotated[str | None, typer.Option(help="Run a part: 1/4 is the first of four.")]
RetryErrors = Annotated[
    bool, typer.Option("--retry-errors", help="Draw failed calls and failed scorings again.")
]
Fresh = Annotated[bool, typer.Option("--fresh", help="Set the old run aside and start anew.")]
Repair = Annotated[
    bool, typer.Option("--repair", help="Move damaged ledger records aside and go on.")
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Show the first request and the draws; spend nothing.")
]
AllowCode = Annotated[
    bool,
    typer.Option("--allow-code", help="Let the spec run code of its own (python, verl, command)."),
]
NoSandbox = Annotated[
    bool,
    typer.Option(
        "--unsafe-no-sandbox", help="Run model-written code without a sandbox (recorded)."
    ),
]
Adaptive = Annotated[
    bool,
    typer.Option("--adaptive", help="Stop a task's draws once its decision cannot change."),
]
Json = Annotated[bool, typer.Option("--json", help="Print the summary as one JSON document.")]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="No progress on stderr.")]


def _verb(command: str, about: str) -> Callable[..., None]:
    def verb(
        spec: Spec,
        k: K = None,
        adaptive: Adaptive = False,
        output: Output = None,
        model: Model = None,
        limit: Limit = None,
        task: TaskIds = None,
        set_: Set = None,
        from_: Sources = None,
        top_up: TopUp = False,
        gate: GateOption = None,
        budget: BudgetOption = None,
        max_tokens_total: TokenCap = None,
        batch: Batch = False,
        pilot: PilotTasks = None,
        stop_if: StopIf = None,
        shard: Shard = None,
        retry_errors: RetryErrors = False,
        fresh: Fresh = False,
        repair: Repair = False,
        dry_run: DryRun = False,
        allow_code: AllowCode = False,
        unsafe_no_sandbox: NoSandbox = False,
        json_: Json = False,
        quiet: Quiet = False,
    ) -> None:
        from labelkit.errors import UsageError
        from labelkit.plan import Permissions
        from labelkit.prepare import Options, prepare
        from labelkit.spec import load

        if adaptive and command not in ADAPTIVE:
            raise UsageError(
                f"--adaptive is not for {command}, which needs every draw",
                hint=f"it is for {', '.join(ADAPTIVE)}",
            )
        flags: dict[str, Any] = {
            "k": k,
            "sampler.model": model,
            "budget": budget,
            "max_tokens_total": max_tokens_total,
            "adaptive": adaptive or None,
        }
        document = load(spec, set_ or [], {at: v for at, v in flags.items() if v is not None})
        options = Options(
            directory=output,
            sources=from_ or [],
            top_up=top_up,
            retry_errors=retry_errors,
            fresh=fresh,
            repair=repair,
            limit=limit,
            task_ids=task or [],
            shard=parse_shard(shard),
            gates=gate or [],
            batch=batch,
            pilot=pilot,
            stop_if=stop_if or [],
            permissions=Permissions(allow_code, unsafe_no_sandbox),
        )
        prepared = prepare(document, command, options)
        if dry_run:
            from labelkit.report.preview import preview

            sys.stdout.write(preview(prepared))
            return
        raise SystemExit(run_and_print(prepared, as_json=json_, quiet=quiet))

    verb.__doc__ = about
    return verb


def run_and_print(prepared: Any, *, as_json: bool, quiet: bool) -> int:
    """Execute a prepared run, print its result on stdout, and return its exit code."""
    from labelkit import codec
    from labelkit.report.live import display
    from labelkit.report.summary import summary_text
    from labelkit.run import execute

    with display(quiet=quiet) as progress:
        summary = execute(prepared, progress)
    # Whoever stopped reading, the run is done, and its exit code says how.
    with contextlib.suppress(ReaderGoneError):
        if as_json:
            sys.stdout.write(codec.pretty(summary).decode("utf-8"))
        else:
            sys.stdout.write(summary_text(summary, prepared.directory))
        sys.stdout.flush()
    return int(summary["exit_code"])


def parse_shard(text: str | None) -> tuple[int, int] | None:
    """`2/4` as (2, 4). Raises UsageError."""
    from labelkit.errors import UsageError

    if text is None:
        return None
    part, _, parts = text.partition("/")
    if part.isdecimal() and parts.isdecimal() and 1 <= int(part) <= int(parts):
        return int(part), int(parts)
    raise UsageError(f"--shard {text}: is not a part", hint="write 1/4 for the first of four")


for _command, _about in RECIPES.items():
    app.command(_command)(_verb(_command, _about))
