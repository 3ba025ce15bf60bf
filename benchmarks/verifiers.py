r"""How labelkit's verifiers decide labelled replies, side by side with math-verify.

    python benchmarks/verifiers.py --cases tests/data/verifier_cases.jsonl.gz \
        > benchmarks/verifiers.md

Each row of the file is a reply with what a careful person says of it (`expected`), or with what may
be extracted from it (`expected_extract`). A false positive is a wrong reply that was let through,
or a wrong value that was extracted; abstentions are counted apart from errors. Rows marked
`ambiguous` are left out. math-verify runs on the kinds that it is made for.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import logging
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import JsonValue

from labelkit.records import Completion, DrawKey, Reply, Request, Score, Task
from labelkit.reply import read_reply
from labelkit.sandbox.keeper import KeeperSettings
from labelkit.sandbox.pool import WorkerError, WorkerPool
from labelkit.scorers import Binding
from labelkit.scorers.extract import AnswerPlace, Place, extract
from labelkit.scorers.judge_verdicts import Scale, parse_verdict
from labelkit.scorers.numbers import plain_number
from labelkit.scorers.parse import parse_scorer
from labelkit.seams import Scorer

Outcome = Literal["right", "false_positive", "false_negative", "abstained", "not_run"]
Row = dict[str, Any]

MATH_VERIFY_KINDS = ("numeric", "math")
_SCORERS: dict[str, JsonValue] = {
    "numeric": "numeric",
    "math": "math",
    "choice": "choice",
    "string": "contains",
    "json": "json",
    "ifeval": "constraints",
    "code": {"program": {"timeout_s": 4.0}},
}
_PLACES: dict[str, AnswerPlace] = {
    "boxed_last": Place(boxed="last"),
    "gsm8k_hash": "hash",
    "answer_tag": Place(tag="answer"),
    "code_last": "code",
}
_CONCURRENCY = 4
_MATH_VERIFY_TIMEOUT_S = 30.0


@dataclass
class Table:
    """Outcomes by kind; `wrong` lists the rows that are not right, with what was said of them."""

    counts: dict[str, Counter[str]] = field(default_factory=dict)
    wrong: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0
    slowest_s: float = 0.0

    def add(self, row: Row, outcome: Outcome, said: str) -> None:
        self.counts.setdefault(row["kind"], Counter())[outcome] += 1
        if outcome != "right":
            self.wrong.append({"id": row["id"], "outcome": outcome, "said": said[:300]})

    def to_json(self) -> dict[str, Any]:
        by_kind = {kind: _summed(counts) for kind, counts in sorted(self.counts.items())}
        total: Counter[str] = sum(self.counts.values(), Counter())
        return {
            **_summed(total),
            "by_kind": by_kind,
            "wrong": sorted(self.wrong, key=lambda one: str(one["id"])),
            "seconds": round(self.seconds, 2),
            "slowest_s": round(self.slowest_s, 2),
        }


def _summed(counts: Counter[str]) -> dict[str, int]:
    return {
        "n": sum(counts.values()) - counts["not_run"],
        "false_positives": counts["false_positive"],
        "false_negatives": counts["false_negative"],
        "abstained": counts["abstained"],
        "not_run": counts["not_run"],
    }


def read_cases(path: Path) -> list[Row]:
    """The rows of a case file, gzipped or not."""
    raw = path.read_bytes()
    text = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
    return [json.loads(line) for line in text.splitlines() if line.strip()]


def reply_of(row: Row) -> Reply:
    """The reply as the engine hands it to a scorer."""
    request = Request(model="cases")
    completion = Completion(text=row["response"], finish_reason=row.get("finish_reason", "stop"))
    key = DrawKey(task_id=row["id"], stage="candidate", request="", sample_index=0)
    return read_reply(request, completion, key)


async def decide(rows: list[Row]) -> Table:
    """labelkit's outcome of every row that is not ambiguous."""
    table = Table()
    scorers: dict[str, Scorer | str] = {}
    started = time.perf_counter()
    waiting = iter([row for row in rows if not row.get("ambiguous")])

    async def work() -> None:
        for row in waiting:
            began = time.perf_counter()
            if "expected" in row:
                outcome, said = await _scored(row, scorers)
            else:
                outcome, said = _extracted(row)
            table.slowest_s = max(table.slowest_s, time.perf_counter() - began)
            table.add(row, outcome, said)

    await asyncio.gather(*(work() for _ in range(_CONCURRENCY)))
    for scorer in scorers.values():
        if not isinstance(scorer, str):
            await scorer.close()
    table.seconds = time.perf_counter() - started
    return table


async def _scored(row: Row, scorers: dict[str, Scorer | str]) -> tuple[Outcome, str]:
    section = _section(row)
    if section is None:
        return "not_run", "no scorer for this kind"
    name = json.dumps(section)
    if name not in scorers:
        try:
            scorers[name] = parse_scorer(section).bind(Binding(folder=Path()))
        except Exception as error:
            scorers[name] = f"cannot be bound: {error}"
    scorer = scorers[name]
    if isinstance(scorer, str):
        return "not_run", scorer
    metadata = {"options": row["options"]} if "options" in row else {}
    gold = row["gold"]
    if "hidden_tests" in row:
        gold = {**gold, "hidden_tests": row["hidden_tests"]}
    task = Task(id=row["id"], prompt=row.get("problem", "prompt"), gold=gold, metadata=metadata)
    fault = scorer.check_gold(task)
    if fault is not None:
        return "abstained", f"the gold {fault}"
    verdict = await scorer.score(task, reply_of(row), _no_draw())
    if not isinstance(verdict, Score):
        return "abstained", verdict.reason
    if verdict.passed == row["expected"]:
        return "right", ""
    return ("false_positive" if verdict.passed else "false_negative"), str(verdict)


def _section(row: Row) -> JsonValue:
    kind: str = row.get("verify_as") or row["kind"]
    if kind == "choice" and "letters" in row:
        return {"choice": {"letters": row["letters"]}}
    if kind == "tool_call":
        return {"tool_calls": {"schema": row["schema"]} if "schema" in row else {}}
    return _SCORERS.get(kind)


def _extracted(row: Row) -> tuple[Outcome, str]:
    wanted = row["expected_extract"]
    match row["kind"]:
        case "extract" if row["gold"] == "after_think":
            got: Any = reply_of(row).text.strip() or None
        case "extract":
            found = extract(reply_of(row), _PLACES[row["gold"]]).candidate
            got = found.text if found is not None else None
            if row["gold"] == "gsm8k_hash" and got is not None:
                got = plain_number(got) or got
        case "judge_parse":
            scale = row["gold"]
            kind = scale.get("labels") or Scale(min=scale["min"], max=scale["max"])
            got = parse_verdict(reply_of(row).text, kind)
        case "step_split":
            from labelkit.recipes.steps import split_steps

            got = split_steps(row["response"]).texts
        case _:
            return "not_run", "no extractor for this kind"
    if got == wanted:
        return "right", ""
    return ("false_negative" if got is None else "false_positive"), f"{got!r} for {wanted!r}"


def _no_draw() -> Any:
    """No verdict here may ask a model."""
    return None


async def decide_with_math_verify(rows: list[Row]) -> Table:
    """math-verify's outcome of the rows of its kinds: gold and reply parsed, then verified."""
    table = Table()
    module = Path(__file__).stem if __name__ == "__main__" else __name__
    settings = KeeperSettings(entry=f"{module}:start_math_verify", memory_bytes=4 << 30)
    pool = WorkerPool(settings, workers=1)
    started = time.perf_counter()
    for row in rows:
        if row["kind"] not in MATH_VERIFY_KINDS or row.get("ambiguous"):
            continue
        began = time.perf_counter()
        try:
            verdict = await pool.call([row["gold"], reply_of(row).text], _MATH_VERIFY_TIMEOUT_S)
        except WorkerError as error:
            verdict = f"{type(error).__name__}: {error}"
        table.slowest_s = max(table.slowest_s, time.perf_counter() - began)
        if isinstance(verdict, str):
            table.add(row, "abstained", verdict)
        elif verdict == row["expected"]:
            table.add(row, "right", "")
        else:
            table.add(row, "false_positive" if verdict else "false_negative", "")
    table.seconds = time.perf_counter() - started
    await pool.close()
    return table


def start_math_verify(argument: JsonValue) -> Callable[[JsonValue], JsonValue]:
    """A worker that verifies as math-verify's README shows for rewards: boxes first, LaTeX and
    plain expressions, the gold in a LaTeX environment of its own."""
    from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify

    logging.disable(logging.CRITICAL)
    targets = [LatexExtractionConfig(boxed_match_priority=0), ExprExtractionConfig()]

    def answer(pair: JsonValue) -> JsonValue:
        assert isinstance(pair, list)
        gold = parse(f"${pair[0]}$", extraction_config=targets)
        return bool(verify(gold, parse(str(pair[1]), extraction_config=targets)))

    return answer


def as_table(labelkit: dict[str, Any], math_verify: dict[str, Any] | None) -> str:
    """The result as Markdown."""
    head = (
        "| kind | rows | false positives | false negatives | abstained "
        "| math-verify: false positives | false negatives | stopped |\n"
        "|---|---:|---:|---:|---:|---:|---:|---:|\n"
    )
    lines = []
    for kind, counts in [*labelkit["by_kind"].items(), ("all", labelkit)]:
        baseline = math_verify if kind == "all" else (math_verify or {"by_kind": {}})["by_kind"]
        if kind != "all" and baseline is not None:
            baseline = baseline.get(kind)
        theirs = (
            f"{baseline['false_positives']} | {baseline['false_negatives']} "
            f"| {baseline['abstained']}" + (f" (of {baseline['n']} rows)" if kind == "all" else "")
            if baseline
            else "– | – | –"
        )
        lines.append(
            f"| {kind} | {counts['n']} | {counts['false_positives']} | {counts['false_negatives']} "
            f"| {counts['abstained']} | {theirs} |"
        )
    notes = [f"- {entry['id']}: {entry['outcome']}: {entry['said']}" for entry in labelkit["wrong"]]
    return head + "\n".join(lines) + ("\n\nNot right:\n\n" + "\n".join(notes) if notes else "")


async def run(path: Path, *, baseline: bool = True) -> dict[str, Any]:
    """Both tables of a case file."""
    rows = read_cases(path)
    found: dict[str, Any] = {"labelkit": (await decide(rows)).to_json()}
    found["math_verify"] = (await decide_with_math_verify(rows)).to_json() if baseline else None
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cases", type=Path, required=True, metavar="FILE")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--no-baseline", action="store_true", help="leave math-verify out")
    arguments = parser.parse_args()
    found = asyncio.run(run(arguments.cases, baseline=not arguments.no_baseline))
    if arguments.json:
        print(json.dumps(found, indent=1))
        return
    print("# Verifiers on labelled replies\n")
    print(f"Made by `python benchmarks/verifiers.py --cases {arguments.cases}`.\n")
    print(as_table(found["labelkit"], found["math_verify"]))


if __name__ == "__main__":
    main()
