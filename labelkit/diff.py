"""Two runs compared task by task, guarded: only what is comparable, and only differences that the
data bear out.

Reads the two run directories; prints nothing and decides no exit code.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from labelkit import codec, stats
from labelkit.directory import read_lines
from labelkit.errors import RunMismatchError, UsageError

ACROSS_PROMPT = frozenset({"prompt", "response", "tools"})
"""The parts of the env fingerprint that `--across prompt` lets differ."""

VERDICTS = ("improved", "regressed", "same", "not_compared")
NUMBERS = (
    "n_tasks", *VERDICTS, "pass_rate", "baseline_pass_rate", "delta", "delta_interval.*", "p_value",
    "n_only_in_run", "n_only_in_baseline",
)  # fmt: skip
"""What a gate on a comparison may name."""
TASK_NUMBERS = ("n_passed", "n_scored", "pass_rate", "delta", "delta_interval.*")
"""What `every_task.` and `any_task.` may name."""


@dataclass(frozen=True)
class Side:
    """One finished run: its summary, and its tasks.jsonl as lines."""

    directory: Path
    summary: dict[str, Any]

    @classmethod
    def read(cls, directory: Path) -> Side:
        """Raises UsageError where there is no finished run."""
        path = directory / "summary.json"
        hint = "name a run directory whose command has finished; run it again to finish it"
        try:
            summary: Any = codec.loads(path.read_bytes())
            (directory / "tasks.jsonl").stat()
        except FileNotFoundError as error:
            name = Path(str(error.filename)).name
            raise UsageError(f"{directory}: holds no {name}", hint=hint) from None
        except (OSError, ValueError) as error:
            raise UsageError(f"{path}: cannot be read: {error}", hint=hint) from None
        return cls(directory, summary)

    @property
    def env(self) -> dict[str, Any]:
        return dict(self.summary["provenance"]["env"])

    def lines(self) -> Iterator[dict[str, Any]]:
        return read_lines(self.directory / "tasks.jsonl")


@dataclass(frozen=True, slots=True)
class _Counts:
    """What is kept of a task of the baseline; memory grows with the baseline's tasks."""

    digest: str
    n_passed: int
    n_scored: int
    stopped_early: bool


def compare(run: Side, baseline: Side, across: frozenset[str] = frozenset()) -> dict[str, Any]:
    """The comparison as one document. Raises RunMismatchError where the two cannot be compared.

    `delta` is run − baseline throughout, over tasks scored on both sides; intervals are at 95%.
    """
    differs = _check_env(run, baseline, across)
    before = {
        line["id"]: _Counts(
            line["task_digest"], line["n_passed"], line["n_scored"], line["stopped_early"]
        )
        for line in baseline.lines()
    }
    tasks: list[JsonValue] = []
    only_in_run: list[JsonValue] = []
    changed: list[str] = []
    deltas: list[float] = []
    verdicts: Counter[str] = Counter()
    rates = stats.ClusteredRate(), stats.ClusteredRate()
    single = True
    for line in run.lines():
        known = before.pop(line["id"], None)
        if known is None:
            only_in_run.append(line["id"])
            continue
        if known.digest != line["task_digest"]:
            changed.append(line["id"])
            continue
        compared = _task(line, known)
        tasks.append(compared)
        verdicts[str(compared["verdict"])] += 1
        if compared["verdict"] != "not_compared":
            deltas.append(line["n_passed"] / line["n_scored"] - known.n_passed / known.n_scored)
            rates[0].add(n_passed=line["n_passed"], n_scored=line["n_scored"])
            rates[1].add(n_passed=known.n_passed, n_scored=known.n_scored)
            single &= line["n_scored"] == known.n_scored == 1
    _refuse_changed(changed, run, baseline)
    return {
        "run": str(run.directory),
        "baseline": str(baseline.directory),
        "differs": differs,
        "policy_changed": _policy(run) != _policy(baseline),
        "incomplete": [
            name
            for name, side in (("run", run), ("baseline", baseline))
            if side.summary.get("incomplete")
        ],
        "n_tasks": len(tasks),
        **{verdict: verdicts[verdict] for verdict in VERDICTS},
        "pass_rate": rates[0].rate,
        "baseline_pass_rate": rates[1].rate,
        **_overall(deltas, single=single),
        "n_only_in_run": len(only_in_run),
        "n_only_in_baseline": len(before),
        "only_in_run": only_in_run,
        "only_in_baseline": list(before),
        "tasks": tasks,
    }


def _check_env(run: Side, baseline: Side, across: frozenset[str]) -> list[JsonValue]:
    """The parts that differ and may. With `across`, tasks are compared one by one instead."""
    mine, theirs = run.env, baseline.env
    differs = sorted(name for name in {*mine, *theirs} if mine.get(name) != theirs.get(name))
    allowed = across | {"tasks"} if across else across
    refused = [name for name in differs if name not in allowed]
    if refused:
        hint = "compare runs of the same tasks, prompt and scorer"
        if set(refused) <= ACROSS_PROMPT | {"tasks"}:
            hint = "--across prompt compares prompts, schemas and tools on the tasks both have"
        elif refused == ["scorer"]:
            hint = "`labelkit rescore` scores one of them as the other, without a call"
        raise RunMismatchError(
            f"{run.directory} and {baseline.directory}: not comparable, "
            f"they differ in {', '.join(refused)}",
            hint=hint,
        )
    return list[JsonValue](differs)


def _refuse_changed(changed: list[str], run: Side, baseline: Side) -> None:
    if changed:
        raise RunMismatchError(
            f"{run.directory} and {baseline.directory}: not comparable, "
            f"{len(changed):,} tasks with one id have another prompt or gold "
            f"(first: {', '.join(changed[:3])})",
            hint="give changed tasks another id",
        )


def _task(line: Mapping[str, Any], known: _Counts) -> dict[str, JsonValue]:
    """One task on both sides. A change is one only where its interval leaves out 0."""
    after, before = (line["n_passed"], line["n_scored"]), (known.n_passed, known.n_scored)
    compared: dict[str, JsonValue] = {
        "id": line["id"],
        "n_passed": after[0],
        "n_scored": after[1],
        "pass_rate": after[0] / after[1] if after[1] else None,
        "baseline_n_passed": before[0],
        "baseline_n_scored": before[1],
        "baseline_pass_rate": before[0] / before[1] if before[1] else None,
    }
    interval = stats.newcombe(before, after)
    if interval is None or known.stopped_early or line["stopped_early"]:
        return {**compared, "delta": None, "delta_interval": None, "verdict": "not_compared"}
    low, high = interval
    verdict = "improved" if low > 0 else "regressed" if high < 0 else "same"
    delta = after[0] / after[1] - before[0] / before[1]
    return {**compared, "delta": delta, "delta_interval": [low, high], "verdict": verdict}


def _overall(deltas: list[float], *, single: bool) -> dict[str, JsonValue]:
    """The paired test over tasks: McNemar where every task has one sample a side, else t."""
    found = stats.paired(deltas)
    p_value, test = found.p_value, "paired t"
    if single and deltas:
        p_value, test = stats.mcnemar(deltas.count(-1.0), deltas.count(1.0)), "exact McNemar"
    interval = None if found.interval is None else list[JsonValue](found.interval)
    if p_value is None or p_value >= 0.05 or not found.mean:
        verdict = "same"
    else:
        verdict = "improved" if found.mean > 0 else "regressed"
    return {
        "delta": found.mean,
        "delta_interval": interval,
        "p_value": p_value,
        "test": test,
        "verdict": verdict,
    }


def _policy(side: Side) -> JsonValue:
    fingerprint: JsonValue = side.summary["policy_fingerprint"]
    return fingerprint
