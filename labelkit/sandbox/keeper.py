"""The keeper: a small process that holds one worker, times each call and replaces the worker.

`pool` starts keepers; a keeper starts the worker that does the work, so that a call that hangs,
dies or eats its memory costs one fork (with `preload`) and not a fresh start with all its imports.
The keeper has no threads, trusts nothing that the worker writes, and must never run a call itself.

Frames are lines. In: `TIMEOUT_S JSON`. Out: `ok JSON`, `error JSON-text` (the call raised), `late`
(killed at its wall clock), `died JSON-text` (the worker ended or broke the protocol).
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

MAX_ANSWER_BYTES = 16_000_000
_STDERR_TAIL = 2_000
_PR_SET_PDEATHSIG = 1
_RESERVE_FD = 3


@dataclass(frozen=True)
class KeeperSettings:
    """What a keeper runs. Exactly one of `entry` and `argv`.

    entry: `module:factory`; `factory(argument)` returns the function that answers calls (JSON in,
    JSON out). `preload`: the factory runs once, in the keeper, and workers fork off it; otherwise
    in each worker. argv: a program that answers one JSON line with one JSON line.
    `memory_bytes` caps the worker's address space; `start_timeout_s` is the time to get ready.
    """

    entry: str | None = None
    argument: Any = None
    argv: tuple[str, ...] = ()
    preload: bool = True
    memory_bytes: int | None = None
    start_timeout_s: float = 60.0


@dataclass
class _Worker:
    pid: int
    stdin: int
    stdout: int
    stderr: int
    ready: bool
    said: bytes = b""


class _Gone(Exception):
    """The worker ended or broke the protocol; the text says how."""


def die_with_parent(parent: int, how: signal.Signals) -> None:
    """Have the kernel signal this process when its parent ends (Linux; elsewhere pipes close)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, how)
        if os.getppid() != parent:
            os._exit(1)


def main(settings_json: str, parent: int) -> None:
    """Serve frames until standard input closes or `parent`, the process that started it, ends."""
    worker: _Worker | None = None

    def stop(*_: object) -> None:
        # The end of the input may be ending the worker already: an exception would stop that.
        if worker is not None:
            _kill_group(worker)
        os._exit(0)

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, stop)
    die_with_parent(parent, signal.SIGTERM)
    settings = KeeperSettings(**json.loads(settings_json))
    answer = _load(settings) if settings.entry and settings.preload else None
    out = os.dup(1)
    os.dup2(2, 1)
    os.write(out, b"ready\n")
    try:
        for line in sys.stdin.buffer:
            timeout, _, payload = line.partition(b" ")
            if worker is not None and os.waitpid(worker.pid, os.WNOHANG)[0]:
                _end(worker, reap=False)
                worker = None
            if worker is not None and worker.ready and _readable(worker.stdout):
                _end(worker)  # it wrote a line that nobody asked for: its answers cannot be matched
                worker = None
            try:
                if worker is None:
                    worker = _start(settings, answer)
                frame = _call(worker, payload, float(timeout), settings)
            except (_Gone, OSError) as error:
                frame = b"died " + json.dumps(str(error)).encode()
            if frame.startswith((b"late", b"died")) and worker is not None:
                _end(worker)
                worker = None
            _write(out, frame + b"\n")
    finally:
        if worker is not None:
            _end(worker)


def _load(settings: KeeperSettings) -> Callable[[Any], Any]:
    module, _, name = (settings.entry or "").partition(":")
    answer: Callable[[Any], Any] = getattr(importlib.import_module(module), name)(settings.argument)
    return answer


def _start(settings: KeeperSettings, answer: Callable[[Any], Any] | None) -> _Worker:
    to_worker, from_worker, errors = os.pipe(), os.pipe(), os.pipe()
    keeper = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            _become_worker(settings, answer, keeper, (to_worker[0], from_worker[1], errors[1]))
        finally:
            os._exit(1)
    for end in (to_worker[0], from_worker[1], errors[1]):
        os.close(end)
    return _Worker(pid, to_worker[1], from_worker[0], errors[0], ready=False)


def _become_worker(
    settings: KeeperSettings,
    answer: Callable[[Any], Any] | None,
    keeper: int,
    pipes: tuple[int, int, int],
) -> NoReturn:
    os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    die_with_parent(keeper, signal.SIGKILL)
    out = pipes[1]
    os.dup2(pipes[0], 0)
    os.dup2(pipes[2], 2)
    os.dup2(out if settings.argv else 2, 1)
    if not settings.argv:
        out = os.dup2(out, _RESERVE_FD, inheritable=False)
    os.closerange(_RESERVE_FD if settings.argv else _RESERVE_FD + 1, 256)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if settings.memory_bytes is not None:
        resource.setrlimit(resource.RLIMIT_AS, (settings.memory_bytes, settings.memory_bytes))
    if settings.argv:
        try:
            os.execvp(settings.argv[0], settings.argv)
        except OSError as error:
            os.write(2, f"{settings.argv[0]}: {error.strerror}".encode())
        os._exit(127)
    _serve(answer if answer is not None else _load(settings), out)


def _serve(answer: Callable[[Any], Any], out: int) -> NoReturn:
    """Answer calls in the worker until the keeper is gone."""
    _write(out, b"ready\n")
    with open(0, "rb", closefd=False) as requests:
        for line in requests:
            try:
                text = json.dumps(answer(json.loads(line)), ensure_ascii=False, allow_nan=False)
                frame = b"ok " + text.encode("utf-8", "replace")
            except Exception as error:  # the call is foreign code: whatever it raises is told
                frame = b"error " + json.dumps(f"{type(error).__name__}: {error}").encode()
            _write(out, frame + b"\n")
    os._exit(0)


def _call(worker: _Worker, payload: bytes, timeout_s: float, settings: KeeperSettings) -> bytes:
    if not worker.ready and not settings.argv:
        if _read_line(worker, time.monotonic() + settings.start_timeout_s) is None:
            raise _Gone(f"not ready within {settings.start_timeout_s:g} s")
        worker.ready = True
    deadline = time.monotonic() + timeout_s
    if not worker.ready:
        deadline += settings.start_timeout_s
    _write(worker.stdin, payload)
    line = _read_line(worker, deadline)
    if line is None:
        return b"late"
    worker.ready = True
    return b"ok " + line if settings.argv else line


def _read_line(worker: _Worker, deadline: float) -> bytes | None:
    """The worker's next line, None when it is late. Drains its standard error meanwhile."""
    chunks: list[bytes] = []
    size = 0
    watched = [worker.stdout, worker.stderr, 0]
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            return None
        readable, _, _ = select.select(watched, [], [], left)
        if worker.stderr in readable:
            said = os.read(worker.stderr, 65536)
            worker.said = (worker.said + said)[-_STDERR_TAIL:]
            if not said:
                watched.remove(worker.stderr)
        if 0 in readable:
            sys.exit()  # one call at a time: what can be read now is the end of the input
        if worker.stdout in readable:
            received = os.read(worker.stdout, 65536)
            if not received:
                raise _Gone(_epitaph(worker))
            chunks.append(received)
            size += len(received)
            if received.endswith(b"\n"):
                line = b"".join(chunks)
                if b"\n" in line[:-1]:
                    raise _Gone("wrote more than one line for one call")
                return line[:-1]
            if size > MAX_ANSWER_BYTES:
                raise _Gone(f"answered with more than {MAX_ANSWER_BYTES:,} bytes")


def _readable(end: int) -> bool:
    return bool(select.select([end], [], [], 0)[0])


def _epitaph(worker: _Worker) -> str:
    with contextlib.suppress(OSError):
        while _readable(worker.stderr):
            said = os.read(worker.stderr, 65536)
            if not said:
                break
            worker.said = (worker.said + said)[-_STDERR_TAIL:]
    text = worker.said.decode("utf-8", "replace").strip()
    return f"the worker ended: {text}" if text else "the worker ended"


def _end(worker: _Worker, *, reap: bool = True) -> None:
    """Kill the worker with all that it started, and wait for it."""
    _kill_group(worker)
    if reap:
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker.pid, signal.SIGKILL)  # it may not have made its group yet
        os.waitpid(worker.pid, 0)
    for end in (worker.stdin, worker.stdout, worker.stderr):
        os.close(end)


def _kill_group(worker: _Worker) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(worker.pid, signal.SIGKILL)


def _write(end: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(end, view) :]
