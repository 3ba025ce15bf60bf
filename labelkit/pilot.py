"""`--pilot N`: a few random tasks in full first, and what they say about the whole.

The pilot's draws are ordinary draws of the run: they are kept, and the whole goes on from them.
It is measured from the ledger alone. It never changes what is drawn; it may only end the run.
"""

from __future__ import annotations

import hashlib
import heapq
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from labelkit.gates import Gate
from labelkit.ledger_index import Stored
from labelkit.records import Outcome, Task

REASONS = ("wrong_answer", "truncated", "no_answer", "invalid_output", "timeout", "provider_error",
           "content_filter", "scorer_error", "abstained", "cancelled")  # fmt: skip
KEYS = (
    *REASONS,
    "unscored",
    "pass_rate",
    "n_attempts",
    "output_tokens_p50",
    "output_tokens_p95",
    "projected_tokens",
    "projected_cost_usd",
    "projected_hours",
)
"""What `--stop-if` may name; reasons and `unscored` are shares of the attempts."""


def choose(tasks: Iterable[Task], n: int) -> list[Task]:
    """n random tasks, the same ones each time; memory holds n tasks and no more."""
    return heapq.nsmallest(n, tasks, key=lambda task: hashlib.sha256(task.id.encode()).digest())


@dataclass
class Pilot:
    """What the pilot's tasks brought.

    `n_tasks` is how many the whole has, `n_chosen` how many of the pilot's were run in full.
    `n_not_run` draws are missing where a budget or the user cut it short. `duration_s` is what the
    pilot took, None where its draws were in the ledger already.
    """

    n_tasks: int
    n_chosen: int = 0
    attempts: Counter[str] = field(default_factory=Counter)
    states: Counter[str] = field(default_factory=Counter)
    n_not_run: int = 0
    passed: Counter[int] = field(default_factory=Counter)
    output_tokens: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    costs_usd: list[float | None] = field(default_factory=list)
    duration_s: float | None = None

    def take(self, task: Task, outcome: Outcome, stored: Stored) -> None:
        """Count one task of the pilot, with all the stages of its draws. One that was cut short
        says nothing of what a whole one takes."""
        for attempt in outcome.attempts:
            wrong = attempt.state == "failed" and attempt.stop_reason == "completed"
            self.attempts["wrong_answer" if wrong else attempt.stop_reason] += 1
            self.states[attempt.state] += 1
        not_run = sum(each.reason != "unavailable" for each in outcome.not_run)
        self.n_not_run += not_run
        if not_run:
            return
        self.n_chosen += 1
        self.passed[sum(attempt.state == "passed" for attempt in outcome.attempts)] += 1
        tokens, cost_usd = 0, 0.0
        known = True
        records: Any = stored.completions
        for (stage, _, _), record in records.items():
            usage = record["completion"].get("usage", {})
            written = usage.get("output_tokens")
            tokens += (usage.get("input_tokens") or 0) + (written or 0)
            known &= record.get("spent_usd") is not None
            cost_usd += record.get("spent_usd") or 0.0
            if stage == "candidate" and written is not None:
                self.output_tokens.append(written)
        self.tokens.append(tokens)
        self.costs_usd.append(cost_usd if known else None)

    def numbers(self) -> dict[str, Any]:
        """`KEYS` with their values, None where there is nothing to tell them from."""
        n_attempts = self.attempts.total()
        n_scored = self.states["passed"] + self.states["failed"]
        usd = [cost for cost in self.costs_usd if cost is not None]
        tokens, hours = _projected(self.tokens, self.n_tasks), None
        cost_usd = _projected(usd, self.n_tasks) if len(usd) == self.n_chosen else None
        if self.duration_s is not None and self.n_chosen:
            hours = self.duration_s * self.n_tasks / self.n_chosen / 3600
        return {
            **{reason: _share(self.attempts[reason], n_attempts) for reason in REASONS},
            "unscored": _share(self.states["unscored"], n_attempts),
            "pass_rate": _share(self.states["passed"], n_scored),
            "n_attempts": n_attempts,
            "output_tokens_p50": _quantile(self.output_tokens, 0.5),
            "output_tokens_p95": _quantile(self.output_tokens, 0.95),
            "projected_tokens": None if tokens is None else tokens[0],
            "projected_cost_usd": None if cost_usd is None else cost_usd[0],
            "projected_hours": hours,
        }

    def as_json(self) -> dict[str, Any]:
        """The summary's block."""
        return {
            "n_tasks": self.n_chosen,
            "n_tasks_of_the_whole": self.n_tasks,
            "n_not_run": self.n_not_run,
            **self.numbers(),
            "tasks_by_passed": {str(n): self.passed[n] for n in sorted(self.passed)},
        }

    def stopped_by(self, conditions: Iterable[Gate]) -> str | None:
        """The first condition that holds, with its number; None where none does."""
        numbers = self.numbers()
        for condition in conditions:
            verdict = condition.judge(numbers)
            if verdict.holds:
                return f"{condition.expr}: it is {verdict.actual:.4g}"
        return None

    def lines(self) -> Iterator[str]:
        """The pilot in words."""
        said = self.numbers()
        yield f"pilot: {self.n_chosen:,} of {self.n_tasks:,} tasks, {said['n_attempts']:,} attempts"
        if self.n_not_run:
            yield f"  cut short: {self.n_not_run:,} of its draws were not run"
        if not said["n_attempts"]:
            return
        yield f"  pass rate {_percent(said['pass_rate'])}, unscored {_percent(said['unscored'])}"
        reasons = [f"{name} {_percent(said[name])}" for name in REASONS if said[name]]
        yield f"  {', '.join(reasons) or 'every attempt passed'}"
        histogram = "  ".join(f"{n}: {self.passed[n]:,}" for n in sorted(self.passed))
        if not self.n_chosen:
            return
        yield f"  tasks by attempts passed  {histogram}"
        p50, p95 = said["output_tokens_p50"], said["output_tokens_p95"]
        if p50 is not None:
            yield f"  tokens of a reply: p50 {p50:,}, p95 {p95:,}"
        yield f"  the whole: {', '.join(self._whole(said['projected_hours']))}"

    def _whole(self, hours: float | None) -> Iterator[str]:
        tokens = _projected(self.tokens, self.n_tasks)
        usd = [cost for cost in self.costs_usd if cost is not None]
        cost = _projected(usd, self.n_tasks) if len(usd) == self.n_chosen else None
        if tokens is not None:
            yield f"{tokens[0]:,.0f} ± {tokens[1]:,.0f} tokens"
        yield "cost unknown" if cost is None else f"{_money(cost[0])} ± {_money(cost[1])}"
        if hours is not None:
            yield f"{_duration(hours * 3600)} at this speed"


def _projected(per_task: list[Any], n_tasks: int) -> tuple[float, float] | None:
    """The sum over all tasks, from a sample without replacement, and its 95% margin."""
    n = len(per_task)
    if not n:
        return None
    mean = math.fsum(per_task) / n
    variance = math.fsum((each - mean) ** 2 for each in per_task) / max(1, n - 1)
    unseen = max(0.0, 1 - n / n_tasks)
    return mean * n_tasks, 1.96 * n_tasks * math.sqrt(variance * unseen / n)


def _quantile(values: list[int], share: float) -> int | None:
    """The smallest value that at least this share of them does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else None


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _money(usd: float) -> str:
    return f"${usd:,.2f}" if usd >= 0.01 or usd == 0 else f"${usd:.3g}"


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 3600 else f"{seconds / 3600:,.1f} hours"


def _percent(share: float | None) -> str:
    return "unknown" if share is None else f"{share:.1%}"
