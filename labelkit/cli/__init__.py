"""The command line: one file a verb, typer alone lives here.

`main` is the only place that turns errors into messages and exit codes. Verbs import what they
need when they run, so that `--help` costs no provider library.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

from labelkit.cli.streams import ReaderGoneError, open_streams
from labelkit.errors import LabelkitError, StorageError, UsageError


class _Verbs(TyperGroup):
    """Says of a value that does not fit its option what typer leaves out: the value."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            misfit = _misfit(error)
            if misfit is None:
                raise
            raise misfit from None


def _misfit(error: typer.BadParameter) -> UsageError | None:
    """A value that typer's models refuse, as one of labelkit's errors; None for other mistakes."""
    if type(error.__cause__).__name__ != "ValidationError":  # of pydantic, which costs time
        return None
    cause: Any = error.__cause__
    [item, *_] = cause.errors()
    param: Any = error.param
    option = param.opts[0] if param.opts[0].startswith("-") else param.metavar or param.name
    said = _EXPECTED.get(item["type"]) or str(item["msg"]).removeprefix("Value error, ")
    said = said.removeprefix("Input ").rstrip(".")
    value = repr(item["input"])
    verb = error.ctx.info_name if error.ctx is not None else ""
    return UsageError(
        f"{option}: {said}" if value in said else f"{option}: {value}: {said}",
        hint=f"`labelkit {verb} --help` says what it takes",
    )


_EXPECTED = {"int_parsing": "should be a whole number", "float_parsing": "should be a number"}

app = typer.Typer(
    cls=_Verbs,
    name="labelkit",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def _labelkit() -> None:
    """Make training data from language models: sample, verify, keep, account for the rest."""


VERBS = ("recipes", "check", "show", "errors", "diff", "rescore", "export", "schema", "init")
"""Modules of this package in the order of --help; each registers its verbs when imported."""


def main() -> None:
    """Entry point of the console script."""
    open_streams()
    try:
        for verb in VERBS:
            import_module(f"labelkit.cli.{verb}")
        try:
            app()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
    except LabelkitError as error:
        _fail(error)
    except ReaderGoneError:
        raise SystemExit(0) from None
    except OSError as error:
        what = error.strerror or str(error)
        _fail(StorageError(f"{error.filename}: {what}" if error.filename else what))
    except Exception as error:
        if type(error).__module__ != "sqlite3":  # which --help does not import
            raise
        hint = "free some space in the temporary folder (TMPDIR)"
        _fail(StorageError(f"a temporary database: {error}", hint=hint))
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        raise SystemExit(130) from None


def _fail(error: LabelkitError) -> None:
    from labelkit.report.text import plain
    from labelkit.samplers.faults import Secrets

    # A message may quote a spec, and a spec may hold by mistake what the environment holds.
    secrets = Secrets({}, ())
    for line in str(error).splitlines() or [type(error).__name__]:
        sys.stderr.write(f"error: {plain(secrets.hide(line))}\n")
    if error.hint:
        sys.stderr.write(f"fix: {plain(secrets.hide(error.hint))}\n")
    raise SystemExit(error.exit_code)
