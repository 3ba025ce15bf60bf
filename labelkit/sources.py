"""Other runs as sources of draws (`--from`): read only, checked before anything is bought.

A source never buys by itself: what it lacks is said, and is an error unless the user asks for it.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from labelkit.attempts import first_difference
from labelkit.directory import read_identity, read_json
from labelkit.engine import Rules, TaskDraws
from labelkit.errors import UsageError
from labelkit.ledger_index import Index, Stored
from labelkit.prepare import Prepared
from labelkit.records import Request, Task
from labelkit.seams import Recipe


def open_source(path: Path, directory: Path) -> tuple[str, Index]:
    """Another run's id and ledger; its index is kept in this run's `directory`."""
    run_id = str(read_identity(path)["run_id"])
    index = Index(path / "ledger.jsonl", directory / f"from-{run_id}.sqlite")
    index.catch_up()
    return run_id, index


def siblings(prepared: Prepared) -> list[Path]:
    """Other runs beside this one, of any command, that sampled just such requests."""
    found: list[Path] = []
    for record in sorted(prepared.directory.parent.glob("*/run.json")):
        with contextlib.suppress(UsageError):
            other = read_json(record)
            if other.get("reply") == prepared.plan.reply_identity:
                found.append(record.parent)
    return [path for path in found if path.resolve() != prepared.directory.resolve()]


async def check_sources(
    prepared: Prepared,
    sources: Sequence[tuple[str, Index]],
    own: Index,
    say: Callable[[str], None],
    *,
    buys: bool,
) -> None:
    """Say what --from brings; candidate draws that it lacks are an error unless --top-up, or unless
    they cost nothing and the request is the same.

    A run that may not buy leaves out what was never drawn, but refuses a changed request.
    """
    if not sources:
        return
    found = missing = 0
    first: str | None = None
    changed: str | None = None
    recipe, rules = prepared.plan.recipe(), prepared.rules
    planned = itertools.chain(
        ((each.task, each.request, each.k, True) for each in prepared.canaries if each.k),
        ((task, *recipe.candidates(task), False) for task in prepared.tasks()),
    )
    for task, request, k, is_canary in planned:
        ledgers = [own.stored(task.id), *(index.stored(task.id) for _, index in sources)]
        for stored in ledgers:
            for fields in stored.requests.values():
                if fields["stage"] == "candidate" and fields["request"] != request.digest:
                    where = first_difference(fields["body"], request)
                    changed = changed or f"whose request there differs in `{where}`"
        held = held_draws(request, k, ledgers)
        lacking = k - len(held)
        if lacking and not is_canary:
            lacking = await lacking_draws(recipe, rules, task, ledgers)
        found += len(held)
        missing += lacking
        if lacking and first is None:
            first = f"first: task {task.id}"
            first += f", {changed}" if changed else ""
    say(f"--from holds {found:,} of {found + missing:,} candidate draws")
    never = prepared.options.never_buy
    if never:
        refused = bool(changed) or not found
    else:
        refused = (buys or bool(changed)) and not prepared.options.top_up
    if missing and refused:
        fixes = [] if never else ["add --top-up to buy them"]
        fixes += ["make the request as it was there"] if changed or never else []
        raise UsageError(
            f"--from lacks {missing:,} of {found + missing:,} candidate draws ({first})",
            hint=", or ".join(fixes),
        )


def held_draws(request: Request, k: int, ledgers: Sequence[Stored]) -> set[int]:
    """The sample indexes below k for which some ledger makes a call needless."""
    held = (stored.final("candidate", request.digest) for stored in ledgers)
    return set[int]().union(*held) & set(range(k))


async def lacking_draws(recipe: Recipe, rules: Rules, task: Task, ledgers: Sequence[Stored]) -> int:
    """How many of a task's candidate draws no ledger holds, at most; none where the recipe comes to
    its decision by those that are held, as it does after a run that stopped early."""
    request, k = recipe.candidates(task)
    held = held_draws(request, k, ledgers)
    if len(held) in (0, k):
        return k - len(held)
    outcome = await recipe(task, TaskDraws(task, merged(ledgers), rules, None))
    return max(0, k - len(held) - outcome.not_needed)


def merged(ledgers: Sequence[Stored]) -> Stored:
    """What several ledgers hold of a task, without the failures that are owed another try."""
    whole = Stored()
    for stored in ledgers:
        settled = [each for each in stored.failures.values() if not _is_owed(each)]
        for record in (*stored.completions.values(), *settled, *stored.scores.values()):
            whole.add(record)
        whole.unavailable |= stored.unavailable
    return whole


def _is_owed(failure: Any) -> bool:
    return bool(failure["failure"]["owed"])
