"""The error tree, and with it the error model.

Every error that a user can cause is a `LabelkitError`: it carries the exit code of the command
line, a message that names the file, the field and the value, and a hint that says what to do.
Anything else that reaches the command line is a bug and exits 1 with a traceback.

Two borders are foreign and may raise anything: the provider call and the scorer call. What crosses
the first becomes a `ProviderError` in the sampler; what crosses the second becomes an attempt with
`stop_reason` `scorer_error` in the engine. Neither ends a run by itself: a bad draw is data.

Exit codes: 0 done · 1 unexpected or storage · 2 usage, spec or tasks · 3 a gate failed ·
4 incomplete · 130/143 interrupted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

FailureKind = Literal["fatal", "row", "transient", "timeout", "content_filter", "unreadable"]


class LabelkitError(Exception):
    """Base of all errors that a user can cause; `hint` is the fix, one line."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


class DrawNotMadeError(Exception):
    """A scorer's own draw was not made, or is owed again: there is no verdict yet.

    Not a fault of the scorer and not a score: the attempt is scored once the run goes on.
    """


class UsageError(LabelkitError):
    """A command line, spec, task file or run directory that cannot be used as it is."""

    exit_code = 2


@dataclass(frozen=True)
class Fault:
    """One fault of a spec or task file.

    `field` is a dotted path (`sampler.temperature`); `line` counts from 1; None where unknown.
    """

    problem: str
    file: str | None = None
    line: int | None = None
    field: str | None = None
    fix: str | None = None

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.file, self.line) if part is not None)
        head = ": ".join(part for part in (place, self.field, self.problem) if part)
        return f"{head} ({self.fix})" if self.fix else head


class SpecError(UsageError):
    """All the faults of a spec and its task files, reported at once."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        self.faults = tuple(faults)
        super().__init__("\n".join(str(fault) for fault in self.faults))


class RunMismatchError(UsageError):
    """A run directory was made by something else than what is asked for now."""


class LedgerLockedError(UsageError):
    """Another process holds the run directory."""


class LedgerCorruptError(LabelkitError):
    """A ledger record that is not the torn last one cannot be read; `--repair` quarantines it."""


class StorageError(LabelkitError):
    """The disk refused a write that must not be lost."""


class AccountingError(LabelkitError):
    """A conservation sum does not hold: a bug in labelkit, never the user's fault."""


class ProviderError(LabelkitError):
    """A call that brought no usable reply, told in labelkit's classes.

    kind: `fatal` for the run (dead key, unknown model, no quota) · `row` (this request is refused:
    too long, malformed) · `transient` (may be tried again) · `timeout` (the server took the call on
    and did not answer in time; not tried again) · `content_filter` · `unreadable` (an answer came
    that is no reply: cut or garbage body; paid, so not tried again).
    `retry_after_s` is the server's own wish in seconds. `message` is already free of secrets.
    `paid`: the server may have charged for the call (it was taken on); by default what `kind` says,
    to be set where more is known (a disconnect after sending is `transient` and paid).

    The retry layer fills in `tries`, the calls made for this draw, and `outage`: the endpoint as a
    whole was failing, so the draw is owed again when the run goes on.
    """

    def __init__(
        self,
        kind: FailureKind,
        message: str,
        *,
        error_type: str = "ProviderError",
        status_code: int | None = None,
        retry_after_s: float | None = None,
        hint: str | None = None,
        paid: bool | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.kind: FailureKind = kind
        self.error_type = error_type
        self.status_code = status_code
        self.retry_after_s = retry_after_s
        self.paid = kind in ("timeout", "unreadable", "content_filter") if paid is None else paid
        self.tries = 1
        self.outage = False
