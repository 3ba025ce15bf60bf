"""`--dry-run`: the first request as it would be sent, and what the run would still have to draw.

Spends nothing and writes nothing into a run directory; imports a provider library only where the
price of the model stands in its table.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from labelkit.batch import unbatched
from labelkit.errors import SpecError, UsageError
from labelkit.ledger_index import Index
from labelkit.plan import Plan
from labelkit.prepare import Prepared
from labelkit.prices import Projection, ask_price
from labelkit.records import Request
from labelkit.report.following import Calls, Following
from labelkit.report.text import money, number, plain
from labelkit.samplers.endpoints import shown_urls
from labelkit.sources import held_draws, lacking_draws
from labelkit.spec import dotted


@dataclass
class _Plan:
    """Candidate draws: how many are planned, in the run's own ledger, only in the sources, and (at
    most, where a decision may come earlier) to be made; and the calls that follow from them."""

    following: Following
    first: tuple[str, Request] | None = None
    n_tasks: int = 0
    planned: int = 0
    own: int = 0
    sources: int = 0
    candidates: Calls = field(default_factory=Calls)
    spent_usd: float = 0.0
    """What the run's own draws cost so far, judges included."""

    @property
    def priced(self) -> dict[str, tuple[str, Calls]]:
        """The calls to be made that cost something, by name, each with the role that makes them."""
        follow = self.following
        every = {
            "candidates": ("policy", self.candidates),
            "judge calls": ("judge", follow.judge),
            "continuations": ("policy", follow.continuations),
            "replicates": ("policy", follow.replicates),
        }
        return {
            name: (role, calls)
            for name, (role, calls) in every.items()
            if calls.most and follow.samplers[role].paid
        }


def preview(prepared: Prepared) -> str:
    """The text of a dry run. Raises SpecError where --batch would be refused."""
    plan = asyncio.run(_count(prepared))
    if plan.first is None:
        return "no task is left to run\n"
    task_id, request = plan.first
    most = "at most " if prepared.plan.spec.adaptive else ""
    to_make = plan.candidates.most
    lines = [
        f"first request (task {plain(task_id)})",
        *request_lines(request),
        "",
        f"draws: {number(plan.n_tasks, 'task')}, {most}{plan.planned:,} candidates planned",
        f"  in the ledger: {plan.own:,}",
        *([f"  in --from: {plan.sources:,}"] if prepared.options.sources else []),
        f"  to make: {most if to_make else ''}{to_make:,}",
        *_following_lines(plan.following),
        *_cost_lines(plan, prepared.plan),
        *(["not counted: calls of canaries"] if prepared.canaries else []),
        *(f"endpoint: {plain(url)}" for url in shown_urls(prepared.plan.sampler)),
        f"run directory: {plain(str(prepared.directory))}"
        + ("" if (prepared.directory / "run.json").exists() else " (new)"),
        "nothing was sent and nothing was written",
    ]
    return "\n".join(lines) + "\n"


def _following_lines(following: Following) -> Iterator[str]:
    """The calls beyond candidates that are still to be made, and what their range assumes."""
    for name, calls in following.counted.items():
        least = "" if calls.least == calls.most else f"{calls.least:,} to "
        yield f"{name} to make: {least}{calls.most:,}"
    if any(calls.most for calls in following.counted.values()):
        yield f"  assumed: {'; '.join(following.assumed())}"


def _cost_lines(plan: _Plan, bound: Plan) -> Iterator[str]:
    """The projected cost of the calls to make, with its range, and what the budget lets be."""
    priced = plan.priced
    if not priced:
        return
    cost = Projection()
    for _, calls in priced.values():
        cost.include(calls.cost)
    yield f"cost: {_range(cost, priced, bound)}"
    if len(priced) > 1:
        yield from (f"  {name}: {_short_range(calls.cost)}" for name, (_, calls) in priced.items())
    if plan.candidates.most and plan.own and plan.spent_usd:
        each_usd = plan.spent_usd / plan.own
        total = money(each_usd * plan.candidates.most)
        yield f"  at the {money(each_usd)} that a draw has cost so far: {total}"
    budget_usd = bound.spec.budget
    if budget_usd is None or cost.least_usd is None:
        return
    spent = f", of which {money(plan.spent_usd)} is spent" if plan.spent_usd else ""
    if plan.spent_usd + cost.least_usd > budget_usd:
        yield f"budget: {money(budget_usd)}{spent}: too little even for the shortest replies"
    elif cost.most_usd is not None and plan.spent_usd + cost.most_usd > budget_usd:
        yield f"budget: {money(budget_usd)}{spent}: less than the longest replies would cost"


def _range(cost: Projection, priced: dict[str, tuple[str, Calls]], bound: Plan) -> str:
    """A whole projected cost, or what the spec lacks to bound it."""
    if cost.least_usd is None:
        lacking = dict.fromkeys(
            role for role, calls in priced.values() if calls.cost.least_usd is None
        )
        keys = " and ".join(f"{dotted(bound.sampler_at(role))}.price" for role in lacking)
        return f"unknown; set {keys}: {{input_per_mtok: USD, output_per_mtok: USD}}"
    if cost.most_usd is None:
        least = f"at least {money(cost.least_usd)}"
        lacking = dict.fromkeys(
            role for role, each in bound.sampler_settings.items() if each.max_tokens is None
        )
        keys = " and ".join(f"{dotted(bound.sampler_at(role))}.max_tokens" for role in lacking)
        return f"{least}; {keys} would bound it" if keys else least
    return f"{_short_range(cost)} (replies of one token, to all as long as max_tokens)"


def _short_range(cost: Projection) -> str:
    if cost.least_usd is None:
        return "unknown"
    if cost.most_usd is None:
        return f"at least {money(cost.least_usd)}"
    return f"{money(cost.least_usd)} to {money(cost.most_usd)}"


def request_lines(request: Request) -> Iterator[str]:
    """A request field by field, messages as text."""
    yield f"  model: {plain(request.model)}"
    if request.revision:
        yield f"  revision: {plain(request.revision)}"
    yield f"  api: {request.api}"
    yield f"  parameters: {plain(json.dumps(request.parameters, ensure_ascii=False))}"
    if request.response_schema is not None:
        yield f"  response schema: {plain(json.dumps(request.response_schema, ensure_ascii=False))}"
    for tool in request.tools:
        yield f"  tool: {plain(json.dumps(tool, ensure_ascii=False))}"
    if request.text is not None:
        yield "  text:"
        yield _indented(request.text)
    for message in request.messages:
        content = message.get("content")
        yield f"  {plain(str(message.get('role')))}:"
        yield _indented(content if isinstance(content, str) else json.dumps(content))


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in plain(text, lines=True).split("\n"))


async def _count(prepared: Prepared) -> _Plan:
    """Render every task and look its draws up, in indexes of their own in a temporary folder."""
    samplers = prepared.plan.open_samplers()
    faults = unbatched(prepared.plan, samplers["policy"]) if prepared.options.batch else []
    if faults:
        raise SpecError(faults)
    for sampler in samplers.values():
        ask_price(sampler)
    following = Following(prepared, samplers)
    plan = _Plan(following)
    recipe = prepared.plan.recipe()
    fresh = prepared.options.fresh
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="labelkit-")))
        own = None if fresh else _index(prepared.directory, folder / "own.sqlite", stack)
        plan.spent_usd = 0.0 if own is None else own.catch_up().spent_usd
        sources = []
        for n, path in enumerate(prepared.options.sources):
            source = _index(path, folder / f"{n}.sqlite", stack)
            if source is None:
                raise UsageError(f"--from {path}: is not a run directory", hint="it has no ledger")
            sources.append(source)
        for task in prepared.tasks():
            request, k = recipe.candidates(task)
            plan.first = plan.first or (task.id, request)
            plan.n_tasks += 1
            plan.planned += k
            ledgers = [index.stored(task.id) for index in (own, *sources) if index is not None]
            held = held_draws(request, k, ledgers[:1] if own is not None else [])
            plan.own += len(held)
            plan.sources += len(held_draws(request, k, ledgers)) - len(held)
            lacking = await lacking_draws(recipe, prepared.rules, task, ledgers)
            plan.candidates.add(samplers["policy"], task, request, lacking, lacking)
            await following.add(task, lacking, ledgers)
    return plan


def _index(directory: Path, path: Path, stack: ExitStack) -> Index | None:
    ledger = directory / "ledger.jsonl"
    if not ledger.exists():
        return None
    index = Index(ledger, path)
    stack.callback(index.close)
    index.catch_up()
    return index
