"""The `constraints` scorer: instructions that code can check, by plain names or IFEval's ids.

Value is the share that is followed, passed means all of them. An empty reply follows none: most
constraints would hold of nothing at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Annotated, ClassVar, NamedTuple

from pydantic import BeforeValidator, Field, JsonValue, model_validator

from labelkit.records import Abstention, Reply, Score, Task, Verdict
from labelkit.scorers import Binding, ScorerSettings, wording
from labelkit.scorers.folding import normalized
from labelkit.scorers.ifeval import (
    Held,
    count_bullets,
    instruction,
    json_format,
    language_library,
    no_comma,
)
from labelkit.seams import Draw, Scorer
from labelkit.spec import Section


class Range(Section):
    """How many; a bare number means exactly that many."""

    min: Annotated[int, Field(ge=0)] | None = None
    max: Annotated[int, Field(ge=0)] | None = None

    @model_validator(mode="after")
    def _ordered(self) -> Range:
        if self.min is None and self.max is None:
            raise ValueError("needs `min`, `max` or both")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"min {self.min} is above max {self.max}")
        return self

    def holds(self, count: int) -> bool:
        return (self.min or 0) <= count and (self.max is None or count <= self.max)

    def __str__(self) -> str:
        if self.min == self.max:
            return f"exactly {self.min}"
        bounds = (("at least", self.min), ("at most", self.max))
        return " and ".join(f"{word} {bound}" for word, bound in bounds if bound is not None)


def _range(value: object) -> object:
    whole = isinstance(value, int) and not isinstance(value, bool)
    return {"min": value, "max": value} if whole else value


def _several(value: object) -> object:
    return [value] if isinstance(value, str) else value


Counted = Annotated[Range, BeforeValidator(_range)]
Words = Annotated[list[Annotated[str, Field(min_length=1)]], BeforeValidator(_several)]


class Instruction(Section):
    """One of IFEval's instructions."""

    id: str
    kwargs: dict[str, JsonValue] = {}

    @model_validator(mode="after")
    def _known(self) -> Instruction:
        instruction(self.id, self.kwargs)
        return self


class Constraints(ScorerSettings):
    """Constraints by plain names, and IFEval's under `instructions`; repeated ids all count.

    Without any, each task brings its own: a gold that is a list of {id, kwargs}, or a gold or
    metadata with `instruction_id_list` and `kwargs`. Letters are compared without case and accents.
    `paragraphs` are separated by blank lines, `bullets` are lines with `*` or `-`.
    """

    KIND: ClassVar[str] = "constraints"
    PURE: ClassVar[bool] = True
    SHORT: ClassVar[str | None] = "instructions"

    words: Counted | None = None
    sentences: Counted | None = None
    paragraphs: Counted | None = None
    bullets: Counted | None = None
    min_chars: Annotated[int, Field(ge=1)] | None = None
    max_chars: Annotated[int, Field(ge=1)] | None = None
    forbid_letters: Words = []
    every_word_starts_with: Annotated[str, Field(min_length=1)] | None = None
    forbid_words: Words = []
    require_words: Words = []
    starts_with: Annotated[str, Field(min_length=1)] | None = None
    ends_with: Annotated[str, Field(min_length=1)] | None = None
    no_comma: bool = False
    lowercase: bool = False
    uppercase: bool = False
    json_only: bool = Field(default=False, alias="json")
    instructions: list[Instruction] = []

    @model_validator(mode="after")
    def _consistent(self) -> Constraints:
        if self.lowercase and self.uppercase:
            raise ValueError("`lowercase` and `uppercase` cannot both hold")
        if self.min_chars and self.max_chars and self.min_chars > self.max_chars:
            raise ValueError(f"min_chars {self.min_chars} is above max_chars {self.max_chars}")
        return self

    def bind(self, binding: Binding) -> Scorer:
        return _ConstraintsScorer(self)


class Check(NamedTuple):
    """A constraint under the name that its report carries."""

    name: str
    held: Callable[[str], Held]


class _ConstraintsScorer:
    def __init__(self, settings: Constraints) -> None:
        self.fingerprint = settings.identity
        self.checks = [*_plain(settings), *_by_id(settings.instructions)]
        self.reads = frozenset() if self.checks else frozenset({"metadata"})
        if not self.checks or any(check.name.startswith("language:") for check in self.checks):
            self.fingerprint["libraries"] = {"py3langid": language_library()}

    def check_gold(self, task: Task) -> str | None:
        try:
            return None if self._of(task) else "has an empty list of constraints"
        except ValueError as error:
            return str(error)

    def _of(self, task: Task) -> list[Check]:
        return self.checks or list(_by_id(_from_task(task)))

    async def score(self, task: Task, reply: Reply, draw: Draw) -> Verdict:
        checks = self._of(task)
        if not reply.text.strip():
            reason = "the reply is empty"
            return Score(value=0.0, passed=False, reason=reason, no_answer=True, rule="constraints")
        found = [check.held(reply.text) for check in checks]
        followed = sum(held.holds is True for held in found)
        told: list[JsonValue] = [
            {"id": check.name, "holds": held.holds, "evidence": held.evidence}
            for check, held in zip(checks, found, strict=True)
        ]
        open_ = [
            f"{check.name}: {held.evidence}"
            for check, held in zip(checks, found, strict=True)
            if not held.holds
        ]
        rule, detail = f"constraints {followed}/{len(checks)}", {"constraints": told}
        if open_ and all(held.holds is not False for held in found):
            return Abstention(reason="; ".join(open_), rule=rule, detail=dict(detail))
        return Score(
            value=followed / len(checks),
            passed=not open_,
            reason="; ".join(open_) or None,
            answer=reply.text,
            span=(0, len(reply.text)),
            rule=rule,
            detail=dict(detail),
        )

    async def close(self) -> None:
        return None


def _by_id(instructions: list[Instruction]) -> Iterator[Check]:
    for one in instructions:
        yield Check(one.id, instruction(one.id, one.kwargs))


def _from_task(task: Task) -> list[Instruction]:
    """The instructions that a task brings. Raises ValueError, in words for the task's author."""
    source = task.gold if task.gold is not None else task.metadata
    if isinstance(source, dict):
        ids, kwargs = source.get("instruction_id_list"), source.get("kwargs")
        if not isinstance(ids, list):
            raise ValueError(
                "has no constraints: give them in the spec, or instruction_id_list and kwargs"
            )
        if not isinstance(kwargs, list) or len(kwargs) != len(ids):
            raise ValueError(f"has {len(ids)} instruction ids but not as many kwargs")
        source = [{"id": id_, "kwargs": own} for id_, own in zip(ids, kwargs, strict=True)]
    if not isinstance(source, list):
        raise ValueError("has a gold that is no list of constraints")
    found = []
    for i, entry in enumerate(source):
        if not isinstance(entry, dict) or not entry.keys() <= {"id", "kwargs"}:
            raise ValueError(f"has a constraint {i} that is not {{id, kwargs}}")
        id_, own = entry.get("id"), entry.get("kwargs") or {}
        if not isinstance(id_, str) or not isinstance(own, dict):
            raise ValueError(f"has a constraint {i} that is not {{id, kwargs}}")
        instruction(id_, own)
        found.append(Instruction.model_construct(id=id_, kwargs=own))
    return found


def _plain(given: Constraints) -> Iterator[Check]:
    """The constraints given by plain names."""
    if given.words:
        yield _count("words", given.words, lambda text: len(wording.words(text)))
    if given.sentences:
        yield _count("sentences", given.sentences, lambda text: len(wording.sentences(text)))
    if given.paragraphs:
        yield _count("paragraphs", given.paragraphs, lambda text: len(wording.paragraphs(text)))
    if given.bullets:
        yield _count("bullets", given.bullets, count_bullets)
    if given.min_chars:
        yield _count("min_chars", Range(min=given.min_chars), lambda text: len(text.strip()))
    if given.max_chars:
        yield _count("max_chars", Range(max=given.max_chars), lambda text: len(text.strip()))
    for letters in given.forbid_letters:
        yield Check("forbid_letters", partial(_without, letters))
    if given.every_word_starts_with:
        start = wording.plain(given.every_word_starts_with)
        yield Check("every_word_starts_with", partial(_all_start, start))
    for word in given.forbid_words:
        yield Check("forbid_words", partial(_occurs, word, wanted=False))
    for word in given.require_words:
        yield Check("require_words", partial(_occurs, word, wanted=True))
    if given.starts_with:
        yield Check("starts_with", partial(_edge, given.starts_with, start=True))
    if given.ends_with:
        yield Check("ends_with", partial(_edge, given.ends_with, start=False))
    if given.no_comma:
        yield Check("no_comma", no_comma)
    if given.lowercase:
        yield Check("lowercase", partial(_without_case, str.isupper))
    if given.uppercase:
        yield Check("uppercase", partial(_without_case, str.islower))
    if given.json_only:
        yield Check("json", json_format)


def _count(name: str, wanted: Range, count: Callable[[str], int]) -> Check:
    unit = "characters" if name.endswith("_chars") else name

    def held(text: str) -> Held:
        found = count(text)
        return Held(wanted.holds(found), f"{found} {unit}, {wanted}")

    return Check(name, held)


def _without(letters: str, text: str) -> Held:
    forbidden = set(wording.plain(letters))
    found = [word for word in text.split() if forbidden & set(wording.plain(word))]
    shown = ", ".join(repr(word) for word in found[:3])
    return Held(not found, f"{letters!r} in {shown}" if found else f"no {letters!r}")


def _all_start(start: str, text: str) -> Held:
    found = wording.words(text)
    others = [word for word in found if not wording.plain(word).startswith(start)]
    if not found:
        return Held(False, "no words")
    shown = ", ".join(map(repr, others[:3]))
    return Held(
        not others,
        f"{len(others)} of {len(found)} words do not: {shown}"
        if others
        else f"all {len(found)} words",
    )


def _occurs(word: str, text: str, *, wanted: bool) -> Held:
    count = wording.occurrences(word, text)
    return Held((count > 0) is wanted, f"{word!r} {count} times")


def _edge(phrase: str, text: str, *, start: bool) -> Held:
    said = " ".join(normalized("NFC", text).split())
    wanted = " ".join(normalized("NFC", phrase).split())
    holds = said.startswith(wanted) if start else said.endswith(wanted)
    shown = said[:40] if start else said[-40:]
    return Held(holds, f"{'starts' if start else 'ends'} with {shown!r}")


def _without_case(wrong: Callable[[str], bool], text: str) -> Held:
    found = next((char for char in text if wrong(char)), None)
    return Held(found is None, f"has {found!r}" if found else "as wanted")
