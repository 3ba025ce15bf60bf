"""Specs: every fault at once, each with file, line, field and fix."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import BaseModel, JsonValue, ValidationError, field_validator

from labelkit.errors import Fault, SpecError
from labelkit.spec import (
    Problem,
    SectionError,
    TaskFile,
    faults_of,
    load,
    parse_spec,
    problems_of,
)

GOOD = "name: muffins\ntasks: {file: x.jsonl}\nsampler: {model: m}\n"


def faults(folder: Path, text: str, *overrides: str) -> list[Fault]:
    path = folder / "spec.yaml"
    path.write_text(text)
    with pytest.raises(SpecError) as caught:
        parse_spec(load(path, overrides))
    assert caught.value.exit_code == 2
    assert {fault.file for fault in caught.value.faults} == {str(path)}
    return list(caught.value.faults)


def shown(fault: Fault) -> str:
    return str(fault).removeprefix(f"{fault.file}")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (GOOD + "gate: [x]\n", ":4: gate: unknown key (did you mean `gates`?)"),
        (GOOD + "Scorer: x\n", ":4: Scorer: unknown key (did you mean `scorer`?)"),
        (
            "name: a\ntasks: {fil: x, file: y}\nsampler: {}\n",
            ":2: tasks.fil: unknown key (did you mean `file`?)",
        ),
        (
            "name: a\ntasks: {file: x, File: y}\nsampler: {}\n",
            ":2: tasks.File: unknown key (did you mean `file`?)",
        ),
        (
            "name: a\ntasks:\n  file: x\n  fields:\n    promt: q\nsampler: {}\n",
            ":5: tasks.fields.promt: unknown key (did you mean `prompt`?)",
        ),
        (
            "name: a\ntasks:\n  file: x\n  fields:\n    gold: {aftr: x}\nsampler: {}\n",
            ":5: tasks.fields.gold.aftr: unknown key (did you mean `after`?)",
        ),
        (
            "name: a\ntasks: {file: x, fields: {metadata: {X: 5}}}\nsampler: {}\n",
            ":2: tasks.fields.metadata.X: 5: should be text",
        ),
        ("tasks: {file: x}\nsampler: {}\n", ": `name` is missing (add it)"),
        ("name: a\nsampler: {}\n", ": `tasks` is missing (add it)"),
        ("name: a\ntasks: {}\nsampler: {}\n", ":2: tasks: `file` is missing (add it)"),
        ("name: a\ntasks: 3\nsampler: {}\n", ":2: tasks: 3: should be a mapping or a list"),
        ("name: a\ntasks: [1]\nsampler: {}\n", ":2: tasks[0]: 1: should be a mapping"),
        ("name: a\ntasks: {file: x}\nsampler: [a]\n", ":3: sampler: should be a mapping"),
        (GOOD + "k: yes\n", ":4: k: 'yes': should be a whole number"),
        (GOOD + "k: true\n", ":4: k: True: should be a whole number"),
        (GOOD + "k: 2.5\n", ":4: k: 2.5: should be a whole number"),
        (GOOD + "k: 0\n", ":4: k: 0: should be greater than or equal to 1"),
        (GOOD + "adaptive: no\n", ":4: adaptive: 'no': should be true or false"),
        (GOOD + "max_unscored: 2\n", ":4: max_unscored: 2: should be less than or equal to 1"),
        (GOOD + "budget: free\n", ":4: budget: 'free': should be a number"),
        (GOOD + "gates:\n- a\n- 3\n", ":6: gates[1]: 3: should be text"),
        (GOOD + "on_truncated: drop\n", ":4: on_truncated: 'drop': should be 'fail' or 'unscored'"),
        (
            "name: ../x\ntasks: {file: x}\nsampler: {}\n",
            ":1: name: '../x': string should match pattern",
        ),
        (
            "name: a\ntasks: {file: x, shuffle: often}\nsampler: {}\n",
            ":2: tasks.shuffle: 'often': should be a whole number",
        ),
        (
            "name: a\ntasks: {file: x, on_bad_gold: keep}\nsampler: {}\n",
            ":2: tasks.on_bad_gold: 'keep': should be 'error' or 'drop'",
        ),
        (
            "name: a\ntasks: []\nsampler: {}\n",
            ":2: tasks: list should have at least 1 item",
        ),
    ],
)
def test_a_bad_spec_is_told_with_line_field_and_fix(tmp_path: Path, text: str, said: str) -> None:
    [fault] = faults(tmp_path, text)
    assert shown(fault).startswith(said)


def test_an_unknown_key_without_a_near_one_lists_the_known(tmp_path: Path) -> None:
    [fault] = faults(tmp_path, GOOD + "zzz: 1\n")
    assert "(known here: adaptive, best_of_n, " in str(fault)


def test_faults_without_number_are_told_up_to_a_bound(tmp_path: Path) -> None:
    found = faults(tmp_path, GOOD + "".join(f"k{i}: 1\n" for i in range(3000)))
    assert len(found) == 101
    assert [f.problem for f in found if "more" in f.problem] == ["has 2,900 more faults"]


def test_all_faults_come_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    text = "nam: a\ntasks: {fil: x}\nsampler: []\nk: 0\nbudget: -1\n"
    assert [(fault.line, fault.field) for fault in faults(tmp_path, text)] == [
        (None, None),
        (1, "nam"),
        (2, "tasks"),
        (2, "tasks.fil"),
        (3, "sampler"),
        (4, "k"),
        (5, "budget"),
    ]


@pytest.mark.parametrize("name", ["missing.yaml", "."])
def test_a_spec_that_cannot_be_read_names_the_path_and_the_fix(tmp_path: Path, name: str) -> None:
    with pytest.raises(SpecError) as caught:
        load(tmp_path / name)
    assert str(tmp_path / name) in str(caught.value)
    assert "`labelkit init` writes one" in str(caught.value)


@pytest.mark.parametrize("text", ["", "- a\n", "just words\n"])
def test_a_spec_that_is_no_mapping_is_refused(tmp_path: Path, text: str) -> None:
    [fault] = faults(tmp_path, text)
    assert shown(fault) == ":1: is not a mapping of keys to values"


def test_an_endless_spec_is_refused_without_being_read_whole() -> None:
    with pytest.raises(SpecError, match="is longer than 1,000,000 bytes"):
        load(Path("/dev/zero"))


def test_overrides_replace_values_and_are_recorded(tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text(GOOD)
    document = load(path, ["sampler.temperature=0.7", "k=3", "sampler.stop=[a, b]"])
    assert document.values["sampler"] == {"model": "m", "temperature": 0.7, "stop": ["a", "b"]}
    assert document.values["k"] == 3
    assert document.overrides == {
        "sampler.temperature": 0.7,
        "k": 3,
        "sampler.stop": ["a", "b"],
    }


def test_a_fault_of_an_override_names_no_line_of_the_file(tmp_path: Path) -> None:
    [fault] = faults(tmp_path, GOOD + "k: 3\n", "k=none")
    assert (fault.line, fault.field) == (None, "k")


@pytest.mark.parametrize("override", ["k", "=3", "a..b=1", "name.x=1", "k=[", "k=*x"])
def test_a_bad_override_is_refused(tmp_path: Path, override: str) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text(GOOD)
    with pytest.raises(SpecError) as caught:
        load(path, [override])
    assert "--set" in str(caught.value)


class Inner(BaseModel):
    known: int


class Outer(BaseModel):
    part: object

    @field_validator("part")
    @classmethod
    def parse(cls, part: object) -> object:
        try:
            return Inner.model_validate(part)
        except ValidationError as error:
            raise SectionError(problems_of(error, Inner, {"known": "x"})) from None


def test_a_section_parsed_by_a_validator_keeps_its_paths(tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text("scorer:\n  part:\n    known: x\n")
    document = load(path)
    with pytest.raises(ValidationError) as caught:
        Outer.model_validate(document.values["scorer"])
    [fault] = faults_of(caught.value, document, ("scorer",), Outer)
    assert (fault.line, fault.field) == (3, "scorer.part.known")


def test_problems_of_a_section_start_inside_it() -> None:
    section: dict[str, JsonValue] = {"file": "x", "dedup": True}
    with pytest.raises(ValidationError) as caught:
        TaskFile.model_validate(section)
    assert problems_of(caught.value, TaskFile, section) == [
        Problem(("dedup",), "unknown key", "did you mean `dedupe`?")
    ]
