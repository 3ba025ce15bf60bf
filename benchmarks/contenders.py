"""One contender on the benchmark's job, in a process of its own: prints one line of JSON.

The job: K attempts each of a number of tasks against the server at the given URL, every reply
scored by the number it ends with. Whoever keeps a log keeps it, as its users would have it. Imports
and the first call are not measured.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

K = 8
PROMPT = (
    "Solve the problem step by step and end with the answer on a line of its own. "
    "A box holds six rows of seven pencils. How many pencils are in box number {n}?"
)
_ANSWER = re.compile(r"answer is (-?\d+)")


def messages(n: int) -> list[dict[str, str]]:
    return [{"role": "user", "content": PROMPT.format(n=n)}]


def passes(text: str) -> bool:
    found = _ANSWER.search(text)
    return found is not None and int(found[1]) == 42


Measured = dict[str, Any]


class Clock:
    """Wall and CPU seconds from its making on."""

    def __init__(self) -> None:
        self._wall = time.perf_counter()
        self._cpu = time.process_time()

    def told(self, n_passed: int, latencies_s: list[float] | None = None) -> Measured:
        wall_s, cpu_s = time.perf_counter() - self._wall, time.process_time() - self._cpu
        ordered = sorted(latencies_s or ())
        p99 = ordered[int(len(ordered) * 0.99)] if ordered else None
        return {"n_passed": n_passed, "wall_s": wall_s, "cpu_s": cpu_s, "p99_s": p99}


async def _loop(
    call: Callable[[int], Awaitable[str]], n_attempts: int, concurrency: int
) -> Measured:
    """The barest harness there is: fixed workers on one iterator."""
    await call(0)
    clock, latencies_s, n_passed = Clock(), [], 0
    numbers = iter(range(n_attempts))

    async def work() -> None:
        nonlocal n_passed
        for number in numbers:
            begun = time.perf_counter()
            text = await call(number // K)
            latencies_s.append(time.perf_counter() - begun)
            n_passed += passes(text)

    await asyncio.gather(*(work() for _ in range(concurrency)))
    return clock.told(n_passed, latencies_s)


def aiohttp_loop(url: str, n_attempts: int, concurrency: int) -> Measured:
    import aiohttp

    async def main() -> Measured:
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector) as session:

            async def call(n: int) -> str:
                body = {"model": "bench", "messages": messages(n), "max_tokens": 100}
                async with session.post(f"{url}/chat/completions", json=body) as response:
                    reply = await response.json()
                    return str(reply["choices"][0]["message"]["content"])

            return await _loop(call, n_attempts, concurrency)

    return asyncio.run(main())


def litellm_loop(url: str, n_attempts: int, concurrency: int) -> Measured:
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    os.environ["AIOHTTP_CONNECTOR_LIMIT"] = "1000000"
    os.environ["AIOHTTP_CONNECTOR_LIMIT_PER_HOST"] = "1000000"
    import litellm

    async def call(n: int) -> str:
        response = await litellm.acompletion(
            model="openai/bench",
            api_base=url,
            api_key="x",
            messages=messages(n),
            max_tokens=100,
            max_retries=0,
        )
        return str(response.choices[0].message.content)

    return asyncio.run(_loop(call, n_attempts, concurrency))


def _labelkit(model: str, url: str, n_attempts: int, concurrency: int) -> Measured:
    from labelkit.prepare import Options, prepare
    from labelkit.report.live import Silent
    from labelkit.run import execute
    from labelkit.spec import load

    folder = Path(tempfile.mkdtemp(prefix="bench-"))
    with open(folder / "tasks.jsonl", "w") as file:
        for n in range(n_attempts // K):
            row = {"id": f"t{n}", "prompt": messages(n)[0]["content"], "gold": 42}
            file.write(json.dumps(row) + "\n")
    (folder / "spec.yaml").write_text(
        f"name: bench\ntasks: {{file: tasks.jsonl}}\nk: {K}\nscorer: numeric\n"
        f"sampler: {{model: {model}, api_base: {url}, max_tokens: 100,"
        f" concurrency: {concurrency}, adaptive_concurrency: false}}\n"
    )

    def run(name: str, limit: int | None) -> Any:
        options = Options(directory=folder / name, limit=limit)
        prepared = prepare(load(folder / "spec.yaml"), "rollout", options)
        return execute(prepared, Silent())

    try:
        run("warm", 1)
        clock = Clock()
        summary = run("run", None)
        measured = clock.told(summary["n_passed"], list(_durations_s(folder / "run")))
        measured["n_unscored"] = summary["n_unscored"]
        return measured
    finally:
        shutil.rmtree(folder)


def _durations_s(directory: Path) -> Iterator[float]:
    with open(directory / "ledger.jsonl") as file:
        for line in file:
            record = json.loads(line)
            if record["kind"] == "completion":
                yield record["provenance"]["duration_s"]


def labelkit_litellm(url: str, n_attempts: int, concurrency: int) -> Measured:
    return _labelkit("openai/bench", url, n_attempts, concurrency)


def labelkit_direct(url: str, n_attempts: int, concurrency: int) -> Measured:
    return _labelkit("direct/bench", url, n_attempts, concurrency)


def inspect_ai(url: str, n_attempts: int, concurrency: int) -> Measured:
    folder = Path(tempfile.mkdtemp(prefix="bench-"))
    os.environ.update(OPENAI_API_KEY="x", OPENAI_BASE_URL=url, INSPECT_LOG_DIR=str(folder))
    from inspect_ai import Task, eval
    from inspect_ai.dataset import Sample
    from inspect_ai.scorer import Score, accuracy, scorer
    from inspect_ai.solver import generate

    @scorer(metrics=[accuracy()])
    def number() -> Any:
        async def score(state: Any, target: Any) -> Score:
            return Score(value="C" if passes(state.output.completion) else "I")

        return score

    def run(n: int) -> Any:
        samples = [Sample(input=messages(i)[0]["content"], target="42") for i in range(n)]
        return eval(
            Task(dataset=samples, solver=generate(), scorer=number(), epochs=K),
            model="openai/bench",
            display="none",
            max_connections=concurrency,
            max_samples=concurrency,
            max_tokens=100,
            log_dir=str(folder),
            model_args={"responses_api": False},
        )[0]

    try:
        run(1)
        clock = Clock()
        log = run(n_attempts // K)
        assert log.status == "success", log.error
        n_passed = sum(sample.scores["number"].value == "C" for sample in log.samples)
        return clock.told(n_passed)
    finally:
        shutil.rmtree(folder)


def agno(url: str, n_attempts: int, concurrency: int) -> Measured:
    os.environ["AGNO_TELEMETRY"] = "false"
    from agno.agent import Agent
    from agno.environments import Environment, Task, run_rollouts
    from agno.models.openai.like import OpenAILike
    from agno.scorer import CodeScorer

    model = OpenAILike(id="bench", base_url=url, api_key="x", max_tokens=100, max_retries=0)

    def run(n: int) -> int:
        tasks = tuple(Task(input=messages(i)[0]["content"], expected="42") for i in range(n))
        environment = Environment(
            name="bench",
            tasks=tasks,
            scorer=CodeScorer(lambda run, expected: passes(str(run.content))),
            agent=lambda: Agent(model=model, telemetry=False),
        )
        done = run_rollouts(environment, k=K, concurrency=concurrency)
        return sum(
            attempt.score is not None and attempt.score.passed
            for result in done.task_results
            for attempt in result.attempts
        )

    run(1)
    clock = Clock()
    return clock.told(run(n_attempts // K))


def _curator(backend: str, url: str, n_attempts: int, concurrency: int) -> Measured:
    folder = tempfile.mkdtemp(prefix="bench-")
    os.environ.update(
        OPENAI_API_KEY="x",
        TELEMETRY_ENABLED="false",
        CURATOR_DISABLE_CACHE="true",
        CURATOR_CACHE_DIR=folder,
        CURATOR_DISABLE_RICH_DISPLAY="1",
        LITELLM_LOCAL_MODEL_COST_MAP="True",
        HF_DATASETS_OFFLINE="1",
    )
    _stub_tokenizer()
    from bespokelabs import curator

    class Solver(curator.LLM):  # type: ignore[misc]
        def prompt(self, row: Any) -> str:
            return str(row["prompt"])

        def parse(self, row: Any, response: Any) -> Any:
            return {"passed": passes(response)}

    def run(n: int) -> Any:
        parameters = {
            "base_url": url,
            "max_concurrent_requests": concurrency,
            "max_requests_per_minute": 10_000_000,
            "max_tokens_per_minute": 10_000_000_000,
            "max_retries": 0,
            "require_all_responses": True,
        }
        name = "bench" if backend == "openai" else "openai/bench"
        solver = Solver(model_name=name, backend=backend, backend_params=parameters)
        rows = [{"prompt": messages(i // K)[0]["content"]} for i in range(n)]
        done = solver(rows)
        return getattr(done, "dataset", done)

    try:
        run(K)
        clock = Clock()
        rows = run(n_attempts)
        return clock.told(sum(bool(row["passed"]) for row in rows))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _stub_tokenizer() -> None:
    """curator counts tokens with a file that tiktoken would download."""
    import tiktoken

    class Words:
        def encode(self, text: str, **_: Any) -> list[int]:
            return [0] * (len(text) // 4)

    tiktoken.encoding_for_model = lambda *_: Words()
    tiktoken.get_encoding = lambda *_: Words()


def curator_openai(url: str, n_attempts: int, concurrency: int) -> Measured:
    return _curator("openai", url, n_attempts, concurrency)


def curator_litellm(url: str, n_attempts: int, concurrency: int) -> Measured:
    return _curator("litellm", url, n_attempts, concurrency)


CONTENDERS: dict[str, Callable[[str, int, int], Measured]] = {
    "aiohttp": aiohttp_loop,
    "litellm": litellm_loop,
    "labelkit-direct": labelkit_direct,
    "labelkit-litellm": labelkit_litellm,
    "agno": agno,
    "inspect-ai": inspect_ai,
    "curator-openai": curator_openai,
    "curator-litellm": curator_litellm,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("contender", choices=CONTENDERS)
    parser.add_argument("--url", required=True)
    parser.add_argument("--attempts", type=int, required=True)
    parser.add_argument("--concurrency", type=int, required=True)
    options = parser.parse_args()
    stdout, sys.stdout = sys.stdout, sys.stderr
    n_attempts = options.attempts // K * K
    told = CONTENDERS[options.contender](options.url, n_attempts, options.concurrency)
    told["n_attempts"] = n_attempts
    told["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    stdout.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    main()
