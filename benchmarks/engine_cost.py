"""What an attempt costs beside a bare `litellm.acompletion` loop: attempts a second, both ways.

One server process answers after a fixed latency; the two sides take turns for several rounds and
each round is a process of its own, so that neither inherits the other's warm caches. A side's time
starts when its imports are done and one call has warmed the client's library, and ends when all its
attempts are there: for labelkit scored and journalled (and, in brackets, with its files written).

    python -m benchmarks.engine_cost [--attempts 1000] [--in-flight 64] [--rounds 5]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent


async def warm(url: str) -> None:
    """One call ahead of the clock: the first one imports for half a second."""
    from labelkit.samplers.litellm import load

    messages = [{"role": "user", "content": "warm"}]
    await load().acompletion(model="openai/fake", messages=messages, api_base=url, api_key="none")


def bare(url: str, attempts: int, in_flight: int) -> dict[str, float]:
    """Fixed workers around litellm.acompletion; replies are kept and nothing else is done."""
    from labelkit.samplers.litellm import load

    litellm = load()

    async def all_of_them() -> tuple[float, float]:
        numbers = iter(range(attempts))
        replies: list[str] = []

        async def work() -> None:
            for number in numbers:
                response = await litellm.acompletion(
                    model="openai/fake",
                    messages=[{"role": "user", "content": f"question {number // 10}"}],
                    api_base=url,
                    api_key="none",
                    num_retries=0,
                    max_retries=0,
                )
                replies.append(response.choices[0].message.content)

        await warm(url)
        begun, cpu_s = time.perf_counter(), time.process_time()
        await asyncio.gather(*(work() for _ in range(in_flight)))
        assert len(replies) == attempts
        return time.perf_counter() - begun, time.process_time() - cpu_s

    took_s, cpu_s = asyncio.run(all_of_them())
    return {"sampling_s": took_s, "whole_s": took_s, "cpu_s": cpu_s}


def labelkit(url: str, attempts: int, in_flight: int) -> dict[str, float]:
    """A whole run through the litellm sampler, k = 10."""
    from labelkit.prepare import Options, prepare
    from labelkit.report.live import Silent
    from labelkit.run import execute
    from labelkit.spec import load

    asyncio.run(warm(url))

    class Watch(Silent):
        begun = ended = cpu_s = 0.0

        def start(self, n_tasks: int, k: int, fleets: Any) -> None:
            self.begun, self.cpu_s = time.perf_counter(), -time.process_time()

        def finish(self) -> None:
            self.ended = time.perf_counter()
            self.cpu_s += time.process_time()

    with tempfile.TemporaryDirectory(prefix="labelkit-") as name:
        folder = Path(name)
        tasks = [
            {"id": f"t{i}", "prompt": f"question {i}", "gold": "x"} for i in range(attempts // 10)
        ]
        values = {
            "name": "cost",
            "tasks": tasks,
            "sampler": {
                "model": "openai/fake",
                "api_base": url,
                "concurrency": in_flight,
                "adaptive_concurrency": False,
            },
            "scorer": "exact",
            "k": 10,
        }
        spec = folder / "spec.yaml"
        spec.write_text(json.dumps(values))
        prepared = prepare(load(spec), "rollout", Options(directory=folder / "run"))
        watch = Watch()
        summary = execute(prepared, watch)
        whole_s = time.perf_counter() - watch.begun
        assert summary["n_scored"] == attempts
    sampling_s = watch.ended - watch.begun
    return {"sampling_s": sampling_s, "whole_s": whole_s, "cpu_s": watch.cpu_s}


SIDES = {"bare": bare, "labelkit": labelkit}


def one(side: str, url: str, options: argparse.Namespace) -> dict[str, float]:
    """A side's times, measured in a process of its own."""
    numbers = ["--attempts", str(options.attempts), "--in-flight", str(options.in_flight)]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.engine_cost", *numbers, "--side", side, "--url", url],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
        timeout=600,
    )
    times: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return times


def compare(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory(prefix="labelkit-") as folder:
        script = Path(folder) / "script.json"
        script.write_text(json.dumps({"reply": "reply {key}", "latency_ms": options.latency_ms}))
        server = subprocess.Popen(
            [sys.executable, "-m", "tests.openai_server", "--script", str(script)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert server.stdout is not None
        try:
            rounds(server.stdout.readline().strip(), options)
        finally:
            server.kill()
            server.wait(10)


def rounds(url: str, options: argparse.Namespace) -> None:
    print(
        f"{options.attempts:,} attempts, {options.in_flight} in flight, "
        f"{options.latency_ms:g} ms latency, {options.rounds} rounds in turns"
    )
    print(
        f"Python {platform.python_version()}, litellm {version('litellm')}, {platform.machine()}, "
        f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {time.strftime('%Y-%m-%d')}"
    )
    found: dict[str, list[float]] = {"sampling_s": [], "whole_s": [], "cpu_s": []}
    for number in range(options.rounds):
        sides = list(SIDES) if number % 2 == 0 else list(SIDES)[::-1]
        times = {side: one(side, url, options) for side in sides}
        for name, ratios in found.items():
            ratios.append(times["bare"][name] / times["labelkit"][name])
        said = "   ".join(
            f"{side} {options.attempts / each['sampling_s']:5.0f}/s,"
            f" {1000 * each['cpu_s'] / options.attempts:.2f} ms CPU each"
            for side, each in sorted(times.items())
        )
        print(f"  {said}   ratio {found['sampling_s'][-1]:.2f}", flush=True)
    for name, what in (
        ("sampling_s", "throughput"),
        ("whole_s", "throughput, files written too"),
        ("cpu_s", "CPU an attempt, turned over"),
    ):
        print(f"median ratio of {what}: {statistics.median(found[name]):.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--attempts", type=int, default=1000)
    parser.add_argument("--in-flight", type=int, default=64)
    parser.add_argument("--latency-ms", type=float, default=50.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--side", choices=list(SIDES), help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side is None:
        compare(options)
    else:
        print(json.dumps(SIDES[options.side](options.url, options.attempts, options.in_flight)))


if __name__ == "__main__":
    main()
