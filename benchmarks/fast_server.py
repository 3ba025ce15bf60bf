"""A chat server that costs next to nothing, in a process of its own: the client is measured.

It answers every POST with the same completion after `--latency-ms`, or with 429 above
`--refuse-above` calls in flight, and prints its URL as its first line. `GET /stats` tells what it
saw, by its monotonic clock, which all processes of a machine share. It reads no more of HTTP/1.1
than clients of the OpenAI protocol send.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections import Counter, deque

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
BINS_PER_S = 10


def _response(status: str, body: object, *headers: str) -> bytes:
    return _framed(status, "application/json", json.dumps(body).encode(), *headers)


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


def _framed(status: str, kind: str, raw: bytes, *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Type: {kind}", f"Content-Length: {len(raw)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + raw


class Capacity:
    """How many calls may be in flight now, and what came of it. `None`: any number.

    `changes`: (calls answered, the number from then on). `pauses`: (calls answered, seconds in
    which every call is refused). Both in order.
    """

    def __init__(
        self,
        most: int | None = None,
        changes: list[tuple[int, int]] | None = None,
        pauses: list[tuple[int, float]] | None = None,
    ) -> None:
        self.most = most
        self.in_flight = 0
        self._changes = deque(changes or [])
        self._pauses = deque(pauses or [])
        self._paused_until_s = 0.0
        self.most_in_flight = 0
        self.answered = 0
        self.answered_by: Counter[int] = Counter()
        self.refused_at_s: list[float] = []
        self.changed_at_s: list[float] = []
        self.paused_s: list[tuple[float, float]] = []
        self.first_s: float | None = None
        self.last_s: float | None = None

    def refuses(self) -> bool:
        """Whether one more call is too many; it is counted as refused where it is."""
        if self.first_s is None:
            self.first_s = time.monotonic()
        full = self.most is not None and self.in_flight >= self.most
        if not full and not self._paused_until_s:
            return False
        now_s = time.monotonic()
        if not full and now_s >= self._paused_until_s:
            self._paused_until_s = 0.0
            return False
        self.refused_at_s.append(now_s)
        return True

    def enter(self) -> None:
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)

    def answer(self) -> None:
        """Count an answer."""
        self.last_s = now_s = time.monotonic()
        self.answered += 1
        self.answered_by[int(now_s * BINS_PER_S)] += 1
        if self._changes and self.answered >= self._changes[0][0]:
            self.most = self._changes.popleft()[1]
            self.changed_at_s.append(now_s)
        if self._pauses and self.answered >= self._pauses[0][0]:
            self._paused_until_s = now_s + self._pauses.popleft()[1]
            self.paused_s.append((now_s, self._paused_until_s))

    def stats(self) -> dict[str, object]:
        """All counts; `answered_by` has a bin for each tenth of a second."""
        public = {name: value for name, value in vars(self).items() if not name.startswith("_")}
        return {**public, "answered_by": sorted(self.answered_by.items())}


class Server(asyncio.Protocol):
    """One connection; calls on it come one after another."""

    completion = _response("200 OK", COMPLETION)
    stream = _stream()
    long = _response("200 OK", LONG_COMPLETION)
    long_every = 0
    received = 0
    models = _response("200 OK", MODELS)
    refusal = _response("429 Too Many Requests", REFUSAL)
    latency_s = 0.0
    capacity = Capacity()

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
            if not head.startswith(b"post"):
                asks_stats = head.startswith(b"get /stats ")
                stats = _response("200 OK", self.capacity.stats()) if asks_stats else None
                self._transport.write(stats or self.models)
                continue
            streamed = b'"stream":true' in body or b'"stream": true' in body
            Server.received += 1
            is_long = self.long_every and Server.received % self.long_every == 0
            self._answer(self.stream if streamed else self.long if is_long else self.completion)

    def _answer(self, reply: bytes) -> None:
        if self.capacity.refuses():
            self._transport.write(self.refusal)
        elif self.latency_s == 0:
            self.capacity.answer()
            self._transport.write(reply)
        else:
            self.capacity.enter()
            asyncio.get_running_loop().call_later(self.latency_s, self._finish, reply)

    def _finish(self, reply: bytes) -> None:
        self.capacity.in_flight -= 1
        self.capacity.answer()
        if not self._transport.is_closing():
            self._transport.write(reply)


async def serve() -> None:
    server = await asyncio.get_running_loop().create_server(Server, "127.0.0.1", 0, backlog=4096)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", flush=True)
    await server.serve_forever()


def _change(text: str) -> tuple[int, int]:
    after, most = text.split(":")
    return int(after), int(most)


def _pause(text: str) -> tuple[int, float]:
    after, seconds = text.split(":")
    return int(after), float(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--latency-ms", type=float, default=0.0)
    parser.add_argument("--refuse-above", type=int)
    parser.add_argument(
        "--then", type=_change, nargs="+", help="ANSWERED:N: refuse above N from then on"
    )
    parser.add_argument(
        "--pause",
        type=_pause,
        nargs="+",
        help="ANSWERED:SECONDS: then refuse everything for a while",
    )
    parser.add_argument("--retry-after", type=int, help="sent with every 429, in seconds")
    parser.add_argument("--long-every", type=int, default=0, help="every nth reply has 20 kB")
    options = parser.parse_args()
    Server.long_every = options.long_every
    Server.latency_s = options.latency_ms / 1000
    Server.capacity = Capacity(options.refuse_above, options.then, options.pause)
    if options.retry_after is not None:
        header = f"Retry-After: {options.retry_after}"
        Server.refusal = _response("429 Too Many Requests", REFUSAL, header)
    asyncio.run(serve())


if __name__ == "__main__":
    main()
