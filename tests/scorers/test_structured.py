"""The `json` scorer: what counts as offered JSON, strictness, equality, schema, paths."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labelkit.codec import dumps
from labelkit.records import Reply, Score, Task
from labelkit.scorers.json_in_text import NoOffer, Offer, offered
from labelkit.spec import SectionError
from tests.scorers.scripted import cases, reply_of, scorer, verdict


@pytest.mark.parametrize("row", cases("json"), ids=lambda row: row["id"])
def test_case_is_decided_as_a_careful_person_would(row: dict[str, Any]) -> None:
    started = time.process_time()
    found = verdict("json", reply_of(row), row["gold"])
    assert isinstance(found, Score)
    assert time.process_time() - started < 1
    if not row.get("ambiguous"):
        assert found.passed is row["expected"], found


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('```\n{"a": 1}\n```', {"a": 1}),
        ('~~~json\n{"a": 1}\n~~~\nDone.', {"a": 1}),
        ("```json\n42\n```", 42),
        ('```json\r\n{"a": 1}\r\n```', {"a": 1}),
        ('```json\n{"a": 1}```', {"a": 1}),
        ('```json\n{"a": 1}', {"a": 1}),
        ('Use `x = {y}` here: {"a": [1]}', {"a": [1]}),
        ('```python\nd = {"b": 2}\n```\nGives {"a": 1}', {"a": 1}),
        ('{"a": 1} and again {"a": 1}', {"a": 1}),
        ('{"a": 2}\nWait, that is wrong.\n{"a": 1}', {"a": 1}),
        ('[draft] it\'s 5" long: {"a": "]"}', {"a": "]"}),
        ('See [[Paris]] and [1, 2): {"a": 1}', None),
    ],
)
def test_json_is_found_in_prose_and_fences(text: str, value: Any) -> None:
    found = offered(text)
    if value is None:
        assert isinstance(found, NoOffer)
    else:
        assert isinstance(found, Offer)
        assert found.value == value


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "offers no JSON"),
        ("I think a is 1", "offers no JSON"),
        ('{"a": 1} or {"a": 2}', "differ"),
        ('{"a": 1}\nFinally, maybe {"a": 2}', "differ"),
        ('```json\n{"a": 1}\n```\nbut {"a": 2}', "differ"),
        ('{"a": 1', "does not end"),
        ('{"a": {"b": 1}', "does not end"),
        ("{'a': {\"b\": 1}}", "offers no JSON"),
        ('{"a": 1, "a": 1}', "duplicate key"),
        ('{"a": -Infinity}', "Infinity"),
        ('{"a": 1e999}', "too large"),
        ('{"a": 1} ' * 300, "more than 200 JSON values"),
        ('{"a":' * 300 + "1" + "}" * 300, "too deeply"),
        ('{"a": 01}', "cannot be read"),
        ('{"a": 1 /* one */}', "cannot be read"),
        ('The answer is not {"a": 1}', "offers no JSON"),
        ('{"a": 1,, "b": 2}', "cannot be read"),
        ('{"a": "x\ny"}', "cannot be read"),
    ],
)
def test_what_is_not_one_json_value_is_no_answer(text: str, reason: str) -> None:
    found = verdict("json", text, {"a": 1})
    assert isinstance(found, Score)
    assert (found.passed, found.no_answer) == (False, True)
    assert reason in (found.reason or "")


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"a":' * 20_000,
        '"' + '\\"' * 50_000,
        '{"' + '\\"' * 50_000,
        '["]",' * 20_000,
        '[1] {"a": } ' * 8_000,
        '{"a": 1} ' * 11_000,
        "```json\n" * 12_000,
        "{" + " " * 100_000,
        "," + " " * 100_000,
        "[ x " * 25_000,
    ],
)
def test_finding_json_is_linear(text: str) -> None:
    started = time.process_time()
    offered(text)
    assert time.process_time() - started < 1


@given(st.text(alphabet='{}[]",:\\ 1a`\n') | st.text())
def test_finding_json_never_raises(text: str) -> None:
    offered(text)


_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text('ab{"]\\', max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from("abc"), _VALUES, min_size=1), st.booleans())
def test_a_written_gold_verifies_in_prose_and_in_a_fence(gold: Any, fenced: bool) -> None:
    text = dumps(gold).decode()
    found = offered(f"Here:\n```json\n{text}\n```" if fenced else f"Here: {text}. Done.")
    assert isinstance(found, Offer)
    assert found.value == gold


def test_integers_are_exact_at_any_size() -> None:
    gold = {"n": 6747742486863689476416508396372901}
    assert _passed('{"n": 6747742486863689476416508396372901}', gold)
    assert not _passed('{"n": 6747742486863689476416508396372902}', gold)
    assert not _passed('{"n": 6.747742486863689e33}', gold)


@pytest.mark.parametrize(
    ("text", "gold", "expected"),
    [
        ('{"n": 1.0}', {"n": 1}, True),
        ('{"n": true}', {"n": 1}, False),
        ('{"n": 0}', {"n": False}, False),
        ('{"n": null}', {}, False),
        ("42", 42, True),
        ("The answer is 42", 42, False),
        ('"yes"', "yes", True),
        ('{"a": 1}', '{"a": 1}', True),
    ],
)
def test_equality_is_that_of_json(text: str, gold: Any, expected: bool) -> None:
    assert _passed(text, gold) is expected


def test_trailing_commas_are_refused_on_request() -> None:
    section = {"json": {"repair": False}}
    assert not _passed('{"a": [1,],}', {"a": [1]}, section)
    assert _passed('{"a": ",}"}', {"a": ",}"}, section)
    assert _passed('{"a": ",}",}', {"a": ",}"})


def test_reason_names_the_first_difference() -> None:
    found = verdict("json", '{"a": [1, {"b": 3}]}', {"a": [1, {"b": 2}]})
    assert found.reason == "$.a[1].b is 3, expected 2"


def test_span_and_rule_tell_what_was_read() -> None:
    found = verdict("json", 'So: {"a": 1}.', {"a": 1})
    assert isinstance(found, Score)
    assert (found.span, found.answer, found.rule) == ((4, 12), '{"a": 1}', "json:prose · equality")


def test_parsed_object_of_a_response_schema_is_read_first() -> None:
    reply = Reply(text='{"a": 2}', parsed={"a": 1})
    assert isinstance(found := verdict("json", reply, {"a": 1}), Score)
    assert found.passed


SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"n": {"type": "integer"}},
    "required": ["n"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"n": 3}', True),
        ('{"n": "3"}', False),
        ('{"n": true}', False),
        ('{"n": 3, "m": 1}', False),
    ],
)
def test_schema_decides_without_a_gold(text: str, expected: bool) -> None:
    assert _passed(text, None, {"json": {"schema": SCHEMA}}) is expected


def test_schema_and_gold_must_both_hold() -> None:
    section: Any = {"json": {"schema": SCHEMA, "match": "gold"}}
    assert _passed('{"n": 3}', {"n": 3}, section)
    assert not _passed('{"n": 4}', {"n": 3}, section)
    task = Task(id="t", prompt="p", gold={"n": "x"})
    assert "breaks the schema" in (scorer(section).check_gold(task) or "")


def test_paths_give_the_share_that_is_equal() -> None:
    section: Any = {"json": {"paths": ["a.b", "/list/1", "gone"]}}
    gold: Any = {"a": {"b": 1}, "list": [1, 2], "gone": None}
    found = verdict(section, '{"a": {"b": 1, "c": 9}, "list": [0, 3]}', gold)
    assert isinstance(found, Score)
    assert found.value == pytest.approx(1 / 3)
    assert found.reason == "/list/1 is 3, expected 2; gone is missing"


@pytest.mark.parametrize(
    ("section", "gold", "fault"),
    [
        ("json", None, "no gold"),
        ({"json": {"paths": ["a", "b.c"]}}, {"a": 1}, "without b.c"),
    ],
)
def test_unusable_gold_is_a_fault(section: Any, gold: Any, fault: str) -> None:
    assert fault in (scorer(section).check_gold(Task(id="t", prompt="p", gold=gold)) or "")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"schema": {"type": "strin"}}, "not a JSON Schema"),
        ({"schema": {"$ref": "http://example.org/s.json"}}, "only `#…`"),
        ({"match": "none"}, "goes with a schema"),
        ({"scheme": {}}, "unknown key"),
    ],
)
def test_bad_settings_are_faults(arguments: Any, problem: str) -> None:
    with pytest.raises(SectionError, match=problem):
        scorer({"json": arguments})


def _passed(text: str, gold: Any, section: Any = "json") -> bool:
    found = verdict(section, text, gold)
    assert isinstance(found, Score)
    return found.passed
