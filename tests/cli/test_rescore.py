"""`labelkit rescore`: another scorer over the same draws, without a call."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from labelkit.errors import UsageError
from tests.openai_server import OpenAIServer, Script
from tests.recorded import invoke, recorded_run, recorded_spec
from tests.runs import read_lines, run, summary, write_spec

TASKS = [{"id": f"t{i}", "prompt": f"Prompt {i}", "gold": "yes"} for i in range(3)]


async def sampled(folder: Path, server: OpenAIServer, **sections: Any) -> Path:
    server.script = Script(reply="well, yes")
    await asyncio.to_thread(run, spec_of(folder, server, **sections), folder / "run")
    return folder / "run"


def spec_of(folder: Path, server: OpenAIServer, **sections: Any) -> Path:
    sampler = {"model": "direct/fake", "api_base": server.url}
    defaults = {"tasks": TASKS, "sampler": sampler, "scorer": {"exact": {"answer": "whole"}}}
    return write_spec(folder, **{**defaults, "k": 2, **sections})


def rescored_in(folder: Path) -> Path:
    [found] = folder.glob("run-rescored-*")
    return found


async def test_rescoring_makes_no_call_even_where_the_endpoint_is_gone(
    tmp_path: Path, openai_server: OpenAIServer
) -> None:
    directory = await sampled(tmp_path, openai_server)
    assert summary(directory)["n_passed"] == 0
    n_calls = len(openai_server.calls)
    gone = {"model": "direct/fake", "api_base": "http://127.0.0.1:1/v1"}
    spec = spec_of(tmp_path, openai_server, scorer={"contains": {}}, sampler=gone, k=7)
    done = await asyncio.to_thread(invoke, "rescore", directory, spec)
    assert done.exit_code == 0, (done.output, done.exception)
    assert len(openai_server.calls) == n_calls == 6
    rescored = rescored_in(tmp_path)
    assert len(rescored.name) == len("run-rescored-") + 8
    found = summary(rescored)
    assert (found["k"], found["n_passed"], found["n_scored"]) == (2, 6, 6)
    assert summary(directory)["n_passed"] == 0


async def test_a_changed_request_is_refused_by_field_and_leaves_nothing(
    tmp_path: Path, openai_server: OpenAIServer
) -> None:
    directory = await sampled(tmp_path, openai_server)
    sampler = {"model": "direct/fake", "api_base": openai_server.url, "max_tokens": 7}
    spec = spec_of(tmp_path, openai_server, scorer={"contains": {}}, sampler=sampler)
    error = (await asyncio.to_thread(invoke, "rescore", directory, spec)).exception
    assert isinstance(error, UsageError)
    assert "parameters.max_tokens" in str(error)
    assert "--top-up" not in str(error.hint)
    assert not [name for name in os.listdir(tmp_path) if "rescored" in name]


async def test_draws_that_were_never_made_are_left_out(
    tmp_path: Path, openai_server: OpenAIServer
) -> None:
    openai_server.script = Script(reply="well, yes")
    spec = spec_of(tmp_path, openai_server)
    await asyncio.to_thread(run, spec, tmp_path / "run", limit=2)
    spec = spec_of(tmp_path, openai_server, scorer={"contains": {}})
    done = await asyncio.to_thread(invoke, "rescore", tmp_path / "run", spec, "-o", tmp_path / "r")
    assert done.exit_code == 0, (done.output, done.exception)
    found = summary(tmp_path / "r")
    assert (found["n_scored"], found["draws"]["not_run"]) == (4, 2)
    assert len(openai_server.calls) == 4


def test_rescoring_twice_does_nothing_the_second_time(tmp_path: Path) -> None:
    directory = recorded_run(tmp_path, {"a": ["yes", "well, yes"]})
    spec = tmp_path / "spec.yaml"
    spec.write_text(spec.read_text().replace("exact:\n    answer: whole", "contains: {}"))
    assert invoke("rescore", directory, spec, "-q").exit_code == 0
    rescored = rescored_in(tmp_path)
    before = (rescored / "summary.json").read_bytes()
    assert invoke("rescore", directory, spec, "-q").exit_code == 0
    assert (rescored / "summary.json").read_bytes() == before


def test_a_run_that_stopped_early_is_rescored_as_one(tmp_path: Path) -> None:
    spec = recorded_spec(tmp_path, {"a": ["yes", "no", "well, yes", "no"]})
    run(spec, tmp_path / "run", "adaptive=true", command="learning-zone")
    spec.write_text(spec.read_text().replace("exact:\n    answer: whole", "contains: {}"))
    assert invoke("rescore", tmp_path / "run", spec, "-q").exit_code == 0
    found = summary(rescored_in(tmp_path))
    assert (found["n_scored"], found["draws"]["not_needed"]) == (2, 2)
    assert found["pass_rate"] is None


@pytest.mark.parametrize("command", ["learning-zone", "rl-select"])
def test_what_the_rule_would_need_more_draws_for_is_not_decided(
    tmp_path: Path, command: str
) -> None:
    """Two draws decided both tasks; of `a` both pass now, which decides nothing."""
    replies = {"a": ["yes", "well, yes", "no", "no"], "b": ["yes", "no", "yes", "no"]}
    spec = recorded_spec(tmp_path, replies, adaptive=True)
    run(spec, tmp_path / "run", command=command)
    spec.write_text(spec.read_text().replace("exact:\n    answer: whole", "contains: {}"))
    done = invoke("rescore", tmp_path / "run", spec, "-q")
    assert done.exit_code == 0, (done.output, done.exception)
    found = summary(rescored_in(tmp_path))
    a, b = read_lines(rescored_in(tmp_path) / "tasks.jsonl")
    assert (a["status"], a["reason"]) == ("not_run", "not_drawn")
    assert (b["status"], b["stopped_early"]) == ("kept", True)
    assert found["draws"]["not_run_reasons"] == {"not_drawn": 2}
    assert found["incomplete"] == []


def test_wanted_traces_that_may_be_among_draws_never_made_are_said_to_be(tmp_path: Path) -> None:
    spec = recorded_spec(tmp_path, {"a": ["yes", "yes", "no", "no"]}, verify_traces={"want": 1})
    run(spec, tmp_path / "run", command="verify-traces")
    spec.write_text(spec.read_text().replace("exact:\n    answer: whole", "regex: ^no"))
    assert invoke("rescore", tmp_path / "run", spec, "-q").exit_code == 0
    [line] = read_lines(rescored_in(tmp_path) / "tasks.jsonl")
    assert (line["status"], line["reason"], line["n_not_run"]) == ("not_run", "not_drawn", 2)


def test_replies_that_no_file_holds_are_decided_without_as_in_the_run(tmp_path: Path) -> None:
    spec = recorded_spec(tmp_path, {"a": ["yes", "yes"]}, adaptive=True, k=4)
    run(spec, tmp_path / "run", command="learning-zone")
    spec.write_text(spec.read_text().replace("exact:\n    answer: whole", "contains: {}"))
    assert invoke("rescore", tmp_path / "run", spec, "-q").exit_code == 0
    for directory in (tmp_path / "run", rescored_in(tmp_path)):
        [line] = read_lines(directory / "tasks.jsonl")
        assert (line["status"], line["reason"]) == ("dropped", "saturated")
        assert summary(directory)["draws"]["not_run_reasons"] == {"unavailable": 2}
