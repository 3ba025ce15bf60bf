"""`program`: model-written Python decides nothing; the tests of the gold do.

The candidate and what is expected of it never share a process: test code runs in a sandbox of its
own and calls the candidate through this process, values are compared there or here, and a verdict
comes from the tests' sandbox or from here alone. Nothing that a candidate prints, returns or does
to its own process is believed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import sys
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, JsonValue

from labelkit.records import Abstention, Reply, Score, Task, Verdict
from labelkit.sandbox.bubblewrap import Limits
from labelkit.sandbox.runner import Confined, Ended, Sandbox, SandboxError, TooLate, TooMuch
from labelkit.sandbox.selftest import proven_sandbox
from labelkit.sandbox.values import encode
from labelkit.scorers import Binding, ScorerSettings
from labelkit.scorers.program_gold import (
    Case,
    ProgramGold,
    StdinTest,
    matches,
    read_gold,
    same_output,
)
from labelkit.scorers.program_source import Source, find_function, find_program
from labelkit.seams import Draw

_MAX_SHOWN = 2_000
_MAX_REASON = 300
_MIB = 1024**2


class ProgramSettings(ScorerSettings):
    """`program`, with golds as in `ProgramGold`.

    `entry_point`: where the golds do not name it. `prelude: prompt`: the task's prompt is code that
    goes before the candidate, as in HumanEval. `timeout_s`: wall clock of loading a candidate, and
    again of testing it. `tolerance` applies to the values of `cases`. Memory in MiB a process.
    """

    KIND: ClassVar[str] = "program"

    entry_point: Annotated[str, Field(pattern=r"^[A-Za-z_]\w*$")] | None = None
    prelude: Literal["gold", "prompt"] = "gold"
    timeout_s: Annotated[float, Field(gt=0, le=3600)] = 10.0
    memory_mib: Annotated[int, Field(ge=64)] = 512
    processes: Annotated[int, Field(ge=1, le=1024)] = 32
    output_mib: Annotated[int, Field(ge=1, le=64)] = 4
    tolerance: Annotated[float, Field(ge=0)] | None = None

    def bind(self, binding: Binding) -> ProgramScorer:
        """Proves the sandbox. Raises UsageError where this machine has none that holds."""
        if not binding.unsafe_no_sandbox:
            return ProgramScorer(self, proven_sandbox(), "bubblewrap", binding.processes)
        logging.getLogger("labelkit").warning(
            "--unsafe-no-sandbox: code written by a model runs on this machine with your rights"
        )
        return ProgramScorer(self, Sandbox(None), "none", binding.processes)


class ProgramScorer:
    """A bound program scorer; at most `concurrency` candidates run at a time."""

    def __init__(
        self, settings: ProgramSettings, sandbox: Sandbox, walls: str, concurrency: int
    ) -> None:
        self._settings = settings
        self._sandbox = sandbox
        self._slots = asyncio.Semaphore(concurrency)
        self._limits = Limits(
            wall_s=settings.timeout_s,
            memory_bytes=settings.memory_mib * _MIB,
            processes=settings.processes,
            output_bytes=settings.output_mib * _MIB,
        )
        self.reads = frozenset({"prompt", "metadata"})
        self.fingerprint: dict[str, JsonValue] = {
            **settings.identity,
            "sandbox": walls,
            "python": "{}.{}".format(*sys.version_info),
        }

    async def score(self, task: Task, reply: Reply, draw: Draw) -> Verdict:
        """Raises SandboxError where a sandbox is lost, ValueError for a gold that is no gold."""
        gold = self._gold(task)
        if reply.cut:
            return _no_answer("the reply was cut")
        if gold.entry_point is None:
            source = await asyncio.to_thread(find_program, reply)
            if source is None:
                return _no_answer("the reply has no program")
        else:
            source = await asyncio.to_thread(find_function, reply, gold.entry_point, gold.prelude)
            if source is None:
                return _no_answer(f"no code in the reply defines `{gold.entry_point}`")
        async with self._slots:
            return await self._run(gold, source)

    def check_gold(self, task: Task) -> str | None:
        try:
            self._gold(task)
        except ValueError as error:
            return str(error)
        return None

    async def close(self) -> None:
        """Nothing outlives a call of `score`."""

    def _gold(self, task: Task) -> ProgramGold:
        return read_gold(task, self._settings.entry_point, self._settings.prelude == "prompt")

    async def _run(self, gold: ProgramGold, source: Source) -> Verdict:
        shown = {"answer": source.code[:_MAX_SHOWN], "span": source.span}
        try:
            if gold.stdin_tests is not None:
                for number, test in enumerate(gold.stdin_tests, 1):
                    await self._print(source, number, test)
                rule = "stdin tests"
            else:
                rule = await self._call(gold, source)
        except _Failed as error:
            reason = str(error)
            return Score(value=0.0, passed=False, reason=reason, rule=source.rule, **shown)
        except _Undecided as error:
            return Abstention(reason=str(error), rule=source.rule, **shown)
        return Score(value=1.0, passed=True, rule=f"{source.rule} · {rule}", **shown)

    async def _print(self, source: Source, number: int, test: StdinTest) -> None:
        """Run a program once and compare what it prints."""
        async with self._sandbox.start("program", self._limits) as program:
            where = f"stdin test {number}: "
            with self._faults(where):
                await program.send([source.code, test.stdin])
                printed, code = await program.output()
            if code != 0:
                said = program.stderr.splitlines()[-1:]
                raise _Failed(where + ": ".join([f"ended with exit code {code}", *said]))
            text = printed.decode("utf-8", "replace")
            if not same_output(test.stdout, text):
                raise _Failed(f"{where}printed {_shown(text)}")

    async def _call(self, gold: ProgramGold, source: Source) -> str:
        """Test a function in a process of its own; returns what decided."""
        async with self._sandbox.start("candidate", self._limits) as candidate:
            is_async = await self._load(candidate, gold, source)
            if gold.cases is None:
                await self._try(gold, candidate, is_async)
                return "tests"
            candidate.start_clock()
            for number, case in enumerate(gold.cases, 1):
                kwargs: JsonValue = [[key, encode(value)] for key, value in case.kwargs.items()]
                frame: JsonValue = ["call", 0, [encode(value) for value in case.args], kwargs]
                answer = _parsed(await self._ask(candidate, frame))
                if not _is_right(answer, case, self._settings.tolerance):
                    raise _Failed(f"case {number}: {_said(answer)}")
            return "cases"

    async def _load(self, candidate: Confined, gold: ProgramGold, source: Source) -> bool:
        """Load prelude and program; whether the entry point is a coroutine function."""
        prelude, code = gold.prelude, source.code
        if source.continues:
            prelude, code = "", prelude.rstrip("\n") + "\n" + code
        answer = _parsed(await self._ask(candidate, [prelude]))
        if answer != ["prelude"]:
            raise _Undecided(f"the prelude does not run: {_shown(answer)}")
        answer = _parsed(await self._ask(candidate, [code, gold.entry_point]))
        if not isinstance(answer, list) or answer[:1] != ["loaded"]:
            raise _Failed(f"the program does not load: {_shown(answer)}")
        return answer == ["loaded", True]

    async def _try(self, gold: ProgramGold, candidate: Confined, is_async: bool) -> None:
        """Let the tests call the candidate: they take turns, this process hands frames on."""
        called = False
        async with self._sandbox.start("tests", self._limits) as tests:
            candidate.start_clock()
            frame: JsonValue | bytes = [gold.prelude, {**gold.sources}, gold.entry_point, is_async]
            while True:
                try:
                    await tests.send(frame)
                    asked = await tests.receive()
                except (TooLate, TooMuch):
                    late = (
                        f"the tests themselves took more than {self._limits.wall_s:g} s or too much"
                    )
                    raise _Undecided(late) from None
                except Ended as error:
                    raise SandboxError(f"the process of the tests was lost: {error}") from None
                if asked.startswith(b'["verdict"'):
                    break
                called = True
                frame = await self._ask(candidate, asked)
        _, verdict, *reason = json.loads(asked)
        if verdict == "failed":
            raise _Failed(reason[0])
        if verdict == "undecided" or not called:
            raise _Undecided(reason[0] if reason else "the tests never called the program")

    async def _ask(self, candidate: Confined, frame: JsonValue | bytes) -> bytes:
        with self._faults():
            await candidate.send(frame)
            return await candidate.receive()

    @contextlib.contextmanager
    def _faults(self, where: str = "") -> Iterator[None]:
        """What a candidate's process does instead of answering is its failure."""
        try:
            yield
        except Ended as error:
            raise _Failed(f"{where}the program did not last: {error}") from None
        except TooLate:
            raise _Failed(f"{where}no result within {self._limits.wall_s:g} s") from None
        except TooMuch:
            raise _Failed(f"{where}a result of over {self._settings.output_mib} MiB") from None


class _Failed(Exception):
    """The candidate did not pass; the text says why."""


class _Undecided(Exception):
    """The tests cannot be carried out; the text says why."""


def _no_answer(reason: str) -> Score:
    return Score(value=0.0, passed=False, reason=reason, no_answer=True)


def _parsed(frame: bytes) -> Any:
    """A frame of a candidate's process, which may be anything."""
    try:
        return json.loads(frame)
    except (ValueError, RecursionError):
        return None


def _is_right(answer: Any, case: Case, tolerance: float | None) -> bool:
    if not isinstance(answer, list) or len(answer) != 3:
        return False
    if case.raises is not None:
        return answer[0] == "raise" and isinstance(answer[1], list) and case.raises in answer[1]
    return answer[0] == "return" and matches(case.expected, answer[1], tolerance)


def _said(answer: Any) -> str:
    """An answer in words."""
    if isinstance(answer, list) and len(answer) == 3 and answer[0] == "raise":
        names = answer[1] if isinstance(answer[1], list) else []
        return f"raised {_shown(': '.join(map(str, [*names[:1], answer[2]])))}"
    return f"returned {_shown(answer[1] if isinstance(answer, list) and answer[1:] else answer)}"


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= _MAX_REASON else text[: _MAX_REASON - 1] + "…"
