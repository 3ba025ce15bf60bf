"""rl-select: the prompts whose pass rate lies in a band, with how sure that is."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import Field, JsonValue, model_validator

from labelkit import codec, stats
from labelkit.recipes import Check, Context, Envelope, answer_of, draw_all, prompt_of, split
from labelkit.recipes.band import PRESETS, BandField
from labelkit.recipes.waves import Drawn, counts, draw_candidates, owed
from labelkit.records import Attempt, Dropped, Outcome, Request, Row, Status, Task
from labelkit.seams import Draw
from labelkit.spec import Problem, Section

MISPLACED = 0.15
"""Above this share of wrongly kept tasks K is called too small for the band."""


class RlSelectSettings(Section):
    """`band` of pass rates to keep. `min_probability` of P(p in band). `rank_by` with `top` keeps
    the best N of all tasks. `replicate` fresh draws must confirm a task near the band's edge."""

    preset: Literal["dapo", "skywork-or1", "open-r1", "polaris"] | None = None
    band: BandField = BandField.parse("(0, 1)")
    min_probability: Annotated[float, Field(ge=0, le=1)] | None = None
    rank_by: Literal["learnability"] | None = None
    top: Annotated[int, Field(ge=1)] | None = None
    replicate: Annotated[int, Field(ge=1)] | None = None

    @model_validator(mode="before")
    @classmethod
    def _apply_preset(cls, values: Any) -> Any:
        """A preset sets the band; both at once would hide one of them."""
        if isinstance(values, dict) and values.get("preset") in PRESETS:
            if "band" in values:
                raise ValueError("`preset` and `band` are both set; keep one")
            return {**values, "band": PRESETS[values["preset"]].band}
        return values

    @model_validator(mode="after")
    def _ranked(self) -> Self:
        if (self.rank_by is None) != (self.top is None):
            raise ValueError("`rank_by` and `top` go together; set both or neither")
        return self


class RlSelect:
    """A row a kept prompt. 0/K with a majority for another answer is a suspect gold, not hard."""

    Settings = RlSelectSettings

    @staticmethod
    def check(settings: RlSelectSettings, envelope: Envelope) -> Check:
        section, found = "rl_select", Check()
        if envelope.spec.adaptive:
            # A stopped task's rate is biased: nothing may be ranked or chosen by it.
            for name in ("rank_by", "min_probability", "replicate"):
                if getattr(settings, name) is not None:
                    said = "needs every draw, so it does not go with `adaptive`"
                    found.problems.append(Problem((section, name), said, "drop one of them"))
        if settings.replicate and envelope.sampler.recorded is not None:
            said = "asks for fresh draws, and recorded replies have none"
            found.problems.append(Problem((section, "replicate"), said, "remove it"))
        k, band = envelope.spec.k, settings.band
        wrong = band.misplaced(k)
        if wrong is None:
            said = f"no pass rate of k = {k} draws lies in {band}"
            found.problems.append(Problem((section, "band"), said, "raise k or widen the band"))
        elif wrong > MISPLACED:
            said = f"k = {k} is small for {band}: about {wrong:.0%} of the kept tasks lie outside"
            found.warnings.append(Problem((section,), said, "raise k, or set min_probability"))
        return found

    def __init__(self, settings: RlSelectSettings, context: Context) -> None:
        self._settings = settings
        self._context = context
        self._counts: Counter[str] = Counter()
        self._best: list[tuple[float, int, str]] = []
        self._seen = 0
        self._chosen: dict[str, int] | None = None

    @property
    def chooses(self) -> bool:
        return self._settings.top is not None

    def consider(self, outcome: Outcome) -> None:
        """First pass: remember the N best, the earlier of equals; memory is `top` entries."""
        self._seen += 1
        rank = outcome.detail.get("learnability")
        if outcome.status != "kept" or not isinstance(rank, float):
            return
        assert self._settings.top is not None
        entry = (rank, -self._seen, outcome.task_id)
        if len(self._best) < self._settings.top:
            heapq.heappush(self._best, entry)
        else:
            heapq.heappushpop(self._best, entry)

    def choose(self) -> None:
        ordered = sorted(self._best, reverse=True)
        self._chosen = {task_id: rank for rank, (_, _, task_id) in enumerate(ordered, 1)}

    def candidates(self, task: Task) -> tuple[Request, int]:
        return self._context.render(task), self._context.k

    async def __call__(self, task: Task, draw: Draw) -> Outcome:
        request, k = self.candidates(task)
        drawn = await draw_candidates(
            draw, request, k, self._decided, adaptive=self._context.adaptive
        )
        status, reason = self._decide(drawn)
        extra: dict[str, JsonValue] = {}
        detail: str | None = None
        if reason == "never_solved" and (other := majority(drawn.attempts)) is not None:
            reason, detail = "gold_conflict", f"{other[1]} of {len(drawn.attempts)}: {other[0]}"
        if status == "kept" and self._settings.replicate:
            status, reason, extra = await self._replicated(draw, request, drawn)
        n_passed, n_scored = counts(drawn.attempts)
        learnability = stats.learnability(n_passed, n_scored)
        if status == "kept" and self._chosen is not None:
            if task.id in self._chosen:
                extra["rank"] = self._chosen[task.id]
            else:
                status, reason = "dropped", "below_top"
        rows = [self._row(task, request, drawn, extra)] if status == "kept" else []
        dropped = [] if rows else [Dropped(id=task.id, reason=reason or status, detail=detail)]
        return Outcome(
            task_id=task.id,
            status=status,
            reason=reason,
            rows=tuple(rows),
            dropped_rows=tuple(dropped),
            candidates=1,
            planned=k,
            attempts=drawn.attempts,
            not_run=drawn.not_run,
            not_needed=drawn.not_needed,
            stopped_early=drawn.stopped_early,
            line={"designed": task.metadata["designed"]} if "designed" in task.metadata else {},
            detail={"saved": drawn.saved, "learnability": learnability},
        )

    def _decided(self, attempts: Sequence[Attempt], remaining: int) -> bool:
        return stats.band_decided(*counts(attempts), remaining, self._settings.band) != "open"

    def _decide(self, drawn: Drawn) -> tuple[Status, str | None]:
        settings, (n_passed, n_scored) = self._settings, counts(drawn.attempts)
        band = settings.band
        waiting = owed(drawn.not_run)
        if waiting and not self._decided(drawn.attempts, drawn.remaining):
            return "not_run", waiting
        if n_scored == 0:
            return "undecided", "undecided"
        if not band.contains(n_passed, n_scored):
            if drawn.stopped_early:
                return "dropped", "out_of_band"
            if n_passed == 0:
                return "dropped", "never_solved"
            return "dropped", "always_solved" if n_passed == n_scored else "out_of_band"
        least = settings.min_probability
        if least is not None and band.probability(n_passed, n_scored, self._context.k) < least:
            return "dropped", "uncertain"
        return "kept", None

    async def _replicated(
        self, draw: Draw, request: Request, drawn: Drawn
    ) -> tuple[Status, str | None, dict[str, JsonValue]]:
        """Measure a task near the band's edge again: the first measurement chose it, so its luck
        is in it. Near: one sample fewer or more would put it outside."""
        n_passed, n_scored = counts(drawn.attempts)
        band, number = self._settings.band, self._settings.replicate
        near = (n_passed - 1, n_passed + 1)
        if number is None or all(band.contains(c, n_scored) for c in near if 0 <= c <= n_scored):
            return "kept", None, {}
        again, not_run = split(await draw_all(draw, request, range(number), stage="replicate/1"))
        waiting = owed(not_run)
        if waiting:
            return "not_run", waiting, {}
        c, n = counts(again)
        if n == 0:
            return "undecided", "undecided", {}
        measured: JsonValue = {"n_passed": c, "n_scored": n, "pass_rate": c / n}
        if not band.contains(c, n):
            return "dropped", "not_replicated", {}
        return "kept", None, {"replicate": measured}

    def _row(self, task: Task, request: Request, drawn: Drawn, extra: dict[str, JsonValue]) -> Row:
        n_passed, n_scored = counts(drawn.attempts)
        whole = not drawn.stopped_early
        interval = stats.jeffreys(n_passed, n_scored) if whole else None
        band, k = self._settings.band, self._context.k
        fields: dict[str, JsonValue] = {
            "id": task.id,
            "prompt": prompt_of(task),
            "gold": task.gold,
            "pass_rate": n_passed / n_scored if whole else None,
            "n_passed": n_passed,
            "n_scored": n_scored,
            "pass_rate_interval": None if interval is None else list(interval),
            "p_in_band": band.probability(n_passed, n_scored, k) if whole else None,
            "learnability": stats.learnability(n_passed, n_scored) if whole else None,
            "bin": stats.curriculum_bin(n_passed, n_scored) if whole else None,
            **extra,
        }
        return Row(fields=fields, request=request, attempts=drawn.attempts)

    def summarise(self, outcome: Outcome) -> None:
        saved = outcome.detail["saved"]
        assert isinstance(saved, int)
        self._counts["saved"] += saved
        self._counts[outcome.reason or outcome.status] += 1

    def detail(self) -> Mapping[str, JsonValue]:
        saved = "draws_saved" if self._context.adaptive else "draws_adaptive_would_save"
        reasons = (
            "always_solved",
            "never_solved",
            "out_of_band",
            "gold_conflict",
            "uncertain",
            "not_replicated",
            "below_top",
            "undecided",
        )
        preset = self._settings.preset
        return {
            "band": str(self._settings.band),
            "preset": None if preset is None else {"name": preset, **vars(PRESETS[preset])},
            **{reason: self._counts[reason] for reason in reasons},
            saved: self._counts["saved"],
        }


def majority(attempts: Sequence[Attempt]) -> tuple[str, int] | None:
    """The answer that more than half of the scored attempts give, at least two, and how many do."""
    answers: Counter[str] = Counter()
    scored = [attempt for attempt in attempts if attempt.score is not None]
    for attempt in scored:
        # What reads as no answer (a hedge, no number) is no other answer to believe in.
        answer = answer_of(attempt) if attempt.stop_reason == "completed" else None
        if answer is not None and not (isinstance(answer, str) and not answer.strip()):
            shown = answer.strip() if isinstance(answer, str) else codec.canonical(answer).decode()
            answers[shown] += 1
    if not answers:
        return None
    answer, number = answers.most_common(1)[0]
    return (answer, number) if number >= 2 and 2 * number > len(scored) else None
