"""The fake server is an oracle, so it is tested itself."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.openai_server import OpenAIServer, Rule, Script


async def ask(server: OpenAIServer, prompt: str = "hi", **body: Any) -> tuple[int, Any]:
    body = {"model": "m", "messages": [{"role": "user", "content": prompt}], **body}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{server.url}/chat/completions", json=body) as response,
    ):
        return response.status, await response.json()


def text_of(payload: Any) -> str:
    return str(payload["choices"][0]["message"]["content"])


async def test_replies_depend_on_messages_and_seed_alone(openai_server: OpenAIServer) -> None:
    first = text_of((await ask(openai_server, seed=1))[1])
    assert text_of((await ask(openai_server, seed=1))[1]) == first
    assert text_of((await ask(openai_server, seed=2))[1]) != first
    assert text_of((await ask(openai_server, "other", seed=1))[1]) != first


async def test_replies_without_a_seed_are_each_unique(openai_server: OpenAIServer) -> None:
    texts = {text_of((await ask(openai_server))[1]) for _ in range(5)}
    assert len(texts) == 5


async def test_right_answers_come_at_the_share_that_the_prompt_names(
    openai_server: OpenAIServer,
) -> None:
    openai_server.script = Script(
        reply="A: {answer}", gold=r"gold=(?P<gold>\d+) share=(?P<share>[\d.]+)"
    )
    for share, low, high in ((0.0, 0, 0), (0.5, 30, 70), (1.0, 100, 100)):
        prompt = f"gold=7 share={share}"
        texts = [text_of((await ask(openai_server, prompt, seed=i))[1]) for i in range(100)]
        assert low <= texts.count("A: 7") <= high
        assert texts.count("A: 7") + texts.count("A: -1") == 100


async def test_rules_decide_in_order_and_are_counted(openai_server: OpenAIServer) -> None:
    openai_server.script = Script(
        rules=[
            Rule(fault="rate_limit", nth=[2], retry_after="7"),
            Rule(fault="server_error", contains="bad"),
            Rule(change={"finish_reason": "length"}, after=4),
        ]
    )
    statuses = [(await ask(openai_server))[0] for _ in range(3)]
    assert statuses == [200, 429, 200]
    assert (await ask(openai_server, "bad one"))[0] == 500
    assert (await ask(openai_server))[1]["choices"][0]["finish_reason"] == "length"
    assert openai_server.faults == {"rate_limit": 1, "server_error": 1}
    assert [call.status for call in openai_server.calls] == [200, 429, 200, 500, 200]


async def test_calls_above_a_limit_in_flight_are_refused(openai_server: OpenAIServer) -> None:
    openai_server.script = Script(
        latency_ms=100, rules=[Rule(fault="rate_limit", above_in_flight=3)]
    )
    answers = await asyncio.gather(*(ask(openai_server, f"{i}") for i in range(8)))
    assert sorted(status for status, _ in answers) == [200] * 3 + [429] * 5
    assert openai_server.in_flight == 0


@pytest.fixture
def server_process(tmp_path: Path) -> Any:
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"reply": "from a process {key}"}))
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "tests.openai_server"),
            *(f"--script={script}", f"--log={tmp_path / 'calls.jsonl'}"),
        ],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
        text=True,
    )
    yield process
    process.kill()
    process.communicate()


async def test_process_serves_logs_and_takes_a_new_script(
    server_process: subprocess.Popen[str], tmp_path: Path
) -> None:
    assert server_process.stdout is not None
    url = server_process.stdout.readline().strip()
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "n": 1}
    async with aiohttp.ClientSession() as session:
        async with session.post(f"{url}/chat/completions", json=body) as response:
            assert text_of(await response.json()).startswith("from a process")
        new = {"rules": [{"fault": "unauthorized"}]}
        async with session.put(f"{url.removesuffix('/v1')}/script", json=new) as response:
            assert response.status == 200
        async with session.post(f"{url}/chat/completions", json=body) as response:
            assert response.status == 401
        async with session.get(f"{url.removesuffix('/v1')}/stats") as response:
            assert (await response.json())["calls"] == 2
    lines = [json.loads(line) for line in (tmp_path / "calls.jsonl").read_bytes().splitlines()]
    assert [(line["event"], line["status"]) for line in lines] == [
        ("call", None),
        ("end", 200),
        ("call", None),
        ("end", 401),
    ]
    assert lines[0]["body"] == body
