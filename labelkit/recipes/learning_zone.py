"""learning-zone: the tasks that the policy sometimes passes and sometimes fails."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from pydantic import JsonValue

from labelkit import stats
from labelkit.recipes import Check, Context, Envelope, prompt_of
from labelkit.recipes.waves import Drawn, counts, draw_candidates, owed, states
from labelkit.records import Attempt, Dropped, Outcome, Request, Row, Status, Task
from labelkit.seams import Draw
from labelkit.spec import Problem, Section


class LearningZoneSettings(Section):
    """`contrast` adds one passing and one failing attempt (sample index, text, score) to a row."""

    contrast: bool = False


class LearningZone:
    """Keeps 0 < n_passed < n_scored on the raw counts; unscored attempts count nowhere."""

    Settings = LearningZoneSettings

    @staticmethod
    def check(settings: LearningZoneSettings, envelope: Envelope) -> Check:
        if envelope.spec.k >= 2:
            return Check()
        said = f"{envelope.spec.k}: no task can both pass and fail"
        return Check([Problem(("k",), said, "set k to 2 or more")])

    def __init__(self, settings: LearningZoneSettings, context: Context) -> None:
        self._settings = settings
        self._context = context
        self._counts: Counter[str] = Counter()

    def candidates(self, task: Task) -> tuple[Request, int]:
        return self._context.render(task), self._context.k

    async def __call__(self, task: Task, draw: Draw) -> Outcome:
        request, k = self.candidates(task)
        drawn = await draw_candidates(draw, request, k, _is_mixed, adaptive=self._context.adaptive)
        status, reason = _decide(drawn)
        row = [self._row(task, request, drawn)] if status == "kept" else []
        dropped = [] if row else [Dropped(id=task.id, reason=reason or status)]
        return Outcome(
            task_id=task.id,
            status=status,
            reason=reason,
            rows=tuple(row),
            dropped_rows=tuple(dropped),
            candidates=1,
            planned=k,
            attempts=drawn.attempts,
            not_run=drawn.not_run,
            not_needed=drawn.not_needed,
            stopped_early=drawn.stopped_early,
            detail={"saved": drawn.saved},
        )

    def _row(self, task: Task, request: Request, drawn: Drawn) -> Row:
        n_passed, n_scored = counts(drawn.attempts)
        whole = not drawn.stopped_early
        interval = stats.jeffreys(n_passed, n_scored) if whole else None
        fields: dict[str, JsonValue] = {
            "id": task.id,
            "prompt": prompt_of(task),
            "gold": task.gold,
            "n_passed": n_passed,
            "n_scored": n_scored,
            "pass_rate": n_passed / n_scored if whole else None,
            "pass_rate_interval": None if interval is None else list(interval),
            "p_in_zone": stats.p_in_zone(n_passed, n_scored, self._context.k) if whole else None,
            "outcomes": states(drawn),
        }
        if self._settings.contrast:
            fields["passing"] = _shown(drawn.attempts, "passed")
            fields["failing"] = _shown(drawn.attempts, "failed")
        return Row(fields=fields, request=request, attempts=drawn.attempts)

    def summarise(self, outcome: Outcome) -> None:
        saved = outcome.detail["saved"]
        assert isinstance(saved, int)
        self._counts["saved"] += saved
        self._counts[outcome.reason or outcome.status] += 1

    def detail(self) -> Mapping[str, JsonValue]:
        saved = "draws_saved" if self._context.adaptive else "draws_adaptive_would_save"
        return {
            "in_zone": self._counts["kept"],
            "saturated": self._counts["saturated"],
            "hopeless": self._counts["hopeless"],
            "undecided": self._counts["undecided"],
            saved: self._counts["saved"],
        }


def _is_mixed(attempts: Sequence[Attempt], remaining: int) -> bool:
    """A pass and a fail decide a task for good; nothing else does before the last draw."""
    return stats.is_mixed(*counts(attempts))


def _decide(drawn: Drawn) -> tuple[Status, str | None]:
    n_passed, n_scored = counts(drawn.attempts)
    if stats.is_mixed(n_passed, n_scored):
        return "kept", None
    waiting = owed(drawn.not_run)
    if waiting:
        return "not_run", waiting
    if n_scored < 2:
        return "undecided", "undecided"
    return "dropped", "saturated" if n_passed else "hopeless"


def _shown(attempts: Sequence[Attempt], state: str) -> JsonValue:
    for attempt in attempts:
        if attempt.state == state and attempt.sampled.reply is not None:
            assert attempt.score is not None
            return {
                "sample_index": attempt.sample_index,
                "text": attempt.sampled.reply.text,
                "reasoning": attempt.sampled.reply.reasoning,
                "score": attempt.score.model_dump(mode="json", include={"value", "reason"}),
            }
    return None
