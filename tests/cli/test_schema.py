"""`labelkit schema`: what editors are told must be what the loader takes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from labelkit import scorers
from tests.recorded import printed

SPEC: dict[str, Any] = {
    "name": "x",
    "tasks": [{"prompt": "p", "gold": 1}],
    "sampler": {"model": "openai/x", "temperature": 0.5, "response": {"answer": "int"}},
    "scorer": "numeric",
}


@pytest.fixture(scope="module")
def schema() -> Any:
    return json.loads(printed("schema"))


def test_it_is_a_valid_draft_2020_12_schema(schema: Any) -> None:
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    Draft202012Validator.check_schema(schema)


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"tasks": {"file": "x.jsonl", "fields": {"prompt": "q", "gold": {"after": "####"}}}},
        {"sampler": {"recorded": {"file": "r.jsonl", "texts": ["a", "b"]}}},
        {"sampler": {"model": "direct/x", "give_up_s": 60, "total_timeout_s": 7.5}},
        {"scorer": {"numeric": {"answer": {"boxed": "last"}}}},
        {"scorer": {"numeric": None}},
        {"scorer": {"python": "score.py:check"}},
        {"scorer": ["exact", {"regex": {"pattern": "x"}}]},
        {"scorer": {"any": ["exact", {"all": ["json", "numeric"]}]}},
        {"k": 4, "gates": ["pass_rate > 0.5"], "slice_by": "metadata.source"},
        {"learning_zone": {"contrast": True}},
        {"rl_select": {"preset": "dapo"}},
    ],
)
def test_sound_specs_are_valid(schema: Any, change: dict[str, Any]) -> None:
    Draft202012Validator(schema).validate({**SPEC, **change})


@pytest.mark.parametrize(
    "change",
    [
        {"sampler": {"model": "openai/x", "temprature": 0.5}},
        {"sampler": {"model": "openai/x", "top_p": 2}},
        {"scorer": "numerc"},
        {"scorer": {"numeric": {"anser": "auto"}}},
        {"scorer": {"any": ["exact", "exactt"]}},
        {"k": "four"},
        {"tasks": {"file": "x.jsonl", "feilds": {}}},
        {"learning_zone": {"contrst": True}},
        {"unknown": 1},
    ],
)
def test_faults_that_an_editor_can_see_are_invalid(schema: Any, change: dict[str, Any]) -> None:
    assert not Draft202012Validator(schema).is_valid({**SPEC, **change})


def test_every_scorer_is_known_by_name(schema: Any) -> None:
    validator = Draft202012Validator(schema)
    for name in scorers.REGISTRY:
        assert validator.is_valid({**SPEC, "scorer": name}), name


def test_the_example_specs_are_valid(schema: Any) -> None:
    for path in Path("specs").glob("*.yaml"):
        Draft202012Validator(schema).validate(yaml.safe_load(path.read_text()))
