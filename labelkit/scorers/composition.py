"""Scorers made of scorers: all, any, a weighted mean, or one chosen by a field of the task.

Cheap and certain members are asked first, and asking stops as soon as the verdict is settled, so
that a judge is never paid for a reply that code has already failed. Nothing here looks at a reply.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from fractions import Fraction
from itertools import chain
from typing import Annotated, ClassVar, NamedTuple

from pydantic import Field, JsonValue, field_validator

from labelkit.records import Abstention, Reply, Score, Task, Verdict
from labelkit.samplers import SamplerSettings
from labelkit.scorers import Binding, ScorerSettings
from labelkit.scorers.aside import bound
from labelkit.scorers.parse import NestedScorer, ScorersByName
from labelkit.seams import Draw, Scorer
from labelkit.spec import Section

_Some = Annotated[list[NestedScorer], Field(min_length=1)]


class _Composed(ScorerSettings):
    """What every composition derives from the scorers in it."""

    def parts(self) -> Iterator[ScorerSettings]:
        raise NotImplementedError

    @property
    def cost(self) -> int:
        return max(part.cost for part in self.parts())

    @property
    def judges(self) -> tuple[SamplerSettings, ...]:
        return tuple(chain.from_iterable(part.judges for part in self.parts()))

    def _members(self, binding: Binding) -> list[_Member]:
        return [_Member(part.KIND, part.cost, bound(part, binding)) for part in self.parts()]


class AllOf(_Composed):
    """Every scorer must pass. Value: the least of those asked."""

    KIND: ClassVar[str] = "all"
    SHORT: ClassVar[str | None] = "scorers"

    scorers: _Some

    def parts(self) -> Iterator[ScorerSettings]:
        yield from self.scorers

    def bind(self, binding: Binding) -> Scorer:
        return _All(self, self._members(binding))


class AnyOf(_Composed):
    """One scorer must pass. Value: the greatest of those asked."""

    KIND: ClassVar[str] = "any"
    SHORT: ClassVar[str | None] = "scorers"

    scorers: _Some

    def parts(self) -> Iterator[ScorerSettings]:
        yield from self.scorers

    def bind(self, binding: Binding) -> Scorer:
        return _Any(self, self._members(binding))


class Part(Section):
    """One scorer of a weighted mean."""

    weight: Annotated[float, Field(gt=0)]
    scorer: NestedScorer


class Weighted(_Composed):
    """The weighted mean of the scorers' values; passed where it is at least `pass_at`.

    All are asked, since each has its share in the value; one abstention leaves no mean.
    """

    KIND: ClassVar[str] = "weighted"
    SHORT: ClassVar[str | None] = "scorers"

    scorers: Annotated[list[Part], Field(min_length=1)]
    pass_at: Annotated[float, Field(gt=0, le=1)] = 1.0

    def parts(self) -> Iterator[ScorerSettings]:
        yield from (part.scorer for part in self.scorers)

    def bind(self, binding: Binding) -> Scorer:
        return _Weighted(self, self._members(binding))


class By(_Composed):
    """The scorer that a field of the task names (`metadata.source`); an unknown value is a fault
    of the task file. Numbers and booleans are looked up as JSON writes them."""

    KIND: ClassVar[str] = "by"

    field: str
    scorers: Annotated[ScorersByName, Field(min_length=1)]

    @field_validator("field")
    @classmethod
    def _in_the_task(cls, field: str) -> str:
        head, *rest = field.split(".")
        if not (head == "metadata" and rest and all(rest)):
            raise ValueError(f"`{field}` is no field that tells tasks apart; write metadata.NAME")
        return field

    def parts(self) -> Iterator[ScorerSettings]:
        yield from self.scorers.values()

    def bind(self, binding: Binding) -> Scorer:
        return _By(self, self._members(binding))


class _Member(NamedTuple):
    kind: str
    cost: int
    scorer: Scorer


class _Bound:
    """The members with their common fingerprint, and the asking in order of cost."""

    def __init__(
        self,
        of: ScorerSettings,
        members: Sequence[_Member],
        settings: dict[str, JsonValue] | None = None,
    ) -> None:
        self.members = tuple(members)
        self.fingerprint: dict[str, JsonValue] = {
            "kind": of.KIND,
            "version": of.VERSION,
            "settings": settings or {},
            "scorers": [member.scorer.fingerprint for member in members],
        }
        self.reads = frozenset(chain.from_iterable(member.scorer.reads for member in members))

    def check_gold(self, task: Task) -> str | None:
        for member in self.members:
            if fault := member.scorer.check_gold(task):
                return fault
        return None

    async def close(self) -> None:
        async with AsyncExitStack() as closing:
            for member in self.members:
                closing.push_async_callback(member.scorer.close)

    async def _ask(
        self, task: Task, reply: Reply, draw: Draw, settled: Callable[[Verdict], bool]
    ) -> list[Verdict | None]:
        """Verdicts in the spec's order; None for those that were not needed any more."""
        verdicts: list[Verdict | None] = [None] * len(self.members)
        for i in sorted(range(len(verdicts)), key=lambda i: self.members[i].cost):
            verdict = verdicts[i] = await self.members[i].scorer.score(task, reply, draw)
            if settled(verdict):
                break
        return verdicts

    def _told(self, verdicts: Sequence[Verdict | None]) -> dict[str, JsonValue]:
        pairs = zip(self.members, verdicts, strict=True)
        return {"scorers": [_entry(member, verdict) for member, verdict in pairs]}


class _All(_Bound):
    async def score(self, task: Task, reply: Reply, draw: Draw) -> Verdict:
        verdicts = await self._ask(task, reply, draw, _failed)
        detail = self._told(verdicts)
        failed = next((score for score in _scores(verdicts) if not score.passed), None)
        if failed is None and (abstained := _abstained(verdicts)):
            return _like(abstained, "all", detail)
        scores = _scores(verdicts)
        chosen = failed or next((s for s in scores if s.answer is not None), scores[0])
        return _composed(
            "all",
            chosen,
            detail,
            value=min(score.value for score in scores),
            passed=failed is None,
            no_answer=chosen.no_answer,
            reason=chosen.reason,
        )


class _Any(_Bound):
    async def score(self, task: Task, reply: Reply, draw: Draw) -> Verdict:
        verdicts = await self._ask(task, reply, draw, _passed)
        detail = self._told(verdicts)
        passed = next((score for score in _scores(verdicts) if score.passed), None)
        if passed is None and (abstained := _abstained(verdicts)):
            return _like(abstained, "any", detail)
        scores = _scores(verdicts)
        offered = next((score for score in scores if not score.no_answer), scores[0])
        chosen = passed or offered
        return _composed(
            "any",
            chosen,
            detail,
            value=max(score.value for score in scores),
            passed=passed is not None,
            no_answer=chosen.no_answer,
            reason=chosen.reason,
        )


class _Weighted(_Bound):
    def __init__(self, of: Weighted, members: Sequence[_Member]) -> None:
        weights: list[JsonValue] = [part.weight for part in of.scorers]
        super().__init__(of, members, {"weights": weights, "pass_at": of.pass_at})
        self.weights = [_exact(part.weight) for part in of.scorers]
        self.pass_at = of.pass_at

    async def score(self, task: Task, reply: Reply, draw: Draw) -> Verdict:
        verdicts = await self._ask(task, reply, draw, lambda verdict: False)
        detail = self._told(verdicts)
        if abstained := _abstained(verdicts):
            return _like(abstained, "weighted", detail)
        scores = _scores(verdicts)
        shares = zip(self.weights, scores, strict=True)
        total = sum((weight * _exact(score.value) for weight, score in shares), Fraction())
        mean = total / sum(self.weights)
        passed = mean >= _exact(self.pass_at)
        alike = [score for score in scores if score.passed is passed] or scores
        chosen = next((score for score in alike if score.answer is not None), alike[0])
        return _composed(
            "weighted",
            chosen,
            detail,
            value=float(mean),
            passed=passed,
            no_answer=all(score.no_answer for score in scores),
            reason=f"weighted mean {float(mean):.4g}, passes at {self.pass_at:g}",
        )


class _By(_Bound):
    def __init__(self, of: By, members: Sequence[_Member]) -> None:
        names: list[JsonValue] = list(of.scorers)
        super().__init__(of, members, {"field": of.field, "names": names})
        self.reads |= {"metadata"}
        self.field = of.field
        self.by_name = dict(zip(of.scorers, members, strict=True))

    def check_gold(self, task: Task) -> str | None:
        found = self._chosen(task)
        return found if isinstance(found, str) else found.scorer.check_gold(task)

    async def score(self, task: Task, reply: Reply, draw: Draw) -> Verdict:
        member = self._chosen(task)
        if isinstance(member, str):
            raise ValueError(member)
        verdict = await member.scorer.score(task, reply, draw)
        rule = f"by {self.field} · {verdict.rule or member.kind}"
        return verdict.model_copy(update={"rule": rule})

    def _chosen(self, task: Task) -> _Member | str:
        """The member for a task, or why there is none."""
        value: JsonValue = task.metadata
        for key in self.field.split(".")[1:]:
            if not isinstance(value, dict) or key not in value:
                return f"has no {self.field}, which chooses the scorer"
            value = value[key]
        name = str(value).lower() if isinstance(value, bool) else str(value)
        if isinstance(value, str | int) and name in self.by_name:
            return self.by_name[name]
        known = ", ".join(self.by_name)
        return f"has no scorer for {self.field} {value!r} (known: {known})"


def members(scorer: Scorer) -> list[Scorer]:
    """The bound scorers inside a bound composition, in the spec's order; none inside any other."""
    return [member.scorer for member in scorer.members] if isinstance(scorer, _Bound) else []


def _failed(verdict: Verdict) -> bool:
    return isinstance(verdict, Score) and not verdict.passed


def _passed(verdict: Verdict) -> bool:
    return isinstance(verdict, Score) and verdict.passed


def _scores(verdicts: Sequence[Verdict | None]) -> list[Score]:
    return [verdict for verdict in verdicts if isinstance(verdict, Score)]


def _abstained(verdicts: Sequence[Verdict | None]) -> Abstention | None:
    return next((verdict for verdict in verdicts if isinstance(verdict, Abstention)), None)


def _exact(number: float) -> Fraction:
    """The decimal that the spec's author wrote, so that .7 of 1.0 reaches .7."""
    return Fraction(repr(number))


def _like(verdict: Abstention, kind: str, detail: dict[str, JsonValue]) -> Abstention:
    rule = f"{kind} · {verdict.rule}" if verdict.rule else kind
    return verdict.model_copy(update={"rule": rule, "detail": detail})


def _composed(
    kind: str,
    chosen: Score,
    detail: dict[str, JsonValue],
    *,
    value: float,
    passed: bool,
    no_answer: bool,
    reason: str | None,
) -> Score:
    """A score of its own with the evidence of the member that stands for it."""
    return Score(
        value=value,
        passed=passed,
        reason=reason,
        answer=chosen.answer,
        span=chosen.span,
        rule=f"{kind} · {chosen.rule}" if chosen.rule else kind,
        no_answer=no_answer and not passed,
        detail=detail,
    )


def _entry(member: _Member, verdict: Verdict | None) -> dict[str, JsonValue]:
    """A member's verdict as it stands in the detail of the composition."""
    if verdict is None:
        return {"scorer": member.kind, "state": "not asked"}
    told: dict[str, JsonValue] = {"scorer": member.kind, "state": "abstained"}
    if isinstance(verdict, Score):
        told |= {"state": "passed" if verdict.passed else "failed", "value": verdict.value}
    told |= {"reason": verdict.reason, "rule": verdict.rule}
    return {**told, "detail": verdict.detail} if verdict.detail else told
