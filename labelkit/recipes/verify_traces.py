"""verify-traces: every sample that verifies, as a trace to train on (rejection sampling)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from pydantic import Field, JsonValue

from labelkit.recipes import Check, Context, Envelope, answer_of, off_loop, prompt_of, tool_calls_of
from labelkit.recipes.distinct import Distinct, Kind, missing_library
from labelkit.recipes.trace_filters import TraceFilters
from labelkit.recipes.waves import Drawn, draw_candidates, owed
from labelkit.records import Attempt, Dropped, Outcome, Request, Row, Status, Task
from labelkit.seams import Draw
from labelkit.spec import Problem, Section


class Budget(Section):
    """How `want` is shared out (DART-Math, arXiv 2407.13690). `uniform`: as many for every task.
    `prop2diff`: in proportion to the share of the first `pilot` draws that fail, at least one."""

    kind: Literal["uniform", "prop2diff"] = "uniform"
    pilot: Annotated[int, Field(ge=1)] = 4


class VerifyTracesSettings(Section):
    """`want` stops a task at so many kept samples, at the latest after K draws. `max_per_task` only
    caps the rows (with --adaptive it stops the draws, too). `dedupe` compares a task's own."""

    want: Annotated[int, Field(ge=1)] | None = None
    max_per_task: Annotated[int, Field(ge=1)] | None = None
    budget: Budget | None = None
    dedupe: Kind | None = None
    filters: TraceFilters = TraceFilters()


class VerifyTraces:
    """A row a kept sample, the earliest first; what is not kept has its line in dropped.jsonl. The
    reasoning of a kept trace is not checked: a right answer can come from a wrong path."""

    Settings = VerifyTracesSettings

    @staticmethod
    def check(settings: VerifyTracesSettings, envelope: Envelope) -> Check:
        section = "verify_traces"
        problems = settings.filters.problems((section, "filters"))
        if settings.budget is not None and settings.want is None:
            said = "shares out `want`, which is missing"
            problems.append(Problem((section, "budget"), said, "set want: samples a task"))
        elif settings.budget is not None and settings.budget.pilot > envelope.spec.k:
            said = f"{settings.budget.pilot} is more than k = {envelope.spec.k}"
            problems.append(Problem((section, "budget", "pilot"), said, "raise k or lower it"))
        if settings.dedupe == "near" and (missing := missing_library()):
            problems.append(Problem((section, "dedupe"), str(missing), missing.hint))
        return Check(problems)

    def __init__(self, settings: VerifyTracesSettings, context: Context) -> None:
        self._settings = settings
        self._context = context
        self._counts: Counter[str] = Counter()

    def candidates(self, task: Task) -> tuple[Request, int]:
        return self._context.render(task), self._context.k

    async def __call__(self, task: Task, draw: Draw) -> Outcome:
        request, k = self.candidates(task)
        budget = self._settings.budget
        drawn = await draw_candidates(
            draw,
            request,
            k,
            self._enough,
            adaptive=self._context.adaptive or self._settings.want is not None,
            first=budget.pilot if budget is not None and budget.kind == "prop2diff" else 2,
        )
        kept, dropped = await off_loop(drawn.attempts, self._sifted, task, drawn.attempts)
        status, reason = _status(kept, drawn)
        return Outcome(
            task_id=task.id,
            status=status,
            reason=reason,
            rows=tuple(_row(task, request, attempt) for attempt in kept),
            dropped_rows=tuple(dropped),
            candidates=len(drawn.attempts),
            planned=k,
            attempts=drawn.attempts,
            not_run=drawn.not_run,
            not_needed=drawn.not_needed,
            stopped_early=drawn.stopped_early,
            line={"n_kept": len(kept)},
            detail={
                "saved": drawn.saved,
                "solved": any(attempt.state == "passed" for attempt in drawn.attempts),
                "scored": any(attempt.state != "unscored" for attempt in drawn.attempts),
            },
        )

    def _enough(self, attempts: Sequence[Attempt], remaining: int) -> bool:
        """No later draw can be kept: what is kept goes by sample order."""
        most = self._most(attempts)
        if most is None:
            return False
        return len(self._sifted(None, attempts)[0]) >= most

    def _most(self, attempts: Sequence[Attempt]) -> int | None:
        """How many samples of a task are kept at most; None: all that verify."""
        want, budget = self._settings.want, self._settings.budget
        if want is not None and budget is not None and budget.kind == "prop2diff":
            pilot = [a.score for a in attempts if a.sample_index < budget.pilot and a.score]
            failed = sum(not score.passed for score in pilot)
            # A pilot that decided nothing says nothing of the difficulty: the full number then.
            want = max(1, math.ceil(want * failed / len(pilot))) if pilot else want
        caps = [cap for cap in (want, self._settings.max_per_task) if cap is not None]
        return min(caps, default=None)

    def _sifted(
        self, task: Task | None, attempts: Sequence[Attempt]
    ) -> tuple[list[Attempt], list[Dropped]]:
        """The samples to keep in sample order, and why each of the others is not."""
        kept: list[Attempt] = []
        dropped: list[Dropped] = []
        most = self._most(attempts)
        distinct = Distinct(self._settings.dedupe) if self._settings.dedupe else None
        for attempt in attempts:
            why = _refused(attempt) or self._settings.filters.fault(attempt.sampled)
            if why is None and most is not None and len(kept) >= most:
                why = "enough", f"{most} are kept of this task"
            elif why is None and distinct is not None and distinct.repeats(_whole(attempt)):
                why = "duplicate", "an earlier sample of this task is alike"
            if why is None:
                kept.append(attempt)
            elif task is not None:
                dropped.append(
                    Dropped(
                        id=task.id,
                        sample_index=attempt.sample_index,
                        reason=why[0],
                        detail=why[1],
                    )
                )
        return kept, dropped

    def summarise(self, outcome: Outcome) -> None:
        saved = outcome.detail["saved"]
        assert isinstance(saved, int)
        self._counts["saved"] += saved
        self._counts["solved"] += bool(outcome.detail["solved"])
        self._counts["scored"] += bool(outcome.detail["scored"])
        self._counts["with_rows"] += bool(outcome.rows)

    def detail(self) -> Mapping[str, JsonValue]:
        stops = self._context.adaptive or self._settings.want is not None
        return {
            "n_tasks_solved": self._counts["solved"],
            "n_tasks_scored": self._counts["scored"],
            "n_tasks_with_rows": self._counts["with_rows"],
            "draws_saved" if stops else "draws_adaptive_would_save": self._counts["saved"],
        }


def _refused(attempt: Attempt) -> tuple[str, str | None] | None:
    """Why an attempt is no verified trace, or None."""
    if attempt.state == "passed":
        return None
    wrong = attempt.state == "failed" and attempt.stop_reason == "completed"
    return "wrong_answer" if wrong else attempt.stop_reason, attempt.reason


def _whole(attempt: Attempt) -> str:
    reply = attempt.sampled.reply
    assert reply is not None
    return "\n".join(part for part in (reply.reasoning, reply.text) if part)


def _row(task: Task, request: Request, attempt: Attempt) -> Row:
    reply = attempt.sampled.reply
    assert reply is not None
    fields: dict[str, JsonValue] = {
        "id": task.id,
        "prompt": prompt_of(task),
        "reasoning": _reasoning(attempt),
        "final_answer": _final_answer(attempt),
        "sample_index": attempt.sample_index,
        "gold": task.gold,
        "text": reply.text,
    }
    if reply.tool_calls:
        fields["tool_calls"] = tool_calls_of(attempt)
    return Row(fields=fields, request=request, attempts=(attempt,))


def _reasoning(attempt: Attempt) -> str | None:
    """The schema's `reasoning`, else the model's thinking, else the text before the answer."""
    reply, score = attempt.sampled.reply, attempt.score
    assert reply is not None
    if isinstance(reply.parsed, dict) and isinstance(reply.parsed.get("reasoning"), str):
        return str(reply.parsed["reasoning"])
    if reply.reasoning:
        return reply.reasoning
    if score is not None and score.span is not None and reply.parsed is None:
        return reply.text[: score.span[0]].rstrip() or None
    return None


def _final_answer(attempt: Attempt) -> JsonValue:
    """The schema's `final_answer` as the model typed it, else the extracted answer."""
    reply = attempt.sampled.reply
    if reply is not None and isinstance(reply.parsed, dict) and "final_answer" in reply.parsed:
        return reply.parsed["final_answer"]
    return answer_of(attempt)


def _status(kept: Sequence[Attempt], drawn: Drawn) -> tuple[Status, str | None]:
    if kept:
        return "kept", None
    waiting = owed(drawn.not_run)
    if waiting:
        return "not_run", waiting
    if not drawn.attempts:
        return "dropped", "unavailable"
    states = {attempt.state for attempt in drawn.attempts}
    if states == {"unscored"}:
        return "undecided", "unscored"
    return "dropped", "refused" if "passed" in states else "never_solved"
