"""best-of-n: the best of K candidates of a prompt, and only where it is good enough by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, Self

from pydantic import Field, JsonValue, model_validator

from labelkit.errors import DrawNotMadeError
from labelkit.recipes import Check, Context, Envelope, draw_all, prompt_of, split, tool_calls_of
from labelkit.recipes.best_of_n_summary import SATURATED, ScoreSummary
from labelkit.recipes.canaries import (
    BrokenConstraint,
    Canary,
    CanarySettings,
    PlantedReply,
    Sighting,
    named,
)
from labelkit.recipes.knockout import Knockout, knockout
from labelkit.recipes.waves import owed
from labelkit.records import (
    Abstention,
    Attempt,
    Dropped,
    NotRun,
    Outcome,
    Reply,
    Request,
    Row,
    Score,
    Status,
    Task,
)
from labelkit.scorers import REGISTRY, ScorerSettings
from labelkit.scorers.composition import AllOf, members
from labelkit.scorers.judge import Judge, JudgeScorer
from labelkit.scorers.parse import parse_scorer
from labelkit.seams import Draw, Scorer
from labelkit.spec import Problem, Section, SectionError, Spec

SECTION = "best_of_n"
MAX_LENGTH_RATIO = 2
"""A pair whose texts differ more in length teaches length."""

_FILLER = " The quick brown fox, so they say, jumps over the lazy dog." * 20


class BestOfNSettings(Section):
    """`bar`: the least score that is kept, on the judge's own scale, or in [0, 1] for other
    scorers. `judge` or `scorer` scores each candidate; without them the spec's scorer does.
    `constraints`, decided by code, come first: the settings of the constraints scorer, or any
    scorer section. `pairs` adds the worst candidate as `rejected`, at least `margin` below the
    chosen one. `mode: pairwise` chooses among those over the bar by knockout."""

    bar: float
    judge: dict[str, JsonValue] | None = None
    scorer: JsonValue = None
    constraints: dict[str, JsonValue] | list[JsonValue] | None = None
    mode: Literal["pointwise", "pairwise"] = "pointwise"
    pairs: bool = False
    margin: Annotated[float, Field(ge=0)] | None = None

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.judge is not None and self.scorer is not None:
            raise ValueError("`judge` and `scorer` are both set; keep one")
        if self.margin is not None and not self.pairs:
            raise ValueError("`margin` is for pairs; set pairs: true")
        return self


class BestOfN:
    """A row a prompt: the candidate with the highest score, the earliest of equals, if it reaches
    the bar. Cut, invalid and unscored candidates are never chosen."""

    Settings = BestOfNSettings

    @staticmethod
    def scorer_settings(settings: BestOfNSettings, spec: Spec) -> ScorerSettings | None:
        """Constraints by code, then who scores; None where that is the spec's scorer alone."""
        judged: ScorerSettings | None = None
        if settings.judge is not None:
            judge: dict[str, JsonValue] = {"judge": _with_pass_at(settings.judge)}
            judged = parse_scorer(judge, (SECTION,))
        elif settings.scorer is not None:
            judged = parse_scorer(settings.scorer, (SECTION, "scorer"))
        if settings.constraints is None:
            return judged
        if judged is None:
            if spec.scorer is None:
                fix = "add `judge: {…}` or `scorer: …` beside `constraints`"
                raise SectionError([Problem((SECTION,), "has nothing that scores", fix)])
            judged = parse_scorer(spec.scorer, ("scorer",))
        return AllOf(scorers=[_by_code(settings.constraints), judged])

    @staticmethod
    def check(settings: BestOfNSettings, envelope: Envelope) -> Check:
        judged = _judged(settings, envelope.scorer)
        low, high = _scale(judged)
        found = Check()
        if not low <= settings.bar <= high:
            said = f"{settings.bar:g} is outside the scale, {low:g} to {high:g}"
            found.problems.append(Problem((SECTION, "bar"), said, "set it on that scale"))
        if settings.margin is not None and settings.margin > high - low:
            said = f"{settings.margin:g} is wider than the scale, {low:g} to {high:g}"
            found.problems.append(Problem((SECTION, "margin"), said, "lower it"))
        if settings.mode == "pairwise" and not isinstance(judged, Judge):
            said = "pairwise compares replies by a judge, and there is none"
            found.problems.append(Problem((SECTION, "mode"), said, "add judge: {…}"))
        if envelope.spec.k < 2:
            said = f"k = {envelope.spec.k} candidate leaves nothing to choose from"
            found.warnings.append(Problem(("k",), said, "raise k"))
        return found

    def __init__(self, settings: BestOfNSettings, context: Context) -> None:
        self._settings = settings
        self._context = context
        judged = _judged(settings, context.envelope.scorer)
        *_, bound = self._members()
        self._judge = bound if isinstance(bound, JudgeScorer) else None
        self._scale = _scale(judged)
        self._summary = ScoreSummary(top=self._scale[1], whole=self._judge is not None)

    def candidates(self, task: Task) -> tuple[Request, int]:
        return self._context.render(task), self._context.k

    async def __call__(self, task: Task, draw: Draw) -> Outcome:
        request, k = self.candidates(task)
        attempts, not_run = split(await draw_all(draw, request, range(k)))
        over = [a for a in attempts if self.passes(a)]
        played: Knockout | None = None
        status, reason = self._decide(attempts, not_run, over)
        chosen = max(over, key=self._rank) if status == "kept" else None
        if chosen is not None and self._judge is not None and self._settings.mode == "pairwise":
            played = await knockout(self._judge, task, over, draw)
            chosen = played.winner
            if played.not_run is not None:
                status, reason = "not_run", played.not_run
            elif chosen is None:
                status, reason = "undecided", "judge_fault"
        dropped = Dropped(id=task.id, reason=reason or status, detail=played and played.fault)
        scored = [a for a in attempts if self._raw(a) is not None]
        return Outcome(
            task_id=task.id,
            status=status,
            reason=reason,
            rows=(self._row(task, request, attempts, chosen, played),) if chosen else (),
            dropped_rows=() if chosen else (dropped,),
            candidates=1,
            planned=k,
            attempts=attempts,
            not_run=not_run,
            line={"scores": [self._raw(attempt) for attempt in attempts]},
            detail={
                "scores": [self._raw(attempt) for attempt in scored],
                "lengths": [len(_text(attempt)) for attempt in scored],
                "n_not_scored": sum(a.state != "unscored" for a in attempts) - len(scored),
                "matches": [match.as_json() for match in played.matches] if played else [],
                "no_pair": chosen is not None and self._rejected(attempts, chosen, played) is None,
            },
        )

    def passes(self, attempt: Attempt) -> bool:
        """Whether a candidate may be chosen: whole, and at or over the bar."""
        raw = self._raw(attempt)
        return raw is not None and raw >= self._settings.bar

    def _decide(
        self, attempts: Sequence[Attempt], not_run: Sequence[NotRun], over: Sequence[Attempt]
    ) -> tuple[Status, str | None]:
        waiting = owed(not_run)
        if waiting:
            return "not_run", waiting
        if over:
            return "kept", None
        if not attempts:
            return "dropped", "unavailable"
        if all(attempt.state == "unscored" for attempt in attempts):
            return "undecided", "unscored"
        some = any(self._raw(attempt) is not None for attempt in attempts)
        return "dropped", "under_bar" if some else "no_candidate"

    def _raw(self, attempt: Attempt) -> float | None:
        """The candidate's score on the scale of the bar; None where whoever scores was not asked
        (a broken constraint, a cut or empty reply) or gave no verdict."""
        score = attempt.score
        if score is None or attempt.stop_reason != "completed":
            return None
        value: JsonValue = score.value
        detail: JsonValue = score.detail
        if self._settings.constraints is not None:
            told: JsonValue = score.detail.get("scorers")
            last = told[-1] if isinstance(told, list) else None
            if not isinstance(last, dict):
                return None
            value, detail = last.get("value"), last.get("detail")
        if self._judge is not None:
            value = detail.get("raw") if isinstance(detail, dict) else None
        return float(value) if isinstance(value, int | float) else None

    def _rank(self, attempt: Attempt) -> tuple[float, int]:
        raw = self._raw(attempt)
        return (-1e9 if raw is None else raw), -attempt.sample_index

    def _row(
        self,
        task: Task,
        request: Request,
        attempts: Sequence[Attempt],
        chosen: Attempt,
        played: Knockout | None,
    ) -> Row:
        fields: dict[str, JsonValue] = {
            "id": task.id,
            "prompt": prompt_of(task),
            "chosen": _text(chosen),
            "chosen_score": self._raw(chosen),
            "all_scores": [self._raw(attempt) for attempt in attempts],
            "judge_reason": chosen.reason,
            "sample_index": chosen.sample_index,
            "reasoning": _reasoning(chosen),
        }
        if calls := tool_calls_of(chosen):
            fields["tool_calls"] = calls
        if self._settings.pairs:
            rejected = self._rejected(attempts, chosen, played)
            fields["rejected"] = None if rejected is None else _text(rejected)
            fields["rejected_score"] = None if rejected is None else self._raw(rejected)
            fields["rejected_reasoning"] = None if rejected is None else _reasoning(rejected)
            if rejected is not None and (calls := tool_calls_of(rejected)):
                fields["rejected_tool_calls"] = calls
        told: dict[str, JsonValue] = {"candidates": [self._told(attempt) for attempt in attempts]}
        if played is not None:
            told["matches"] = [match.as_json() for match in played.matches]
        return Row(fields=fields, request=request, attempts=tuple(attempts), provenance=told)

    def _rejected(
        self, attempts: Sequence[Attempt], chosen: Attempt, played: Knockout | None
    ) -> Attempt | None:
        """The worst candidate that makes a pair with the chosen one: whole, scored or failed by
        code, of another text and like length, and `margin` below it (or beaten in a match)."""
        margin, best = self._settings.margin or 0.0, self._raw(chosen)
        assert best is not None
        for attempt in sorted(attempts, key=self._rank):
            if attempt is chosen or attempt.score is None or attempt.stop_reason != "completed":
                continue
            raw = self._raw(attempt)
            beaten = played is not None and played.beat(chosen.sample_index, attempt.sample_index)
            worse = raw is None or (raw < best and best - raw >= margin) or beaten
            if worse and _alike_in_length(_text(chosen), _text(attempt)):
                return attempt
        return None

    def _told(self, attempt: Attempt) -> dict[str, JsonValue]:
        """A candidate as provenance: its text, score, and the judge's votes and reasons."""
        verdict = attempt.score or attempt.abstention
        return {
            "sample_index": attempt.sample_index,
            "text": _text(attempt),
            "score": self._raw(attempt),
            "state": attempt.state,
            "stop_reason": attempt.stop_reason,
            "reason": attempt.reason,
            "detail": verdict.detail if verdict is not None else {},
        }

    def plant(self, settings: CanarySettings, tasks: Mapping[str, Task]) -> list[Canary]:
        """Bad candidates, shown to the judge alone: constraints by code do not save it here."""
        planted: list[Canary] = []
        problems: list[Problem] = []
        for number, bad in enumerate(settings.bad_candidates):
            at, task = ("bad_candidates", number), tasks[bad.task]
            if self._judge is None:
                said = "is for judges, and here no judge scores"
                problems.append(Problem(at, said, "use `wrong`, which asks any scorer"))
            elif isinstance(bad, BrokenConstraint) and self._settings.constraints is None:
                said = "there are no constraints to break"
                problems.append(Problem((*at, "auto"), said, "add best_of_n.constraints, or reply"))
            else:
                planted.append(self._bad_candidate(number + 1, bad, task))
        if problems:
            raise SectionError(problems)
        return planted

    def _bad_candidate(
        self, number: int, bad: PlantedReply | BrokenConstraint, task: Task
    ) -> Canary:
        task = named(task, "bad_candidate", f"{number}/{task.id}")
        request, _ = self.candidates(task)
        *_, judge = self._members()

        async def watch(task: Task, draw: Draw) -> Sighting:
            if isinstance(bad, PlantedReply):
                reply: Reply | str = Reply(text=bad.text, finish_reason="stop")
            else:
                reply = await self._broken(task, request, draw)
            if isinstance(reply, str):
                return Sighting(None, {"not_made": reply})
            try:
                verdict = await judge.score(task, reply, draw)
            except DrawNotMadeError as error:
                return Sighting(None, {"not_run": str(error)})
            if isinstance(verdict, Abstention):
                return Sighting(None, {"text": reply.text, "reason": verdict.reason})
            raw = verdict.detail.get("raw", self._scale[0])
            assert isinstance(raw, int | float)
            evidence: dict[str, JsonValue] = {"score": raw, "bar": self._settings.bar}
            evidence |= {"reason": verdict.reason, "text": reply.text}
            return Sighting(raw < self._settings.bar, evidence)

        k = 0 if isinstance(bad, PlantedReply) else 1
        return Canary("bad_candidate", task, watch, request, k)

    async def _broken(self, task: Task, request: Request, draw: Draw) -> Reply | str:
        """A candidate changed until it breaks the constraints, or why there is none."""
        sampled = await draw.sample(request, stage="candidate", sample_index=0)
        if isinstance(sampled, NotRun):
            return sampled.reason
        if sampled.reply is None or not sampled.reply.text.strip():
            return "the candidate is empty"
        constraints, *_ = self._members()
        text = sampled.reply.text
        for broken in (text, text + _FILLER, f"{text}\n\n{text}", text.split()[0]):
            reply = Reply(text=broken, finish_reason="stop")
            verdict = await constraints.score(task, reply, draw)
            if isinstance(verdict, Score) and not verdict.passed:
                return reply
        return "no change by rule breaks the constraints"

    def _members(self) -> list[Scorer]:
        """The bound constraints, if there are any, and the bound scorer behind them."""
        scorer = self._context.scorer
        return members(scorer) if self._settings.constraints is not None else [scorer]

    def summarise(self, outcome: Outcome) -> None:
        self._summary.add(outcome)

    def detail(self) -> Mapping[str, JsonValue]:
        told = {"bar": self._settings.bar, **self._summary.as_json()}
        if not self._settings.pairs:
            del told["n_no_pair"]
        saturated = told["saturation"]
        if isinstance(saturated, float) and saturated > SATURATED and self._judge is not None:
            told["warning"] = (
                f"all candidates of {saturated:.0%} of the prompts got the top score, so the first "
                "one was chosen: take a stronger judge or a stricter rubric, check constraints by "
                "code, or set mode: pairwise"
            )
        return told


def _with_pass_at(judge: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """The judge section; here the bar decides, so `pass_at` may be left out: the top score."""
    scale = judge.get("scale")
    if "pass_at" in judge or not isinstance(scale, dict) or not isinstance(scale.get("max"), int):
        return judge
    return {**judge, "pass_at": scale["max"]}


def _by_code(section: dict[str, JsonValue] | list[JsonValue]) -> ScorerSettings:
    """Constraints as they may be written: a scorer section, or the constraints scorer's own."""
    if isinstance(section, list) or (len(section) == 1 and next(iter(section)) in REGISTRY):
        found = parse_scorer(section, (SECTION, "constraints"))
    else:
        found = parse_scorer({"constraints": section}, (SECTION,))
    if found.judges:
        said = "asks a model; constraints are decided by code"
        raise SectionError([Problem((SECTION, "constraints"), said, "move it to `judge`")])
    return found


def _judged(settings: BestOfNSettings, scorer: ScorerSettings) -> ScorerSettings:
    """Who scores, without the constraints before it."""
    if settings.constraints is not None and isinstance(scorer, AllOf):
        return scorer.scorers[-1]
    return scorer


def _scale(judged: ScorerSettings) -> tuple[float, float]:
    return (judged.range.min, judged.range.max) if isinstance(judged, Judge) else (0, 1)


def _text(attempt: Attempt) -> str:
    return attempt.sampled.reply.text if attempt.sampled.reply is not None else ""


def _reasoning(attempt: Attempt) -> str | None:
    return attempt.sampled.reply.reasoning if attempt.sampled.reply is not None else None


def _alike_in_length(one: str, other: str) -> bool:
    shorter, longer = sorted((len(one.strip()), len(other.strip())))
    return one.strip() != other.strip() and shorter > 0 and longer <= MAX_LENGTH_RATIO * shorter
