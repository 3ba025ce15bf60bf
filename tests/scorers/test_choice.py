"""The `choice` scorer: a letter must be offered as the answer, not occur in prose."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import JsonValue

from labelkit.records import Score, Task
from labelkit.scorers.parse import parse_scorer
from tests.scorers.scripted import scorer, verdict

LENGTHS = {"A": "10 cm", "B": "12 cm", "C": "15 cm", "D": "none of these"}
CITIES = {"A": "Paris", "B": "London", "C": "Rome", "D": "Berlin"}


def scored(reply: str, gold: JsonValue, options: Any = None, **settings: JsonValue) -> Score:
    metadata = {} if options is None else {"options": options}
    found = verdict({"choice": settings}, reply, gold, metadata=metadata)
    assert isinstance(found, Score)
    return found


@pytest.mark.parametrize(
    "reply",
    ["B", "b", "(B)", "B.", "B)", "B) 12 cm", "B: 12 cm", "**B. 12 cm**", "**Answer:** B",
     "The answer is (B).", "The answer is option B.", "The correct answer is: (B) 12 cm",
     "Option B is correct.", "The correct choice is B.", "So the answer is B because it fits.",
     r"\boxed{B}", r"\boxed{\textbf{(B)}}", r"$\boxed{\textbf{(B)}\ 12\text{ cm}}$",
     r"\boxed{12 \text{ cm}}", "The answer is 12 cm.", "12 cm", "The answer is [[B]].",
     "Answer: (B)\n\nExplanation: A and C are wrong.", "B\n\nExplanation: A is wrong.",
     "I choose B.", "I would go with B.", "Therefore B is correct.", "<answer>B</answer>",
     "It cannot be A or C, so the answer is B.", "A is too short. Answer: B", "正确答案是B。",
     "The answer is A. Wait, that is wrong. The answer is B.", "The answer is not A; it is B.",
     "It is definitely not C, so it must be B.", '{"answer": "B"}', "Antwort: Antwort: B",
     "The answer is B as a train slows down."],
)  # fmt: skip
def test_offered_letter_or_text_passes(reply: str) -> None:
    found = scored(reply, "B", LENGTHS)
    assert found.passed, found


@pytest.mark.parametrize(
    "reply",
    ["", "C", "15 cm", "The answer is B or C.", "Either B or C.", "B, C", r"\boxed{B, C}",
     r"\boxed{BC}", "ABCD", "A B C D", "Not B.", "The answer is not B.", "B is wrong.",
     "I don't know.", "Because of that.", "Both A and B could work.", "(B) 15 cm",
     "The answer is (B) 15 cm.", "The answer is A. Wait, no, it is C.", "Answer: B\nAnswer: C",
     r"\boxed{A} \boxed{B} \boxed{C} \boxed{D}", "Error: quota exceeded (API)",
     "By and large, this is hard to tell."],
)  # fmt: skip
def test_other_letters_hedges_and_prose_fail(reply: str) -> None:
    assert not scored(reply, "B", LENGTHS).passed


@pytest.mark.parametrize(
    "reply",
    ["A train slows down.", "A good question!", "The answer is a mystery.", "A clear choice is not "
     "possible.", "A careful look at the figure shows that the answer is D.", "Alas, no idea."],
)  # fmt: skip
def test_article_is_no_letter(reply: str) -> None:
    assert not scored(reply, "A", LENGTHS).passed


def test_pronoun_is_no_letter() -> None:
    assert not scored("The answer is C since I checked.", "I", letters="ABCDEFGHIJ").passed
    assert not scored("I think it is C.", "I").passed
    assert scored("The answer is I.", "I").passed


@pytest.mark.parametrize(
    ("reply", "passes"),
    [("A, C", True), ("C and A", True), (r"\boxed{AC}", True),
     ("The answers are (A) and (C).", True),
     ("A", False), ("A, B, C", False), ("A, D", False), (r"\boxed{A} and \boxed{C}", True)],
)  # fmt: skip
def test_several_right_letters_must_all_be_given_and_no_other(reply: str, passes: bool) -> None:
    assert scored(reply, ["A", "C"], CITIES).passed is passes


@pytest.mark.parametrize(
    ("reply", "passes"),
    [("London", True), ("It is London.", True), ("The capital of England is London.", True),
     ("It is London or Paris.", False), ("It is not London.", False),
     ("London, Paris, Rome", False),
     ("Londonderry", False)],
)  # fmt: skip
def test_option_text_counts_where_it_names_one_option(reply: str, passes: bool) -> None:
    assert scored(reply, "B", CITIES).passed is passes


def test_option_text_inside_another_number_is_not_that_option() -> None:
    options = ["1", "12", "2", "21"]
    assert scored("The answer is 12.", "B", options).passed
    assert not scored("The answer is 12.", "A", options).passed


def test_options_may_stand_in_the_spec() -> None:
    assert scored("London", "B", options=["Paris", "London"]).passed
    bound = scorer({"choice": {"options": ["Paris", "London"]}})
    assert bound.reads == frozenset()
    assert scorer("choice").reads == {"metadata.options"}


@pytest.mark.parametrize("gold", [None, True, "", "Z", "Athens", [], ["A", "Z"], {"A": 1}])
def test_gold_that_names_no_option_is_a_fault(gold: JsonValue) -> None:
    task = Task(id="t", prompt="p", gold=gold, metadata={"options": {**CITIES}})
    assert scorer("choice").check_gold(task)


@pytest.mark.parametrize("gold", ["B", "(B)", "b", "London", ["A", "C"], "A, C"])
def test_gold_may_be_letters_or_a_text(gold: JsonValue) -> None:
    task = Task(id="t", prompt="p", gold=gold, metadata={"options": {**CITIES}})
    assert scorer("choice").check_gold(task) is None


def test_letters_must_differ() -> None:
    with pytest.raises(ValueError, match="different letters"):
        parse_scorer({"choice": {"letters": "AAB"}})
