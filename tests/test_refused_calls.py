"""Whole runs against a server, a process of its own, that answers 429 above N calls in flight.

Judged by the server's log and the limit's moves, in the order in which things happened: how fast a
busy machine goes is not asked here.
"""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from tests.runs import Silent, run, serving, write_lines, write_spec


class Log:
    """The server's calls in the order in which they ended, refused or answered."""

    def __init__(self, path: Path) -> None:
        lines = [json.loads(line) for line in path.read_bytes().splitlines()]
        self.ended = [line for line in lines if line["event"] == "end"]

    @property
    def n_refused(self) -> int:
        return sum(line["status"] == 429 for line in self.ended)

    def after(self, n_answered: int) -> list[Any]:
        """What ended after so many answers."""
        answered = 0
        for at, line in enumerate(self.ended):
            if answered == n_answered:
                return self.ended[at:]
            answered += line["status"] == 200
        return []

    def refused_after(self, n_answered: int) -> int:
        return sum(line["status"] == 429 for line in self.after(n_answered))

    def in_flight_after(self, n_answered: int) -> float:
        """How many calls an answered one found in flight with itself, on average."""
        return fmean(line["in_flight"] for line in self.after(n_answered) if line["status"] == 200)

    def before_a_second_try(self) -> list[Any]:
        """The answers between the first refusal and the end of the first call made once more."""
        first = next(at for at, line in enumerate(self.ended) if line["status"] == 429)
        again = next(at for at, line in enumerate(self.ended) if line["ordinal"] == 2)
        return [line for line in self.ended[first:again] if line["status"] == 200]


class Moves(Silent):
    """Where the limit was moved to, with the attempts that were over then."""

    def __init__(self) -> None:
        super().__init__()
        self.limits: list[tuple[int, int]] = []
        self._n = 0

    def start(self, n_tasks: int, k: int, fleets: Any) -> None:
        self._fleet = fleets["policy"]

    def attempt(self, task: Any, attempt: Any) -> None:
        self._n += 1
        limit = self._fleet.snapshot()[0].limit
        if not self.limits or self.limits[-1][1] != limit:
            self.limits.append((self._n, limit))

    def cuts_after(self, n_attempts: int) -> int:
        pairs = zip(self.limits, self.limits[1:], strict=False)
        return sum(after < before and n >= n_attempts for (_, before), (n, after) in pairs)

    def between(self, first: int, last: int) -> list[int]:
        return [limit for n, limit in self.limits if first <= n <= last]


def sampled(
    folder: Path, *rules: dict[str, Any], latency_ms: Any, n: int, k: int = 2, **sampler: Any
) -> tuple[Log, Moves]:
    """A run of n draws, each of its own seed, against a server that answers yes, or 429 where a
    rule says so; all of them must come out."""
    prompts = ({"id": f"t{i}", "prompt": f"{i}: say yes", "gold": "yes"} for i in range(n // k))
    write_lines(folder / "tasks.jsonl", prompts)
    moves = Moves()
    refusing = [{"fault": "rate_limit", **rule} for rule in rules]
    script = {"reply": "yes {key}", "latency_ms": latency_ms, "rules": refusing}
    with serving(folder, script) as server:
        spec = write_spec(
            folder,
            tasks={"file": "tasks.jsonl"},
            sampler={"model": "direct/fake", "api_base": server.url, "seed": 1, **sampler},
            scorer={"contains": {"mention": "anywhere"}},
            k=k,
        )
        done = run(spec, folder / "run", progress=moves)
    assert (done["n_passed"], done["n_unscored"], done["exit_code"]) == (n, 0, 0)
    log = Log(server.log)
    assert len(log.ended) == n + log.n_refused
    return log, moves


@pytest.mark.parametrize(
    ("most", "latency_ms", "n", "retry_after"),
    [(10, (80, 120), 400, None), (30, (240, 360), 750, "2")],
)
def test_a_server_that_refuses_is_kept_busy_and_not_hammered(
    tmp_path: Path, most: int, latency_ms: tuple[float, float], n: int, retry_after: str | None
) -> None:
    rule = {"above_in_flight": most, "retry_after": retry_after}
    log, moves = sampled(tmp_path, rule, latency_ms=latency_ms, n=n)
    settled = n // 3
    cuts = moves.cuts_after(settled)
    assert cuts >= 2
    assert log.refused_after(settled) <= 2 * cuts + 2
    assert log.in_flight_after(settled) >= 0.6 * most


def test_the_limit_follows_a_server_that_falls_and_rises(tmp_path: Path) -> None:
    parts = [
        {"above_in_flight": 30, "until": 250},
        {"above_in_flight": 10, "after": 251, "until": 420},
        {"above_in_flight": 30, "after": 421},
    ]
    log, moves = sampled(tmp_path, *parts, latency_ms=(160, 240), n=800)
    assert max(moves.between(100, 200)) >= 25
    assert min(moves.between(200, 400)) <= 10
    assert max(moves.between(600, 800)) >= 25
    assert log.n_refused <= 250


def test_a_long_retry_after_stalls_only_the_draw_that_got_it(tmp_path: Path) -> None:
    once = {"nth": [50], "retry_after": "3"}
    log, _ = sampled(tmp_path, once, latency_ms=(40, 60), n=300, concurrency=10)
    assert log.n_refused == 1
    assert len(log.before_a_second_try()) >= 100


def test_draws_that_wait_out_a_long_retry_after_leave_others_room(tmp_path: Path) -> None:
    """As many as the run has slots wait, one a task, while the server is ready for more."""
    busy = {"above_in_flight": 2, "until": 40, "retry_after": "6"}
    log, _ = sampled(tmp_path, busy, latency_ms=(160, 240), n=300, k=1, concurrency=20)
    assert log.n_refused >= 15
    assert max(line["in_flight"] for line in log.before_a_second_try()) >= 10
