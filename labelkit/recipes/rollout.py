"""rollout: K scored attempts of every task, a row for each attempt that holds a whole answer."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import JsonValue

from labelkit.recipes import (
    Check,
    Context,
    Envelope,
    answer_of,
    draw_all,
    prompt_of,
    split,
    tool_calls_of,
)
from labelkit.records import Attempt, Dropped, NotRun, Outcome, Request, Row, Status, Task
from labelkit.seams import Draw
from labelkit.spec import Section


class RolloutSettings(Section):
    """rollout has no section of its own in the spec."""


class Rollout:
    """A row an attempt, right or wrong. What was cut, unreadable, without an answer or unscored is
    dropped with its stop reason: it is counted, and its text stays in the ledger."""

    Settings = RolloutSettings

    @staticmethod
    def check(settings: RolloutSettings, envelope: Envelope) -> Check:
        return Check()

    def __init__(self, settings: RolloutSettings, context: Context) -> None:
        self._context = context

    def candidates(self, task: Task) -> tuple[Request, int]:
        return self._context.render(task), self._context.k

    async def __call__(self, task: Task, draw: Draw) -> Outcome:
        request, k = self.candidates(task)
        attempts, not_run = split(await draw_all(draw, request, range(k)))
        kept = [attempt for attempt in attempts if attempt.stop_reason == "completed"]
        dropped = [attempt for attempt in attempts if attempt.stop_reason != "completed"]
        status, reason = _status(kept, attempts, not_run)
        return Outcome(
            task_id=task.id,
            status=status,
            reason=reason,
            rows=tuple(_row(task, request, attempt) for attempt in kept),
            dropped_rows=tuple(
                Dropped(
                    id=task.id,
                    sample_index=attempt.sample_index,
                    reason=attempt.stop_reason,
                    detail=attempt.reason,
                )
                for attempt in dropped
            ),
            candidates=len(attempts),
            planned=k,
            attempts=attempts,
            not_run=not_run,
        )

    def summarise(self, outcome: Outcome) -> None:
        """Nothing beyond the common counts."""

    def detail(self) -> Mapping[str, JsonValue]:
        return {}


def _row(task: Task, request: Request, attempt: Attempt) -> Row:
    reply, score = attempt.sampled.reply, attempt.score
    assert reply is not None
    assert score is not None
    fields: dict[str, JsonValue] = {
        "id": task.id,
        "prompt": prompt_of(task),
        "sample_index": attempt.sample_index,
        "text": reply.text,
        "reasoning": reply.reasoning,
        "answer": answer_of(attempt),
        "gold": task.gold,
        "score": {
            "value": score.value,
            "passed": score.passed,
            "reason": score.reason,
            "detail": score.detail,
        },
        "stop_reason": attempt.stop_reason,
    }
    if reply.tool_calls:
        fields["tool_calls"] = tool_calls_of(attempt)
    return Row(fields=fields, request=request, attempts=(attempt,))


def _status(
    kept: list[Attempt], attempts: tuple[Attempt, ...], not_run: tuple[NotRun, ...]
) -> tuple[Status, str | None]:
    if kept:
        return "kept", None
    if any(each.reason != "unavailable" for each in not_run):
        return "not_run", next(each.reason for each in not_run if each.reason != "unavailable")
    if not attempts:
        return "dropped", "unavailable"
    if all(attempt.state == "unscored" for attempt in attempts):
        return "undecided", "unscored"
    return "dropped", "no_answer"
