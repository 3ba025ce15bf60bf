"""Draws saved by stopping early, and whether P(in band) means what it says, on simulated tasks.

Every task has a known success rate, drawn from the Jeffreys prior unless it is given, so that the
rules of learning-zone and rl-select can be held against the truth. No model is called.

    python benchmarks/simulate_selection.py > benchmarks/simulate_selection.md
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from labelkit.stats import (
    Band,
    band_decided,
    band_posterior,
    expected_draws,
    is_mixed,
    p_in_zone,
)

SEED = 20260801
TASKS = 10_000
K = 8
SCHEDULES: dict[str, Sequence[int]] = {"one by one": [1] * K, "waves 2-2-4": [2, 2, 4]}
RATES = (0.0, 0.05, 0.1, 0.2, 0.5, 0.8, 0.95, 1.0)
UNSCORED = 0.1


def zone_draws(outcomes: Sequence[bool], waves: Sequence[int]) -> tuple[int, bool]:
    """Draws made, and whether the task is kept, by learning-zone with early stopping."""
    drawn = 0
    for wave in waves:
        drawn += wave
        if is_mixed(sum(outcomes[:drawn]), drawn):
            return drawn, True
    return drawn, False


def band_draws(
    outcomes: Sequence[bool | None], band: Band, waves: Sequence[int]
) -> tuple[int, bool]:
    """The same for rl-select; None is a draw that could not be scored."""
    drawn = n_passed = n_scored = 0
    for wave in waves:
        drawn += wave
        scored = [outcome for outcome in outcomes[:drawn] if outcome is not None]
        n_passed, n_scored = sum(scored), len(scored)
        decision = band_decided(n_passed, n_scored, len(outcomes) - drawn, band)
        if decision != "open":
            return drawn, decision == "in"
    return drawn, band.contains(n_passed, n_scored)


def adaptive_zone(draw: random.Random) -> tuple[list[str], int]:
    """Rows of mean draws against the closed form, and the decisions that differ from full K."""
    rows, differing = [], 0
    for name, waves in SCHEDULES.items():
        for p in RATES:
            total = squares = 0
            for _ in range(TASKS):
                outcomes = [draw.random() < p for _ in range(K)]
                drawn, kept = zone_draws(outcomes, waves)
                total, squares = total + drawn, squares + drawn * drawn
                differing += kept != is_mixed(sum(outcomes), K)
            mean = total / TASKS
            se = math.sqrt((squares / TASKS - mean * mean) / TASKS)
            expected = expected_draws(p, waves)
            rows.append(f"| {name} | {p:g} | {mean:.3f} ± {1.96 * se:.3f} | {expected:.3f} |")
    return rows, differing


def adaptive_band(draw: random.Random) -> tuple[list[str], int]:
    """Rows of draws saved by rl-select on tasks from the prior, some draws being unscored."""
    rows, differing = [], 0
    bands = {
        "(0, 1)": Band(),
        "[.2, .8]": Band(0.2, 0.8, True, True),
        "(0, .5]": Band(0.0, 0.5, False, True),
    }
    for shown, band in bands.items():
        for name, waves in SCHEDULES.items():
            total = 0
            for _ in range(TASKS):
                p = draw.betavariate(0.5, 0.5)
                outcomes = [
                    None if draw.random() < UNSCORED else draw.random() < p for _ in range(K)
                ]
                drawn, kept = band_draws(outcomes, band, waves)
                scored = [outcome for outcome in outcomes if outcome is not None]
                total += drawn
                differing += kept != band.contains(sum(scored), len(scored))
            rows.append(f"| {shown} | {name} | {total / TASKS:.2f} of {K} |")
    return rows, differing


def reliability(pairs: Sequence[tuple[float, bool]]) -> tuple[list[str], float]:
    """Rows by predicted value, and the largest gap between what was said and what came."""
    groups: dict[float, list[bool]] = {}
    for said, came in pairs:
        groups.setdefault(round(said, 6), []).append(came)
    rows, worst = [], 0.0
    for said, group in sorted(groups.items()):
        share = sum(group) / len(group)
        worst = max(worst, abs(share - said))
        rows.append(f"| {said:.3f} | {share:.3f} | {100 * (share - said):+.1f} | {len(group)} |")
    return rows, worst


def calibration(draw: random.Random) -> tuple[list[str], list[str], float]:
    """P(.2 ≤ p ≤ .8) and P(in zone), each against the truth, on one set of tasks."""
    in_band, in_zone = [], []
    for _ in range(TASKS):
        p = draw.betavariate(0.5, 0.5)
        n_passed = sum(draw.random() < p for _ in range(K))
        fresh = sum(draw.random() < p for _ in range(K))
        in_band.append((band_posterior(n_passed, K, 0.2, 0.8), 0.2 <= p <= 0.8))
        in_zone.append((p_in_zone(n_passed, K, K), is_mixed(fresh, K)))
    band_rows, band_worst = reliability(in_band)
    zone_rows, zone_worst = reliability(in_zone)
    return band_rows, zone_rows, max(band_worst, zone_worst)


def report() -> str:
    """The whole of simulate_selection.md."""
    draw = random.Random(SEED)
    zone, zone_differing = adaptive_zone(draw)
    band, band_differing = adaptive_band(draw)
    in_band, in_zone, worst = calibration(draw)
    reliability_head = ["| said | came | gap, points | tasks |", "|---|---|---|---|"]
    lines = [
        "# Selection on simulated tasks",
        "",
        "Written by `python benchmarks/simulate_selection.py > benchmarks/simulate_selection.md`",
        f"(seed {SEED}, K = {K}, {TASKS:,} tasks a line, no model called).",
        "",
        "## learning-zone: draws until a pass and a fail",
        "",
        "Closed form: E[N] = w₁ + Σ w_{i+1} (p^S + (1−p)^S), S the draws made before wave i+1.",
        "",
        "| schedule | p | mean draws (95%) | closed form |",
        "|---|---|---|---|",
        *zone,
        "",
        f"Decisions that differ from full K: {zone_differing} of {len(zone) * TASKS:,} tasks.",
        "",
        "## rl-select: draws until certainly inside or outside the band",
        "",
        f"p from Beta(½, ½); {UNSCORED:.0%} of the draws unscored at random.",
        "",
        "| band | schedule | mean draws |",
        "|---|---|---|",
        *band,
        "",
        f"Decisions that differ from full K: {band_differing} of {len(band) * TASKS:,} tasks.",
        "",
        "## rl-select: is P(.2 ≤ p ≤ .8) calibrated?",
        "",
        "One line for each count of passes that gives the same value.",
        "",
        *reliability_head,
        *in_band,
        "",
        "## P(in zone): are K fresh draws mixed as often as said?",
        "",
        *reliability_head,
        *in_zone,
        "",
        f"Largest gap of both tables: {100 * worst:.1f} points.",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    print(report())
