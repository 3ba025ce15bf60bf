"""YAML is loaded strictly, bounded and without surprises."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labelkit.errors import SpecError
from labelkit.strict_yaml import MAX_BYTES, parse_yaml


def parse(text: str) -> Any:
    return parse_yaml(text.encode(), "s.yaml")[0]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"),
        ("yes", "yes"),
        ("on", "on"),
        ("012", "012"),
        ("0x10", "0x10"),
        ("1_000", "1_000"),
        ("1:30", "1:30"),
        ("2024-01-01", "2024-01-01"),
        (".nan", ".nan"),
        (".inf", ".inf"),
        ("=", "="),
        ("'5'", "5"),
        ("5", 5),
        ("-5", -5),
        ("1e5", 1e5),
        ("0.5", 0.5),
        ("true", True),
        ("True", "True"),
        ("null", None),
        ("~", None),
        ("6747742486863689476416508396372901", 6747742486863689476416508396372901),
    ],
)
def test_plain_scalars_are_what_they_look_like(text: str, value: object) -> None:
    found = parse(f"a: {text}")["a"]
    assert found == value
    assert type(found) is type(value)


ALIAS_BOMB = "a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\nd: [*c, *c]\n"


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        (ALIAS_BOMB, 2, "has an alias"),
        ("a: &a\n  b: *a\n", 2, "has an alias"),
        ("a: 1\nb: 2\na: 3\n", 3, "has the key `a` twice (keep one of them)"),
        ("{a: 1, a: 2}", 1, "has the key `a` twice"),
        ("1: a\n'1': b\n", 2, "has the key `1` twice"),
        ("x:\n  <<: {a: 1}\n", 2, "has a merge key (<<) (write the members out)"),
        ("a: !!python/object/apply:os.system [ls]", 1, "has the tag"),
        ("a: !!float nan", 1, "has the tag"),
        ("a: !!bool x", 1, "has the tag"),
        ("a: ! 5", 1, "has the tag"),
        ("!!map {a: 1}", 1, "has the tag"),
        ("!!str a: 1", 1, "has the tag"),
        ("a:\n- " + "[" * 60 + "]" * 60, 2, "is nested more than 50 levels deep"),
        ("[" * 20_000, 1, "is nested more than 50 levels deep"),
        ("a:\n" + "".join(" " * i + "b:\n" for i in range(1, 60)), 51, "is nested more than 50"),
        ("a: 1\n? [b]\n: 2\n", 2, "has a key that is not text"),
        ("a: 1e999", 1, "has a number out of range: 1e999"),
        ("a: " + "9" * 5000, 1, "has a number of 5,000 digits"),
        ('a: 1\nb: "\\ud800"\n', 2, "has half of a surrogate pair"),
        ('"\\udfff": 1\n', 1, "has half of a surrogate pair"),
        ("a: 1\nb: \0\n", 2, "has a character that YAML does not allow: U+0000"),
        ("a: 'x", 1, "is not YAML"),
        ("a: 1\n b: 2\n", 2, "is not YAML"),
        ("a: [1, 2", 1, "is not YAML"),
        ("a: 1\n---\nb: 2\n", 2, "is not YAML"),
        ("a:\t- b", 1, "is not YAML"),
    ],
)
def test_what_is_not_plain_yaml_is_refused_with_its_line(text: str, line: int, said: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse(text)
    [fault] = caught.value.faults
    assert (fault.file, fault.line) == ("s.yaml", line)
    assert said in str(fault)


def test_too_long_a_document_is_refused_before_it_is_parsed() -> None:
    with pytest.raises(SpecError, match=r"s\.yaml: is longer than 1,000,000 bytes \(keep tasks"):
        parse_yaml(b"a" * (MAX_BYTES + 1), "s.yaml")


@pytest.mark.parametrize(
    ("raw", "said"),
    [(b"\xff\xfea\0", r"is UTF-16 text"), (b"a: \x80", r"is not UTF-8 text \(byte 4\)")],
)
def test_bytes_that_are_not_utf8_are_refused(raw: bytes, said: str) -> None:
    with pytest.raises(SpecError, match=rf"s\.yaml: {said} \(save it as UTF-8\)"):
        parse_yaml(raw, "s.yaml")


def test_an_anchor_without_alias_and_a_byte_order_mark_are_harmless() -> None:
    assert parse("\ufeffa: &x 1") == {"a": 1}


def test_every_key_and_item_has_its_line() -> None:
    _, lines = parse_yaml(b"a:\n  b: 1\n  c:\n  - x\n  - y: 2\n", "s.yaml")
    assert lines == {
        (): 1,
        ("a",): 1,
        ("a", "b"): 2,
        ("a", "c"): 3,
        ("a", "c", 0): 4,
        ("a", "c", 1): 5,
        ("a", "c", 1, "y"): 5,
    }


@given(st.text(alphabet="ab:-[]{}&*!|>'\"#%@`<,?~ \n\t0123.e\\u", max_size=60))
def test_any_text_is_either_plain_json_data_or_a_fault(text: str) -> None:
    try:
        value, _ = parse_yaml(text.encode(), "s.yaml")
    except SpecError:
        return
    pending = [value]
    while pending:
        item = pending.pop()
        assert item is None or isinstance(item, str | int | float | list | dict)
        assert not isinstance(item, float) or math.isfinite(item)
        if isinstance(item, dict):
            assert all(isinstance(key, str) for key in item)
            pending += item.values()
        elif isinstance(item, list):
            pending += item
