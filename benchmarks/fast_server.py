"""A chat server that costs next to nothing, in a process of its own: the client is measured.

It answers every POST with the same completion after `--latency-ms`, or with 429 above
`--refuse-above` calls in flight, and prints its URL as its first line. It reads no more of HTTP/1.1
than clients of the OpenAI protocol send.
"""

from __future__ import annotations

import argparse
import asyncio
import json

ANSWER = "Six times seven is forty-two, step by step: 6 + 6 + 6 + 6 + 6 + 6 + 6.\nThe answer is 42."
COMPLETION = {
    "id": "cmpl-bench",
    "object": "chat.completion",
    "created": 1_700_000_000,
    "model": "bench",
    "choices": [
        {
            "index": 0,
            "finish_reason": "stop",
            "message": {"role": "assistant", "content": ANSWER},
        }
    ],
    "usage": {"prompt_tokens": 60, "completion_tokens": 40, "total_tokens": 100},
}
LONG_COMPLETION = {
    **COMPLETION,
    "choices": [
        {
            "index": 0,
            "finish_reason": "stop",
            "message": {"role": "assistant", "content": "So. " * 5_000 + ANSWER},
        }
    ],
}
MODELS = {"object": "list", "data": [{"id": "bench", "object": "model", "root": "bench"}]}
REFUSAL = {"error": {"message": "Rate limit reached", "type": "rate_limit_error", "code": None}}


def _response(status: str, body: object) -> bytes:
    return _framed(status, "application/json", json.dumps(body).encode())


def _stream() -> bytes:
    """The completion as events, for clients that stream whether or not they are asked to."""
    common = {name: COMPLETION[name] for name in ("id", "created", "model")}
    common["object"] = "chat.completion.chunk"
    deltas: list[tuple[dict[str, str], str | None]] = [
        ({"role": "assistant", "content": ANSWER}, None),
        ({}, "stop"),
    ]
    chunks = [
        {**common, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
        for delta, finish in deltas
    ]
    chunks.append({**common, "choices": [], "usage": COMPLETION["usage"]})
    events = [*(json.dumps(chunk) for chunk in chunks), "[DONE]"]
    raw = "".join(f"data: {event}\n\n" for event in events).encode()
    return _framed("200 OK", "text/event-stream", raw)


def _framed(status: str, kind: str, raw: bytes) -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(raw)}\r\n\r\n"
    return head.encode() + raw


class Server(asyncio.Protocol):
    """One connection; calls on it come one after another."""

    completion = _response("200 OK", COMPLETION)
    stream = _stream()
    long = _response("200 OK", LONG_COMPLETION)
    long_every = 0
    answered = 0
    models = _response("200 OK", MODELS)
    refusal = _response("429 Too Many Requests", REFUSAL)
    latency_s = 0.0
    refuse_above: int | None = None
    in_flight = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._received = bytearray()

    def data_received(self, data: bytes) -> None:
        self._received += data
        while (end := self._received.find(b"\r\n\r\n")) >= 0:
            head = bytes(self._received[:end]).lower()
            length = 0
            if (at := head.find(b"content-length:")) >= 0:
                length = int(head[at + 15 :].split(b"\r\n", 1)[0])
            if len(self._received) < end + 4 + length:
                return
            body = bytes(self._received[end + 4 : end + 4 + length])
            del self._received[: end + 4 + length]
            streamed = b'"stream":true' in body or b'"stream": true' in body
            Server.answered += 1
            is_long = self.long_every and Server.answered % self.long_every == 0
            reply = self.stream if streamed else self.long if is_long else self.completion
            self._answer(reply if head.startswith(b"post") else None)

    def _answer(self, reply: bytes | None) -> None:
        if reply is None:
            self._transport.write(self.models)
        elif self.refuse_above is not None and Server.in_flight >= self.refuse_above:
            self._transport.write(self.refusal)
        elif self.latency_s == 0:
            self._transport.write(reply)
        else:
            Server.in_flight += 1
            asyncio.get_running_loop().call_later(self.latency_s, self._finish, reply)

    def _finish(self, reply: bytes) -> None:
        Server.in_flight -= 1
        if not self._transport.is_closing():
            self._transport.write(reply)


async def serve(latency_ms: float, refuse_above: int | None) -> None:
    Server.latency_s = latency_ms / 1000
    Server.refuse_above = refuse_above
    server = await asyncio.get_running_loop().create_server(Server, "127.0.0.1", 0, backlog=4096)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", flush=True)
    await server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--latency-ms", type=float, default=0.0)
    parser.add_argument("--refuse-above", type=int)
    parser.add_argument("--long-every", type=int, default=0, help="every nth reply has 20 kB")
    options = parser.parse_args()
    Server.long_every = options.long_every
    asyncio.run(serve(options.latency_ms, options.refuse_above))


if __name__ == "__main__":
    main()
