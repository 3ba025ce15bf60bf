"""A long run, watched: is memory flat, are files closed, does disk stay small, is resuming quick?

    python benchmarks/soak.py --recorded 1000000 --direct 300000 --out benchmarks/soak.md

Recorded attempts replay replies from a file; direct ones call fast_server.py. A tenth of the
replies have 20 kB. The run is a process's own; it notes its state at every hundredth of
its attempts.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from throughput import machine

HERE = Path(__file__).parent
K = 8
LONG, SHORT = 20_000, 200


def reply(rng: random.Random) -> str:
    """A reply that ends with its answer; text that compresses no better than words do."""
    size = LONG if rng.random() < 0.1 else SHORT
    words = []
    length = 0
    while length < size - 20:
        word = f"{rng.randrange(10**6):x}"
        words.append(word)
        length += len(word) + 1
    return f"{' '.join(words)}.\nThe answer is {rng.choice((41, 42))}."


def write_recorded(folder: Path, n_attempts: int) -> tuple[str, int]:
    """Tasks whose rows hold their replies; gives the spec's sections and the bytes of all text."""
    rng, n_bytes = random.Random(1), 0
    texts = [f"reply{i}" for i in range(K)]
    with open(folder / "tasks.jsonl", "w") as file:
        for n in range(n_attempts // K):
            said = {name: reply(rng) for name in texts}
            n_bytes += sum(len(text) for text in said.values())
            prompt = f"How many pencils are in box {n}?"
            file.write(json.dumps({"id": f"t{n}", "prompt": prompt, "gold": 42, **said}) + "\n")
    columns = "{id: id, prompt: prompt, gold: gold}"
    return (
        f"tasks: {{file: tasks.jsonl, fields: {columns}}}\n"
        f"sampler: {{recorded: {{file: tasks.jsonl, texts: [{', '.join(texts)}]}}}}\n",
        n_bytes,
    )


def write_direct(folder: Path, n_attempts: int, url: str) -> tuple[str, int]:
    with open(folder / "tasks.jsonl", "w") as file:
        for n in range(n_attempts // K):
            prompt = f"How many pencils are in box {n}?"
            file.write(json.dumps({"id": f"t{n}", "prompt": prompt, "gold": 42}) + "\n")
    sampler = f"{{model: direct/bench, api_base: {url}, max_tokens: 100, concurrency: 64}}"
    return f"tasks: {{file: tasks.jsonl}}\nsampler: {sampler}\n", n_attempts * (91 + 2_000)


class Watch:
    """A run's progress that notes wall, CPU, memory and open files at every hundredth."""

    def __init__(self, n_attempts: int) -> None:
        self.marks: list[dict[str, float]] = []
        self._every = max(1, n_attempts // 100)
        self._seen = 0

    def attempt(self, task: Any, attempt: Any) -> None:
        self._seen += 1
        if self._seen % self._every == 0:
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            self.marks.append(
                {
                    "attempts": self._seen,
                    "wall_s": time.perf_counter(),
                    "cpu_s": time.process_time(),
                    "rss_mb": pages * resource.getpagesize() / 2**20,
                    "files": len(os.listdir("/proc/self/fd")),
                }
            )

    def message(self, text: str) -> None: ...

    def start(self, n_tasks: int, k: int, fleets: Any) -> None: ...

    def spent(self, usd: float | None, tokens: int) -> None: ...

    def task(self, outcome: Any) -> None: ...

    def finish(self) -> None: ...


def child(spec: Path, n_attempts: int) -> None:
    """The run itself; prints what was noted as JSON."""
    from labelkit.prepare import Options, prepare
    from labelkit.run import execute
    from labelkit.spec import load

    watch = Watch(n_attempts)
    begun = time.perf_counter()
    options = Options(directory=spec.parent / "run")
    summary = execute(prepare(load(spec), "rollout", options), watch)
    told = {
        "wall_s": time.perf_counter() - begun,
        "n_attempts": summary["n_attempts"],
        "n_unscored": summary["n_unscored"],
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "marks": watch.marks,
    }
    print(json.dumps(told))


def run(spec: Path, n_attempts: int) -> Any:
    command = [sys.executable, __file__, "--child", str(spec), "--recorded", str(n_attempts)]
    environment = {**os.environ, "PYTHONPATH": str(HERE.parent)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise SystemExit(done.stderr[-3000:])
    return json.loads(done.stdout)


def report(name: str, folder: Path, sections: str, n_attempts: int, n_bytes: int) -> Iterator[str]:
    spec = folder / "spec.yaml"
    spec.write_text(f"name: soak\nk: {K}\nscorer: numeric\n{sections}")
    told = run(spec, n_attempts)
    if told["n_attempts"] != n_attempts // K * K or told["n_unscored"]:
        raise SystemExit(f"{name}: attempts were lost: {told}")
    marks = told["marks"]
    quarter = len(marks) // 4

    def memory(part: int) -> float:
        return statistics.median(m["rss_mb"] for m in marks[part * quarter : (part + 1) * quarter])

    def cost_ms(part: int) -> float:
        tenth = len(marks) // 10
        first, last = marks[part * tenth], marks[min(len(marks), (part + 1) * tenth) - 1]
        return float(
            1000 * (last["cpu_s"] - first["cpu_s"]) / (last["attempts"] - first["attempts"])
        )

    on_disk = sum(path.stat().st_size for path in (folder / "run").iterdir())
    allowed = 2.2 * n_bytes + 2000 * n_attempts
    files = [mark["files"] for mark in marks]
    again = time.perf_counter()
    run(spec, n_attempts)
    again_s = time.perf_counter() - again
    (folder / "run" / "summary.json").unlink()
    anew = time.perf_counter()
    run(spec, n_attempts)
    anew_s = time.perf_counter() - anew
    yield f"## {n_attempts:,} {name} attempts"
    yield ""
    yield f"- whole run {told['wall_s']:,.0f} s, peak memory {told['peak_mb']:,.0f} MB"
    yield (
        f"- memory: second quarter {memory(1):,.0f} MB, last {memory(3):,.0f} MB:"
        f" {memory(3) / memory(1):.3f} (≤ 1.05)"
    )
    yield f"- open files: {min(files)} to {max(files)}"
    yield (
        f"- disk: {on_disk / 2**20:,.0f} MB for {n_bytes / 2**20:,.0f} MB of replies,"
        f" {on_disk / allowed:.2f} of 2.2 times the text and 2 kB an attempt (≤ 1)"
    )
    yield (
        f"- CPU an attempt: first tenth {cost_ms(0):.3f} ms, last {cost_ms(9):.3f} ms:"
        f" {cost_ms(9) / cost_ms(0):.2f} (≤ 1.1)"
    )
    yield (
        f"- the finished run again: {again_s:,.1f} s as it stands (< 60),"
        f" {anew_s:,.1f} s with its files to be written anew"
    )
    yield ""


def page(recorded: int, direct: int) -> Iterator[str]:
    yield "# Soak"
    yield ""
    yield f"{time.strftime('%Y-%m-%d')}, {''.join(machine())}. By benchmarks/soak.py."
    yield ""
    for name, n_attempts in (("recorded", recorded), ("direct", direct)):
        if not n_attempts:
            continue
        folder = Path(tempfile.mkdtemp(prefix="soak-"))
        server = subprocess.Popen(
            [sys.executable, str(HERE / "fast_server.py"), "--long-every", "10"],
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert server.stdout is not None
            url = server.stdout.readline().strip()
            if name == "recorded":
                sections, n_bytes = write_recorded(folder, n_attempts)
            else:
                sections, n_bytes = write_direct(folder, n_attempts, url)
            yield from report(name, folder, sections, n_attempts, n_bytes)
        finally:
            server.kill()
            server.wait()
            shutil.rmtree(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recorded", type=int, default=1_000_000)
    parser.add_argument("--direct", type=int, default=300_000)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child is not None:
        child(options.child, options.recorded)
        return
    text = "\n".join(page(options.recorded, options.direct))
    if options.out is not None:
        options.out.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
