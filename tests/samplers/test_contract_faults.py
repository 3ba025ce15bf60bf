"""One contract for every transport that calls a server: what each failure is, and what it says."""

from __future__ import annotations

import asyncio
import json
import socket
from typing import Any

import pytest

from labelkit.errors import ProviderError
from tests.openai_server import OpenAIServer, Rule, Script
from tests.samplers.calls import Make, call, failure, reply

CANARY = "canary-7f3a9c51d2e84b06"

KINDS = {
    "rate_limit": ("transient", 429),
    "insufficient_quota": ("fatal", 429),
    "server_error": ("transient", 500),
    "unavailable": ("transient", 503),
    "overloaded": ("transient", 529),
    "conflict": ("transient", 409),
    "request_timeout": ("transient", 408),
    "unauthorized": ("fatal", 401),
    "payment_required": ("fatal", 402),
    "forbidden": ("fatal", 403),
    "unknown_model": ("fatal", 404),
    "bad_request": ("row", 400),
    "context_length": ("row", 400),
    "content_filter": ("content_filter", 400),
    "too_large": ("row", 413),
    "unprocessable": ("row", 422),
    "refuse": ("transient", None),
    "cut_body": ("unreadable", None),
    "disconnect": ("unreadable", None),
    "garbage": ("unreadable", None),
    "error_body": ("unreadable", None),
    "no_choices": ("unreadable", None),
    "hang": ("timeout", None),
    "slow_loris": ("timeout", None),
}


@pytest.mark.parametrize("fault", KINDS)
async def test_fault_has_its_class_and_is_tried_once(
    make: Make, openai_server: OpenAIServer, fault: Any
) -> None:
    openai_server.script = Script(rules=[Rule(fault=fault, delay_s=0.2 if fault != "hang" else 9)])
    timeout_s = 0.5 if fault in ("hang", "slow_loris") else 30.0
    error = await failure(make(timeout_s=timeout_s))
    kind, status = KINDS[fault]
    assert error.kind == kind, error
    assert openai_server.count == 1
    if status is not None:
        assert error.status_code == status
        assert openai_server.faults == {fault: 1}


async def test_connection_refused_is_transient(make: Make) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        base = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        error = await failure(make(api_base=base))
    assert (error.kind, error.error_type) == ("transient", "connection_error")


async def test_server_that_accepts_no_connection_is_transient(make: Make) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(0)
        address = silent.getsockname()
        with socket.create_connection(address), socket.socket() as second:
            # With the backlog full, further connections get no answer at all.
            second.setblocking(False)
            second.connect_ex(address)
            base = f"http://127.0.0.1:{address[1]}/v1"
            error = await failure(make(api_base=base, connect_timeout_s=0.3, timeout_s=1.5))
    assert (error.kind, error.error_type) == ("transient", "connect_timeout")


@pytest.mark.parametrize(
    ("header", "low", "high"),
    [("7", 7, 7), ("1.5", 1.5, 1.5), ("date+60", 55, 60), ("999999", 999999, 999999)],
)
async def test_retry_after_is_read_in_every_form(
    make: Make, openai_server: OpenAIServer, header: str, low: float, high: float
) -> None:
    openai_server.script = Script(rules=[Rule(fault="rate_limit", retry_after=header)])
    error = await failure(make())
    assert error.retry_after_s is not None
    assert low <= error.retry_after_s <= high


@pytest.mark.parametrize(
    "header", [None, "soon", "-3", "nan", "Mon, 01 Jan 99999999999999999999 00:00:00 GMT"]
)
async def test_no_usable_retry_after_is_none(
    make: Make, openai_server: OpenAIServer, header: str | None
) -> None:
    openai_server.script = Script(rules=[Rule(fault="rate_limit", retry_after=header)])
    assert (await failure(make())).retry_after_s is None


async def test_an_earlier_failure_does_not_colour_the_next(
    make: Make, openai_server: OpenAIServer
) -> None:
    openai_server.script = Script(
        rules=[Rule(fault="unauthorized", nth=[1]), Rule(fault="garbage", nth=[2])]
    )
    sampler = make()
    first = await failure(sampler)
    assert first.kind == "fatal"
    try:
        raise first
    except ProviderError:
        second = await failure(sampler)
    assert second.kind == "unreadable"


async def test_cancelling_a_call_leaves_the_sampler_usable(
    make: Make, openai_server: OpenAIServer
) -> None:
    openai_server.script = Script(rules=[Rule(change={"latency_ms": 5000}, nth=[1])])
    sampler = make()
    running = asyncio.ensure_future(sampler.sample(call()))
    await asyncio.sleep(0.3)
    assert openai_server.in_flight == 1
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (await reply(sampler.sample(call()))).text


async def test_secrets_stay_out_of_messages(
    make: Make, model: str, openai_server: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("OPENAI_API_KEY", "HOSTED_VLLM_API_KEY", "SOME_TOKEN"):
        monkeypatch.setenv(variable, f"sk-{variable.lower()}-{CANARY}")
    openai_server.script = Script(
        rules=[
            Rule(
                fault="bad_request",
                echo=f"{{authorization}} {CANARY}-h \x1b]0;x\x07 sk-some_token-{CANARY}",
            )
        ]
    )
    bases = [openai_server.url]
    if model != "hosted_vllm/m":
        bases.append(openai_server.url.replace("//", f"//user:{CANARY}-p@"))
    for base in bases:
        sampler = make(api_base=base, headers={"X-Team": f"{CANARY}-h"})
        error = await failure(sampler)
        assert error.kind == "row"
        said = f"{error} {error.hint} {error.error_type} {json.dumps(str(error))}"
        assert CANARY not in said
        assert "\x1b" not in said
        assert "[secret]" in said
    sent = [logged.headers for logged in openai_server.calls]
    assert all(headers["x-team"] == f"{CANARY}-h" for headers in sent)
    if model != "hosted_vllm/m":
        assert sent[1]["authorization"].startswith("Basic ")


async def test_messages_are_bounded(make: Make, openai_server: OpenAIServer) -> None:
    openai_server.script = Script(rules=[Rule(fault="bad_request", echo="z" * 100_000)])
    assert len(str(await failure(make()))) <= 500
