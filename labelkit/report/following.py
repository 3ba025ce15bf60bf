"""The calls of a run beyond its candidates: a judge's, continuations of a solution's steps, and
replicates.

What the ledgers hold is read back by the run's own recipe, so that the calls that it would go on
with are told exactly; what only replies that are yet to come decide on is a range. Nothing is sent,
and no scorer is asked, since some run code: a judge that code may spare is taken to be asked.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from labelkit.engine import TaskDraws
from labelkit.errors import DrawNotMadeError
from labelkit.ledger_index import Stored
from labelkit.prepare import Prepared
from labelkit.prices import Projection
from labelkit.recipes.best_of_n import BestOfN
from labelkit.recipes.knockout import comparison
from labelkit.recipes.rl_select import RlSelect
from labelkit.recipes.step_rewards import SHARE_OF_FULL, StepRewards
from labelkit.recipes.steps import Steps
from labelkit.records import Attempt, NotRun, Reply, Request, Sampled, Task
from labelkit.report.text import number
from labelkit.scorers import ScorerSettings
from labelkit.scorers.composition import AllOf, AnyOf, By, Weighted, members
from labelkit.scorers.judge import JudgeScorer
from labelkit.seams import Sampler, Scorer
from labelkit.sources import merged

_UNSEEN = Reply(text="", finish_reason="stop")


@dataclass
class Calls:
    """How many calls of one sort are still to be made, and their projected cost.

    `least`: every reply is whole, and a judge's verdict is well-formed and not spared. `most`:
    replies decide for more wherever they may, and a judge is asked as often as `asks` allows.
    """

    least: int = 0
    most: int = 0
    cost: Projection = field(default_factory=Projection)

    def add(
        self,
        sampler: Sampler,
        task: Task,
        request: Request,
        least: int,
        most: int,
        *,
        unseen_tokens: int | None = 0,
    ) -> None:
        """Count calls of a request, in which replies of at most so many tokens (None: unknown) are
        yet to be put."""
        if most:
            self.least += least
            self.most += most
            self.cost.add(sampler, task, request, least, most, unseen_tokens=unseen_tokens)


class Following:
    """Calls that follow from candidates, by what a user calls them; fed task by task."""

    def __init__(self, prepared: Prepared, samplers: Mapping[str, Sampler]) -> None:
        plan = prepared.plan
        self._plan = plan
        self._rules = prepared.rules
        self._recipe = plan.recipe()
        self.samplers = samplers
        self._judges = list(_judges(plan.scorer_settings, plan.scorer))
        self._reply_tokens = plan.sampler.max_tokens
        self._solutions_to_come = False
        self.judge, self.continuations, self.replicates = Calls(), Calls(), Calls()

    @property
    def counted(self) -> dict[str, Calls]:
        """The sorts of calls that such a run makes, by name."""
        found = {"judge calls": self.judge} if self._judges else {}
        if isinstance(self._recipe, StepRewards):
            found["continuations"] = self.continuations
        if self._plan.command == "rl-select" and "replicate" in self._plan.spec.rl_select:
            found["replicates"] = self.replicates
        return found

    def assumed(self) -> Iterator[str]:
        """What the least and the most of the counts stand for."""
        yield "every reply is whole"
        if self.judge.most:
            if len(self._judges) == 1:
                judge = self._judges[0][0].settings
                yield f"{number(judge.votes, 'vote')} a reply, asked for once to {judge.asks} times"
            else:
                yield "each vote is asked for once, to as often as `asks` says"
            if not all(certain for _, certain in self._judges):
                yield "at least none where code may settle the verdict before the judge"
        if self._solutions_to_come:
            yield "solutions yet to come have 1 step, to max_steps"
        if self.replicates.most:
            yield "no task lies at the band's edge, to all"

    async def add(self, task: Task, lacking: int, ledgers: Sequence[Stored]) -> None:
        """Count what follows from a task that lacks so many candidate draws."""
        if not self.counted:
            return
        draw = _Reading(TaskDraws(task, merged(ledgers), self._rules, None))
        outcome = await self._recipe(task, draw)
        for sampled in draw.unscored:
            await self._judge_reply(task, sampled, draw)
        self._judge_unseen(task, 0 if self._plan.spec.adaptive else lacking, lacking)
        is_open = bool(lacking or draw.unscored)
        if isinstance(self._recipe, StepRewards):
            self._continue(self._recipe, task, outcome.not_run, draw)
        elif isinstance(self._recipe, RlSelect):
            self._replicate(task, draw, is_open=is_open)
        elif isinstance(self._recipe, BestOfN):
            passing = sum(self._recipe.passes(attempt) for attempt in outcome.attempts)
            if is_open or draw.compared:
                self._compare(task, lacking + len(draw.unscored) + passing, draw, bool(lacking))

    async def _judge_reply(self, task: Task, sampled: Sampled, draw: _Reading) -> None:
        """The votes on a reply that no ledger holds."""
        assert sampled.reply is not None
        for judge, certain in self._judges:
            draw.votes.clear()
            with contextlib.suppress(DrawNotMadeError):
                await judge.score(task, sampled.reply, draw)
            for request, ask in draw.votes:
                most = judge.settings.asks - ask
                self.judge.add(self.samplers["judge"], task, request, int(certain), most)

    def _judge_unseen(self, task: Task, least: int, most: int) -> None:
        """The votes on so many replies that are yet to come."""
        for judge, certain in self._judges:
            votes = judge.settings.votes
            self.judge.add(
                self.samplers["judge"],
                task,
                judge.request(task, _UNSEEN),
                votes * least if certain else 0,
                votes * judge.settings.asks * most,
                unseen_tokens=self._reply_tokens,
            )

    def _compare(self, task: Task, n_over: int, draw: _Reading, unseen: bool) -> None:
        """The comparisons of a knockout among at most so many candidates."""
        settings = BestOfN.Settings.model_validate(self._plan.spec.best_of_n)
        if settings.mode != "pairwise" or n_over < 2:
            return
        judge = self._judges[-1][0]
        longest = max((len(reply.text.encode()) for reply in draw.replies), default=0)
        if unseen:
            limit = self._reply_tokens
            tokens = None if limit is None else max(limit, longest)
        else:
            tokens = longest
        self.judge.add(
            self.samplers["judge"],
            task,
            comparison(judge, task, _UNSEEN, _UNSEEN),
            0,
            2 * (n_over - 1) * judge.settings.asks,
            unseen_tokens=None if tokens is None else 2 * tokens,
        )

    def _continue(
        self, recipe: StepRewards, task: Task, not_run: Sequence[NotRun], draw: _Reading
    ) -> None:
        settings = StepRewards.Settings.model_validate(self._plan.spec.step_rewards)
        k, policy = recipe.k, self.samplers["policy"]
        before = self.continuations.least, self.continuations.most
        if settings.search == "adaptive":
            self._search(recipe, task, draw)
        else:
            for _, request in draw.asked:
                self.continuations.add(policy, task, request, 1, 1)
        if settings.solutions is None:
            indexes = [each.key.sample_index for each in not_run if each.reason != "unavailable"]
            unseen = sum(index < settings.solutions_per_task for index in indexes)
            self._solutions_to_come |= bool(unseen)
            solver, _ = recipe.candidates(task)
            request = recipe.prefixes.request(task, solver, Steps.given([""]), 1)
            most = k * settings.max_steps
            if settings.search == "adaptive":
                most = max(k, math.ceil(SHARE_OF_FULL * most))
            self.continuations.add(
                policy, task, request, k * unseen, most * unseen, unseen_tokens=self._reply_tokens
            )
        least, most = self.continuations.least - before[0], self.continuations.most - before[1]
        self._judge_unseen(task, least, most)

    def _search(self, recipe: StepRewards, task: Task, draw: _Reading) -> None:
        """What the adaptive search goes on with, at most what it may spend on each solution; each
        call at its dearest, that of the whole solution."""
        solver, k = recipe.candidates(task)
        given = recipe.given(task)
        known = {"given": given} if given else {}
        for reply in draw.candidates:
            steps = recipe.sampled(Attempt(sampled=reply, stop_reason="completed"))
            if steps:
                known[str(reply.key.sample_index)] = steps
        for name in dict.fromkeys(stage.split("/")[1] for stage, _ in draw.asked):
            steps = known[name]
            most = max(k, math.ceil(SHARE_OF_FULL * k * len(steps)))
            least = sum(stage.split("/")[1] == name for stage, _ in draw.asked)
            held = sum(stage.split("/")[1] == name for stage in draw.read)
            request = recipe.prefixes.request(task, solver, steps, len(steps))
            most = max(least, most - held)
            self.continuations.add(self.samplers["policy"], task, request, least, most)

    def _replicate(self, task: Task, draw: _Reading, *, is_open: bool) -> None:
        settings = RlSelect.Settings.model_validate(self._plan.spec.rl_select)
        request, _ = self._recipe.candidates(task)
        most = (settings.replicate or 0) if is_open else len(draw.asked)
        least = 0 if is_open else most
        self.replicates.add(self.samplers["policy"], task, request, least, most)
        self._judge_unseen(task, least, most)


class _Reading:
    """A `Draw` that only reads back, and keeps what it was asked for in vain: `asked` (stage and
    request) of the policy beyond candidates, `votes` (request and number) of the judge; `compared`
    is whether the recipe itself asked the judge. `unscored` are replies without their score."""

    waits = False

    def __init__(self, draws: TaskDraws) -> None:
        self._draws = draws
        self.asked: list[tuple[str, Request]] = []
        self.votes: list[tuple[Request, int]] = []
        self.compared = False
        self.read: list[str] = []
        self.candidates: list[Sampled] = []
        self.unscored: list[Sampled] = []

    @property
    def replies(self) -> list[Reply]:
        return [each.reply for each in self.candidates if each.reply is not None]

    async def __call__(
        self, request: Request, *, stage: str = "candidate", sample_index: int
    ) -> Attempt | NotRun:
        sampled = await self.sample(request, stage=stage, sample_index=sample_index)
        return sampled if isinstance(sampled, NotRun) else await self.score(sampled)

    async def sample(
        self, request: Request, *, stage: str, sample_index: int, role: str = "policy"
    ) -> Sampled | NotRun:
        found = await self._draws.sample(request, stage=stage, sample_index=sample_index, role=role)
        is_missing = isinstance(found, NotRun) and found.reason != "unavailable"
        if role == "judge" and is_missing:
            self.votes.append((request, sample_index))
            self.compared = True
        elif stage == "candidate":
            if isinstance(found, Sampled):
                self.candidates.append(found)
        elif role == "policy":
            if is_missing:
                self.asked.append((stage, request))
            else:
                self.read.append(stage)
        return found

    async def score(self, sampled: Sampled) -> Attempt | NotRun:
        scored = await self._draws.score(sampled)
        if isinstance(scored, NotRun):
            self.unscored.append(sampled)
        return scored


def _judges(
    settings: ScorerSettings, scorer: Scorer, certain: bool = True
) -> Iterator[tuple[JudgeScorer, bool]]:
    """The judges that a whole reply may be brought before, each with whether it always is."""
    if isinstance(scorer, JudgeScorer):
        yield scorer, certain
        return
    if not isinstance(settings, AllOf | AnyOf | By | Weighted):
        return
    parts = [*zip(settings.parts(), members(scorer), strict=True)]
    if isinstance(settings, By):  # one of them is chosen
        each = [[*_judges(*part, False)] for part in parts]
        yield from max(each, key=lambda judges: sum(j.settings.votes for j, _ in judges))
        return
    if not isinstance(settings, Weighted):  # the cheapest is asked first, and may settle it
        parts.sort(key=lambda part: part[0].cost)
    for order, part in enumerate(parts):
        asked = certain and (order == 0 or isinstance(settings, Weighted))
        yield from _judges(*part, asked)
