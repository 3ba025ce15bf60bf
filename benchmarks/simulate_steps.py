"""How often the first wrong step is located exactly, and for how many rollouts, on simulated steps.

The model: a solution of 16 steps whose first wrong one is known. A rollout from a prefix without
the error reaches the gold with probability v, from a prefix with it with probability r, the rate at
which completers repair. Rollouts are independent; no model is called. Compared are the change point
over all prefixes, the adaptive search, and the two rules that take any hit for proof of a good
prefix.

    python benchmarks/simulate_steps.py > benchmarks/simulate_steps.md
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from labelkit.stats import Counts, change_point, next_probe

SEED = 20260801
SOLUTIONS = 4_000
SOLUTIONS_ELSEWHERE = 1_000
STEPS = 16
ERROR = 5
K = 8
SHARE_OF_FULL = 0.6
GRID = [(v, r) for v in (0.9, 0.7, 0.5, 0.3) for r in (0.0, 0.05, 0.1, 0.2) if r < v]
NAMED = [(0.7, 0.0), (0.7, 0.05), (0.7, 0.2), (0.3, 0.05)]
ELSEWHERE = (0, 1, 10, 15, None)

Rollouts = Callable[[int, int], int]
"""Prefix (from 0) and number of rollouts → how many of them reached the gold."""
Located = tuple[int | None, int]
"""The first wrong step (from 0, None: none) and the rollouts spent."""


def completer(v: float, r: float, error: int | None, draw: random.Random) -> Rollouts:
    """Rollouts of a solution with its first wrong step at `error`."""

    def hits(prefix: int, n: int) -> int:
        rate = v if error is None or prefix < error else r
        return sum(draw.random() < rate for _ in range(n))

    return hits


def full(hits: Rollouts, v0: Counts | None) -> Located:
    """K rollouts of every prefix, then the change point."""
    counts = [(hits(prefix, K), K) for prefix in range(STEPS)]
    return change_point(counts, v0).index, STEPS * K


def adaptive(hits: Rollouts, v0: Counts | None) -> Located:
    """The adaptive search with a share of full's rollouts."""
    counts: list[Counts] = [(0, 0)] * STEPS
    limit = int(SHARE_OF_FULL * STEPS * K)
    while probe := next_probe(counts, K, max_rollouts=limit, v0=v0):
        passed, scored = counts[probe.index]
        counts[probe.index] = (passed + hits(probe.index, probe.n), scored + probe.n)
    return change_point(counts, v0).index, sum(scored for _, scored in counts)


def any_hit(hits: Rollouts, prefix: int) -> tuple[bool, int]:
    """Up to K rollouts of a prefix, stopped at the first hit, and how many were made."""
    for n in range(1, K + 1):
        if hits(prefix, 1):
            return True, n
    return False, K


def linear(hits: Rollouts, v0: Counts | None) -> Located:
    """From the front, the first prefix without a hit."""
    spent = 0
    for prefix in range(STEPS):
        good, n = any_hit(hits, prefix)
        spent += n
        if not good:
            return prefix, spent
    return None, spent


def binary(hits: Rollouts, v0: Counts | None) -> Located:
    """Binary search that believes any hit (OmegaPRM, arXiv 2406.06592)."""
    low, high, spent = 0, STEPS, 0
    while low < high:
        middle = (low + high) // 2
        good, n = any_hit(hits, middle)
        spent += n
        low, high = (middle + 1, high) if good else (low, middle)
    return (low if low < STEPS else None), spent


Method = Callable[[Rollouts, Counts | None], Located]


def measure(
    method: Method, v: float, r: float, error: int | None, solutions: int, with_v0: bool
) -> tuple[float, float]:
    """Share located exactly and mean rollouts; every cell of the grid has its own seed."""
    draw = random.Random(f"{SEED}/{method.__name__}/{v}/{r}/{error}/{with_v0}")
    located = spent = 0
    for _ in range(solutions):
        hits = completer(v, r, error, draw)
        v0 = (sum(draw.random() < v for _ in range(K)), K) if with_v0 else None
        index, rollouts = method(hits, v0)
        located += index == error
        spent += rollouts
    return located / solutions, spent / solutions


def grid() -> Iterator[str]:
    """The table of the whole grid, error at step 6 of 16."""
    yield "| v, r | binary, any hit | linear, any hit | change point | adaptive | of full |"
    yield "|---|---|---|---|---|---|"
    for v, r in GRID:
        cells = {
            method: measure(method, v, r, ERROR, SOLUTIONS, False)
            for method in (binary, linear, full, adaptive)
        }
        shown = " | ".join(f"{share:.3f} ({spent:.0f})" for share, spent in cells.values())
        mark = "**" if (v, r) in NAMED else ""
        part = cells[adaptive][1] / cells[full][1]
        yield f"| {mark}{v:g}, {r:g}{mark} | {shown} | {part:.0%} |"


def elsewhere(with_v0: bool) -> Iterator[str]:
    """Change point and adaptive search with the error at other places, or none."""
    places = ["none" if error is None else f"step {error + 1}" for error in ELSEWHERE]
    yield f"| v, r | {' | '.join(places)} |"
    yield "|---" * (1 + len(places)) + "|"
    for v, r in NAMED:
        cells = []
        for error in ELSEWHERE:
            by_full, _ = measure(full, v, r, error, SOLUTIONS_ELSEWHERE, with_v0)
            share, spent = measure(adaptive, v, r, error, SOLUTIONS_ELSEWHERE, with_v0)
            cells.append(f"{by_full:.2f} / {share:.2f} ({spent:.0f})")
        yield f"| {v:g}, {r:g} | {' | '.join(cells)} |"


def report() -> str:
    """The whole of simulate_steps.md."""
    limit = int(SHARE_OF_FULL * STEPS * K)
    lines = [
        "# Locating the first wrong step on simulated solutions",
        "",
        "Written by `python benchmarks/simulate_steps.py > benchmarks/simulate_steps.md`",
        f"(seed {SEED}, no model called).",
        "",
        f"Model: {STEPS} steps. A rollout from a prefix without the error succeeds with",
        "probability v, from one with it with probability r (not r·v), the rate of repairs.",
        f"K = {K}. The adaptive search may spend {limit} rollouts, {SHARE_OF_FULL:.0%} of full's",
        f"{STEPS * K}. 'No wrong step' is among the answers of every method, so forced answers do",
        "not flatter; mean rollouts stand in parentheses. The search's settings (three starting",
        "prefixes, k/2 a probe, stop at .95) were chosen on this model, with other seeds.",
        "",
        f"## Error at step {ERROR + 1}: share located exactly",
        "",
        f"{SOLUTIONS:,} solutions a cell, without the rate of the bare problem (v₀); 95% error at",
        "most ± .016. In bold the points that have a bar to reach. Binary search asks three",
        "prefixes with the error here; each misleads it with probability 1 − (1 − r)^K.",
        "",
        *grid(),
        "",
        "## Error elsewhere: change point / adaptive search",
        "",
        f"{SOLUTIONS_ELSEWHERE:,} solutions a cell, with v₀ from {K} samples of the solver at the",
        "same v. The right answer to 'none' is that no step is wrong.",
        "",
        *elsewhere(with_v0=True),
        "",
        "Without v₀: an error at step 1 leaves no good prefix to compare with and cannot be told",
        "from a hard problem.",
        "",
        *elsewhere(with_v0=False),
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    print(report())
