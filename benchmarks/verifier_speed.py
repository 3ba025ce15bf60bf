"""Verdicts a second: `numeric` on one core, `math` with two workers against math-verify's own call.

    python benchmarks/verifier_speed.py

Numeric replies are the 5,276 model solutions of GSM8K. The math pairs are equal only by an identity
that normal forms do not know, so each needs a computer algebra system on either side. math-verify
is called as its README shows: parse the gold, parse the reply, verify.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import time
from pathlib import Path
from typing import Any

from labelkit.records import Reply, Score, Task
from labelkit.scorers import Binding
from labelkit.scorers.parse import parse_scorer

ROOT = Path(__file__).parents[1]
ROUNDS = 20
PAIRS = [
    (r"\sin(2x)", r"2\sin(x)\cos(x)"),
    (r"\tan^2(y)+1", r"\sec^2(y)"),
    (r"1", r"\sin^2(x)+\cos^2(x)"),
    (r"\cos(2x)", r"1-2\sin^2(x)"),
    (r"3\ln(2)", r"\ln(8)"),
    (r"\ln(6)", r"\ln(2)+\ln(3)"),
    (r"\sqrt{3+2\sqrt{2}}", r"1+\sqrt{2}"),
    (r"\frac{n(n-1)}{2}", r"\binom{n}{2}"),
    (r"e^{i\pi/3}", r"\frac{1+i\sqrt{3}}{2}"),
    (r"\frac{1}{2}", r"\sin(\frac{\pi}{6})"),
    (r"\frac{\sin(x)}{\cos(x)}", r"\tan(x)"),
    (r"\log_2(8)", r"3"),
]
DIFFERENT = [
    (r"\sin(2x)", r"\sin(x)\cos(x)"),
    (r"\ln(6)", r"\ln(2)\ln(3)"),
    (r"\tan^2(y)+1", r"\sec(y)"),
    (r"\cos(2x)", r"2\cos^2(x)"),
]


async def numeric_rate() -> float:
    """Verdicts a second of processor time."""
    scorer = parse_scorer({"numeric": {"answer": {"after": "A:"}}}).bind(Binding(folder=ROOT))
    pairs = []
    for line in gzip.decompress(
        (ROOT / "data/gsm8k_model_solutions.jsonl.gz").read_bytes()
    ).splitlines():
        row = json.loads(line)
        task = Task(id="t", prompt="p", gold=row["ground_truth"].rpartition("A:")[2].strip())
        pairs += [
            (task, Reply(text=solution["solution"]))
            for solution in row.values()
            if isinstance(solution, dict)
        ]
    started = time.process_time()
    for task, reply in pairs:
        await scorer.score(task, reply, _no_draw())
    return len(pairs) / (time.process_time() - started)


async def math_rate(pairs: list[tuple[str, str]]) -> tuple[float, int]:
    """Verdicts a second of wall clock with two workers, and how many passed."""
    scorer = parse_scorer("math").bind(Binding(folder=ROOT, processes=2))
    waiting = iter(pairs)
    passed = 0

    async def work() -> None:
        nonlocal passed
        for gold, said in waiting:
            task = Task(id="t", prompt="p", gold=gold)
            verdict = await scorer.score(task, Reply(text=f"\\boxed{{{said}}}"), _no_draw())
            passed += isinstance(verdict, Score) and verdict.passed

    await scorer.score(
        Task(id="t", prompt="p", gold=pairs[0][0]), Reply(text=pairs[0][1]), _no_draw()
    )
    started = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(4)))
    took = time.perf_counter() - started
    await scorer.close()
    return len(pairs) / took, passed


def math_verify_rate(pairs: list[tuple[str, str]]) -> tuple[float, int]:
    """math-verify's verdicts a second, and how many passed."""
    from math_verify import parse, verify

    verify(parse("$1$"), parse("$1$"))
    passed = 0
    started = time.perf_counter()
    for gold, said in pairs:
        passed += bool(verify(parse(f"${gold}$"), parse(f"\\boxed{{{said}}}")))
    return len(pairs) / (time.perf_counter() - started), passed


def _no_draw() -> Any:
    return None


async def main() -> None:
    pairs = (PAIRS + DIFFERENT) * ROUNDS
    print(f"numeric: {await numeric_rate():,.0f} verdicts a second and core")
    ours, ours_passed = await math_rate(pairs)
    theirs, theirs_passed = math_verify_rate(pairs)
    right = len(PAIRS) * ROUNDS
    print(f"math: {ours:,.0f} verdicts a second with 2 workers; {ours_passed} of {right} passed")
    print(f"math-verify: {theirs:,.0f} verdicts a second; {theirs_passed} of {right} passed")
    print(f"ratio: {ours / theirs:.1f}")


if __name__ == "__main__":
    asyncio.run(main())
