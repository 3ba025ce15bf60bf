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

from labelkit.errors import UsageError
from labelkit.ledger_index import Index
from labelkit.plan import open_sampler
from labelkit.prepare import Prepared
from labelkit.prices import Projection, ask_price
from labelkit.records import Request
from labelkit.report.text import money, number, plain
from labelkit.samplers.endpoints import shown_urls
from labelkit.sources import held_draws, lacking_draws


@dataclass
class _Plan:
    """Candidate draws: how many are planned, in the run's own ledger, only in the sources, and (at
    most, where a decision may come earlier) to be made."""

    first: tuple[str, Request] | None = None
    n_tasks: int = 0
    planned: int = 0
    own: int = 0
    sources: int = 0
    to_make: int = 0
    cost: Projection | None = field(default_factory=Projection)
    spent_usd: float = 0.0
    """What the run's own draws cost so far, judges included."""


def preview(prepared: Prepared) -> str:
    """The text of a dry run."""
    plan = asyncio.run(_count(prepared))
    if plan.first is None:
        return "no task is left to run\n"
    task_id, request = plan.first
    most = "at most " if prepared.plan.spec.adaptive else ""
    lines = [
        f"first request (task {plain(task_id)})",
        *request_lines(request),
        "",
        f"draws: {number(plan.n_tasks, 'task')}, {most}{plan.planned:,} candidates planned",
        f"  in the ledger: {plan.own:,}",
        *([f"  in --from: {plan.sources:,}"] if prepared.options.sources else []),
        f"  to make: {most if plan.to_make else ''}{plan.to_make:,}",
        *_cost_lines(plan),
        *_not_counted(prepared),
        *(f"endpoint: {plain(url)}" for url in shown_urls(prepared.plan.sampler)),
        f"run directory: {plain(str(prepared.directory))}"
        + ("" if (prepared.directory / "run.json").exists() else " (new)"),
        "nothing was sent and nothing was written",
    ]
    return "\n".join(lines) + "\n"


def _cost_lines(plan: _Plan) -> Iterator[str]:
    """The projected cost of the draws to make, with its range."""
    cost = plan.cost
    if cost is None or not plan.to_make:
        return
    if cost.least_usd is None:
        yield "cost: unknown; set sampler.price: {input_per_mtok: USD, output_per_mtok: USD}"
    elif cost.most_usd is None:
        yield f"cost: at least {money(cost.least_usd)}; max_tokens would bound it"
    else:
        yield (
            f"cost: {money(cost.least_usd)} to {money(cost.most_usd)}"
            f" (replies of one token, to all as long as max_tokens)"
        )
    if plan.own and plan.spent_usd:
        each_usd = plan.spent_usd / plan.own
        total = money(each_usd * plan.to_make)
        yield f"  at the {money(each_usd)} that a draw has cost so far: {total}"


def _not_counted(prepared: Prepared) -> Iterator[str]:
    """The draws that only the replies decide on."""
    plan = prepared.plan
    more = [
        *(["calls of the judge"] if plan.scorer_settings.judges else []),
        *(["continuations of each step"] if plan.command == "step-rewards" else []),
        *(
            ["replicates"]
            if plan.command == "rl-select" and "replicate" in plan.spec.rl_select
            else []
        ),
    ]
    if more:
        yield f"not counted: {', '.join(more)}"


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
    plan = _Plan()
    recipe = prepared.plan.recipe()
    fresh = prepared.options.fresh
    sampler = open_sampler(prepared.plan.sampler, prepared.plan.folder)
    ask_price(sampler)
    if not sampler.paid:
        plan.cost = None
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
            plan.to_make += lacking
            if plan.cost is not None:
                plan.cost.add(sampler, task, request, lacking)
    return plan


def _index(directory: Path, path: Path, stack: ExitStack) -> Index | None:
    ledger = directory / "ledger.jsonl"
    if not ledger.exists():
        return None
    index = Index(ledger, path)
    stack.callback(index.close)
    index.catch_up()
    return index
