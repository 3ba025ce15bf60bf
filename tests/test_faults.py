"""Every fault of a provider through whole runs: nothing lost, nothing taken for a wrong answer,
every fault in `errors` under its class, calls bounded.

All sound replies are right, so that whatever a fault turned into a wrong answer shows at once.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.openai_server import OpenAIServer, Rule, Script
from tests.runs import go, labelkit, read_lines, write_spec

SOUND = 20
K = 2
MAX_TRIES = 2

# Fault → stop reason, class, and what `errors` says of its type.
UNSCORED = {
    "rate_limit": ("provider_error", "transient", "rate_limit_exceeded 429"),
    "server_error": ("provider_error", "transient", "server_error 500"),
    "unavailable": ("provider_error", "transient", "server_error 503"),
    "overloaded": ("provider_error", "transient", "overloaded_error 529"),
    "conflict": ("provider_error", "transient", "conflict 409"),
    "request_timeout": ("provider_error", "transient", "timeout 408"),
    "refuse": ("provider_error", "transient", "connection_error"),
    "bad_request": ("provider_error", "row", "invalid_request_error 400"),
    "context_length": ("provider_error", "row", "context_length_exceeded 400"),
    "too_large": ("provider_error", "row", "invalid_request_error 413"),
    "unprocessable": ("provider_error", "row", "invalid_request_error 422"),
    "content_filter": ("content_filter", "content_filter", "content_filter 400"),
    "hang": ("timeout", "timeout", "timeout"),
    "slow_loris": ("timeout", "timeout", "timeout"),
    "cut_body": ("provider_error", "unreadable", ""),
    "disconnect": ("provider_error", "unreadable", ""),
    "garbage": ("provider_error", "unreadable", ""),
    "error_body": ("provider_error", "unreadable", ""),
    "no_choices": ("provider_error", "unreadable", ""),
}
READ = ("surrogates", "null_content")
FATAL = ("unauthorized", "payment_required", "forbidden", "unknown_model", "insufficient_quota")
SAID = {"surrogates": "lone \ufffd end"}


@pytest.fixture(params=["direct/fake", "openai/fake"])
def model(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def server() -> AsyncIterator[OpenAIServer]:
    script = Script(
        reply="the answer is {answer} ({key})", gold=r"gold=(?P<gold>\d+)", right_share=1.0
    )
    async with OpenAIServer(script) as each:
        yield each


def spec_file(
    folder: Path, server: OpenAIServer, model: str, names: list[str], **sampler: Any
) -> Path:
    tasks = [
        {"id": name, "prompt": f"{name}: gold={i}", "gold": SAID.get(name, f"is {i}")}
        for i, name in enumerate(names)
    ]
    settings = {"model": model, "api_base": server.url, "seed": 1, "max_tries": MAX_TRIES}
    return write_spec(folder, tasks=tasks, sampler={**settings, **sampler}, k=K, max_unscored=1.0)


def fail(server: OpenAIServer, *rules: Rule) -> None:
    server.script = server.script.model_copy(update={"rules": list(rules)})


def sound(number: int) -> list[str]:
    return [f"sound{i}" for i in range(number)]


def draws_of(directory: Path) -> dict[str, list[Any]]:
    """Every attempt's state and stop reason by task."""
    return {
        line["id"]: [(each["state"], each["stop_reason"]) for each in line["outcomes"]]
        for line in read_lines(directory / "tasks.jsonl")
    }


def calls_of(server: OpenAIServer) -> Counter[str]:
    return Counter(call.body["messages"][-1]["content"].split(":")[0] for call in server.calls)


async def errors_of(directory: Path) -> str:
    done = await asyncio.to_thread(labelkit, "errors", directory)
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


async def test_every_fault_that_stays_is_unscored_under_its_class(
    tmp_path: Path, server: OpenAIServer, model: str
) -> None:
    rules = [
        Rule(fault=name, contains=f"{name}:", delay_s=60 if name == "hang" else 0.3)
        for name in (*UNSCORED, *READ)
    ]
    fail(server, *rules)
    names = [*UNSCORED, *READ, *sound(SOUND)]
    spec = spec_file(tmp_path, server, model, names, timeout_s=2)
    done = await go(spec, tmp_path / "run")

    expected = {name: [("unscored", stop)] * K for name, (stop, _, _) in UNSCORED.items()}
    expected |= {name: [("passed", "completed")] * K for name in (*sound(SOUND), *SAID)}
    expected["null_content"] = [("failed", "no_answer")] * K
    assert draws_of(tmp_path / "run") == expected
    assert done["failed"] == {"no_answer": K}
    assert done["n_unscored"] == K * len(UNSCORED)
    assert done["draws"]["not_run"] == 0

    calls = calls_of(server)
    for name, (_, kind, _) in UNSCORED.items():
        if name == "rate_limit":  # tries that others are served beside are bounded by time
            assert K * MAX_TRIES <= calls[name] <= 30
        else:
            assert calls[name] == K * (MAX_TRIES if kind == "transient" else 1), name
    assert all(calls[name] == K for name in (*READ, *sound(SOUND)))

    said = await errors_of(tmp_path / "run")
    for name, (stop, kind, error_type) in UNSCORED.items():
        heads = [line for line in said.splitlines() if f"{stop} · {error_type}" in line]
        assert any(f"({kind})" in line for line in heads), (name, said)
    listed = sum(int(line.split(" × ")[0]) for line in said.splitlines() if " × " in line)
    assert listed == K * len(UNSCORED)


async def test_faults_that_pass_cost_a_try_and_nothing_else(
    tmp_path: Path, server: OpenAIServer, model: str
) -> None:
    passing = [name for name, (_, kind, _) in UNSCORED.items() if kind == "transient"]
    waits = {"seconds": "1", "date": "date+1", "past": "date+-60", "nonsense": "soon"}
    rules = [Rule(fault=name, contains=f"{name}:", first_tries=1) for name in passing]
    rules += [
        Rule(fault="rate_limit", contains=f"{name}:", first_tries=1, retry_after=wait)
        for name, wait in waits.items()
    ]
    fail(server, *rules)
    spec = spec_file(tmp_path, server, model, [*passing, *waits, *sound(SOUND)], max_tries=6)
    done = await go(spec, tmp_path / "run")
    assert done["n_unscored"] == 0
    assert done["n_passed"] == done["n_attempts"] == K * (len(passing) + len(waits) + SOUND)
    calls = calls_of(server)
    assert all(calls[name] == K * 2 for name in (*passing, *waits))
    assert all(calls[name] == K for name in sound(SOUND))
    rows = read_lines(tmp_path / "run" / "rows.jsonl")
    tries = {row["id"]: row["provenance"]["draws"][0]["tries"] for row in rows}
    assert {name for name, number in tries.items() if number == 2} == {*passing, *waits}
    assert "no errors" in await errors_of(tmp_path / "run")


@pytest.mark.parametrize("fault", FATAL)
async def test_a_fatal_fault_mid_run_keeps_what_was_paid_for(
    tmp_path: Path, server: OpenAIServer, model: str, fault: Any
) -> None:
    good = server.script
    fail(server, Rule(fault=fault, after=12))
    spec = spec_file(tmp_path, server, model, sound(SOUND), concurrency=4)
    done = await go(spec, tmp_path / "run")
    assert (done["stopped_early"], done["exit_code"]) == ("fatal", 4)
    assert done["n_passed"] == 11
    assert done["failed"] == {}
    assert server.count <= 11 + 4
    refused = server.count - 11
    assert done["draws"]["unscored"] == refused
    assert done["draws"]["not_run"] == K * SOUND - 11 - refused
    said = await errors_of(tmp_path / "run")
    assert f"{refused} × provider_error" in said
    assert "(fatal)" in said
    assert f"{K * SOUND - 11 - refused} draws not run" in said

    server.script = good
    before = server.count
    done = await go(spec, tmp_path / "run")
    assert done["n_passed"] == done["n_attempts"] == K * SOUND
    assert server.count - before == K * SOUND - 11
    assert done["exit_code"] == 0


async def test_a_dead_key_costs_one_call(tmp_path: Path, server: OpenAIServer, model: str) -> None:
    fail(server, Rule(fault="unauthorized"))
    done = await go(spec_file(tmp_path, server, model, sound(SOUND)), tmp_path / "run")
    assert done["exit_code"] == 4
    assert server.count == 1


async def test_missing_usage_is_unknown_not_zero(
    tmp_path: Path, server: OpenAIServer, model: str
) -> None:
    server.script = server.script.model_copy(update={"usage": "none"})
    done = await go(spec_file(tmp_path, server, model, sound(2)), tmp_path / "run")
    assert done["n_passed"] == 2 * K
    assert (done["input_tokens"], done["output_tokens"], done["cost_usd"]) == (None, None, None)
    provenance = read_lines(tmp_path / "run" / "rows.jsonl")[0]["provenance"]
    assert provenance["input_tokens"] is None
    assert provenance["cost_usd"] is None


async def test_a_reply_of_ten_megabytes_is_kept_whole(
    tmp_path: Path, server: OpenAIServer, model: str
) -> None:
    fail(server, Rule(fault="big", contains="sound1:"))
    await go(spec_file(tmp_path, server, model, sound(2)), tmp_path / "run")
    rows = read_lines(tmp_path / "run" / "rows.jsonl")
    assert [row["score"]["passed"] for row in rows] == [True] * 2 * K
    assert [len(row["text"]) > 10_000_000 for row in rows] == [False] * K + [True] * K
    assert all(row["text"].endswith(" " + "x" * 10_000_000) for row in rows[K:])


async def test_an_endpoint_that_is_gone_ends_the_run_and_nothing_is_lost(
    tmp_path: Path, model: str
) -> None:
    async with OpenAIServer() as gone:
        url = gone.url
    spec = write_spec(
        tmp_path,
        tasks=[{"prompt": "q", "gold": "a"}],
        sampler={"model": model, "api_base": url, "max_tries": 2},
    )
    done = await go(spec, tmp_path / "run")
    assert (done["n_attempts"], done["unscored"]) == (2, {"provider_error": 2})
    assert done["exit_code"] == 4
    assert "connection_error" in await errors_of(tmp_path / "run")
