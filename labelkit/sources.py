"""Other runs as sources of draws (`--from`): read only, checked before anything is bought.

A source never buys by itself: what it lacks is said, and is an error unless the user asks for it.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path

from labelkit.directory import read_identity, read_json
from labelkit.engine import first_difference
from labelkit.errors import UsageError
from labelkit.ledger_index import Index
from labelkit.prepare import Prepared


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


def check_sources(
    prepared: Prepared,
    sources: Sequence[tuple[str, Index]],
    own: Index,
    say: Callable[[str], None],
) -> None:
    """Say what --from brings; candidate draws that it lacks are an error unless --top-up.

    A run that may not buy leaves out what was never drawn, but refuses a changed request.
    """
    if not sources:
        return
    found = missing = 0
    first: str | None = None
    changed: str | None = None
    recipe = prepared.plan.recipe()
    tasks = prepared.tasks()
    planned = itertools.chain(
        ((each.task, each.request, each.k) for each in prepared.canaries if each.k),
        ((task, *recipe.candidates(task)) for task in tasks),
    )
    for task, request, k in planned:
        held: set[int] = set()
        for stored in [own.stored(task.id), *(index.stored(task.id) for _, index in sources)]:
            held |= stored.final("candidate", request.digest)
            for fields in stored.requests.values():
                if fields["stage"] == "candidate" and fields["request"] != request.digest:
                    where = first_difference(fields["body"], request)
                    changed = changed or f"whose request there differs in `{where}`"
        lacking = k - len(held & set(range(k)))
        found += k - lacking
        missing += lacking
        if lacking and first is None:
            first = f"first: task {task.id}"
            first += f", {changed}" if changed else ""
    say(f"--from holds {found:,} of {found + missing:,} candidate draws")
    never = prepared.options.never_buy
    if missing and (changed or not found if never else not prepared.options.top_up):
        otherwise = "" if never else "add --top-up to buy them, or "
        raise UsageError(
            f"--from lacks {missing:,} of {found + missing:,} candidate draws ({first})",
            hint=f"{otherwise}make the request as it was there",
        )
