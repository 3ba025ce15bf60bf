"""From a ledger to the run's files: rows, dropped rows, tasks and the summary.

Draws are forbidden here: recipes are replayed over what the ledger holds, in task order, so equal
ledgers give equal bytes and memory stays flat. What differs between equal runs goes under
`provenance` and `duration_s`.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pydantic import JsonValue

from labelkit import __version__
from labelkit.directory import RunFiles, redact
from labelkit.engine import Rules, replay, replay_canaries
from labelkit.fingerprint import digest
from labelkit.gates import GateResult
from labelkit.ledger_index import Index, Stored, Totals
from labelkit.prepare import Prepared
from labelkit.recipes.canaries import Canary, Sighting
from labelkit.records import Outcome, Task
from labelkit.rows import RunFacts, Tally
from labelkit.seams import Chooser


@dataclass(frozen=True)
class Ending:
    """How the sampling ended: why it stopped early (None: it did not), by which signal; and what
    its pilot told, None where it had none."""

    reason: str | None
    detail: str | None
    signal: int | None
    duration_s: float
    pilot: dict[str, Any] | None


async def finalise(
    prepared: Prepared, index: Index, identity: Mapping[str, Any], rules: Rules, ending: Ending
) -> dict[str, Any]:
    """Write the run's files; returns the summary. The old files stand until the new are whole."""
    totals = index.catch_up()
    plan = prepared.plan
    env_parts = plan.env_parts(prepared.survey.digest)
    facts = RunFacts(
        run_id=identity["run_id"],
        command=plan.command,
        env_fingerprint=digest(env_parts),
        policy_fingerprint=plan.policy_fingerprint,
        labelkit_version=__version__,
        scorer={
            "fingerprint": digest(plan.scorer.fingerprint),
            "kind": plan.scorer_settings.KIND,
            "version": plan.scorer_settings.VERSION,
        },
    )
    files = RunFiles(prepared.directory)
    try:
        slice_by = plan.spec.slice_by
        tally = Tally(facts, files, [slice_by] if isinstance(slice_by, str) else slice_by)
        tasks = _Counted(prepared.tasks())
        n_dropped = _drop_at_source(prepared, tally)
        recipe = plan.recipe()

        if isinstance(recipe, Chooser) and recipe.chooses:
            chooser = recipe
            await replay(
                prepared.tasks(),
                recipe,
                rules,
                index,
                lambda _, outcome, __: chooser.consider(outcome),
            )
            chooser.choose()

        def take(task: Task, outcome: Outcome, stored: Stored) -> None:
            line = tally.take(task, outcome, stored)
            recipe.summarise(outcome)
            for gate in prepared.gates:
                gate.feed(line)

        await replay(tasks, recipe, rules, index, take)
        canaries = _Canaries(tally)
        await replay_canaries(prepared.canaries, rules, index, canaries.take)
        summary = _summary(prepared, tally.numbers(tasks.number + n_dropped), facts, ending)
        summary["canaries"] = canaries.as_json()
        summary["detail"] = dict(recipe.detail())
        _judge(prepared, summary, ending)
        summary["provenance"] = _provenance(prepared, identity, totals, env_parts, summary, ending)
        files.publish(summary)
    except BaseException:
        files.discard()
        raise
    return summary


class _Canaries:
    """The summary's block of canaries; what they drew is counted among the costs alone."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._told: list[JsonValue] = []
        self._n_held = 0

    def take(self, canary: Canary, sighting: Sighting, stored: Stored) -> None:
        self._tally.spend("canary", stored)
        self._n_held += sighting.holds is True
        self._told.append(
            {
                "id": canary.id,
                "kind": canary.kind,
                "holds": sighting.holds,
                "evidence": sighting.evidence,
            }
        )

    def as_json(self) -> dict[str, JsonValue]:
        """Empty where the spec plants none."""
        if not self._told:
            return {}
        n = len(self._told)
        return {"n": n, "held": self._n_held, "failed": n - self._n_held, "each": self._told}


class _Counted(Iterator[Task]):
    """Tasks as they pass, counted where they enter and not where they are accounted for."""

    def __init__(self, tasks: Iterator[Task]) -> None:
        self._tasks = tasks
        self.number = 0

    def __next__(self) -> Task:
        task = next(self._tasks)
        self.number += 1
        return task


def _drop_at_source(prepared: Prepared, tally: Tally) -> int:
    """Account for the tasks that the source left out; returns how many there are."""
    if not prepared.whole:
        return 0
    number = 0
    for each in prepared.plan.stream.dropped():
        tally.drop_task(each)
        number += 1
    return number


def _summary(
    prepared: Prepared, numbers: dict[str, JsonValue], facts: RunFacts, ending: Ending
) -> dict[str, Any]:
    """The summary in its frozen key order, but for what is judged at the end."""
    slices = numbers.pop("slices")
    return {
        "command": facts.command,
        "name": prepared.plan.spec.name,
        "k": prepared.plan.spec.k,
        **numbers,
        "duration_s": round(ending.duration_s, 3),
        "env_fingerprint": facts.env_fingerprint,
        "policy_fingerprint": facts.policy_fingerprint,
        "stopped_early": ending.reason,
        "incomplete": _incomplete(numbers, prepared.plan.spec.max_unscored, ending),
        "slices": slices,
        "canaries": {},
        "detail": {},
    }


def _judge(prepared: Prepared, summary: dict[str, Any], ending: Ending) -> None:
    """Judge the gates and set the exit code: 130/143, then 4, then 3, then 0."""
    verdicts = [gate.judge(summary) for gate in prepared.gates]
    if summary["canaries"]:
        failed = summary["canaries"]["failed"]
        verdicts.append(GateResult("canaries.failed == 0", failed, failed == 0))
    summary["gates"] = [verdict.as_json() for verdict in verdicts]
    if ending.signal is not None:
        code = 128 + ending.signal
    elif summary["incomplete"]:
        code = 4
    else:
        code = 0 if all(verdict.holds for verdict in verdicts) else 3
    summary["exit_code"] = code
    summary["labelkit_version"] = __version__


def _incomplete(numbers: Mapping[str, Any], max_unscored: float, ending: Ending) -> list[JsonValue]:
    """Why the run is not whole, in sentences; empty where it is."""
    why: list[JsonValue] = []
    if ending.reason is not None:
        why.append(": ".join(filter(None, ("stopped early", ending.reason, ending.detail))))
    not_run = _owed(numbers["draws"]["not_run_reasons"])
    if not_run:
        why.append(f"{not_run:,} draws were not run")
    unscored, attempts = numbers["n_unscored"], numbers["n_attempts"]
    if not attempts and numbers["draws"]["not_run_reasons"].get("unavailable"):
        why.append("no reply belongs to any task: see `recorded` and its `id` in the spec")
    if attempts and unscored / attempts > max_unscored:
        why.append(
            f"{unscored:,} of {attempts:,} attempts are unscored "
            f"({unscored / attempts:.1%}; max_unscored is {max_unscored:.1%})"
        )
    return why


def _owed(not_run_reasons: Mapping[str, int]) -> int:
    """Draws that a rerun would make; those that recorded replies lack are not among them, nor
    those that a rescored run lacks."""
    never = ("unavailable", "not_drawn")
    return sum(count for reason, count in not_run_reasons.items() if reason not in never)


def _provenance(
    prepared: Prepared,
    identity: Mapping[str, Any],
    totals: Totals,
    env_parts: dict[str, JsonValue],
    summary: Mapping[str, Any],
    ending: Ending,
) -> dict[str, JsonValue]:
    owed = _owed(summary["draws"]["not_run_reasons"])
    options = prepared.options
    return {
        "run_id": identity["run_id"],
        "created_at": identity["created_at"],
        "finished_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "host": socket.gethostname(),
        "env": env_parts,
        "sources": [str(path) for path in options.sources],
        "overrides": redact(dict(prepared.plan.document.overrides)),
        "unsafe_no_sandbox": options.permissions.unsafe_no_sandbox,
        "calls_without_an_answer": totals.unanswered,
        "spent_usd_at_most": _at_most(totals),
        "pilot": ending.pilot,
        "complete": not owed and summary["stopped_early"] is None,
        "inputs": inputs_digest(prepared),
    }


def _at_most(totals: Totals) -> float | None:
    known = totals.sent_pico and not totals.unpriced_tokens
    return totals.spent_usd if known else None


def inputs_digest(prepared: Prepared) -> str:
    """Changes whenever the same command could give another result or has more to do."""
    options = prepared.options
    path = prepared.directory / "ledger.jsonl"
    return digest(
        [
            __version__,
            prepared.plan.command,
            prepared.plan.document.values,
            prepared.plan.reply_identity,
            prepared.plan.score_identity,
            prepared.survey.digest,
            prepared.plan.replies_digest,
            [options.limit, list(options.task_ids), list(options.shard or ()), list(options.gates)],
            path.stat().st_size if path.exists() else 0,
        ]
    )
