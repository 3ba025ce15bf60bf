"""What each command says of its own at the end: a note on every task's line, then its counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from labelkit.report.text import number, percent, plain, short

Summary = Mapping[str, Any]

MAX_CANARIES = 20


def task_note(line: Mapping[str, Any]) -> str:
    """What a command knows of a task beside its pass counts; empty for most."""
    notes: list[str] = []
    if "designed" in line:
        notes.append(f"designed {short(str(line['designed']), 20)}")
    if "scores" in line:
        notes.append(f"scores {_scores(line['scores'])}")
    notes += [f"steps {_scores(scores)}" for scores in line.get("step_scores", [])]
    if "n_kept" in line:
        notes.append(f"kept {line['n_kept']}")
    return ", ".join(notes)


def command_lines(summary: Summary) -> list[str]:
    """The command's own result; empty for commands that have none."""
    say = _SAY.get(summary["command"])
    return say(summary, summary["detail"]) if say is not None and summary["detail"] else []


def canary_lines(canaries: Mapping[str, Any]) -> list[str]:
    """Every canary with whether it holds, those that do not first and with their evidence."""
    if not canaries:
        return []
    lines = [f"canaries: {canaries['held']} of {canaries['n']} hold"]
    ordered = sorted(canaries["each"], key=lambda each: each["holds"] is True)
    for each in ordered[:MAX_CANARIES]:
        evidence = each["evidence"]
        counted = (
            f" {evidence['n_passed']}/{evidence['n_scored']}" if "n_passed" in evidence else ""
        )
        name = f"  {short(each['id'], 60)}{counted}"
        if each["holds"]:
            lines.append(f"{name} holds")
            continue
        why = _why(evidence) or "see summary.json"
        state = "FAILS" if each["holds"] is False else "is UNDECIDED, which fails"
        lines.append(f"{name} {state}: {short(str(why), 160)}")
    if len(ordered) > MAX_CANARIES:
        lines.append(f"  and {len(ordered) - MAX_CANARIES} more in summary.json")
    return lines


def _why(evidence: Mapping[str, Any]) -> str | None:
    """The first thing that the evidence says."""
    for attempt in evidence.get("not_passed", ()):
        parts = (attempt["stop_reason"], attempt["reason"] or attempt["answer"])
        return ": ".join(str(part) for part in parts if part)
    return evidence.get("reason") or evidence.get("not_run") or evidence.get("not_made")


def _learning_zone(summary: Summary, detail: Mapping[str, Any]) -> list[str]:
    said = f"kept {detail['in_zone']:,} of {number(summary['tasks']['in'], 'task')}"
    dropped = ", ".join(
        f"{detail[name]:,} {name}"
        for name in ("saturated", "hopeless", "undecided")
        if detail[name] or name != "undecided"
    )
    return [f"{said}; dropped {dropped}", *_saved(detail)]


def _verify_traces(summary: Summary, detail: Mapping[str, Any]) -> list[str]:
    solved, scored = detail["n_tasks_solved"], detail["n_tasks_scored"]
    said = f"pass@K: {solved:,}/{scored:,} problems with at least one correct sample"
    return [said, *_saved(detail)]


def _rl_select(summary: Summary, detail: Mapping[str, Any]) -> list[str]:
    conflicts = detail["gold_conflict"]
    never = f"dropped {detail['never_solved'] + conflicts:,} never-solved"
    if conflicts:
        never += f" ({conflicts:,} with a majority for one other answer: look at their golds)"
    dropped = [f"dropped {detail['always_solved']:,} always-solved", never]
    dropped += [
        f"dropped {detail[name]:,} {name.replace('_', ' ')}"
        for name in ("out_of_band", "uncertain", "not_replicated", "below_top", "undecided")
        if detail[name]
    ]
    kept = f"kept {summary['kept']:,} of {number(summary['tasks']['in'], 'prompt')}"
    preset = detail["preset"]
    band = f"band {detail['band']}" + (f" ({preset['source']})" if preset else "")
    return [f"{kept}, {', '.join(dropped)}; {band}", *_saved(detail)]


def _best_of_n(summary: Summary, detail: Mapping[str, Any]) -> list[str]:
    scored = number(detail["n_prompts_scored"], "prompt")
    lines = [f"at or over the bar {detail['bar']:g}: {detail['n_over_bar']:,} of {scored}"]
    if detail["score_histogram"]:
        counts = (f"{score}: {count:,}" for score, count in detail["score_histogram"].items())
        lines.append(f"scores: {', '.join(counts)}")
    told = [f"saturation {percent(detail['saturation'])}"]
    if detail["score_length_correlation"] is not None:
        told.append(f"score-length correlation {detail['score_length_correlation']:+.2f}")
    if detail["gain_of_best_over_mean"] is not None:
        told.append(f"gain of best over mean {detail['gain_of_best_over_mean']:.2f}")
    lines.append(", ".join(told))
    if "matches" in detail:
        lines.append(f"{detail['matches']:,} matches, {detail['ties']:,} of them ties")
    return [*lines, *([f"warning: {detail['warning']}"] if "warning" in detail else [])]


def _step_rewards(summary: Summary, detail: Mapping[str, Any]) -> list[str]:
    solutions = number(detail["n_solutions"], "solution")
    rollouts = f"{detail['rollouts']:,} of {detail['rollouts_full']:,} continuations"
    lines = [
        f"{solutions}, {detail['n_with_error']:,} with an error; "
        f"{rollouts} ({detail['search']} search, {detail['prefix_mode']})",
        f"restarts {percent(detail['restart_rate'])}, repairs {percent(detail['repair_rate'])}",
    ]
    bench = detail.get("processbench")
    if bench:
        lines.append(
            f"ProcessBench F1 {percent(bench['f1'])} "
            f"(error {percent(bench['accuracy_error'])} of {bench['n_error']:,}, "
            f"correct {percent(bench['accuracy_correct'])} of {bench['n_correct']:,})"
        )
    return lines


def _saved(detail: Mapping[str, Any]) -> list[str]:
    if "draws_saved" in detail:
        return [f"adaptive draws saved {detail['draws_saved']:,}"]
    would = detail.get("draws_adaptive_would_save", 0)
    return [f"--adaptive would have saved {number(would, 'draw')}"] if would else []


def _scores(scores: list[float | None]) -> str:
    shown = ", ".join("–" if score is None else f"{score:.3g}" for score in scores)
    return plain(f"[{shown}]")


_SAY: dict[str, Callable[[Summary, Mapping[str, Any]], list[str]]] = {
    "learning-zone": _learning_zone,
    "verify-traces": _verify_traces,
    "rl-select": _rl_select,
    "best-of-n": _best_of_n,
    "step-rewards": _step_rewards,
}
