"""What a finished command prints: the tasks, the counts, and what to do next. Only reads."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from labelkit.directory import read_json, read_lines
from labelkit.report.commands import canary_lines, command_lines, task_note
from labelkit.report.grid import LEGEND, Histogram, id_width, task_row
from labelkit.report.text import money, number, percent, plain, seconds, short, span

MAX_TASK_LINES = 40
MAX_SLICES = 20
_ROWS_ARE = {"rollout": "sample", "verify-traces": "sample", "step-rewards": "solution"}


def summary_text(summary: Mapping[str, Any], directory: Path) -> str:
    """The result of a run for people; `directory` holds its files."""
    lines = [_title(summary, directory), ""]
    lines += _tasks(summary, directory)
    lines += ["", _rows(summary), *_rates(summary), *_reasons(summary), _spent(summary)]
    lines += _slices(summary["slices"])
    own = command_lines(summary)
    lines += own or ([f"detail: {_value(summary['detail'])}"] if summary["detail"] else [])
    lines += canary_lines(summary["canaries"])
    lines += [_gate(gate) for gate in summary["gates"]]
    lines += [f"incomplete: {plain(why)}" for why in summary["incomplete"]]
    lines += ["", *_next(summary, directory)]
    return "\n".join(lines) + "\n"


def task_lines(directory: Path) -> Iterator[dict[str, Any]]:
    """The lines of a run's tasks.jsonl, one by one."""
    return read_lines(directory / "tasks.jsonl")


def _title(summary: Mapping[str, Any], directory: Path) -> str:
    identity = read_json(directory / "run.json")
    model = identity.get("reply", {}).get("model") or "recorded replies"
    return f"{plain(summary['name'])} · {summary['command']} · {plain(str(model))}"


def _tasks(summary: Mapping[str, Any], directory: Path) -> list[str]:
    if summary["n_tasks"] <= MAX_TASK_LINES:
        found = list(task_lines(directory))
        width = id_width(line["id"] for line in found)
        k = max((len(line["outcomes"]) + line["n_not_run"] for line in found), default=1)
        rows = ["  ".join(filter(None, (task_row(t, width, k), task_note(t)))) for t in found]
        return [*rows, LEGEND] if rows else ["no task was run"]
    histogram = Histogram()
    for line in task_lines(directory):
        histogram.add(line["n_passed"], line["n_scored"])
    return histogram.lines()


def _rows(summary: Mapping[str, Any]) -> str:
    rows = summary["rows"]
    what = number(rows["candidates"], _ROWS_ARE.get(summary["command"], "task"))
    reasons = f" ({_counts(summary['dropped'])})" if summary["dropped"] else ""
    return f"wrote {number(rows['kept'], 'row')} from {what}, dropped {rows['dropped']:,}{reasons}"


def _rates(summary: Mapping[str, Any]) -> list[str]:
    if summary["pass_rate"] is None:
        stopped = "tasks were stopped early, which biases it"
        return [f"pass rate: none, {stopped if summary['n_scored'] else 'nothing was scored'}"]
    interval = summary["pass_rate_interval"]
    rate = f"pass rate {percent(summary['pass_rate'])}"
    if interval is not None:
        rate += f" {span(interval)}"
    rate += f" over {number(summary['n_scored'], 'scored attempt')}"
    if summary["n_unscored"]:
        both = percent(summary["pass_rate_with_unscored"])
        rate += f"; {both} with {summary['n_unscored']:,} unscored as failures"
    lines = [rate]
    if abs(summary["mean_value"] - summary["pass_rate"]) > 1e-9:
        lines.append(f"mean value {summary['mean_value']:.3f}")
    at_k = summary["pass_at_k"]
    if at_k:
        numbers = at_k["n_tasks"]
        whole = numbers.get("1")
        shown = [
            f"pass@{k} {percent(at_k[k])}" + ("" if n == whole else f" ({number(n, 'task')})")
            for k, n in numbers.items()
            if (int(k) & (int(k) - 1) == 0) or k == list(numbers)[-1]
        ]
        lines.append(f"{', '.join(shown)} over {number(whole, 'task')}")
    return lines


def _reasons(summary: Mapping[str, Any]) -> list[str]:
    lines = [
        f"{name}: {_counts(summary[name])}" for name in ("failed", "unscored") if summary[name]
    ]
    reasons = summary["draws"]["not_run_reasons"]
    stopped = summary["stopped_early"] or "not reached"
    named = {stopped if name == "not_run" else name: count for name, count in reasons.items()}
    return [*lines, f"not run: {_counts(named)}"] if named else lines


def _spent(summary: Mapping[str, Any]) -> str:
    counted = [
        f"{summary[name]:,} {label}"
        for name, label in (("input_tokens", "tokens in"), ("output_tokens", "tokens out"))
        if summary[name] is not None
    ]
    cost = summary["cost_usd"]
    if cost is not None:
        counted.append(f"cost {money(cost)}")
    elif counted:
        counted.append("cost unknown")
    stages = summary["stages"]
    if len(stages) > 1:
        counted.append(
            ", ".join(f"{name} {stage['calls']:,} calls" for name, stage in stages.items())
        )
    return "; ".join([*counted, seconds(summary["duration_s"])])


def _slices(slices: Mapping[str, Any]) -> list[str]:
    names = list(slices)[:MAX_SLICES]
    width = id_width(names)
    lines = [
        f"  {short(name, 28):<{width}}  {slices[name]['n_passed']:,}/{slices[name]['n_scored']:,}  "
        f"{percent(slices[name]['pass_rate'])}"
        for name in names
    ]
    if len(slices) > MAX_SLICES:
        lines.append(f"  and {len(slices) - MAX_SLICES:,} more in summary.json")
    return ["slices", *lines] if lines else []


def _gate(gate: Mapping[str, Any]) -> str:
    actual = gate["actual"]
    shown = "no value" if actual is None else f"{actual:g}" if isinstance(actual, float) else actual
    return f"gate {plain(gate['expr'])}: {shown}, {'holds' if gate['holds'] else 'FAILS'}"


_AGAIN = "run the same command again, it goes on where this stopped"
_GO_ON = {
    "budget": "run it again with a higher --budget, it goes on from here",
    "tokens": "run it again with a higher --max-tokens-total, it goes on from here",
    "pilot": "run it again without --stop-if, it goes on from here",
}


def _next(summary: Mapping[str, Any], directory: Path) -> list[str]:
    """Where the rows are, and at most two commands that fit."""
    where = shlex.quote(str(directory))
    steps: list[str] = []
    complete = summary.get("provenance", {}).get("complete", True)
    if not complete:
        steps.append(f"next: {_GO_ON.get(summary['stopped_early'], _AGAIN)}")
    if summary["n_unscored"]:
        steps.append(f"next: labelkit errors {where}")
    if summary["failed"]:
        steps.append(f"next: labelkit show {where} --only failed")
    rows = [f"rows: {plain(str(directory / 'rows.jsonl'))}"] if summary["kept"] else []
    return [*rows, *(steps or [f"next: labelkit show {where}"])[:2]]


def _counts(counts: Mapping[str, int]) -> str:
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{plain(name)} {count:,}" for name, count in ordered)


def _value(value: Any) -> str:
    """A command's own numbers in one line; what is nested deeper stays in summary.json."""
    if isinstance(value, Mapping):
        scalars = {name: each for name, each in value.items() if not isinstance(each, list | dict)}
        inner = [
            f"{name} ({_value(each)})" for name, each in value.items() if isinstance(each, dict)
        ]
        return ", ".join([*(f"{plain(name)} {_value(v)}" for name, v in scalars.items()), *inner])
    if isinstance(value, float):
        return f"{value:.4g}"
    return "–" if value is None else short(str(value), 60)
