"""Mathematical answers, compared by type: numbers, sets, intervals, matrices, equations, words.

Structure and exact normal forms decide most; what they leave open goes to sympy, through
math-verify, in worker processes with a wall clock and a memory cap. A reply is never evaluated.
"""

from __future__ import annotations

import contextlib
import importlib.util
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata
from typing import Annotated, ClassVar, Literal

from pydantic import Field, JsonValue

from labelkit.errors import UsageError
from labelkit.records import Reply, Task, Verdict
from labelkit.sandbox.keeper import KeeperSettings
from labelkit.sandbox.pool import WorkerError, WorkerPool
from labelkit.scorers import Binding, ScorerSettings
from labelkit.scorers.arithmetic import Huge, UnreadableError
from labelkit.scorers.extract import AnswerPlace, Candidate, Extraction, extract
from labelkit.scorers.formula import FormulaError, Node, written
from labelkit.scorers.formula_compare import Comparison
from labelkit.scorers.formula_parser import parse
from labelkit.scorers.formula_text import formula_texts, shape
from labelkit.scorers.numeric import difference
from labelkit.scorers.quantity import HedgedError, Quantity, read_quantity, read_statement
from labelkit.scorers.verdicts import AnswerScorer, failed, passed, unanswered, undecided
from labelkit.seams import Draw, Scorer

_MEMORY_BYTES = 2 << 30
_MAX_ROUNDS = 4


class Math(ScorerSettings):
    """`math`: the answer is mathematically the gold.

    form: `any` takes every equal expression; `same` wants the gold's own form (factored stays
    factored, 1/2 is not 0.5), up to order and notation. timeout_s: wall clock of one question to
    the computer algebra system; what it does not settle is unscored.
    """

    KIND: ClassVar[str] = "math"
    PURE: ClassVar[bool] = True
    SHORT: ClassVar[str | None] = "answer"
    COST: ClassVar[int] = 1

    answer: AnswerPlace = "auto"
    form: Literal["any", "same"] = "any"
    timeout_s: Annotated[float, Field(gt=0, le=60)] = 2.0

    def bind(self, binding: Binding) -> Scorer:
        if importlib.util.find_spec("math_verify") is None:
            raise UsageError("`math` needs math-verify", hint="pip install 'labelkit[math]'")
        return _MathScorer(self, binding.processes)

    @property
    def identity(self) -> dict[str, JsonValue]:
        libraries: dict[str, JsonValue] = {
            name: metadata.version(name) for name in ("math-verify", "sympy")
        }
        return {**super().identity, "libraries": libraries}


@dataclass(frozen=True)
class _Gold:
    """A gold as typed: a number, or a formula (a number has both where it can)."""

    text: str
    quantity: Quantity | None
    nodes: tuple[Node, ...]
    problem: str | None


class _MathScorer(AnswerScorer):
    def __init__(self, settings: Math, processes: int) -> None:
        super().__init__(settings)
        self._settings = settings
        entry = KeeperSettings(
            entry="labelkit.scorers.math_worker:start", memory_bytes=_MEMORY_BYTES
        )
        self._pool = WorkerPool(entry, workers=processes)

    async def close(self) -> None:
        await self._pool.close()

    def check_gold(self, task: Task) -> str | None:
        if task.gold is None:
            return "is missing: a text or a number"
        if isinstance(task.gold, bool) or not isinstance(task.gold, str | int | float):
            return "must be text or a number"
        return _typed(str(task.gold)).problem

    async def score(self, task: Task, reply: Reply, draw: Draw) -> Verdict:
        found = extract(reply, self._settings.answer)
        if found.candidate is None:
            return unanswered(found)
        gold = _typed(str(task.gold))
        several = any(node.kind in ("list", "set") for node in gold.nodes)
        if found.hedged and not several:
            return failed(found, "the reply hedges between answers", no_answer=True)
        if self._settings.form == "same":
            return self._same_form(found, gold)
        if found.candidate.text == gold.text and not found.rivals:
            return passed(found, "same text")
        if gold.quantity is not None:
            verdict = _as_number(found, gold.quantity)
            if verdict is not None:
                return verdict
        return await self._as_formula(found, gold, several)

    def _same_form(self, found: Extraction, gold: _Gold) -> Verdict:
        assert found.candidate is not None
        wanted = {shape(node) for node in gold.nodes}
        for candidate in (found.candidate, *found.rivals):
            given = {shape(node) for node in _read(candidate)}
            if not wanted & given:
                return failed(found, "another form", decided="form")
        return passed(found, "form")

    async def _as_formula(self, found: Extraction, gold: _Gold, several: bool) -> Verdict:
        assert found.candidate is not None
        readings = _read(found.candidate)
        agreed: bool | str = True
        if found.rivals and several:
            readings = _together(found, readings)
        elif found.rivals:
            agreed = await self._agree(found, readings)
        if agreed is False:
            return failed(found, "the reply gives different answers", no_answer=True)
        if not readings:
            return failed(found, "the answer cannot be read", no_answer=True)
        right = await self._any_same(gold.nodes, readings)
        if right is True and agreed is True:
            return passed(found, _kind(gold))
        if not several and all(said.kind == "list" and said.name == "or" for said in readings):
            return failed(found, "the reply hedges between answers", no_answer=True)
        if right is False:
            # Wrong whatever the other answers say: those that differ would make it a hedge.
            return failed(found, "another value", decided=_kind(gold))
        return undecided(found, right if isinstance(right, str) else str(agreed))

    async def _agree(self, found: Extraction, own: Sequence[Node]) -> bool | str:
        """Whether every rival of the candidate says the same; text says why nobody knows."""
        unknown: str | None = None
        for rival in found.rivals:
            others = _read(rival)
            if not others and not rival.exact:
                continue
            same = await self._any_same(own, others)
            if same is False:
                return False
            if isinstance(same, str):
                unknown = unknown or f"another answer of the reply: {same}"
        return unknown or True

    async def _any_same(self, wanted: Sequence[Node], said: Sequence[Node]) -> bool | str:
        """Whether two answers agree in any of their readings; text says why nobody knows."""
        unknown: str | None = None
        for other in said:
            for one in wanted:
                same = await self._compare(one, other)
                if same is True:
                    return True
                if same is not False:
                    unknown = unknown or same or "the two could not be proved equal or different"
        return unknown or False

    async def _compare(self, gold: Node, said: Node) -> bool | str | None:
        """True, False, None where neither can be shown; text says why the system gave up."""
        comparison = Comparison()
        for _ in range(_MAX_ROUNDS):
            comparison.open.clear()
            outcome = comparison.same(gold, said)
            if outcome is not None or not comparison.open:
                return outcome
            for key, (question, one, other) in list(comparison.open.items()):
                try:
                    answer = await self._pool.call(
                        [question, one.to_json(), other.to_json()], self._settings.timeout_s
                    )
                except WorkerError as error:
                    return f"the comparison was stopped: {error}"
                comparison.known[key] = answer if isinstance(answer, bool) else None
        return None


def _as_number(found: Extraction, gold: Quantity) -> Verdict | None:
    """The verdict where gold and reply are numbers; None where the reply's answer is a formula."""
    assert found.candidate is not None
    try:
        said = _quantity(found.candidate)
        others = [_quantity(rival) for rival in found.rivals]
    except HedgedError as error:
        return failed(found, f"the answer is none: {error}", no_answer=True)
    except UnreadableError:
        return None
    if isinstance(said.value, Huge):
        return None if difference(said, gold) is None else failed(found, "another value")
    if any(difference(other, said) is not None for other in others):
        return failed(found, "the reply gives different answers", no_answer=True)
    problem = difference(said, gold)
    if problem is None:
        return passed(found, gold.kind)
    return failed(found, problem, decided=gold.kind)


def _quantity(candidate: Candidate) -> Quantity:
    if _LETTER.search(_COMMANDS.sub("", candidate.text)):
        raise UnreadableError("is a formula")
    if candidate.rule == "whole":
        return read_statement(candidate.text)
    return read_quantity(candidate.text, exact=candidate.exact)


_COMMANDS = re.compile(r"\\(?:text|mbox|mathrm|textbf)\s*\{[^{}]*\}|\\[A-Za-z]+|\d[eE][-+]?\d")
_LETTER = re.compile(r"(?<![A-Za-z])[A-Za-z](?![A-Za-z])")


@lru_cache(maxsize=4096)
def _typed(text: str) -> _Gold:
    candidate = Candidate(text.strip(), None, "gold")
    quantity: Quantity | None = None
    with contextlib.suppress(UnreadableError):
        quantity = _quantity(candidate)
        if isinstance(quantity.value, Huge):
            quantity = None
    nodes: list[Node] = []
    problem: str | None = "is empty"
    for reading in formula_texts(candidate):
        try:
            node = parse(reading)
        except FormulaError as error:
            problem = f"{text.strip()[:60]!r} {error}"
            continue
        nodes.append(node)
    if quantity is not None or nodes:
        problem = None
    return _Gold(text.strip(), quantity, tuple(nodes), problem)


def _read(candidate: Candidate) -> list[Node]:
    """Every formula that a candidate can be read as, different ones once."""
    found: dict[str, Node] = {}
    for text in formula_texts(candidate):
        for grouping in (True, False):
            try:
                node = parse(text, grouping=grouping)
            except FormulaError:
                continue
            found.setdefault(written(node), node)
        if found:
            break
    return list(found.values())


def _together(found: Extraction, last: list[Node]) -> list[Node]:
    """Several marked answers as one list."""
    parts = []
    for rival in found.rivals:
        read = _read(rival)
        if not read:
            return []
        parts.append(read[0])
    return [Node("list", (*parts, *last[:1]))] if last else []


def _kind(gold: _Gold) -> str:
    return gold.nodes[0].kind if gold.nodes else "number"
