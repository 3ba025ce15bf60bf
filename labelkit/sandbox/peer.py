"""The candidate's side of the conversation between a candidate and its tests.

Two processes take turns: each frame is a request or the answer to one, and whoever waits for an
answer serves the other's requests meanwhile, so that functions can be handed over and called back.

Requests: ["call", handle, args, kwargs], ["op", name, handle, args].
Answers: ["return", value, changed args or null], ["raise", names of the type and its bases, text].
Handle 0 is the entry point. Runs inside sandboxes: standard library only.
"""

from __future__ import annotations

import json
import operator
import sys
import types
from collections.abc import Callable
from typing import Any, BinaryIO

from labelkit.sandbox.values import NotPlain, decode, encode

Frame = list[Any]
_CO_COROUTINE = 0x80
_CHANGEABLE = (list, dict, set, bytearray)


class Peer:
    """One end of the conversation. `serve` answers the other end's requests."""

    def __init__(self, requests: BinaryIO, answers: BinaryIO) -> None:
        self._in = requests
        self._out = answers
        self.serve: Callable[[Frame], Frame] = _serve_nothing

    def send(self, frame: Frame) -> None:
        self._out.write(json.dumps(frame).encode("ascii") + b"\n")
        self._out.flush()

    def receive(self) -> Frame:
        """The next frame; ends the process where there is none any more."""
        line = self._in.readline()
        if not line:
            sys.exit(0)
        frame: Frame = json.loads(line)
        return frame

    def request(self, frame: Frame) -> Frame:
        """Send a request and wait for its answer, serving what comes in between."""
        self.send(frame)
        while (answer := self.receive())[0] not in ("return", "raise"):
            self.send(self.serve(answer))
        return answer


def serve_candidate(peer: Peer) -> None:
    """Run the prelude of the first frame, load the candidate of the second, then serve it.

    The prelude is not the candidate's: it is answered by ["prelude"] or ["broken", reason] before
    any of the candidate's code is in this process. Then [source, entry point] is answered by
    ["loaded", is it a coroutine function] or ["failed", reason].
    """
    module = types.ModuleType("solution")
    sys.modules["solution"] = module
    (prelude,) = peer.receive()
    try:
        _run(prelude, module)
    except BaseException as error:  # foreign code
        peer.send(["broken", _said(error)])
        return
    peer.send(["prelude"])
    source, name = peer.receive()
    stub = module.__dict__.get(name)
    try:
        _run(source, module)
        entry = _entry(module, name, stub)
    except BaseException as error:  # SystemExit and the like at import are failures as well
        peer.send(["failed", _said(error)])
        return
    candidate = _Candidate(peer, entry)
    peer.serve = candidate.serve
    peer.send(["loaded", _is_async(entry)])
    while True:
        peer.send(candidate.serve(peer.receive()))


def call(function: Callable[..., Any], args: Frame, kwargs: Frame, candidate: _Side) -> Frame:
    """Call a function of this side; the answer frame, with the arguments that it changed."""
    try:
        positional = [decode(item, candidate.import_) for item in args]
        named = {key: decode(item, candidate.import_) for key, item in kwargs}
        returned = function(*positional, **named)
        if isinstance(returned, types.CoroutineType) and _is_async(function):
            import asyncio

            returned = asyncio.run(returned)
        value = encode(returned, candidate.export)
        changed: Frame | None = [
            encode(item, candidate.export) if isinstance(item, _CHANGEABLE) else None
            for item in positional
        ]
        if changed is not None and all(
            now in (None, before) for now, before in zip(changed, args, strict=True)
        ):
            changed = None
    except BaseException as error:  # whatever foreign code raises is an answer
        return raised(error)
    return ["return", value, changed]


def raised(error: BaseException) -> Frame:
    """The answer frame of an exception: the names of its type and bases, and its text."""
    try:
        text = str(error)[:2000]
    except BaseException:  # the text of a foreign exception is foreign code
        text = ""
    return ["raise", [kind.__name__ for kind in type(error).__mro__], text]


class _Side:
    """What one side hands out and takes in beyond plain values."""

    def export(self, value: Any) -> Frame:
        raise NotImplementedError

    def import_(self, data: Frame) -> Any:
        raise NotImplementedError


class _Candidate(_Side):
    def __init__(self, peer: Peer, entry: Callable[..., Any]) -> None:
        self._peer = peer
        self._kept: list[Any] = [entry]

    def serve(self, frame: Frame) -> Frame:
        if frame[0] == "call":
            return call(self._kept[frame[1]], frame[2], frame[3], self)
        _, name, handle, args = frame
        return call(_OPERATIONS[name], [["handle", handle], *args], [], self)

    def export(self, value: Any) -> Frame:
        if isinstance(value, types.CoroutineType | types.ModuleType):
            raise NotPlain(f"a {type(value).__name__} cannot be handed over")
        kind = "object"
        if hasattr(type(value), "__next__"):
            kind = "iterator"
        elif isinstance(value, _VIEWS):
            return ["list", [encode(item, self.export) for item in value]]
        elif isinstance(value, types.FunctionType | types.MethodType | types.BuiltinFunctionType):
            kind = "function"
        self._kept.append(value)
        return ["handle", len(self._kept) - 1, kind, type(value).__name__]

    def import_(self, data: Frame) -> Any:
        if data[0] == "callback":
            return lambda *args, **kwargs: self._call_back(data[1], args, kwargs)
        return self._kept[data[1]]

    def _call_back(self, handle: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        sent = [encode(item, self.export) for item in args]
        named = [[key, encode(item, self.export)] for key, item in kwargs.items()]
        answer = self._peer.request(["call", handle, sent, named])
        if answer[0] == "raise":
            raise RuntimeError(f"{answer[1][0]}: {answer[2]}")
        return decode(answer[1], self.import_)


_VIEWS: Any = (type({}.keys()), type({}.values()), type({}.items()))
_OPERATIONS: dict[str, Callable[..., Any]] = {
    "next": next,
    "iter": iter,
    "len": len,
    "get": getattr,
    "set": setattr,
    "item": operator.getitem,
    "set_item": operator.setitem,
    "str": str,
    "repr": repr,
    "equal": operator.eq,
}


def _run(text: str, module: types.ModuleType) -> None:
    exec(compile(text, "solution.py", "exec", dont_inherit=True), module.__dict__)


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:500]


def _entry(module: types.ModuleType, name: str, stub: Any) -> Callable[..., Any]:
    """The candidate's entry point, a method of LeetCode's `Solution` where that is all there is.

    `stub`: what the prelude had under that name, which is no answer.
    """
    entry = module.__dict__.get(name)
    wrapper = module.__dict__.get("Solution")
    if entry is stub and isinstance(wrapper, type) and hasattr(wrapper, name):
        return lambda *args, **kwargs: getattr(wrapper(), name)(*args, **kwargs)
    if entry is stub or not callable(entry):
        raise NameError(f"{name} is not defined")
    found: Callable[..., Any] = entry
    return found


def _is_async(entry: Callable[..., Any]) -> bool:
    code = getattr(entry, "__code__", None)
    return isinstance(code, types.CodeType) and bool(code.co_flags & _CO_COROUTINE)


def _serve_nothing(frame: Frame) -> Frame:
    raise ValueError(f"unexpected {frame[0]!r}")
