"""The HTTP side of the fake server: reads calls, logs every one, answers or breaks as told.

It must stay cheap (benchmarks use it) and must not judge what it gets: tests read its log.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import time
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path
from types import TracebackType
from typing import Any

import orjson
from aiohttp import web

from tests.openai_server.batches import Batches
from tests.openai_server.script import STATUS, Ask, Rule, Script, holds


@dataclass
class LoggedCall:
    """One call as it came in, and how it was answered (None while it is open)."""

    number: int
    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    key: str
    ordinal: int
    in_flight: int
    status: int | None = None
    fault: str | None = None
    text: str | None = None
    usage: dict[str, Any] | None = None


class OpenAIServer:
    """Serves on 127.0.0.1. `log` gets a line a call on arrival and one when it is answered.

    `keep=False` keeps no calls in memory (for millions of calls); counters stay.
    """

    def __init__(
        self,
        script: Script | None = None,
        *,
        port: int = 0,
        log: Path | None = None,
        keep: bool = True,
    ) -> None:
        self.script = script or Script()
        self.port = port
        self.calls: list[LoggedCall] = []
        self.count = 0
        self.answered = 0
        self.in_flight = 0
        self.max_in_flight = 0
        self.faults: dict[str, int] = {}
        self.tokens = {"prompt_tokens": 0, "completion_tokens": 0}
        self.batches = Batches(self._batch_row)
        self._keep = keep
        self._log = None if log is None else os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._ordinals: dict[bytes, int] = {}
        self._fired: dict[int, int] = {}
        self._runner: web.ServerRunner | None = None

    @property
    def root(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        """The `api_base`."""
        return f"{self.root}/v1"

    async def __aenter__(self) -> OpenAIServer:
        server = web.Server(self._answer, access_log=None, handler_cancellation=True)
        self._runner = web.ServerRunner(server, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, backlog=4096)
        await site.start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
        if self._log is not None:
            os.close(self._log)

    def stats(self) -> dict[str, Any]:
        """Counters as `GET /stats` gives them."""
        return {
            "calls": self.count,
            "answered": self.answered,
            "in_flight": self.in_flight,
            "max_in_flight": self.max_in_flight,
            "faults": self.faults,
            **self.tokens,
        }

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        path = request.path
        if request.method == "POST" and path in ("/v1/chat/completions", "/v1/completions"):
            return await self._call(request)
        batched = await self.batches.answer(request, self.script)
        if batched is not None:
            return batched
        if path == "/v1/models":
            return _json(200, self._models())
        if path == "/stats":
            return _json(200, self.stats())
        if path == "/script" and request.method == "PUT":
            self.script = Script.model_validate_json(await request.read())
            self._fired.clear()
            return _json(200, {})
        return _json(404, {"detail": "Not Found"})

    def _models(self) -> dict[str, Any]:
        script = self.script
        names = [script.served_model] if script.served_model else script.models or ["test-model"]
        listed = [
            {"id": name, "object": "model", "root": script.root or name, "owned_by": "tests"}
            for name in names
        ]
        return {"object": "list", "data": listed}

    async def _call(self, request: web.BaseRequest) -> web.StreamResponse:
        raw = await request.read()
        body = orjson.loads(raw)
        self.count += 1
        self.in_flight += 1
        self.max_in_flight = max(self.max_in_flight, self.in_flight)
        ask = self._ask(body)
        call = LoggedCall(
            number=ask.number,
            path=request.path,
            headers={str(name).lower(): value for name, value in request.headers.items()},
            body=body,
            key=ask.key,
            ordinal=ask.ordinal,
            in_flight=ask.in_flight,
        )
        if self._keep:
            self.calls.append(call)
        if self._log is not None:
            self._write({"event": "call", **vars(call)})
        try:
            return await self._reply(request, ask, call)
        finally:
            self.in_flight -= 1
            if self._log is not None:
                self._write({"event": "end", **vars(call), "body": None, "headers": None})

    def _batch_row(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]] | None:
        """The answer to a call that came in a batch; faults other than refusals are `hang`s."""
        self.count += 1
        ask = self._ask(body)
        call = LoggedCall(ask.number, "/v1/batches", {}, body, ask.key, ask.ordinal, 0)
        if self._keep:
            self.calls.append(call)
        rule = self._rule(ask)
        fault = rule.fault if rule else None
        if fault in STATUS:
            status, kind, code, message = STATUS[fault]
            call.status, call.fault = status, fault
            return status, {"error": {"message": message, "type": kind, "code": code}}
        if fault is not None:
            call.fault = fault
            return None
        payload = _payload(self.script, ask, call)
        for name in self.tokens:
            self.tokens[name] += (call.usage or {}).get(name) or 0
        call.status = 200
        self.answered += 1
        return 200, payload

    def _ask(self, body: dict[str, Any]) -> Ask:
        said = body.get("messages") or body.get("prompt")
        seed = body.get("seed")
        identity = hashlib.sha256(json.dumps([said, seed]).encode())
        short = identity.digest()[:8]
        ordinal = self._ordinals[short] = self._ordinals.get(short, 0) + 1
        if seed is None:
            identity.update(b"%d" % ordinal)
        last = said[-1]["content"] if isinstance(said, list) else said
        return Ask.model_construct(
            number=self.count,
            ordinal=ordinal,
            in_flight=self.in_flight,
            body=body,
            prompt=last if isinstance(last, str) else json.dumps(last),
            seed=seed,
            key=identity.hexdigest(),
        )

    def _rule(self, ask: Ask) -> Rule | None:
        for index, rule in enumerate(self.script.rules):
            if holds(rule, ask, self._fired.get(index, 0)):
                self._fired[index] = self._fired.get(index, 0) + 1
                return rule
        return None

    async def _reply(
        self, request: web.BaseRequest, ask: Ask, call: LoggedCall
    ) -> web.StreamResponse:
        script, rule = self.script, self._rule(ask)
        fault = rule.fault if rule else None
        if fault is None and script.api_key is not None:
            given = request.headers.get("Authorization", "")
            fault = None if given == f"Bearer {script.api_key}" else "unauthorized"
        if fault is None and script.models is not None and ask.body["model"] not in script.models:
            fault = "unknown_model"
        if fault is not None:
            call.fault = fault
            self.faults[fault] = self.faults.get(fault, 0) + 1
        if fault in STATUS:
            return self._refuse(request, rule or Rule(), fault, call)
        if rule is not None and rule.change:
            script = Script.model_validate({**dict(script), **rule.change})
        latency_s = script.latency_s(ask)
        if latency_s:
            await asyncio.sleep(latency_s)
        payload = _payload(script, ask, call)
        for name in self.tokens:
            self.tokens[name] += (call.usage or {}).get(name) or 0
        if fault is None:
            call.status = 200
            self.answered += 1
            return _json(200, payload)
        return await _broken(request, fault, payload, rule or Rule(), call)

    def _refuse(
        self, request: web.BaseRequest, rule: Rule, fault: str, call: LoggedCall
    ) -> web.Response:
        status, kind, code, message = STATUS[fault]
        headers = {}
        if rule.retry_after is not None:
            wait = rule.retry_after
            if wait.startswith("date+"):
                wait = formatdate(time.time() + float(wait[5:]), usegmt=True)
            headers["Retry-After"] = wait
        if rule.echo is not None:
            given = request.headers.get("Authorization", "")
            message += " " + rule.echo.replace("{authorization}", given)
        call.status = status
        error = {"message": message, "type": kind, "param": None, "code": code}
        return _json(status, {"error": error}, headers)

    def _write(self, line: dict[str, Any]) -> None:
        assert self._log is not None
        os.write(self._log, orjson.dumps(line) + b"\n")


def _payload(script: Script, ask: Ask, call: LoggedCall) -> dict[str, Any]:
    text, finish = script.text(ask), script.finish_reason
    limit = ask.body.get("max_tokens") or ask.body.get("max_completion_tokens")
    words = text.split(" ")
    if limit is not None and len(words) > limit:
        words, finish = words[:limit], "length"
        text = " ".join(words)
    call.text = text
    choice: dict[str, Any] = {"index": 0, "finish_reason": finish}
    if "messages" in ask.body:
        message: dict[str, Any] = {"role": "assistant", "content": text}
        if script.reasoning is not None:
            message[script.reasoning_field] = script.reasoning
        if script.tool_calls:
            message["tool_calls"] = [
                {"id": f"call_{ask.key[:8]}_{index}", "type": "function", "function": function}
                for index, function in enumerate(script.tool_calls)
            ]
        choice["message"] = message
        if ask.body.get("logprobs"):
            choice["logprobs"] = {"content": [{"token": word, "logprob": -0.5} for word in words]}
    else:
        choice["text"] = text
    payload = {
        "id": f"cmpl-{ask.key[:16]}-{ask.ordinal}",
        "object": "chat.completion" if "messages" in ask.body else "text_completion",
        "created": 1_700_000_000,
        "model": script.served_model or ask.body["model"],
        "choices": [choice],
    }
    if script.usage == "auto":
        n_bytes = len(json.dumps(ask.body.get("messages") or ask.body.get("prompt")))
        said = int(n_bytes / script.bytes_per_token) + script.template_tokens
        call.usage = {
            "prompt_tokens": said,
            "completion_tokens": len(words),
            "total_tokens": said + len(words),
        }
    elif isinstance(script.usage, dict):
        call.usage = script.usage
    if call.usage is not None:
        payload["usage"] = call.usage
    return payload


async def _broken(
    request: web.BaseRequest, fault: str, payload: dict[str, Any], rule: Rule, call: LoggedCall
) -> web.StreamResponse:
    """A 200 that is not a sound reply, or none at all."""
    if fault == "hang":
        await asyncio.sleep(rule.delay_s)
        return _close(request)
    if fault == "refuse":
        return _close(request)
    call.status = 200
    if fault == "garbage":
        return web.Response(body=b'{"id": "x", "choices": [{"mess', content_type="application/json")
    if fault == "error_body":
        error = {"message": "upstream failed", "type": "server_error", "code": 502}
        return _json(200, {"error": error})
    message = payload["choices"][0].get("message", payload["choices"][0])
    field = "content" if "content" in message else "text"
    if fault == "no_choices":
        payload["choices"] = []
    elif fault == "null_content":
        message[field] = None
    elif fault == "surrogates":
        message[field] = "lone \ud83d end"
    elif fault == "big":
        message[field] += " " + "x" * 10_000_000
    # json, not orjson: lone surrogates travel as escapes, as some servers send them.
    raw = json.dumps(payload).encode()
    if fault not in ("slow_loris", "cut_body", "disconnect"):
        return web.Response(body=raw, content_type="application/json")
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    if fault == "cut_body":
        response.content_length = len(raw)
    else:
        response.enable_chunked_encoding()
    await response.prepare(request)
    if fault == "slow_loris":
        with contextlib.suppress(ConnectionError):
            for byte in raw:
                await response.write(bytes([byte]))
                await asyncio.sleep(rule.delay_s)
            await response.write_eof()
        return response
    await response.write(raw[: len(raw) // 2])
    await asyncio.sleep(0.01)
    return _close(request, response)


def _close(
    request: web.BaseRequest, response: web.StreamResponse | None = None
) -> web.StreamResponse:
    if request.transport is not None:
        request.transport.close()
    return response or web.Response(status=500)


def _json(status: int, value: Any, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(
        body=orjson.dumps(value), status=status, content_type="application/json", headers=headers
    )
