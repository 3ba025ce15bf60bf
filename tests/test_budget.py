"""Whole runs under a cap: the server's own count is the oracle of what was spent."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import random
import subprocess
import sys
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from labelkit.errors import SpecError
from tests.openai_server import OpenAIServer, Rule, Script
from tests.runs import environment, run, summary, write_lines, write_spec

PER_MTOK = 1_000_000
UNCHARGED = ("rate_limit", "server_error", "bad_request", "overloaded")
CHARGED = ("cut_body", "disconnect", "garbage", "error_body", "refuse", "hang")
# What is tried again costs a second's wait each time.
SHARES = {"rate_limit": 0.03, "server_error": 0.03, "overloaded": 0.03, "refuse": 0.03}
RUNS_A_PART = int(os.environ.get("LABELKIT_BUDGET_RUNS", 12))
processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(
    ["tests.runs", "aiohttp", "labelkit.cli.recipes", "labelkit.run", "labelkit.samplers.direct",
     "labelkit.recipes.rollout", "labelkit.scorers.text"]
)  # fmt: skip


class Oracle:
    """The fake server in a process of its own, asked and told over HTTP."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.root = url.removesuffix("/v1")

    def tell(self, **script: Any) -> None:
        body = Script.model_validate(script).model_dump_json().encode()
        request = urllib.request.Request(f"{self.root}/script", data=body, method="PUT")
        urllib.request.urlopen(request, timeout=30).read()

    def tokens(self) -> tuple[int, int]:
        """Tokens in and out of all that it answered, once nothing is in flight."""
        while True:
            with urllib.request.urlopen(f"{self.root}/stats", timeout=30) as reply:
                stats = json.loads(reply.read())
            if stats["in_flight"] == 0:
                return stats["prompt_tokens"], stats["completion_tokens"]
            time.sleep(0.01)


@pytest.fixture
def oracle() -> Iterator[Oracle]:
    command = [sys.executable, "-m", "tests.openai_server"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment())
    assert process.stdout is not None
    try:
        yield Oracle(process.stdout.readline().decode().strip())
    finally:
        process.kill()
        process.wait(10)


@pytest.fixture
async def server() -> AsyncIterator[OpenAIServer]:
    async with OpenAIServer(Script(reply="yes {key}")) as each:
        yield each


def spec_file(folder: Path, url: str, *, n_tasks: int = 6, **sections: Any) -> Path:
    write_lines(
        folder / "tasks.jsonl",
        ({"id": f"t{i}", "prompt": f"{i}: say yes", "gold": "yes"} for i in range(n_tasks)),
    )
    sampler = {"model": "direct/fake", "api_base": url, "max_tokens": 4, **sections.pop("more", {})}
    return write_spec(
        folder, tasks={"file": "tasks.jsonl"}, sampler=sampler, max_unscored=1.0,
        **sections,
    )  # fmt: skip


def execute(spec: Path, directory: Path, overrides: list[str]) -> None:
    run(spec, directory, *overrides)


@pytest.mark.parametrize("part", range(4))
def test_no_random_run_spends_more_than_its_cap(tmp_path: Path, oracle: Oracle, part: int) -> None:
    """Runs with random prices, faults and kills; every third server counts more
    tokens than any prompt of that many bytes should have."""
    killed = stopped = 0
    for number in range(RUNS_A_PART):
        rng = random.Random(f"{part}/{number}")
        estimated = number % 3 == 2
        folder = tmp_path / str(number)
        folder.mkdir()
        price = [10 ** rng.uniform(-2, 2) for _ in range(2)]
        n_tasks, k, words = rng.randint(3, 9), rng.randint(2, 5), rng.randint(1, 40)
        n_tasks *= 4 if estimated else 1
        max_tokens = rng.randint(1, 40)
        faults = rng.sample(UNCHARGED, 2)
        charged = rng.random() < 0.5
        faults += rng.sample(CHARGED, 2) if charged else []
        # A twentieth more than the bound on input tokens allows for: the calls in flight are short
        # of it, those that were answered are not.
        over = 6 if estimated else 0
        oracle.tell(
            reply=" ".join(["{key}", *["word"] * (words - 1)]),
            bytes_per_token=1,
            template_tokens=-3 + 26 + over if estimated else 0,
            latency_ms=(1, 20),
            rules=[
                Rule(fault=fault, share=rng.uniform(0, SHARES.get(fault, 0.15)), per_try=True,
                     retry_after="0.01", delay_s=0.3)
                for fault in faults
            ],
        )  # fmt: skip
        each_usd = (100 * price[0] + max_tokens * price[1]) / PER_MTOK
        cap_usd = each_usd * rng.uniform(50 if estimated else 1, 1.3 * n_tasks * k)
        spec = spec_file(
            folder,
            oracle.url,
            n_tasks=n_tasks,
            k=k,
            budget=cap_usd,
            more={
                "max_tokens": max_tokens,
                "price": {"input_per_mtok": price[0], "output_per_mtok": price[1]},
                "timeout_s": 0.15,
                "concurrency": rng.randint(1, 2 if estimated else 8),
                "max_tries": 3,
            },
        )
        before = oracle.tokens()
        kills = rng.choice((0, 1) if estimated else (0, 0, 1, 2, 3))
        for _ in range(kills):
            process = processes.Process(target=execute, args=(spec, folder / "run", []))
            process.start()
            process.join(rng.uniform(0.02, 0.25))
            killed += process.is_alive()
            process.kill()
            process.join()
        process = processes.Process(target=execute, args=(spec, folder / "run", []))
        process.start()
        process.join(60)
        assert process.exitcode == 0
        after = oracle.tokens()
        used = [now - then for now, then in zip(after, before, strict=True)]
        spent_usd = (used[0] * price[0] + used[1] * price[1]) / PER_MTOK
        done = summary(folder / "run")
        stopped += done["stopped_early"] == "budget"
        slack = 1.02 if estimated else 1
        most_usd = done["provenance"]["spent_usd_at_most"] or 0.0
        # A billionth: sums are kept in whole picodollars.
        assert spent_usd <= cap_usd * slack + 1e-9, number
        assert estimated or spent_usd <= most_usd + 1e-9, number
        if not kills and not charged:
            assert (done["cost_usd"] or 0.0) == pytest.approx(spent_usd, abs=1e-12), number
            assert (done["input_tokens"] or 0, done["output_tokens"] or 0) == tuple(used), number
    assert killed >= 1
    assert stopped >= 1


PRICE = {"input_per_mtok": 1.0, "output_per_mtok": 10.0}


async def go(*arguments: Any, **options: Any) -> Any:
    return await asyncio.to_thread(run, *arguments, **options)


@pytest.mark.parametrize(
    ("more", "field", "fix"),
    [
        ({"max_tokens": 4}, "sampler.price", "set price"),
        ({"max_tokens": None, "price": PRICE}, "sampler.max_tokens", "set max_tokens"),
    ],
)
async def test_a_budget_that_cannot_be_kept_is_refused_before_spending(
    tmp_path: Path, server: OpenAIServer, more: dict[str, Any], field: str, fix: str
) -> None:
    spec = spec_file(tmp_path, server.url, budget=1.0, more=more)
    with pytest.raises(SpecError) as raised:
        await go(spec, tmp_path / "run")
    assert [fault.field for fault in raised.value.faults] == [field]
    assert fix in str(raised.value)
    assert server.calls == []


async def test_a_cap_on_tokens_needs_max_tokens_but_no_price(
    tmp_path: Path, server: OpenAIServer
) -> None:
    spec = spec_file(tmp_path, server.url, max_tokens_total=100_000, more={"max_tokens": None})
    with pytest.raises(SpecError, match="max_tokens"):
        await go(spec, tmp_path / "run")
    spec = spec_file(tmp_path, server.url, max_tokens_total=100_000)
    assert (await go(spec, tmp_path / "run"))["exit_code"] == 0


async def test_a_run_at_its_cap_ends_with_what_it_has_and_a_higher_cap_goes_on(
    tmp_path: Path, server: OpenAIServer
) -> None:
    spec = spec_file(tmp_path, server.url, more={"price": PRICE, "concurrency": 2})
    whole = await go(spec, tmp_path / "whole")
    per_call = whole["cost_usd"] / 12
    done = await go(spec, tmp_path / "run", f"budget={per_call * 8}")
    assert done["stopped_early"] == "budget"
    assert done["exit_code"] == 4
    assert 2 <= done["n_attempts"] < 12
    assert done["draws"]["not_run_reasons"] == {"not_run": 12 - done["n_attempts"]}
    calls = len(server.calls)
    assert calls == 12 + done["n_attempts"]
    again = await go(spec, tmp_path / "run", f"budget={per_call * 8}")
    assert (again["stopped_early"], len(server.calls)) == ("budget", calls)
    done = await go(spec, tmp_path / "run", "budget=1.0")
    assert (done["stopped_early"], done["exit_code"]) == (None, 0)
    assert len(server.calls) == 24
    assert done["cost_usd"] == pytest.approx(whole["cost_usd"])


async def test_a_cap_on_tokens_counts_what_earlier_runs_took(
    tmp_path: Path, server: OpenAIServer
) -> None:
    spec = spec_file(tmp_path, server.url, more={"concurrency": 2})
    for cap in (100, 140):
        done = await go(spec, tmp_path / "run", f"max_tokens_total={cap}")
        assert done["stopped_early"] == "tokens"
        assert done["exit_code"] == 4
        assert done["input_tokens"] + done["output_tokens"] == sum(server.tokens.values()) <= cap
    assert (await go(spec, tmp_path / "run", "max_tokens_total=9000"))["exit_code"] == 0


async def test_calls_of_the_judge_count(tmp_path: Path, server: OpenAIServer) -> None:
    server.script = Script(reply='{"reason": "", "passed": true}')
    judge = {
        "model": "direct/judge",
        "api_base": server.url,
        "rubric": "Is it polite?",
        "max_tokens": 30,
        "price": {"input_per_mtok": 3.0, "output_per_mtok": 7.0},
    }
    spec = spec_file(
        tmp_path, server.url, scorer={"judge": judge}, budget=1.0, more={"price": PRICE}
    )
    done = await go(spec, tmp_path / "run")
    assert done["exit_code"] == 0
    expected = {"candidate": 0.0, "judge": 0.0}
    for call in server.calls:
        stage = call.body["model"].replace("fake", "candidate")
        price = PRICE if stage == "candidate" else judge["price"]
        assert call.usage is not None
        assert isinstance(price, dict)
        expected[stage] += call.usage["prompt_tokens"] * price["input_per_mtok"] / PER_MTOK
        expected[stage] += call.usage["completion_tokens"] * price["output_per_mtok"] / PER_MTOK
    found = {name: stage["cost_usd"] for name, stage in done["stages"].items()}
    assert found == pytest.approx(expected)
    assert done["provenance"]["spent_usd_at_most"] == pytest.approx(sum(expected.values()))
    server.calls.clear()
    short = await go(spec, tmp_path / "short", f"budget={sum(expected.values()) * 0.6}")
    assert short["stopped_early"] == "budget"
    assert short["provenance"]["spent_usd_at_most"] <= sum(expected.values()) * 0.6


@pytest.mark.parametrize(("fault", "paid"), [("disconnect", True), ("server_error", False)])
async def test_a_try_that_was_lost_counts_where_it_may_have_been_charged(
    tmp_path: Path, server: OpenAIServer, fault: Any, paid: bool
) -> None:
    """A reply that broke off is final and paid; a refused call costs nothing."""
    server.script = Script(reply="yes {key}", rules=[Rule(fault=fault, nth=[1])])
    spec = spec_file(tmp_path, server.url, n_tasks=1, k=1, more={"price": PRICE, "concurrency": 1})
    done = await go(spec, tmp_path / "run")
    worst_usd = done["provenance"]["spent_usd_at_most"] - (done["cost_usd"] or 0.0)
    assert (worst_usd > 0) is paid
    assert done["provenance"]["calls_without_an_answer"] == 0


async def test_a_connection_closed_without_an_answer_may_have_been_charged(
    tmp_path: Path, server: OpenAIServer
) -> None:
    server.script = Script(reply="yes {key}", rules=[Rule(fault="refuse", nth=[1])])
    spec = spec_file(tmp_path, server.url, n_tasks=1, k=1, more={"price": PRICE, "concurrency": 1})
    done = await go(spec, tmp_path / "run")
    assert done["n_attempts"] == 1
    assert done["n_unscored"] == 0
    assert len(server.calls) == 2
    assert done["provenance"]["spent_usd_at_most"] > 2 * done["cost_usd"]


@pytest.mark.parametrize("hidden", [150, 1_000])
async def test_tokens_that_a_server_adds_by_itself_are_learned_from_the_first_reply(
    tmp_path: Path, server: OpenAIServer, hidden: int
) -> None:
    """A hidden prompt is in no bound; only the one call that goes out first may not know of it."""
    server.script = Script(reply="yes {key}", template_tokens=hidden, latency_ms=20)
    price = {"input_per_mtok": 1.0, "output_per_mtok": 1.0}
    spec = spec_file(tmp_path, server.url, n_tasks=40, more={"price": price, "concurrency": 30})
    budget = 20 * (hidden + 30) / PER_MTOK
    done = await go(spec, tmp_path / "run", f"budget={budget}")
    assert done["stopped_early"] == "budget"
    assert len(server.calls) >= 12
    assert sum(server.tokens.values()) / PER_MTOK <= budget


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens", "best_of"])
async def test_no_extra_body_makes_a_call_dearer_than_its_worst_case(
    tmp_path: Path, server: OpenAIServer, name: str
) -> None:
    spec = spec_file(tmp_path, server.url, more={"extra_body": {name: 400}})
    with pytest.raises(SpecError, match=name):
        await go(spec, tmp_path / "run")
    assert not server.calls


async def test_a_reply_that_claims_to_have_cost_nothing_counts_as_its_worst_case(
    tmp_path: Path, server: OpenAIServer
) -> None:
    server.script = Script(reply="yes", usage={"prompt_tokens": 0, "completion_tokens": 0})
    spec = spec_file(tmp_path, server.url, more={"price": PRICE})
    done = await go(spec, tmp_path / "run")
    assert done["input_tokens"] is None
    assert done["provenance"]["spent_usd_at_most"] > 0


async def test_calls_made_before_a_price_was_known_count_at_the_dearest_there_is(
    tmp_path: Path, server: OpenAIServer
) -> None:
    spec = spec_file(tmp_path, server.url, n_tasks=10)
    first = await go(spec, tmp_path / "run", limit=5)
    assert first["provenance"]["spent_usd_at_most"] is None
    tokens = sum(server.tokens.values())
    calls = len(server.calls)
    spec = spec_file(tmp_path, server.url, n_tasks=10, more={"price": PRICE})
    dearest = max(PRICE.values()) * tokens / PER_MTOK
    done = await go(spec, tmp_path / "run", f"budget={dearest}")
    assert (done["stopped_early"], len(server.calls)) == ("budget", calls)
    assert done["provenance"]["spent_usd_at_most"] is None
    assert (await go(spec, tmp_path / "run", "budget=1.0"))["exit_code"] == 0


async def test_a_direct_model_that_litellm_knows_has_its_price(
    tmp_path: Path, server: OpenAIServer
) -> None:
    spec = spec_file(tmp_path, server.url, more={"model": "direct/gpt-4.1-mini"})
    done = await go(spec, tmp_path / "run", "budget=1.0")
    assert done["exit_code"] == 0
    into, out = server.tokens["prompt_tokens"], server.tokens["completion_tokens"]
    # $0.40 and $1.60 a million, https://openai.com/api/pricing
    assert done["cost_usd"] == pytest.approx((0.4 * into + 1.6 * out) / PER_MTOK)
