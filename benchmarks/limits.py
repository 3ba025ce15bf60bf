"""Does the adaptive limit find what a refusing server can take, and how near does it keep to it?

    python benchmarks/limits.py --out benchmarks/limits.md

labelkit direct, with its limit adaptive up to 256, beside several concurrencies fixed by hand, on
the same job against fast_server.py, which answers 429 above N calls in flight. Both are processes
of their own. All speeds and refusals are the server's count. `--scale 0.2` is a quick look.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from contenders import messages
from fast_server import BINS_PER_S
from throughput import machine, server, versions

K = 8
LATENCY_S = 0.4
RUN_S = 60
"""How long a case takes at N calls in flight, each part of a changing one half as long."""
SETTLE_S = 10
"""The limit counts as converged so long after the start and after each change of the server's."""
CAP = 256
FIXED = (1, 1.25, 2)
"""Concurrencies fixed by hand, as multiples of the most that the server ever takes: below N a call
that could be under way is not, above it the 429s that are tried again keep the server full."""
RETRY_AFTER_S = 5
PAUSE_S = 1


@dataclass(frozen=True)
class Case:
    """A server and how many attempts it gets. `levels`: the capacities it has in its course."""

    name: str
    n_attempts: int
    levels: tuple[int, ...]
    arguments: tuple[object, ...]


def cases(scale: float) -> Iterator[Case]:
    def n_in(most: int, seconds: float) -> int:
        return int(most * seconds * scale / LATENCY_S)

    for most in (10, 50, 200):
        yield Case(f"{most}", n_in(most, RUN_S), (most,), ("--refuse-above", most))
    for levels in ((100, 30, 100), (30, 100, 30)):
        parts = [n_in(most, RUN_S / 2) for most in levels]
        ends = itertools.accumulate(parts)
        then = [f"{end}:{most}" for end, most in zip(ends, levels[1:], strict=False)]
        name = ", then ".join(map(str, levels))
        arguments = ("--refuse-above", levels[0], "--then", *then)
        yield Case(name, sum(parts), levels, arguments)


def pausing(scale: float) -> Case:
    """All calls of one second are refused, once; every 429 asks for a long wait."""
    most = 50
    n_attempts = int(most * RUN_S * scale / LATENCY_S)
    pause = ("--pause", f"{n_attempts // 3}:{PAUSE_S}", "--retry-after", RETRY_AFTER_S)
    return Case(f"{most}", n_attempts, (most,), ("--refuse-above", most, *pause))


class Watch:
    """A run's progress that notes when its limit moved, and where to."""

    def __init__(self) -> None:
        self.moves: list[tuple[float, int]] = []
        self._fleets: list[Any] = []

    def start(self, n_tasks: int, k: int, fleets: dict[str, Any]) -> None:
        self._fleets = list(fleets.values())

    def attempt(self, task: Any, attempt: Any) -> None:
        limit = self._fleets[0].snapshot()[0].limit
        if not self.moves or self.moves[-1][1] != limit:
            self.moves.append((time.monotonic(), limit))

    def message(self, text: str) -> None: ...

    def spent(self, usd: float | None, tokens: int) -> None: ...

    def task(self, outcome: Any) -> None: ...

    def finish(self) -> None: ...


def child(spec: Path) -> None:
    """The run itself; prints what was noted as JSON."""
    from labelkit.prepare import Options, prepare
    from labelkit.run import execute
    from labelkit.spec import load

    watch = Watch()
    options = Options(directory=spec.parent / "run")
    summary = execute(prepare(load(spec), "rollout", options), watch)
    told = {name: summary[name] for name in ("n_attempts", "n_passed", "n_unscored")}
    print(json.dumps({**told, "moves": watch.moves}))


@dataclass(frozen=True)
class Run:
    """What the client told (`moves` of its limit among it) and what the server counted."""

    client: dict[str, Any]
    server: dict[str, Any]

    @property
    def speed(self) -> float:
        """Answers a second, from the first call to the last answer."""
        return float(self.server["answered"] / (self.server["last_s"] - self.server["first_s"]))

    @property
    def refusals(self) -> list[float]:
        return list(self.server["refused_at_s"])

    def cycles(self) -> list[int]:
        """The refusals of each whole growth cycle after convergence.

        A cycle goes from one moment in which the limit began to grow to the next.
        """
        begun: list[float] = []
        grew = False
        for (_, before), (at_s, limit) in itertools.pairwise(self.client["moves"]):
            if limit > before and not grew:
                begun.append(at_s)
            grew = limit > before
        unsettled = [self.server["first_s"], *self.server["changed_at_s"]]
        return [
            sum(start <= at_s < end for at_s in self.refusals)
            for start, end in itertools.pairwise(begun)
            if not any(start - SETTLE_S < at_s < end for at_s in unsettled)
        ]

    def answered(self, start_s: float, seconds: float) -> int:
        return sum(
            n
            for tenth, n in self.server["answered_by"]
            if start_s <= tenth / 10 < start_s + seconds
        )


def run(case: Case, concurrency: int, *, adaptive: bool) -> Run:
    with (
        server("--latency-ms", LATENCY_S * 1000, *case.arguments) as url,
        tempfile.TemporaryDirectory(prefix="limits-") as name,
    ):
        folder = Path(name)
        n_tasks = case.n_attempts // K
        with open(folder / "tasks.jsonl", "w") as file:
            for n in range(n_tasks):
                row = {"id": f"t{n}", "prompt": messages(n)[0]["content"], "gold": 42}
                file.write(json.dumps(row) + "\n")
        # As many tries as there may be: a level fixed too high is slow, and loses nothing.
        (folder / "spec.yaml").write_text(
            f"name: limits\ntasks: {{file: tasks.jsonl}}\nk: {K}\nscorer: numeric\n"
            f"sampler: {{model: direct/bench, api_base: {url}, max_tokens: 100, max_tries: 50,"
            f" concurrency: {concurrency}, adaptive_concurrency: {str(adaptive).lower()}}}\n"
        )
        command = [sys.executable, __file__, "--child", str(folder / "spec.yaml")]
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
        done = subprocess.run(
            command, capture_output=True, text=True, env=environment, timeout=1800
        )
        if done.returncode:
            raise SystemExit(f"{case.name}, {concurrency}: {done.stderr[-3000:]}")
        with urllib.request.urlopen(url.removesuffix("/v1") + "/stats") as response:
            stats = json.load(response)
    ended = Run(json.loads(done.stdout), stats)
    if ended.client["n_passed"] != n_tasks * K or stats["answered"] != n_tasks * K:
        raise SystemExit(f"{case.name}, {concurrency}: attempts were lost: {ended.client}, {stats}")
    print(case.name, concurrency, adaptive, f"{ended.speed:.1f}/s, {len(ended.refusals)} 429s,"
          f" cycles {ended.cycles()}", file=sys.stderr)  # fmt: skip
    return ended


def compared(scale: float) -> Iterator[str]:
    """Each refusing server, adaptive beside the best of several fixed concurrencies."""
    yield (
        "| N | attempts | attempts/s, adaptive | best fixed (of) | ratio (≥ 0.8) | 429s, adaptive"
        " | 429s, best fixed | growth cycles | 429s in them | most in one (≤ 1) |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for case in cases(scale):
        ours = run(case, CAP, adaptive=True)
        fixed = [round(factor * max(case.levels)) for factor in FIXED]
        theirs = {level: run(case, level, adaptive=False) for level in fixed}
        best = max(theirs, key=lambda level: theirs[level].speed)
        cycles = ours.cycles()
        yield (
            f"| {case.name} | {ours.server['answered']:,} | {ours.speed:,.1f} |"
            f" {theirs[best].speed:,.1f} at {best} ({', '.join(map(str, fixed))}) |"
            f" {ours.speed / theirs[best].speed:.2f} | {len(ours.refusals)} |"
            f" {len(theirs[best].refusals):,} | {len(cycles)} | {sum(cycles)} |"
            f" {max(cycles, default=0)} |"
        )


def paused(scale: float) -> Iterator[str]:
    """How long the limit takes to come back after everything was refused."""
    case = pausing(scale)
    ended = run(case, CAP, adaptive=True)
    ((_, over_s),) = ended.server["paused_s"]
    possible = case.levels[0] / LATENCY_S
    window_s = 2 * LATENCY_S
    bins = range(int(over_s * BINS_PER_S), int(ended.server["last_s"] * BINS_PER_S))
    back = [
        tenth / BINS_PER_S - over_s
        for tenth in bins
        if ended.answered(tenth / BINS_PER_S, window_s) >= 0.8 * possible * window_s
    ]
    back_after = f"{back[0]:.1f} s after the pause was over" if back else "never"
    silent_s = max(
        (later - earlier) / BINS_PER_S
        for (earlier, _), (later, _) in itertools.pairwise(ended.server["answered_by"])
    )
    yield f"- {len(ended.refusals)} refusals, {ended.client['n_unscored']} attempts lost"
    yield f"- longest time without an answer {silent_s:.1f} s"
    yield f"- at 80% of N's speed again {back_after}"
    yield f"- the whole run {ended.speed:,.1f} attempts/s ({ended.speed / possible:.2f} of N's)"


def page(scale: float) -> Iterator[str]:
    told, after_a_pause = list(compared(scale)), list(paused(scale))
    yield "# Limits"
    yield ""
    yield f"{datetime.now(UTC):%Y-%m-%d}, {''.join(machine())}. {versions({})}."
    yield ""
    yield (
        f"Made by benchmarks/limits.py, scale {scale:g}: labelkit direct against a server that"
        f" takes {LATENCY_S * 1000:.0f} ms a call and answers 429 above N calls in flight; by the"
        " server's count, start-up of the limit included. A growth cycle goes from one moment in"
        " which the limit begins to grow, over the refusal that ends it, to the next; told are"
        f" those later than {SETTLE_S} s after the start and after each change of N."
    )
    yield from ("", "## 429 above N in flight", "", *told)
    yield from (
        "",
        f"## N = 50, all refused for {PAUSE_S} s, every 429 with Retry-After: {RETRY_AFTER_S}",
        "",
        *after_a_pause,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child is not None:
        child(options.child)
        return
    text = "\n".join(page(options.scale)) + "\n"
    if options.out is not None:
        options.out.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
