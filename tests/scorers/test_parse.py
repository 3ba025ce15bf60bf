"""Scorer sections: short forms, misspelt names, and every problem with its place."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import JsonValue

from labelkit.scorers.composition import AllOf, By, Weighted
from labelkit.scorers.parse import parse_scorer
from labelkit.scorers.structured import Json
from labelkit.spec import Problem, SectionError


def test_name_alone_takes_the_defaults() -> None:
    assert parse_scorer("json") == Json()


def test_mapping_gives_arguments() -> None:
    assert parse_scorer({"json": {"repair": False}}) == Json(repair=False)


def test_name_with_nothing_after_it_takes_the_defaults() -> None:
    assert parse_scorer({"json": None}) == Json()


def test_list_means_that_all_must_pass() -> None:
    assert parse_scorer(["json", "json"]) == AllOf(scorers=[Json(), Json()])


def test_short_argument_fills_the_field_of_that_kind() -> None:
    assert parse_scorer({"all": ["json"]}) == AllOf(scorers=[Json()])
    weighted = parse_scorer({"weighted": [{"weight": 2.0, "scorer": "json"}]})
    assert isinstance(weighted, Weighted)
    assert weighted.scorers[0].weight == 2.0


def test_whole_numbers_serve_as_weights() -> None:
    weighted = parse_scorer({"weighted": [{"weight": 2, "scorer": "json"}]})
    assert isinstance(weighted, Weighted)


def test_scorers_nest() -> None:
    section = {"by": {"field": "metadata.source", "scorers": {"a": ["json", {"any": ["json"]}]}}}
    parsed = parse_scorer(section)  # type: ignore[arg-type]
    assert isinstance(parsed, By)
    assert parsed.scorers["a"].KIND == "all"


@pytest.mark.parametrize(
    ("section", "problem"),
    [
        ("jsn", Problem(("s",), "unknown scorer `jsn`", "did you mean `json`?")),
        ({"jsn": {}}, Problem(("s",), "unknown scorer `jsn`", "did you mean `json`?")),
        (
            {"json": {"repare": True}},
            Problem(("s", "json", "repare"), "unknown key", "did you mean `repair`?"),
        ),
        (
            ["json", {"json": {"repair": "no"}}],
            Problem(("s", 1, "json", "repair"), "'no': should be true or false"),
        ),
        (
            {"all": [["jsonn"]]},
            Problem(("s", "all", 0, 0), "unknown scorer `jsonn`", "did you mean `json`?"),
        ),
        (
            {"weighted": [{"weight": 0.0, "scorer": "json"}]},
            Problem(("s", "weighted", 0, "weight"), "0.0: should be greater than 0"),
        ),
        (
            {"by": {"field": "metadata.source", "scorers": {"GSM8K": "jsonn"}}},
            Problem(
                ("s", "by", "scorers", "GSM8K"), "unknown scorer `jsonn`", "did you mean `json`?"
            ),
        ),
        ({"by": {"scorers": {"a": "json"}}}, Problem(("s", "by"), "`field` is missing", "add it")),
    ],
)
def test_problem_is_told_with_its_place(section: JsonValue, problem: Problem) -> None:
    with pytest.raises(SectionError) as caught:
        parse_scorer(section, at=("s",))
    assert caught.value.problems == (problem,)


def test_all_problems_are_told_at_once() -> None:
    section: Any = [{"json": {"repair": 1}}, "jsn", {"weighted": [{"weight": -1.0}]}]
    with pytest.raises(SectionError) as caught:
        parse_scorer(section)
    assert [problem.at for problem in caught.value.problems] == [
        (0, "json", "repair"),
        (1,),
        (2, "weighted", 0, "weight"),
        (2, "weighted", 0),
    ]


@pytest.mark.parametrize(
    ("section", "said"),
    [
        (3, "3 is not a scorer"),
        (None, "None is not a scorer"),
        ({}, "names no scorer"),
        ({"json": {}, "all": []}, "names 2 scorers"),
        ([], "at least 1 item"),
        ({"json": 3}, "takes its settings by name"),
    ],
)
def test_what_is_no_scorer_section_says_so(section: JsonValue, said: str) -> None:
    with pytest.raises(SectionError, match=said):
        parse_scorer(section)
