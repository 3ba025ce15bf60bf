"""`exact`, `contains` and `regex`: what is the same text, what is stated, what matches."""

from __future__ import annotations

import pytest
from pydantic import JsonValue

from labelkit.records import Reply, Score, Task
from labelkit.scorers.parse import parse_scorer
from labelkit.spec import SectionError
from tests.scorers.scripted import scorer, verdict


def scored(section: JsonValue, reply: str, gold: JsonValue) -> Score:
    found = verdict(section, reply, gold)
    assert isinstance(found, Score)
    return found


STATED = {
    "Paris": ["Paris", "paris!", "**Paris**", "The capital is Paris.", "It's Paris, France.",
              "The capital of France is Paris, which lies on the Seine.", "Not Lyon but Paris."],
    "no": ["No.", "No, it is not.", "The answer is no."],
    "true": ["True.", "The statement is true."],
    "July 4, 1776": ["It was signed on 4 July 1776.", "July 4th, 1776", "1776-07-04",
                     "On the 4th of July, 1776."],
    "“hello world”": ['"hello world"', "hello  world"],
    "The Beatles": ["Beatles", "It was the Beatles."],
    "USA": ["the U.S.A."],
    "H2O": ["It is H₂O."],
    "don't": ["don’t"],
    "cafe\u0301": ["It is a caf\u00e9."],
    "C++": ["The language is C++."],
    "42": ["The answer is 42."],
    "1000": ["It has 1,000 pages."],
    "Simon & Garfunkel": ["Simon and Garfunkel sang it."],
    "Coca-Cola": ["Coca Cola"],
    "Zürich": ["It is Zurich."],
    "red, white and blue": ["The colours are red, white and blue."],
}  # fmt: skip
NOT_STATED = {
    "Paris": ["Lyon", "Not Paris.", "It isn't Paris.", "It is not Paris but Lyon.", "Paris or Lyon",
              "Paris/Lyon", "Maybe Paris.", "Parisian", "It's Lyon, not Paris.", "Is it Paris?",
              "Paris and London",
              "London, Paris, Rome, Berlin, Madrid, Vienna", "Anything but Paris.",
              "It is Paris. Actually, no, it is Lyon.", "I don't know whether it is Paris.",
              "The capital used to be Paris, now it is Lyon."],
    "no": ["There is no doubt: yes.", "Yes.", "I know.", "There is no doubt about it."],
    "yes": ["Yes and no.", "Not yes."],
    "true": ["False", "The statement is not true.", "untrue", "It is true or false."],
    "correct": ["The claim is incorrect.", "The claim is not correct."],
    "July 4, 1776": ["It was signed on 4 June 1776.", "July 5, 1776", "It was not July 4, 1776."],
    "42": ["The answer is 142.", "The answer is 42.5", "The answer is -42."],
    "C": ["The language is C++."],
    "cat": ["category", "concatenate"],
    "Albert Einstein": ["Einstein's brother Albert"],
}  # fmt: skip


def pairs(table: dict[str, list[str]]) -> list[tuple[str, str]]:
    return [(gold, reply) for gold, replies in table.items() for reply in replies]


@pytest.mark.parametrize(("gold", "reply"), pairs(STATED))
def test_contains_passes_what_is_stated(gold: str, reply: str) -> None:
    found = scored("contains", reply, gold)
    assert found.passed, found


@pytest.mark.parametrize(("gold", "reply"), pairs(NOT_STATED))
def test_contains_fails_what_is_only_mentioned(gold: str, reply: str) -> None:
    assert not scored("contains", reply, gold).passed


def test_contains_takes_any_of_several_golds_and_a_fixed_text() -> None:
    assert scored("contains", "It is in NYC.", ["New York", "NYC"]).passed
    assert not scored("contains", "It is in Newark.", ["New York", "NYC"]).passed
    assert scored({"contains": "hello"}, "Well, hello there!", None).passed


def test_contains_anywhere_looks_at_the_text_alone() -> None:
    section: JsonValue = {"contains": {"mention": "anywhere", "ignore_case": False}}
    assert scored(section, "It is not Paris.", "Paris").passed
    assert scored(section, "Parisian", "Paris").passed
    assert not scored(section, "paris", "Paris").passed


@pytest.mark.parametrize(
    ("settings", "reply", "passes"),
    [
        ({}, "The answer is new  york.", True),
        ({}, "“New York”", True),
        ({}, "I like New York.", False),
        ({}, "New York City", False),
        ({"ignore_case": False}, "new york", False),
        ({"fold": False, "ignore_case": False}, "New York", True),
        ({"fold": False}, "New  York", False),
        ({"answer": {"tag": "city"}}, "<city>New York</city>", True),
        ({"answer": {"tag": "city"}}, "New York", False),
    ],
)
def test_exact_compares_the_whole_answer(
    settings: dict[str, JsonValue], reply: str, passes: bool
) -> None:
    assert scored({"exact": settings}, reply, "New York").passed is passes


def test_exact_takes_any_of_several_golds_and_numbers() -> None:
    assert scored("exact", "NYC", ["New York", "NYC"]).passed
    assert scored("exact", "42", 42).passed
    assert not scored("exact", "10⁵", "105").passed


@pytest.mark.parametrize(
    ("settings", "reply", "passes"),
    [
        ({"pattern": r"^\d{3}$"}, "123", True),
        ({"pattern": r"\d{3}"}, "ab 1234", True),
        ({"pattern": r"\d{3}", "match": "full"}, "ab 123", False),
        ({"pattern": r"hello", "ignore_case": True}, "Hello", True),
        ({"pattern": r"hello"}, "Hello", False),
        ({"pattern": r"é\d", "answer": {"after": "A:"}}, "A: é5", True),
        ({"pattern": r"(a+)+$"}, "a" * 50_000 + "b", False),
    ],
)
def test_regex_matches_in_linear_time(
    settings: dict[str, JsonValue], reply: str, passes: bool
) -> None:
    assert scored({"regex": settings}, reply, None).passed is passes


def test_regex_without_a_pattern_takes_the_gold_for_it() -> None:
    assert scored("regex", "abc 42", r"\b42\b").passed
    check = scorer("regex").check_gold
    assert check(Task(id="t", prompt="p", gold=r"\b42\b")) is None
    assert "not an RE2 pattern" in (check(Task(id="t", prompt="p", gold="(")) or "")
    assert check(Task(id="t", prompt="p"))


@pytest.mark.parametrize("pattern", ["(", r"(a)\1", r"(?=a)b", ""])
def test_pattern_that_is_not_linear_is_a_fault_of_the_spec(pattern: str) -> None:
    with pytest.raises(SectionError):
        parse_scorer({"regex": pattern})


@pytest.mark.parametrize("gold", [None, True, "", " ", [], [""], {"a": 1}, ["a", None]])
def test_gold_without_text_is_a_fault(gold: JsonValue) -> None:
    for section in ("exact", "contains"):
        assert scorer(section).check_gold(Task(id="t", prompt="p", gold=gold))


@pytest.mark.parametrize("section", ["exact", "contains", {"regex": "a"}])
def test_cut_and_empty_replies_fail(section: JsonValue) -> None:
    for reply in (Reply(text="a", cut=True), Reply(text="")):
        found = verdict(section, reply, "a")
        assert isinstance(found, Score)
        assert found.no_answer


def test_lone_surrogates_are_text_like_any_other() -> None:
    assert scored({"regex": "a"}, "\ud83da", None).passed
    assert not scored("exact", "\ud83d", "a").passed


@pytest.mark.parametrize(
    ("pattern", "reply", "matches"),
    [(r"\.$", "Hello.", True), (r"^\*\*Hello", "**Hello**", True), (r"^(a+)+$", "aaa!", False)],
)
def test_a_pattern_sees_the_reply_to_the_character(pattern: str, reply: str, matches: bool) -> None:
    assert scored({"regex": pattern}, reply, None).passed is matches
