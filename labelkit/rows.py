"""Outcomes to files: rows.jsonl, dropped.jsonl, tasks.jsonl and the summary's numbers.

Everything here is a pure function of the outcomes in task order, so that equal ledgers give equal
bytes; what differs between equal runs goes under `provenance`. The conservation sums of DESIGN §2
are checked here, task by task and once more over the run: a sum that does not hold is a bug.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import JsonValue

from labelkit import codec, stats
from labelkit.directory import RunFiles
from labelkit.errors import AccountingError
from labelkit.fingerprint import task_digest
from labelkit.ledger_index import Stored
from labelkit.records import Attempt, Dropped, Outcome, Row, Task
from labelkit.rowfiles import MISSING, Missing, lookup


@dataclass
class Rates:
    """Counts over attempts of a group of tasks; feeds pass rates both ways."""

    n_tasks: int = 0
    n_scored: int = 0
    n_unscored: int = 0
    n_passed: int = 0
    value_sum: float = 0.0

    def add(self, attempts: Sequence[Attempt]) -> None:
        scores = [attempt.score for attempt in attempts if attempt.score is not None]
        self.n_tasks += 1
        self.n_scored += len(scores)
        self.n_unscored += len(attempts) - len(scores)
        self.n_passed += sum(score.passed for score in scores)
        self.value_sum += sum(score.value for score in scores)

    def as_json(self) -> dict[str, JsonValue]:
        n_attempts = self.n_scored + self.n_unscored
        return {
            "n_tasks": self.n_tasks,
            "n_attempts": n_attempts,
            "n_scored": self.n_scored,
            "n_unscored": self.n_unscored,
            "n_passed": self.n_passed,
            "pass_rate": ratio(self.n_passed, self.n_scored),
            "pass_rate_with_unscored": ratio(self.n_passed, n_attempts),
            "mean_value": ratio(self.value_sum, self.n_scored),
        }


@dataclass
class Stage:
    """What one family of stages took: completions, tokens, cost; None where none was told."""

    calls: int = 0
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = 0.0

    def add(self, completion: Mapping[str, Any]) -> None:
        usage = completion.get("usage", {})
        self.calls += 1
        self.input_tokens = _plus(self.input_tokens, usage.get("input_tokens"))
        self.output_tokens = _plus(self.output_tokens, usage.get("output_tokens"))
        cost = completion.get("cost_usd")
        if self.cost_usd is not None:
            self.cost_usd = None if cost is None else self.cost_usd + cost


@dataclass(frozen=True)
class RunFacts:
    """What every row of a run says of the run, under `provenance`."""

    run_id: str
    command: str
    env_fingerprint: str
    policy_fingerprint: str
    labelkit_version: str
    scorer: dict[str, JsonValue]


@dataclass
class Tally:
    """Takes outcomes in task order, writes their lines, and counts.

    `slice_by` are dotted paths into a task; a slice is named by the value there, and by
    `path=value` where there are several. `stopped_early` in an outcome nulls the pooled rates.
    """

    facts: RunFacts
    files: RunFiles
    slice_by: Sequence[str] = ()
    overall: Rates = field(default_factory=Rates)
    clusters: stats.ClusteredRate = field(default_factory=stats.ClusteredRate)
    slices: dict[str, Rates] = field(default_factory=dict)
    shapes: Counter[tuple[int, int]] = field(default_factory=Counter)
    statuses: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    unscored: Counter[str] = field(default_factory=Counter)
    not_run: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)
    stages: dict[str, Stage] = field(default_factory=dict)
    planned: int = 0
    not_needed: int = 0
    candidates: int = 0
    kept: int = 0
    any_stopped_early: bool = False

    def drop_task(self, line: Dropped) -> None:
        """Account for a task that its source dropped (bad gold, duplicate) before any draw."""
        self.statuses["dropped"] += 1
        self.candidates += 1
        self._drop(line)

    def take(self, task: Task, outcome: Outcome, stored: Stored) -> dict[str, JsonValue]:
        """Account for one task; returns its line of tasks.jsonl. Raises AccountingError."""
        _check(outcome)
        self.statuses[outcome.status] += 1
        self.planned += outcome.planned
        self.not_needed += outcome.not_needed
        self.candidates += outcome.candidates
        self.any_stopped_early |= outcome.stopped_early
        self.not_run.update(each.reason for each in outcome.not_run)
        self._count_attempts(task, outcome.attempts)
        self.spend(None, stored)
        for row in outcome.rows:
            self.kept += 1
            self.files.write("rows.jsonl", self._row(task, row))
        for each in outcome.dropped_rows:
            self._drop(each)
        line = task_line(task, outcome)
        self.files.write("tasks.jsonl", line)
        return line

    def spend(self, family: str | None, stored: Stored) -> None:
        """Count what draws took, under `family` or each under its stage's."""
        for slot in sorted(stored.completions):
            record: Any = stored.completions[slot]
            stage = self.stages.setdefault(family or slot[0].partition("/")[0], Stage())
            stage.add(record["completion"])
        for other in stored.set_aside:
            aside: Any = other
            stage = self.stages.setdefault(family or aside["stage"].partition("/")[0], Stage())
            stage.add(aside["completion"])

    def _count_attempts(self, task: Task, attempts: Sequence[Attempt]) -> None:
        self.overall.add(attempts)
        for attempt in attempts:
            if attempt.state == "unscored":
                self.unscored[attempt.stop_reason] += 1
            elif attempt.state == "failed":
                wrong = attempt.stop_reason == "completed"
                self.failed["wrong_answer" if wrong else attempt.stop_reason] += 1
        n_scored, n_passed = _counts(attempts)
        self.clusters.add(n_passed=n_passed, n_scored=n_scored)
        self.shapes[n_scored, n_passed] += 1
        for path in self.slice_by:
            found = slice_value(task, path)
            value = None if found is MISSING else found
            name = value if isinstance(value, str) else codec.dumps(value).decode()
            if len(self.slice_by) > 1:
                name = f"{path}={name}"
            self.slices.setdefault(name, Rates()).add(attempts)

    def _drop(self, line: Dropped) -> None:
        self.dropped[line.reason] += 1
        self.files.write("dropped.jsonl", line.model_dump(mode="json"))

    def _row(self, task: Task, row: Row) -> dict[str, JsonValue]:
        sent: dict[str, JsonValue] = (
            {"messages": list(row.request.messages)}
            if row.request.api == "chat"
            else {"text_sent": row.request.text}
        )
        return {
            **row.fields,
            **sent,
            "metadata": task.metadata,
            "provenance": {**self._provenance(row, task.id), **row.provenance},
        }

    def _provenance(self, row: Row, task_id: str) -> dict[str, JsonValue]:
        attempts = row.attempts
        completions = [a.sampled.completion for a in attempts if a.sampled.completion is not None]
        served = sorted({each.model_served for each in completions if each.model_served})
        costs = [each.cost_usd for each in completions]
        usages = [each.usage for each in completions]
        return {
            "run_id": self.facts.run_id,
            "command": self.facts.command,
            "task_id": task_id,
            "sample_indexes": [attempt.sample_index for attempt in attempts],
            "env_fingerprint": self.facts.env_fingerprint,
            "policy_fingerprint": self.facts.policy_fingerprint,
            "model": row.request.model,
            "revision": row.request.revision,
            "model_served": list(served),
            "parameters": row.request.parameters,
            "scorer": self.facts.scorer,
            "input_tokens": _total([usage.input_tokens for usage in usages]),
            "output_tokens": _total([usage.output_tokens for usage in usages]),
            "cost_usd": _total(costs),
            "labelkit_version": self.facts.labelkit_version,
            "draws": [attempt.sampled.provenance for attempt in attempts],
        }

    def numbers(self, n_tasks_in: int) -> dict[str, JsonValue]:
        """The summary's counts and rates. Raises AccountingError where a sum does not hold."""
        self._check_sums(n_tasks_in)
        pooled = self.overall.as_json()
        interval = self.clusters.interval()
        if self.any_stopped_early:
            for name in ("pass_rate", "pass_rate_with_unscored", "mean_value"):
                pooled[name] = None
            interval = None
        return {
            "n_tasks": self.overall.n_tasks,
            "n_attempts": pooled["n_attempts"],
            "n_scored": self.overall.n_scored,
            "n_unscored": self.overall.n_unscored,
            "unscored": _sorted(self.unscored),
            "failed": _sorted(self.failed),
            "n_passed": self.overall.n_passed,
            "pass_rate": pooled["pass_rate"],
            "pass_rate_interval": None if interval is None else list(interval),
            "pass_rate_with_unscored": pooled["pass_rate_with_unscored"],
            "mean_value": pooled["mean_value"],
            "pass_at_k": {} if self.any_stopped_early else pass_at_k(self.shapes),
            "kept": self.kept,
            "dropped": _sorted(self.dropped),
            "tasks": {
                "in": n_tasks_in,
                **{
                    name: self.statuses[name]
                    for name in ("kept", "dropped", "undecided", "not_run")
                },
            },
            "draws": {
                "planned": self.planned,
                "scored": self.overall.n_scored,
                "unscored": self.overall.n_unscored,
                "not_needed": self.not_needed,
                "not_run": self.not_run.total(),
                "not_run_reasons": _sorted(self.not_run),
            },
            "rows": {
                "candidates": self.candidates,
                "kept": self.kept,
                "dropped": self.dropped.total(),
            },
            "stages": {name: dict(vars(self.stages[name])) for name in sorted(self.stages)},
            "input_tokens": _total([stage.input_tokens for stage in self.stages.values()]),
            "output_tokens": _total([stage.output_tokens for stage in self.stages.values()]),
            "cost_usd": _total([stage.cost_usd for stage in self.stages.values()]),
            "slices": {name: self.slices[name].as_json() for name in sorted(self.slices)},
        }

    def _check_sums(self, n_tasks_in: int) -> None:
        sums = (
            ("tasks", n_tasks_in, self.statuses.total()),
            (
                "draws",
                self.planned,
                self.overall.n_scored
                + self.overall.n_unscored
                + self.not_needed
                + self.not_run.total(),
            ),
            ("rows", self.candidates, self.kept + self.dropped.total()),
        )
        for what, expected, found in sums:
            if expected != found:
                raise AccountingError(f"{what}: {expected} in, but {found} accounted for")


def task_line(task: Task, outcome: Outcome) -> dict[str, JsonValue]:
    """A task's line of tasks.jsonl; its rates are null where it was stopped early."""
    attempts = outcome.attempts
    n_scored, n_passed = _counts(attempts)
    rates = Rates()
    rates.add(attempts)
    whole = not outcome.stopped_early
    interval = stats.jeffreys(n_passed, n_scored) if n_scored and whole else None
    return {
        "id": outcome.task_id,
        "task_digest": task_digest(task),
        "status": outcome.status,
        "reason": outcome.reason,
        "n_passed": n_passed,
        "n_scored": n_scored,
        "n_unscored": rates.n_unscored,
        "n_not_run": len(outcome.not_run),
        "pass_rate": ratio(n_passed, n_scored) if whole else None,
        "pass_rate_interval": None if interval is None else list(interval),
        "mean_value": ratio(rates.value_sum, n_scored) if whole else None,
        "in_learning_zone": 0 < n_passed < n_scored,
        "stopped_early": outcome.stopped_early,
        "outcomes": [
            {
                "sample_index": attempt.sample_index,
                "state": attempt.state,
                "stop_reason": attempt.stop_reason,
            }
            for attempt in attempts
        ],
        **outcome.line,
    }


def pass_at_k(shapes: Mapping[tuple[int, int], int]) -> dict[str, JsonValue]:
    """pass@k over the tasks with at least k scored attempts, and under `n_tasks` how many.

    `shapes` counts tasks by (n_scored, n_passed). k: 1 to 16, then powers of two, and the largest.
    """
    largest = max((n_scored for n_scored, _ in shapes), default=0)
    ks = sorted({k for k in range(1, largest + 1) if k <= 16 or k & (k - 1) == 0} | {largest})
    means: dict[str, JsonValue] = {}
    numbers: dict[str, JsonValue] = {}
    for k in ks:
        if k == 0:
            continue
        able = sorted((shape, count) for shape, count in shapes.items() if shape[0] >= k)
        n_tasks = sum(count for _, count in able)
        total = sum((stats.pass_at_k(n, c, k) or 0.0) * count for (n, c), count in able)
        means[str(k)] = ratio(total, n_tasks)
        numbers[str(k)] = n_tasks
    return {**means, "n_tasks": numbers} if means else {}


def ratio(part: float, whole: int) -> float | None:
    """part/whole, None where there is nothing to divide by."""
    return part / whole if whole else None


def _check(outcome: Outcome) -> None:
    drawn = len(outcome.attempts) + len(outcome.not_run) + outcome.not_needed
    if drawn != outcome.planned:
        raise AccountingError(
            f"task {outcome.task_id}: {outcome.planned} draws planned, {drawn} accounted for"
        )
    rows = len(outcome.rows) + len(outcome.dropped_rows)
    if rows != outcome.candidates:
        raise AccountingError(
            f"task {outcome.task_id}: {outcome.candidates} rows possible, {rows} accounted for"
        )


def _counts(attempts: Sequence[Attempt]) -> tuple[int, int]:
    states = [attempt.state for attempt in attempts]
    return len(states) - states.count("unscored"), states.count("passed")


def _sorted(counter: Counter[str]) -> dict[str, JsonValue]:
    return {name: counter[name] for name in sorted(counter)}


def _plus(total: int | None, more: int | None) -> int | None:
    return total if more is None else (total or 0) + more


def _total(values: Sequence[Any]) -> Any:
    """The sum; None where a value is unknown or there is none."""
    return None if not values or None in values else sum(values)


def slice_value(task: Task, path: str) -> JsonValue | Missing:
    """What names a task's slice; MISSING where there is no such path (a gold of None is none)."""
    fields: dict[str, JsonValue] = {"id": task.id, "gold": task.gold, "metadata": task.metadata}
    head, _, rest = path.partition(".")
    value = fields.get(head)
    if value is None:
        return MISSING
    return lookup(value, rest) if rest else value
