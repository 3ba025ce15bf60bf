"""Composed scorers: three outcomes, order of cost, evidence, and what the task file must hold."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest
from pydantic import JsonValue

from labelkit.records import Abstention, Reply, Score, Task, Verdict
from labelkit.scorers import Binding, ScorerSettings
from labelkit.scorers.composition import AllOf, AnyOf, By, Weighted
from labelkit.seams import Draw, Scorer
from tests.scorers.scripted import ScriptedDraw, scorer, verdict

Said = Literal["pass", "fail", "none", "abstain"]
ASKED: list[str] = []
"""The names of the scorers below in the order in which they were asked, anew for each test."""


@pytest.fixture(autouse=True)
def _forget() -> None:
    ASKED.clear()


class Fixed(ScorerSettings):
    """Says what it is told to, notes that it was asked, and is as dear as a judge on request."""

    KIND: ClassVar[str] = "fixed"

    says: Said
    value: float | None = None
    dear: bool = False
    name: str = ""

    @property
    def cost(self) -> int:
        return 3 if self.dear else 0

    def bind(self, binding: Binding) -> Scorer:
        return _Fixed(self)


class _Fixed:
    reads = frozenset({"prompt"})

    def __init__(self, settings: Fixed) -> None:
        self.settings = settings
        self.fingerprint: dict[str, JsonValue] = {"kind": "fixed", "says": settings.says}

    async def score(self, task: Task, reply: Reply, draw: Draw) -> Verdict:
        ASKED.append(self.settings.name)
        says = self.settings.says
        if says == "abstain":
            return Abstention(reason="cannot tell")
        passed = says == "pass"
        value = float(passed) if self.settings.value is None else self.settings.value
        return Score(
            value=value,
            passed=passed,
            no_answer=says == "none",
            reason=says,
            rule=says,
            answer=None if says == "none" else self.settings.name,
        )

    def check_gold(self, task: Task) -> str | None:
        return None if task.gold else f"{self.settings.name} needs a gold"

    async def close(self) -> None:
        ASKED.append(f"closed {self.settings.name}")
        if self.settings.name == "stuck":
            raise RuntimeError("cannot close")


def fixed(*says: Said) -> list[ScorerSettings]:
    return [Fixed(says=said, name=f"{i}") for i, said in enumerate(says)]


def scored(settings: ScorerSettings, task: Task | None = None) -> Verdict:
    bound = settings.bind(Binding(folder=Path()))
    return asyncio.run(
        bound.score(task or Task(id="t", prompt="p"), Reply(text="r"), ScriptedDraw())
    )


def outcome(found: Verdict) -> str:
    if isinstance(found, Abstention):
        return "abstain"
    return "pass" if found.passed else "none" if found.no_answer else "fail"


@pytest.mark.parametrize(
    ("says", "expected"),
    [
        (["pass", "pass"], "pass"),
        (["pass", "fail"], "fail"),
        (["abstain", "fail"], "fail"),
        (["fail", "abstain"], "fail"),
        (["pass", "abstain"], "abstain"),
        (["pass", "none"], "none"),
    ],
)
def test_all_fails_on_any_failure_and_abstains_before_it_passes(
    says: Sequence[Said], expected: str
) -> None:
    assert outcome(scored(AllOf(scorers=fixed(*says)))) == expected


@pytest.mark.parametrize(
    ("says", "expected"),
    [
        (["fail", "pass"], "pass"),
        (["abstain", "pass"], "pass"),
        (["fail", "abstain"], "abstain"),
        (["none", "fail"], "fail"),
        (["none", "none"], "none"),
    ],
)
def test_any_passes_on_any_pass_and_abstains_before_it_fails(
    says: Sequence[Said], expected: str
) -> None:
    assert outcome(scored(AnyOf(scorers=fixed(*says)))) == expected


def test_dear_scorer_is_asked_last_and_not_at_all_after_a_failure() -> None:
    judge = Fixed(says="pass", dear=True, name="judge")
    scored(AllOf(scorers=[judge, Fixed(says="pass", name="code")]))
    assert ASKED == ["code", "judge"]
    ASKED.clear()
    failed = scored(AllOf(scorers=[judge, Fixed(says="fail", name="code")]))
    assert ASKED == ["code"]
    told: Any = failed.detail["scorers"]
    assert [entry["state"] for entry in told] == ["not asked", "failed"]


def test_dearness_of_a_composition_is_that_of_its_dearest_part() -> None:
    inner = AnyOf(scorers=[Fixed(says="pass", dear=True, name="judge")])
    scored(AllOf(scorers=[inner, Fixed(says="fail", name="code")]))
    assert ASKED == ["code"]


def test_any_stops_at_the_first_pass() -> None:
    judge = Fixed(says="pass", dear=True, name="judge")
    scored(AnyOf(scorers=[judge, Fixed(says="pass", name="code")]))
    assert ASKED == ["code"]


def test_value_of_all_is_the_least_and_of_any_the_greatest() -> None:
    parts = [Fixed(says="pass", value=0.75), Fixed(says="pass", value=0.5)]
    assert _value(scored(AllOf(scorers=list(parts)))) == 0.5
    failing = [Fixed(says="fail", value=0.25), Fixed(says="fail", value=0.4)]
    assert _value(scored(AnyOf(scorers=list(failing)))) == 0.4


def test_failed_member_stands_for_the_whole() -> None:
    found = scored(AllOf(scorers=fixed("pass", "fail")))
    assert isinstance(found, Score)
    assert (found.answer, found.reason, found.rule) == ("1", "fail", "all · fail")


def test_weighted_mean_passes_at_its_bar_exactly() -> None:
    parts: Any = [
        {"weight": 0.7, "scorer": Fixed(says="pass")},
        {"weight": 0.2, "scorer": Fixed(says="fail")},
        {"weight": 0.1, "scorer": Fixed(says="fail")},
    ]
    found = scored(Weighted.model_validate({"scorers": parts, "pass_at": 0.7}))
    assert isinstance(found, Score)
    assert (found.value, found.passed) == (0.7, True)


def test_weighted_needs_everything_by_default() -> None:
    parts: Any = [
        {"weight": 3.0, "scorer": Fixed(says="pass")},
        {"weight": 1.0, "scorer": Fixed(says="fail", value=0.5)},
    ]
    found = scored(Weighted.model_validate({"scorers": parts}))
    assert isinstance(found, Score)
    assert (found.value, found.passed) == (0.875, False)


def test_weighted_abstains_with_any_of_its_parts() -> None:
    parts: Any = [{"weight": 1.0, "scorer": part} for part in fixed("fail", "abstain")]
    assert outcome(scored(Weighted.model_validate({"scorers": parts}))) == "abstain"


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [({"source": "a"}, "pass"), ({"source": "b"}, "fail"), ({"source": 3}, "abstain")],
)
def test_by_asks_the_scorer_of_the_task(metadata: Any, expected: str) -> None:
    says = dict(zip(("a", "b", "3"), fixed("pass", "fail", "abstain"), strict=True))
    settings = By(field="metadata.source", scorers=says)
    assert outcome(scored(settings, Task(id="t", prompt="p", metadata=metadata))) == expected


@pytest.mark.parametrize(
    ("metadata", "fault"),
    [
        ({"source": "c"}, "has no scorer for metadata.source 'c' (known: a)"),
        ({"source": 1.5}, "has no scorer for metadata.source 1.5 (known: a)"),
        ({}, "has no metadata.source"),
        ({"source": "a"}, "needs a gold"),
    ],
)
def test_task_that_no_scorer_fits_is_a_fault_of_the_task_file(metadata: Any, fault: str) -> None:
    bound = By(field="metadata.source", scorers={"a": Fixed(says="pass")}).bind(Binding(Path()))
    task = Task(id="t", prompt="p", metadata=metadata)
    assert fault in (bound.check_gold(task) or "")


def test_gold_must_suit_every_member() -> None:
    bound = AllOf(scorers=fixed("pass", "pass")).bind(Binding(Path()))
    assert bound.check_gold(Task(id="t", prompt="p")) == "0 needs a gold"
    assert bound.check_gold(Task(id="t", prompt="p", gold="g")) is None


def test_fingerprint_holds_members_in_order_and_reads_what_they_read() -> None:
    one = AllOf(scorers=fixed("pass", "fail")).bind(Binding(Path()))
    other = AllOf(scorers=fixed("fail", "pass")).bind(Binding(Path()))
    assert one.fingerprint != other.fingerprint
    by = By(field="metadata.source", scorers={"a": Fixed(says="pass")}).bind(Binding(Path()))
    assert by.reads == {"prompt", "metadata"}


def test_weights_are_in_the_fingerprint() -> None:
    sections: list[Any] = [
        {"weighted": [{"weight": w, "scorer": "json"}, {"weight": 1.0, "scorer": "json"}]}
        for w in (1.0, 2.0)
    ]
    assert scorer(sections[0]).fingerprint != scorer(sections[1]).fingerprint


def test_close_reaches_every_member_even_when_one_fails() -> None:
    names = ("a", "stuck", "b")
    parts: list[ScorerSettings] = [Fixed(says="pass", name=name) for name in names]
    with pytest.raises(RuntimeError, match="cannot close"):
        asyncio.run(AllOf(scorers=parts).bind(Binding(Path())).close())
    assert sorted(ASKED) == ["closed a", "closed b", "closed stuck"]


def test_list_of_real_scorers_works_end_to_end() -> None:
    section: Any = ["json", {"json": {"schema": {"required": ["a"]}}}]
    assert outcome(verdict(section, '{"a": 1}', {"a": 1})) == "pass"
    assert outcome(verdict(section, '{"b": 1}', {"b": 1})) == "fail"


def _value(found: Verdict) -> float:
    assert isinstance(found, Score)
    return found.value
