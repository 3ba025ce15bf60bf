"""The tests' side of the conversation between a candidate and its tests.

Test code sees a stand-in for the entry point; what the candidate returns reaches it as plain values
only. A handle of something else can be iterated, called and, where the candidate is a class, used
by its attributes; it equals no plain value, so that no object of a candidate can agree with
whatever it is compared to. Runs inside a sandbox: standard library only.
"""

from __future__ import annotations

import ast
import builtins
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

from labelkit.sandbox.peer import Frame, Peer, _Side, call
from labelkit.sandbox.values import decode, encode

_MOST_ITEMS = 100_000


class CandidateError(Exception):
    """What a candidate raised where it is no built-in Exception; its text has the type."""


class Handle:
    """Something of the candidate's that is no plain value."""

    def __init__(self, tests: _Tests, number: int, kind: str, type_name: str) -> None:
        self.__dict__.update(_tests=tests, _number=number, _kind=kind, _type_name=type_name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._kind == "iterator":
            raise TypeError(f"{self._type_name!r} object is not callable")
        return self._tests.call(self._number, args, kwargs)

    def __iter__(self) -> Iterator[Any]:
        started = self if self._kind == "iterator" else self._operate("iter")
        return iter(started) if not isinstance(started, Handle) else _Items(started)

    def __next__(self) -> Any:
        return self._operate("next")

    def __len__(self) -> int:
        length = self._operate("len")
        return int(length)

    def __getitem__(self, key: Any) -> Any:
        return self._operate("item", key)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._operate("set_item", key, value)

    def __getattr__(self, name: str) -> Any:
        if not self._tests.is_class or name.startswith("__"):
            raise AttributeError(
                f"{self._type_name!r} object of the candidate has no use of {name!r}"
            )
        return self._operate("get", name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._operate("set", name, value)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Handle):
            return False
        same = self._number == other._number
        return same or (self._tests.is_class and self._operate("equal", other) is True)

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        raise TypeError(f"{self._type_name!r} object of the candidate is neither true nor false")

    def __str__(self) -> str:
        return str(self._operate("str")) if self._tests.is_class else repr(self)

    def __repr__(self) -> str:
        if self._tests.is_class:
            return str(self._operate("repr"))
        return f"<{self._type_name} object of the candidate>"

    def _operate(self, name: str, *args: Any) -> Any:
        return self._tests.operate(name, self._number, args)


class _Items:
    """Walks an iterator of the candidate's."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle

    def __iter__(self) -> _Items:
        return self

    def __next__(self) -> Any:
        return next(self._handle)


class _Tests(_Side):
    def __init__(self, peer: Peer, name: str) -> None:
        self._peer = peer
        self._callbacks: list[Callable[..., Any]] = []
        self.is_class = name[:1].isupper()
        peer.serve = self.serve

    def serve(self, frame: Frame) -> Frame:
        """A candidate may call the functions that it was handed, and nothing else."""
        if frame[0] != "call":
            raise ValueError(f"unexpected {frame[0]!r}")
        return call(self._callbacks[frame[1]], frame[2], frame[3], self)

    def call(self, number: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        sent = [encode(item, self.export) for item in args]
        named = [[key, encode(item, self.export)] for key, item in kwargs.items()]
        answer = self._peer.request(["call", number, sent, named])
        value = self._answer(answer)
        for item, changed in zip(args, answer[2] or (), strict=False):
            if changed is not None:
                _change(item, decode(changed, self.import_))
        return value

    def operate(self, name: str, number: int, args: tuple[Any, ...]) -> Any:
        sent = [encode(item, self.export) for item in args]
        return self._answer(self._peer.request(["op", name, number, sent]))

    def export(self, value: Any) -> Frame:
        if isinstance(value, Handle):
            return ["handle", value._number]
        if hasattr(type(value), "__next__"):
            items = [encode(item, self.export) for _, item in zip(range(_MOST_ITEMS), value)]  # noqa: B905
            return ["iterator", items]
        if callable(value) and not isinstance(value, type):
            self._callbacks.append(value)
            return ["callback", len(self._callbacks) - 1]
        raise Undecided(f"a {type(value).__name__} object cannot be handed to the candidate")

    def import_(self, data: Frame) -> Any:
        if data[0] != "handle" or len(data) != 4:
            raise ValueError("not a handle")
        return Handle(self, *data[1:])

    def _answer(self, answer: Frame) -> Any:
        if answer[0] == "return":
            return decode(answer[1], self.import_)
        error = _exception(answer[1], str(answer[2]))
        error.from_candidate = True  # type: ignore[attr-defined]
        raise error


class Undecided(BaseException):
    """The tests cannot be carried out, through no fault of the candidate."""


def run_tests(peer: Peer) -> None:
    """Run tests against a candidate.

    First frame: [prelude, {file name: source}, entry point, is it a coroutine function].
    Ends with ["verdict", "passed"], or ["verdict", "failed" or "undecided", reason].
    """
    prelude, sources, name, is_async = peer.receive()
    tests = _Tests(peer, name)
    try:
        for file, source in sources.items():
            awaited = "await" in source or "asyncio" in source
            _run(prelude, file, source, name, _stand_in(tests, name, is_async, awaited))
    except Undecided as error:
        peer.send(["verdict", "undecided", str(error)])
    except BaseException as error:  # a failed test may raise anything
        blames_tests = isinstance(error, NameError | ImportError | SyntaxError)
        if hasattr(error, "from_candidate"):
            blames_tests = False
        peer.send(["verdict", "undecided" if blames_tests else "failed", _reason(error, sources)])
    else:
        peer.send(["verdict", "passed"])


def _stand_in(tests: _Tests, name: str, is_async: bool, awaited: bool) -> Callable[..., Any]:
    """What the tests call; a coroutine function where candidate and tests both are async."""

    def entry(*args: Any, **kwargs: Any) -> Any:
        if is_async:
            raise TypeError(f"{name}() is a coroutine function, and the tests do not await it")
        return tests.call(0, args, kwargs)

    async def async_entry(*args: Any, **kwargs: Any) -> Any:
        return tests.call(0, args, kwargs)

    stand_in = async_entry if is_async and awaited else entry
    stand_in.__name__ = stand_in.__qualname__ = name
    return stand_in


def _run(prelude: str, file: str, source: str, name: str, entry: Callable[..., Any]) -> None:
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    sys.argv = [file]
    try:
        exec(compile(prelude, "prelude.py", "exec", dont_inherit=True), module.__dict__)
    except Exception as error:
        raise Undecided(f"prelude: {type(error).__name__}: {error}") from None
    module.__dict__.update({name: entry, "candidate": entry})
    known = set(module.__dict__)
    try:
        exec(compile(source, file, "exec", dont_inherit=True), module.__dict__)
        own = {key: value for key, value in module.__dict__.items() if key not in known}
        _run_defined(own, _called(source), entry)
    except SystemExit as error:
        if error.code:
            raise


def _run_defined(own: dict[str, Any], called: set[str], entry: Callable[..., Any]) -> None:
    """Run the tests that a source defines and does not call: `check`, `test…`, TestCase classes."""
    for key, value in own.items():
        if key in called:
            continue
        if not isinstance(value, types.FunctionType):
            continue
        if key == "check":
            value(entry)
        elif key.startswith("test"):
            value()
    if "unittest" in sys.modules and "unittest" not in called:
        import unittest

        cases = [
            value
            for value in own.values()
            if isinstance(value, type) and issubclass(value, unittest.TestCase)
        ]
        suite = unittest.TestSuite(
            unittest.defaultTestLoader.loadTestsFromTestCase(case) for case in cases
        )
        outcome = unittest.TextTestRunner().run(suite)
        if not outcome.wasSuccessful():
            text = (outcome.failures + outcome.errors)[0][1]
            raise AssertionError(text.strip().splitlines()[-1])


def _called(source: str) -> set[str]:
    """The names called by statements of the module itself; `unittest` for `unittest.main()`."""
    names: set[str] = set()
    waiting: list[ast.AST] = list(ast.parse(source).body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            continue
        if isinstance(node, ast.Call):
            function = node.func
            while isinstance(function, ast.Attribute):
                function = function.value
            if isinstance(function, ast.Name):
                names.add(function.id)
        waiting.extend(ast.iter_child_nodes(node))
    return names


def _change(item: Any, now: Any) -> None:
    """Make a changed argument of the candidate's visible in the test's own object."""
    if isinstance(item, list | bytearray) and type(item) is type(now):
        item[:] = now
    elif isinstance(item, dict | set) and type(item) is type(now):
        item.clear()
        item.update(now)


def _exception(names: list[str], text: str) -> Exception:
    for name in names:
        kind = getattr(builtins, name, None)
        if isinstance(kind, type) and issubclass(kind, Exception) and kind is not Exception:
            try:
                return kind(text)
            except TypeError:
                break
    return CandidateError(f"{names[0]}: {text}")


def _reason(error: BaseException, sources: dict[str, str]) -> str:
    """What failed, with the line of the tests: `AssertionError, at: assert add(1, 2) == 3`."""
    said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    where = ""
    trace = error.__traceback__
    while trace is not None:
        lines = sources.get(trace.tb_frame.f_code.co_filename, "").splitlines()
        if 0 < trace.tb_lineno <= len(lines):
            where = f", at: {lines[trace.tb_lineno - 1].strip()}"
        trace = trace.tb_next
    return (said[:300] + where)[:600]
