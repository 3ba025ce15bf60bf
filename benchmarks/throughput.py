"""How many attempts a second labelkit makes, beside bare loops and other tools, in one run.

    python benchmarks/throughput.py --out benchmarks/throughput.md

Every contender does the job of contenders.py in a process of its own against fast_server.py, which
has one too. They take turns, round after round, so that a busy machine slows all of them alike.
Peers are installed into `.bench/`, each in its own environment. `--scale 0.1` is a quick look.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PEERS = {"agno": "agno", "inspect-ai": "inspect-ai", "curator-openai": "bespokelabs-curator",
         "curator-litellm": "bespokelabs-curator"}  # fmt: skip
OURS = ("aiohttp", "litellm", "labelkit-direct", "labelkit-litellm")
FAST = ("aiohttp", "labelkit-direct", "curator-openai")
N_FAST, N_SLOW = 20_000, 2_000
LONGEST_S = 30
"""No contender gets more attempts than the server's latency lets through in so many seconds."""

Result = dict[str, Any]


@contextmanager
def server(*arguments: object) -> Iterator[str]:
    """fast_server.py for as long as it is needed; gives its URL."""
    command = [sys.executable, str(HERE / "fast_server.py"), *map(str, arguments)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.kill()
        process.wait()


def install(folder: Path, package: str) -> Path:
    """The interpreter of an environment that holds a peer."""
    home = folder / package
    interpreter = home / "bin" / "python"
    if not (home / "installed").exists():
        installer = folder / "uv"
        if not (installer / "bin" / "uv").exists():
            venv.create(installer, with_pip=True)
            pip = [installer / "bin" / "python", "-m", "pip", "install", "--quiet", "uv"]
            subprocess.run(pip, check=True)
        venv.create(home, with_pip=False)
        uv = [installer / "bin" / "uv", "pip", "install", "--quiet", "--python", interpreter]
        subprocess.run([*uv, package, "openai"], check=True)
        (home / "installed").touch()
    return interpreter


def run(python: Path, contender: str, url: str, n_attempts: int, concurrency: int) -> Result:
    """One contender once; a failure is told, and is no result."""
    command = [python, HERE / "contenders.py", contender, "--url", url]
    command += ["--attempts", str(n_attempts), "--concurrency", str(concurrency)]
    environment = {**os.environ, "PYTHONPATH": str(HERE.parent)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=900)
    if done.returncode:
        raise SystemExit(f"{contender} failed:\n{done.stderr[-3000:]}")
    result: Result = json.loads(done.stdout.splitlines()[-1])
    return result


def n_attempts_of(contender: str, latency_ms: float, concurrency: int, scale: float) -> int:
    most = N_FAST if contender in FAST else N_SLOW
    if latency_ms:
        most = min(most, int(LONGEST_S * concurrency * 1000 / latency_ms))
    return max(160, int(most * scale))


def summed(results: list[Result], latency_ms: float) -> Result:
    """The medians of a contender's rounds."""

    def median(values: list[float]) -> float:
        return statistics.median(values)

    p99 = [result["p99_s"] * 1000 - latency_ms for result in results if result["p99_s"]]
    return {
        "speed": median([result["n_passed"] / result["wall_s"] for result in results]),
        "lost": sum(result["n_attempts"] - result["n_passed"] for result in results),
        "cpu_ms": median([1000 * result["cpu_s"] / result["n_attempts"] for result in results]),
        "peak_mb": max(result["peak_mb"] for result in results),
        "p99_added_ms": median(p99) if p99 else None,
        "n": results[0]["n_attempts"],
    }


def table(rows: dict[str, Result]) -> Iterator[str]:
    yield (
        "| contender | attempts | lost | attempts/s | CPU ms an attempt | peak MB | p99 added ms |"
    )
    yield "|---|---|---|---|---|---|---|"
    for name, row in rows.items():
        p99 = "" if row["p99_added_ms"] is None else f"{row['p99_added_ms']:,.0f}"
        yield (
            f"| {name} | {row['n']:,} | {row['lost']:,} | {row['speed']:,.0f} |"
            f" {row['cpu_ms']:.2f} | {row['peak_mb']:,.0f} | {p99} |"
        )


def ratios(rows: dict[str, Result]) -> Iterator[str]:
    """What the acceptance lines ask about, from this run's own figures."""
    for one, other, wanted in (
        ("labelkit-litellm", "litellm", 0.9),
        ("labelkit-litellm", "inspect-ai", 3),
        ("labelkit-litellm", "agno", 4),
        ("labelkit-litellm", "curator-litellm", 1),
        ("labelkit-direct", "labelkit-litellm", 5),
        ("labelkit-direct", "curator-openai", 2),
        ("labelkit-direct", "aiohttp", 0.35),
    ):
        if one in rows and other in rows:
            speed = rows[one]["speed"] / rows[other]["speed"]
            cpu = rows[other]["cpu_ms"] / rows[one]["cpu_ms"]
            yield f"- {one} / {other}: {speed:.2f} in attempts/s, {cpu:.2f} by CPU (≥ {wanted:g})"


def machine() -> Iterator[str]:
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        named = [line for line in cpuinfo.read_text().splitlines() if line.startswith("model name")]
        model = named[0].partition(":")[2].strip() if named else model
    load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
    yield f"{model}, {os.cpu_count()} cores, {platform.system()} {platform.release()}, "
    yield f"Python {platform.python_version()}; load average at the end {load}"


def versions(interpreters: dict[str, Path]) -> str:
    names = ("litellm", "aiohttp", "openai", "uvloop", "orjson", "agno", "inspect-ai",
             "bespokelabs-curator")  # fmt: skip
    code = (
        "import importlib.metadata as m, sys\n"
        f"for n in {names!r}:\n"
        "    try: print(n, m.version(n))\n"
        "    except m.PackageNotFoundError: pass"
    )
    told = []
    for where, python in {"labelkit": Path(sys.executable), **interpreters}.items():
        found = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
        told.append(f"{where}: {', '.join(found.stdout.split(chr(10))[:-1])}")
    return "; ".join(told)


def holding(scale: float) -> Iterator[str]:
    """Many calls that all take long: nothing of the client's may be in their way."""
    for contender in ("aiohttp", "labelkit-direct", "labelkit-litellm"):
        with server("--latency-ms", 5000) as url:
            n_attempts = int(20_000 * scale)
            result = run(Path(sys.executable), contender, url, n_attempts, 2000)
        added = result["p99_s"] / 5 - 1
        unscored = result.get("n_unscored", 0)
        yield (
            f"- {contender}: {n_attempts:,} attempts, p99 {result['p99_s']:.2f} s"
            f" ({added:+.1%}), {unscored} lost, peak {result['peak_mb']:,.0f} MB"
        )


def page(options: argparse.Namespace) -> Iterator[str]:
    wanted = options.only or [*OURS, *PEERS]
    interpreters = {
        name: install(options.folder, package) for name, package in PEERS.items() if name in wanted
    }
    ours = [name for name in OURS if name in wanted]
    contenders = {**dict.fromkeys(ours, Path(sys.executable)), **interpreters}
    tables: list[str] = []
    for latency_ms in options.latency:
        for concurrency in options.concurrency:
            results: dict[str, list[Result]] = {name: [] for name in contenders}
            with server("--latency-ms", latency_ms) as url:
                for _ in range(options.rounds):
                    for name, python in contenders.items():
                        n = n_attempts_of(name, latency_ms, concurrency, options.scale)
                        results[name].append(run(python, name, url, n, concurrency))
                        print(latency_ms, concurrency, name, results[name][-1], file=sys.stderr)
            rows = {name: summed(each, latency_ms) for name, each in results.items()}
            tables += ["", f"## {latency_ms:g} ms, {concurrency} in flight", "", *table(rows), ""]
            tables += ratios(rows)
    if not options.no_holding:
        tables += ["", "## 5 s latency, 2,000 in flight", "", *holding(options.scale)]
    yield "# Throughput"
    yield ""
    yield f"{datetime.now(UTC):%Y-%m-%d}, {''.join(machine())}. {versions(interpreters)}."
    yield ""
    yield (
        "Made by benchmarks/throughput.py: the same job for all, medians of "
        f"{options.rounds} rounds that took turns, scale {options.scale:g}. "
        "Attempts/s and CPU are the client's own, without imports and start-up; labelkit's are of "
        "whole runs, with ledger, scoring and the final files. p99 is what a call took beyond the "
        "server's latency."
    )
    yield from tables


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--folder", type=Path, default=Path(".bench"))
    parser.add_argument("--latency", type=float, nargs="+", default=[0, 50, 1000])
    parser.add_argument("--concurrency", type=int, nargs="+", default=[64, 512])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--only", nargs="+", choices=[*OURS, *PEERS], help="some contenders")
    parser.add_argument("--no-holding", action="store_true")
    options = parser.parse_args()
    options.folder = options.folder.resolve()
    options.folder.mkdir(exist_ok=True)
    text = "\n".join(page(options)) + "\n"
    if options.out is not None:
        options.out.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
