"""The `constraints` scorer: IFEval's instructions and the plain names, decided by code."""

from __future__ import annotations

import gzip
import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from labelkit.records import Abstention, Score, Task, Verdict
from labelkit.scorers import wording
from labelkit.scorers.ifeval import instruction
from labelkit.spec import SectionError
from tests.scorers.scripted import cases, reply_of, scorer, verdict

DATA = Path(__file__).parents[1] / "data" / "ifeval_instructions.jsonl.gz"


@pytest.mark.parametrize("row", cases("ifeval"), ids=lambda row: row["id"])
def test_case_is_decided_as_a_careful_person_would(row: dict[str, Any]) -> None:
    found = verdict("constraints", reply_of(row), row["gold"])
    if not row.get("ambiguous"):
        assert isinstance(found, Score)
        assert found.passed is row["expected"], found


def test_every_published_instruction_is_known_with_its_arguments() -> None:
    rows = [json.loads(line) for line in gzip.decompress(DATA.read_bytes()).splitlines()]
    bound = scorer("constraints")
    for row in rows:
        metadata = {key: row[key] for key in ("instruction_id_list", "kwargs")}
        task = Task(id=str(row["key"]), prompt="p", metadata=metadata)
        assert bound.check_gold(task) is None
    assert len({id_ for row in rows for id_ in row["instruction_id_list"]}) == 25


def followed(id_: str, text: str, **kwargs: JsonValue) -> bool | None:
    return instruction(id_, kwargs)(text).holds


@pytest.mark.parametrize(
    ("id_", "kwargs", "text", "expected"),
    [
        ("keywords:existence", {"keywords": ["art", "sea"]}, "Art by the sea.", True),
        ("keywords:existence", {"keywords": ["art"]}, "A party.", False),
        ("keywords:existence", {"keywords": ["ice cream"]}, "Ice\ncream!", True),
        ("keywords:existence", {"keywords": ["海"]}, "大海边", True),
        ("keywords:frequency", {"relation": "at least", "keyword": "a", "frequency": 2},
         "A man, a plan", True),
        ("keywords:frequency", {"relation": "less than", "keyword": "a", "frequency": 2},
         "a b a", False),
        ("keywords:forbidden_words", {"forbidden_words": ["rock"]}, "It rocks.", True),
        ("keywords:forbidden_words", {"forbidden_words": ["rock"]}, "ROCK!", False),
        ("keywords:letter_frequency",
         {"letter": "#", "let_relation": "at least", "let_frequency": 4}, "## a ##", True),
        ("keywords:letter_frequency",
         {"letter": "t", "let_relation": "less than", "let_frequency": 2}, "To it", False),
        ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, "one\n***\ntwo", True),
        ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, "one\n\ntwo", False),
        ("length_constraints:number_paragraphs", {"num_paragraphs": 3},
         "one\n***\n***\ntwo", False),
        ("length_constraints:number_words", {"relation": "at least", "num_words": 3},
         "it's well-known", False),
        ("length_constraints:nth_paragraph_first_word",
         {"num_paragraphs": 2, "nth_paragraph": 1, "first_word": "my"}, "My dear\n\nYou", True),
        ("length_constraints:nth_paragraph_first_word",
         {"num_paragraphs": 2, "nth_paragraph": 1, "first_word": "my"}, "Mystery\n\nYou", False),
        ("length_constraints:nth_paragraph_first_word",
         {"num_paragraphs": 3, "nth_paragraph": 1, "first_word": "my"}, "My dear\n\nYou", False),
        ("detectable_content:number_placeholders", {"num_placeholders": 2},
         "[name], see [this](http://x.org) [1] []", False),
        ("detectable_content:postscript", {"postscript_marker": "P.P.S"}, "Bye\nP.P.S more", True),
        ("detectable_content:postscript", {"postscript_marker": "P.S."}, "Bye\n\n**P.S.** x", True),
        ("detectable_content:postscript", {"postscript_marker": "P.S."}, "Bye. P. S. x", True),
        ("detectable_content:postscript", {"postscript_marker": "P.S."}, "Bye.\nP.S.", False),
        ("detectable_content:postscript", {"postscript_marker": "P.S."}, "Caps. Best", False),
        ("detectable_format:number_bullet_lists", {"num_bullets": 2}, "- a\n - b", True),
        ("detectable_format:number_bullet_lists", {"num_bullets": 2}, "* a\n* b\n* c", False),
        ("detectable_format:number_bullet_lists", {"num_bullets": 1}, "---\n* * *\n* a", True),
        ("detectable_format:constrained_response", {}, "My answer is maybe.", True),
        ("detectable_format:constrained_response", {}, "Yes.", False),
        ("detectable_format:number_highlighted_sections", {"num_highlights": 3},
         "*a b* and **c** and *d*", True),
        ("detectable_format:number_highlighted_sections", {"num_highlights": 1},
         "* one\n* two", False),
        ("detectable_format:multiple_sections",
         {"section_spliter": "SECTION", "num_sections": 2}, "SECTION 1\na\n## SECTION 2\nb", True),
        ("detectable_format:multiple_sections",
         {"section_spliter": "SECTION", "num_sections": 2}, "SECTION 1\nas in SECTION 2", False),
        ("detectable_format:json_format", {}, '```json\n{"a": [1]}\n```', True),
        ("detectable_format:json_format", {}, 'Here: {"a": 1}', False),
        ("detectable_format:json_format", {}, '{"a": NaN}', False),
        ("detectable_format:title", {}, "<<A poem>>\nRoses", True),
        ("detectable_format:title", {}, "<< >>\nRoses", False),
        ("combination:two_responses", {}, "a\n******\n\n******\nb", False),
        ("combination:two_responses", {}, "a\n***\nb", False),
        ("combination:two_responses", {}, "a", False),
        ("combination:repeat_prompt", {"prompt_to_repeat": "Write  a poem."},
         "write a poem.\n\nRoses", True),
        ("combination:repeat_prompt", {"prompt_to_repeat": "Write a poem."},
         "Sure! Write a poem.", False),
        ("startend:end_checker", {"end_phrase": "That's all."}, "Done. That’s all.\n", True),
        ("startend:quotation", {}, "“Hello there.”", True),
        ("startend:quotation", {}, '"Hello" she said', False),
        ("startend:quotation", {}, '""', False),
        ("change_case:capital_word_frequency",
         {"capital_relation": "at least", "capital_frequency": 2}, "STOP the CAR.", True),
        ("change_case:capital_word_frequency",
         {"capital_relation": "less than", "capital_frequency": 2}, "STOP the CAR.", False),
        ("change_case:english_capital", {}, "HELLO, IT IS 3.", True),
        ("change_case:english_capital", {}, "HELLO there", False),
        ("change_case:english_capital", {}, "ПРИВЕТ, КАК ДЕЛА?", False),
        ("change_case:english_lowercase", {}, "123", False),
        ("change_case:english_lowercase", {},
         "ceci est un texte en français qui parle de la mer et des bateaux dans le port de la "
         "ville où nous vivons tous", False),
        ("punctuation:no_comma", {}, "no pauses here", True),
        ("punctuation:no_comma", {}, "1,000", False),
        ("ratio:sentence_words", {}, "Cats nap. Dogs run. Fish eat.", True),
        ("ratio:sentence_words", {}, "Cats nap. Dogs run.", False),
        ("ratio:sentence_words", {}, "Cats nap. Dogs walk. Fish eat.", False),
    ],
)  # fmt: skip
def test_instruction_is_decided(
    id_: str, kwargs: dict[str, JsonValue], text: str, expected: bool
) -> None:
    assert followed(id_, text, **kwargs) is expected


@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [
        ("hi", "यह एक परीक्षण वाक्य है जो हिंदी में लिखा गया है।", True),
        ("mr", "यह एक परीक्षण वाक्य है जो हिंदी में लिखा गया है।", False),
        ("sw", "Hii ni sentensi ya Kiswahili kwa ajili ya majaribio.", True),
        ("de", "This sentence is written in plain English, as anyone can see.", False),
        ("ko", "이 문장은 한국어로 쓰여 있습니다.", True),
        ("fi", "OK", None),
    ],
)
def test_language_is_told_or_left_open(language: str, text: str, expected: bool | None) -> None:
    assert followed("language:response_language", text, language=language) is expected


def test_language_that_cannot_be_told_abstains_unless_something_failed() -> None:
    language: Any = {"id": "language:response_language", "kwargs": {"language": "fi"}}
    comma: Any = {"id": "punctuation:no_comma"}
    assert isinstance(verdict("constraints", "OK", [language, comma]), Abstention)
    found = verdict("constraints", "O,K", [language, comma])
    assert isinstance(found, Score)
    assert not found.passed


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("Dr. Smith met Mr. Jones. They talked.", 2),
        ("He said no. Then he left.", 2),
        ("See No. 5 for details.", 1),
        ("It costs 3.50 euros. Really!", 2),
        ("We met at 5 p.m. and ate. Fine?", 2),
        ("hello there. this is fine.", 2),
        ("Wait... what? Yes!", 2),
        ("J. K. Rowling wrote it.", 1),
        ('"Stop!" he said. She did.', 2),
        ("# A title\n\nOne sentence.", 1),
        ("1. First item\n2. Second item", 2),
        ("一句话。两句话！", 2),
        ("Roses are red\nviolets are blue", 1),
        ("e.g. this one, i.e. only one", 1),
        ("", 0),
    ],
)
def test_sentences_are_counted_as_readers_count_them(text: str, count: int) -> None:
    assert len(wording.sentences(text)) == count


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("it's a well-known fact", 4),
        ("now — or never", 3),
        ("one—two", 2),
        ("* **bold** - 3.5", 2),
        ("हिंदी भाषा", 2),
        ("你好", 2),
        ("", 0),
    ],
)
def test_words_are_counted_as_readers_count_them(text: str, count: int) -> None:
    assert len(wording.words(text)) == count


@pytest.mark.parametrize(
    ("section", "text", "expected"),
    [
        ({"words": 3}, "one two three", True),
        ({"words": 3}, "one two", False),
        ({"words": {"min": 2}}, "one", False),
        ({"words": {"max": 2}}, "one two three", False),
        ({"sentences": 2}, "One. Two.", True),
        ({"paragraphs": 2}, "One.\n \nTwo.", True),
        ({"bullets": {"min": 1}}, "none", False),
        ({"max_chars": 3}, "abcd", False),
        ({"min_chars": 3}, " ab ", False),
        ({"forbid_letters": "e"}, "Warm air", True),
        ({"forbid_letters": "e"}, "An Éclair", False),
        ({"forbid_letters": ["q", "z"]}, "jazz", False),
        ({"every_word_starts_with": "x"}, "Xena's “xylophone” x-rays.", True),
        ({"every_word_starts_with": "x"}, "Xena plays", False),
        ({"forbid_words": ["cat"]}, "A cat.", False),
        ({"require_words": "cat"}, "concatenate", False),
        ({"starts_with": "Dear"}, "Dear all", True),
        ({"ends_with": "Yours"}, "Dear all", False),
        ({"no_comma": True}, "a, b", False),
        ({"lowercase": True}, "a B", False),
        ({"uppercase": True}, "A 1!", True),
        ({"json": True}, "[1]", True),
        ({"words": 2, "no_comma": True}, "a, b", False),
        ([{"id": "punctuation:no_comma"}], "a b", True),
    ],
)
def test_plain_constraint_is_decided(section: Any, text: str, expected: bool) -> None:
    found = verdict({"constraints": section}, text)
    assert isinstance(found, Score)
    assert found.passed is expected, found.detail


TEN_X: Any = {"constraints": {"words": 10, "sentences": 1, "every_word_starts_with": "x"}}
NO_E: Any = {
    "constraints": {"words": {"min": 30, "max": 40}, "paragraphs": 1, "forbid_letters": "e"}
}
WINTER = (
    "Dawn is slow in our cold month. Frost coats a window, and a dim sun climbs past bald oaks. "
    "My dog snoozing by a warm log, I sip cocoa and watch soft snow fill our yard."
)


@pytest.mark.parametrize(
    ("section", "text", "expected"),
    [
        (TEN_X, "Xavier's xenial xenophile Xena x-rayed xeric xylem, xeroxed xanthic xylophones.",
         True),
        (TEN_X, "Xavier's xenial xenophile Xena x-rayed xeric xylem and xeroxed xylophones.",
         False),
        (TEN_X, "Xavier's xenial xenophile Xena x-rayed xeric xylem.", False),
        (NO_E, WINTER, True),
        (NO_E, WINTER.replace("warm", "fire"), False),
        (NO_E, WINTER + " Again it was so calm and so bright.", False),
    ],
)  # fmt: skip
def test_adversarial_prompts_are_decided_by_code(section: Any, text: str, expected: bool) -> None:
    found = verdict(section, text)
    assert isinstance(found, Score)
    assert found.passed is expected, found.detail


def test_value_is_the_share_followed_with_evidence_for_each() -> None:
    found = verdict({"constraints": {"words": 2, "no_comma": True}}, "a, b c")
    assert isinstance(found, Score)
    assert (found.value, found.rule) == (0.0, "constraints 0/2")
    found = verdict({"constraints": {"words": 3, "no_comma": True}}, "a, b c")
    assert isinstance(found, Score)
    assert found.value == 0.5
    assert found.reason == "no_comma: comma at 1"
    told: Any = found.detail["constraints"]
    assert told[0] == {"id": "words", "holds": True, "evidence": "3 words, exactly 3"}


def test_empty_reply_follows_nothing() -> None:
    found = verdict({"constraints": {"no_comma": True}}, " \n")
    assert isinstance(found, Score)
    assert (found.passed, found.no_answer) == (False, True)


@pytest.mark.parametrize(
    ("task", "fault"),
    [
        ({}, "has no constraints"),
        ({"gold": []}, "empty list"),
        ({"gold": "no_comma"}, "no list of constraints"),
        ({"gold": [{"id": "punctuation:no_coma"}]}, "unknown instruction `punctuation:no_coma`; "
                                                    "`punctuation:no_comma`?"),
        ({"gold": [{"id": "keywords:existence", "kwargs": {}}]}, "keywords:existence: keywords"),
        ({"gold": [{"id": "punctuation:no_comma", "kwargs": {"n": 1}}]}, "unexpected"),
        ({"gold": [{"id": "length_constraints:number_words",
                    "kwargs": {"relation": "at most", "num_words": 3}}]}, "relation"),
        ({"gold": [{"id": "language:response_language", "kwargs": {"language": "xx"}}]},
         "unknown language `xx`"),
        ({"metadata": {"instruction_id_list": ["punctuation:no_comma"], "kwargs": []}},
         "not as many kwargs"),
    ],
)  # fmt: skip
def test_task_without_usable_constraints_is_a_fault(task: Any, fault: str) -> None:
    assert fault in (scorer("constraints").check_gold(Task(id="t", prompt="p", **task)) or "")


def test_null_arguments_count_as_absent() -> None:
    gold: Any = {
        "instruction_id_list": ["punctuation:no_comma"],
        "kwargs": [{"num_words": None, "relation": None}],
    }
    assert _passed(verdict("constraints", "fine", gold))


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"wrods": 3}, "did you mean|unknown key"),
        ({"words": {"min": 3, "max": 2}}, "min 3 is above max 2"),
        ({"words": {}}, "needs `min`"),
        ({"lowercase": True, "uppercase": True}, "cannot both hold"),
        ({"instructions": [{"id": "punctuation:none"}]}, "unknown instruction"),
        ([{"id": "keywords:existence"}], "keywords"),
    ],
)
def test_bad_settings_are_faults(arguments: Any, problem: str) -> None:
    with pytest.raises(SectionError, match=problem):
        scorer({"constraints": arguments})


HOSTILE = ["." * 100_000 + "x", "[" + "a" * 100_000, "<<" + "a" * 100_000, "* " * 50_000,
           "a. " * 33_000, "*a " * 33_000, "\n" * 100_000, "p." * 50_000, "P.S." + " " * 99_999,
           "``` " * 25_000, "1. " * 33_000, " " * 100_000, "'\"" * 50_000]  # fmt: skip


def test_every_check_is_linear_and_total() -> None:
    rows = [json.loads(line) for line in gzip.decompress(DATA.read_bytes()).splitlines()]
    kinds = {
        id_: own
        for row in rows
        for id_, own in zip(row["instruction_id_list"], row["kwargs"], strict=True)
    }
    kinds.pop("language:response_language")
    for text in HOSTILE:
        for id_, kwargs in kinds.items():
            started = time.process_time()
            instruction(id_, kwargs)(text)
            assert time.process_time() - started < 1.5, (id_, text[:10])


@given(st.text(alphabet="aé .!?\"*[]<>\n-#1,'中") | st.text())
def test_counting_never_raises_and_words_never_hold_space(text: str) -> None:
    assert all(word and not any(map(str.isspace, word)) for word in wording.words(text))
    assert len(wording.sentences(text)) <= len(text)


def _passed(found: Verdict) -> bool:
    assert isinstance(found, Score)
    return found.passed
