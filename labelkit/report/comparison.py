"""What `diff` prints: the verdict over all tasks, then the tasks that changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from labelkit.report.grid import cell, id_width
from labelkit.report.text import number, percent, plain

MAX_TASK_LINES = 40
MAX_IDS = 20
_SIDES = (("only_in_run", "this run"), ("only_in_baseline", "the baseline"))


def comparison_text(comparison: Mapping[str, Any]) -> str:
    """A comparison document (see `labelkit.diff`) for people."""
    return "\n".join(_lines(comparison)) + "\n"


def _lines(comparison: Mapping[str, Any]) -> Iterator[str]:
    yield f"run       {plain(comparison['run'])}"
    yield f"baseline  {plain(comparison['baseline'])}"
    if comparison["differs"]:
        yield f"compared although they differ in: {', '.join(comparison['differs'])}"
    changed = comparison["policy_changed"]
    yield f"policy    {'changed' if changed else 'unchanged'}"
    for name in comparison["incomplete"]:
        yield f"note: the {name} is incomplete"
    yield ""
    yield from _tasks(comparison["tasks"])
    yield (
        f"{number(comparison['n_tasks'], 'task')}: {comparison['improved']:,} improved, "
        f"{comparison['regressed']:,} regressed, {comparison['same']:,} the same"
        + (f", {comparison['not_compared']:,} not scored" if comparison["not_compared"] else "")
    )
    if comparison["improved"] + comparison["regressed"]:
        by_chance = 0.05 * (comparison["n_tasks"] - comparison["not_compared"])
        yield f"  at 95% up to {by_chance:.1f} of them would differ by chance alone"
    yield _overall(comparison)
    for key, where in _SIDES:
        if comparison[key]:
            ids = ", ".join(plain(each) for each in comparison[key][:MAX_IDS])
            more = ", …" if len(comparison[key]) > MAX_IDS else ""
            yield f"only in {where} ({len(comparison[key]):,}): {ids}{more}"
    for gate in comparison["gates"]:
        actual = "no value" if gate["actual"] is None else f"{gate['actual']:g}"
        yield f"gate {plain(gate['expr'])}: {actual}, {'holds' if gate['holds'] else 'FAILS'}"


def _tasks(tasks: list[Mapping[str, Any]]) -> Iterator[str]:
    """Every task where there are few, else those that changed, largest changes first."""
    shown = tasks
    if len(tasks) > MAX_TASK_LINES:
        moved = [task for task in tasks if task["verdict"] in ("improved", "regressed")]
        shown = sorted(moved, key=lambda task: (-abs(task["delta"]), task["id"]))[:MAX_TASK_LINES]
    width = id_width(task["id"] for task in shown)
    for task in shown:
        before = f"{task['baseline_n_passed']}/{task['baseline_n_scored']}"
        after = f"{task['n_passed']}/{task['n_scored']}"
        moved_by = "" if task["delta"] is None else _signed(task["delta"])
        yield (
            f"{cell(task['id'], width)}  {before:>7} → {after:<7} {moved_by:>5} "
            f"{_interval(task['delta_interval']):<13} {task['verdict'].replace('_', ' ')}"
        )
    if shown:
        yield ""


def _overall(comparison: Mapping[str, Any]) -> str:
    delta = comparison["delta"]
    if delta is None:
        return "nothing to compare: no task was scored on both sides"
    p_value = comparison["p_value"]
    shown = "" if p_value is None else "< 1e-6" if p_value < 1e-6 else f"{p_value:.2g}"
    tested = f", p {shown} ({comparison['test']} over tasks)" if shown else ""
    interval = _interval(comparison["delta_interval"], digits=1)
    return (
        f"pass rate {percent(comparison['baseline_pass_rate'])} → "
        f"{percent(comparison['pass_rate'])}, mean change a task {_signed(delta, 1)}"
        f"{f' {interval}' if interval else ''}{tested}: {comparison['verdict']}"
    )


def _signed(rate: float, digits: int = 0) -> str:
    return f"{rate:+.{digits}%}"


def _interval(interval: Any, digits: int = 0) -> str:
    return "" if interval is None else f"[{interval[0]:+.{digits}%}, {interval[1]:+.{digits}%}]"
