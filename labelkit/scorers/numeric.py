"""Numeric answers: the reply's quantity against the gold's, exactly.

Values are rationals; there are no floats and no tolerance unless the spec states one. A reply that
offers several numbers, or none, is wrong.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, field_validator, model_validator

from labelkit.records import Reply, Task, Verdict
from labelkit.scorers import Binding, ScorerSettings
from labelkit.scorers.arithmetic import Huge, UnreadableError
from labelkit.scorers.extract import AnswerPlace, Candidate, Extraction, extract
from labelkit.scorers.numbers import digits_of
from labelkit.scorers.quantity import HedgedError, Quantity, read_quantity, read_statement
from labelkit.scorers.units import Unit, factor_between, read_unit
from labelkit.scorers.verdicts import AnswerScorer, failed, passed, unanswered
from labelkit.seams import Draw, Scorer


class Tolerance(BaseModel):
    """How far a value may be from the gold: `rel` of the gold's size, or `abs`; the wider holds."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    rel: Annotated[float, Field(gt=0, lt=1)] | None = None
    abs: Annotated[float, Field(gt=0)] | None = None

    @model_validator(mode="after")
    def _some(self) -> Tolerance:
        if self.rel is None and self.abs is None:
            raise ValueError("needs rel or abs")
        return self

    def covers(self, said: Fraction, gold: Fraction) -> bool:
        """Exact arithmetic on the decimal that the spec shows (0.1 is a tenth)."""
        widths = []
        if self.rel is not None:
            widths.append(Fraction(str(self.rel)) * abs(gold))
        if self.abs is not None:
            widths.append(Fraction(str(self.abs)))
        return abs(said - gold) <= max(widths)


class Numeric(ScorerSettings):
    """`numeric`: the answer is the gold's number.

    unit: what golds are in, where they do not say. A reply without a unit is taken to be in it;
    one in another unit that converts is converted (`units: same` refuses it). percent: `auto`
    takes 25% for 0.25 and for a gold of 25; `value` for 0.25 only.
    """

    KIND: ClassVar[str] = "numeric"
    PURE: ClassVar[bool] = True
    SHORT: ClassVar[str | None] = "answer"

    answer: AnswerPlace = "auto"
    tolerance: Tolerance | None = None
    unit: str | None = None
    units: Literal["convert", "same"] = "convert"
    percent: Literal["auto", "value"] = "auto"

    @field_validator("unit")
    @classmethod
    def _names_a_unit(cls, unit: str | None) -> str | None:
        if unit is not None and read_unit(unit) is None:
            raise ValueError("must name a unit")
        return unit

    def bind(self, binding: Binding) -> Scorer:
        return _NumericScorer(self)


_DEFAULT = Numeric()


class _NumericScorer(AnswerScorer):
    def __init__(self, settings: Numeric) -> None:
        super().__init__(settings)
        self._settings = settings

    async def score(self, task: Task, reply: Reply, draw: Draw) -> Verdict:
        found = extract(reply, self._settings.answer)
        if found.candidate is None:
            return unanswered(found)
        if found.hedged:
            return failed(found, "the reply hedges between answers", no_answer=True)
        gold = _gold(task.gold)
        if found.candidate.text == gold.text and not found.rivals:
            return passed(found, "same text")
        try:
            said = _read(found.candidate)
        except UnreadableError as error:
            return failed(found, f"the answer {_told(error)}", no_answer=True)
        if self._conflicts(said, found):
            return failed(found, "the reply gives different answers", no_answer=True)
        assert gold.quantity is not None
        problem = difference(said, gold.quantity, self._settings)
        if problem is None:
            return passed(found, gold.quantity.kind)
        return failed(found, problem, decided=gold.quantity.kind)

    def check_gold(self, task: Task) -> str | None:
        gold = _gold(task.gold)
        if gold.quantity is None:
            return gold.problem
        if isinstance(gold.quantity.value, Huge):
            return "is too large to compare"
        if difference(gold.quantity, gold.quantity, self._settings) is not None:
            return "does not equal itself"
        return None

    def _conflicts(self, said: Quantity, found: Extraction) -> bool:
        for rival in found.rivals:
            try:
                other = _read(rival)
            except UnreadableError:
                if rival.exact:
                    return True
                continue
            if difference(other, said, self._settings) is not None:
                return True
        return False


def difference(said: Quantity, gold: Quantity, policy: Numeric | None = None) -> str | None:
    """Why a quantity is not the gold's under a policy (default: the scorer's), or None."""
    policy = policy or _DEFAULT
    if gold.form != "number" or said.form != "number":
        return _other_parts(said, gold)
    if gold.base is not None or said.base is not None:
        return _other_base(said, gold)
    scale = _scale(said, gold, policy)
    if scale is None:
        return "another unit"
    assert isinstance(gold.value, Fraction)
    if isinstance(said.value, Huge):
        small = gold.value.numerator.bit_length() + gold.value.denominator.bit_length()
        return "another value" if said.value.bits > small + 64 else "a value too large to know"
    assert said.value is not None
    if any(_equal(said.value * factor, gold.value, said, gold, policy) for factor in scale):
        return None
    return "another value"


def _equal(
    value: Fraction, gold: Fraction, said: Quantity, wanted: Quantity, policy: Numeric
) -> bool:
    if value == gold or (policy.tolerance is not None and policy.tolerance.covers(value, gold)):
        return True
    # An exact value said with its rounding: right where the rounding is the gold.
    places = wanted.places
    if places is None or said.approximation != gold:
        return False
    return abs(value - gold) * 2 <= Fraction(1, 10**places)


def _scale(said: Quantity, gold: Quantity, policy: Numeric) -> list[Fraction] | None:
    """What to multiply the reply's number with before comparing; None: units do not fit."""
    hundredth = Fraction(1, 100)
    if said.percent or gold.percent:
        if said.percent and gold.percent:
            return [Fraction(1)]
        number = said.value if said.percent else gold.value
        bare = policy.percent == "auto" and isinstance(number, Fraction) and abs(number) >= 1
        if said.percent:
            whole = isinstance(gold.value, Fraction) and abs(gold.value) >= 1
            return [hundredth, Fraction(1)] if bare and whole else [hundredth]
        return [Fraction(100), Fraction(1)] if bare else [Fraction(100)]
    wanted = gold.unit or (read_unit(policy.unit) if policy.unit is not None else None)
    if wanted is None or said.unit is None or _mentions(said.unit, wanted):
        return [Fraction(1)]
    factor = factor_between(said.unit, wanted)
    if factor is None or (policy.units == "same" and factor != 1):
        return None
    return [factor]


def _mentions(said: Unit, wanted: Unit) -> bool:
    """Whether an unknown phrase of the reply ('red apples') holds the gold's unknown unit."""
    return not wanted.dimension and said.power == wanted.power and wanted.name in said.name


def _other_parts(said: Quantity, gold: Quantity) -> str | None:
    if gold.form == said.form == "time":
        return None if same_time(gold.parts, said.parts) else "another time"
    if gold.form == said.form == "ratio":
        return None if gold.parts == said.parts else "another ratio"
    if gold.form == "ratio" and len(gold.parts) == 2 and isinstance(said.value, Fraction):
        first, second = gold.parts
        assert isinstance(first, Fraction)
        assert isinstance(second, Fraction)
        return None if second and said.value == first / second else "another ratio"
    return f"not a {gold.form}"


def same_time(one: tuple[Fraction | str, ...], other: tuple[Fraction | str, ...]) -> bool:
    """Whether two clock times agree: by the face, unless both tell the half of the day."""
    faces = {(int(hour) % 12, minute, second) for hour, minute, second, _ in (one, other)}
    halves = {half for half in map(_half_of_day, (one, other)) if half}
    return len(faces) == 1 and len(halves) <= 1


def _half_of_day(parts: tuple[Fraction | str, ...]) -> str:
    """`am` or `pm` where it is said or follows from the hour, else nothing."""
    hour, _, _, half = parts
    if half:
        return str(half)
    return "pm" if int(hour) > 12 else "am" if int(hour) == 0 else ""


def _other_base(said: Quantity, gold: Quantity) -> str | None:
    if gold.base == said.base:
        return None if gold.value == said.value else "another value"
    if gold.base is not None and said.base is None and isinstance(said.value, Fraction):
        written = _digits(gold.value, gold.base)
        same = written is not None and written == digits_of(said.value)
        return None if same else "another base"
    return "another base"


def _digits(value: object, base: int) -> str | None:
    """A natural number's digits in a base up to ten, None for anything else."""
    if not isinstance(value, Fraction) or value.denominator != 1 or value < 0 or base > 10:
        return None
    number, digits = value.numerator, ""
    while number or not digits:
        number, digit = divmod(number, base)
        digits = str(digit) + digits
    return digits


class _Gold:
    def __init__(self, text: str, quantity: Quantity | None, problem: str | None) -> None:
        self.text = text
        self.quantity = quantity
        self.problem = problem


def _gold(gold: JsonValue) -> _Gold:
    if gold is None:
        return _Gold("", None, "is missing: a number, or text that reads as one")
    if isinstance(gold, bool) or not isinstance(gold, str | int | float):
        return _Gold("", None, "must be a number or text that reads as one")
    return _typed(str(gold))


@lru_cache(maxsize=4096)
def _typed(text: str) -> _Gold:
    try:
        return _Gold(text.strip(), read_quantity(text.strip()), None)
    except UnreadableError as error:
        return _Gold(text.strip(), None, f"{text.strip()[:60]!r} {_told(error)}")


def _read(candidate: Candidate) -> Quantity:
    if candidate.rule == "whole":
        return read_statement(candidate.text)
    return read_quantity(candidate.text, exact=candidate.exact)


def _told(error: UnreadableError) -> str:
    text = str(error)
    return text if isinstance(error, HedgedError) is False else f"is none: {text}"
