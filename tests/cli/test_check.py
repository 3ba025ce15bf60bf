"""`labelkit check`."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from labelkit.errors import SpecError
from tests.openai_server import OpenAIServer, Script
from tests.recorded import invoke, printed, recorded_spec
from tests.runs import labelkit, write_spec


def test_a_sound_spec_says_what_it_will_do(tmp_path: Path) -> None:
    spec = recorded_spec(tmp_path, {"a": ["yes", "no"], "b": ["no", "no"]})
    text = printed("check", spec)
    assert "no fault found" in text
    assert "tasks: 2 tasks from" in text
    assert "scorer: exact" in text
    assert "k: 2" in text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["replies.jsonl", "spec.yaml"]


def test_every_fault_is_reported_at_once(tmp_path: Path) -> None:
    spec = write_spec(
        tmp_path,
        tasks=[{"prompt": "p", "gold": "yes"}],
        sampler={"model": "openai/x", "temprature": 1},
        scorer="exactt",
        gates=["pas_rate > 0.5"],
        learning_zone={"contrst": True},
    )
    error = invoke("check", spec).exception
    assert isinstance(error, SpecError)
    for part in ("temperature", "exactt", "pas_rate", "contrst"):
        assert part in str(error), part
    assert error.exit_code == 2
    assert len(error.faults) == len(set(error.faults))


def test_sections_of_other_commands_are_checked_too(tmp_path: Path) -> None:
    spec = recorded_spec(tmp_path, {"a": ["yes", "no"]}, learning_zone={"contrast": True})
    assert "commands: rollout, learning-zone" in printed("check", spec)


def test_what_the_other_commands_would_say_is_told(tmp_path: Path) -> None:
    lines = printed("check", recorded_spec(tmp_path, {"a": ["yes", "no"]})).splitlines()
    assert "also, by defaults: learning-zone, rl-select, verify-traces" in lines
    assert "not best-of-n: best_of_n: `bar` is missing" in lines
    assert any(line.startswith("not step-rewards: step_rewards: ") for line in lines)


def test_files_that_are_read_and_endpoints_that_are_sent_to_are_told(tmp_path: Path) -> None:
    text = printed("check", recorded_spec(tmp_path, {"a": ["yes"]}))
    assert f"tasks: 1 task from {tmp_path}/replies.jsonl\nreplies: {tmp_path}/replies.jsonl" in text
    judge = {"model": "direct/judge", "api_base": "http://me:pw@two/v1", "rubric": "Is it?"}
    spec = write_spec(
        tmp_path,
        tasks=[{"prompt": "p"}],
        sampler={"model": "direct/m", "api_base": ["http://one/v1", "http://other/v1"]},
        scorer={"judge": judge},
    )
    text = printed("check", spec)
    assert "model: direct/m at http://one/v1, http://other/v1\n" in text
    assert "judge: direct/judge at http://two/v1\n" in text
    assert "endpoint: http://one/v1\n" in printed("rollout", spec, "--dry-run")


def test_duplicate_prompts_and_conflicting_golds_are_told(tmp_path: Path) -> None:
    tasks = [{"prompt": "p", "gold": gold} for gold in ("yes", "no", "yes")]
    spec = write_spec(tmp_path, tasks=tasks, sampler={"model": "openai/x"})
    text = printed("check", spec)
    assert "duplicate prompts: 2 tasks" in text
    assert "conflicting golds: 1 task" in text
    assert "warning: " in text


@pytest.mark.parametrize(
    ("sampler", "variable"),
    [
        ({"model": "openai/gpt-x"}, "OPENAI_API_KEY"),
        ({"model": "anthropic/claude-x"}, "ANTHROPIC_API_KEY"),
        ({"model": "together_ai/llama-x"}, "TOGETHERAI_API_KEY"),
        ({"model": "cerebras/llama-x", "headers": {"X-Api-Key": "x"}}, "CEREBRAS_API_KEY"),
        ({"model": "direct/x", "api_base": "https://models.example/v1"}, "LABELKIT_API_KEY"),
        ({"model": "direct/x", "api_base": "https://api.openai.com/v1"}, "OPENAI_API_KEY"),
    ],
)
def test_a_key_that_a_run_would_lack_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sampler: dict[str, Any], variable: str
) -> None:
    for name in [name for name in os.environ if name.endswith("_API_KEY")]:
        monkeypatch.delenv(name)
    spec = write_spec(tmp_path, tasks=[{"prompt": "p", "gold": "1"}], sampler=sampler)
    assert f"warning: {variable} is not set" in printed("check", spec)
    monkeypatch.setenv(variable, "a key of sorts")
    assert "is not set" not in printed("check", spec)


def test_one_of_two_keys_will_do_where_the_provider_takes_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("GEMINI_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    sampler = {"model": "gemini/gemini-x"}
    spec = write_spec(tmp_path, tasks=[{"prompt": "p", "gold": "1"}], sampler=sampler)
    assert "warning: GOOGLE_API_KEY or GEMINI_API_KEY is not set" in printed("check", spec)
    monkeypatch.setenv("GEMINI_API_KEY", "a key of sorts")
    assert "is not set" not in printed("check", spec)


@pytest.mark.parametrize(
    "sampler",
    [
        {"model": "local/smollm2-135m"},
        {"model": "hosted_vllm/x"},
        {"model": "openai/x", "api_base": "http://127.0.0.1:8000/v1"},
        {"model": "direct/x", "api_base": "http://127.0.0.1:8000/v1"},
        {"model": "direct/x", "api_base": "https://me:pw@models.example/v1"},
        {
            "model": "direct/x",
            "api_base": "https://models.example/v1",
            "headers": {"Authorization": "Bearer x"},
        },
    ],
)
def test_where_no_key_is_lacking_none_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sampler: dict[str, Any]
) -> None:
    monkeypatch.delenv("LABELKIT_API_KEY", raising=False)
    spec = write_spec(tmp_path, tasks=[{"prompt": "p", "gold": "1"}], sampler=sampler)
    assert "is not set" not in printed("check", spec)


async def test_probe_makes_one_call_and_shows_reply_and_verdict(
    tmp_path: Path, openai_server: OpenAIServer
) -> None:
    openai_server.script = Script(reply="yes")
    spec = write_spec(
        tmp_path,
        tasks=[
            {"id": "a", "prompt": "Say yes", "gold": "yes"},
            {"id": "b", "prompt": "no", "gold": "no"},
        ],
        sampler={"model": "direct/fake", "api_base": openai_server.url},
        scorer={"contains": {}},
        k=5,
        gates=["pass_rate > 2"],
    )
    done = await asyncio.to_thread(invoke, "check", spec, "--probe")
    assert done.exit_code == 0, done.exception
    assert len(openai_server.calls) == 1
    assert "[user]\nSay yes" in done.stdout
    assert "── verdict · passed" in done.stdout
    assert os.listdir(tmp_path) == ["spec.yaml"]


def test_looking_imports_no_provider_library(tmp_path: Path) -> None:
    spec = recorded_spec(tmp_path, {"a": ["yes"]})
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "class Refuse:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name in ('litellm', 'xllamacpp', 'aiohttp'):\n"
        "            raise ImportError(f'{name} must not be imported')\n"
        "sys.meta_path.insert(0, Refuse())\n"
    )
    path = f"{tmp_path}{os.pathsep}{os.getcwd()}"
    (tmp_path / "asked").mkdir()
    sampler = {"model": "openai/x", "api_base": "https://models.example/v1"}
    tasks = [{"prompt": "p", "gold": "1"}]
    asked = write_spec(tmp_path / "asked", tasks=tasks, sampler=sampler)
    directory = tmp_path / "run"
    for arguments in (
        ["--help"],
        ["check", spec],
        ["check", asked],
        ["check", asked, "--model", "local/smollm2-135m", "--set", "sampler.api_base=null"],
        ["rollout", spec, "-o", directory, "-q"],
        ["show", directory],
        ["show", directory, "a", 0],
        ["errors", directory],
        ["diff", directory, directory],
        ["schema"],
    ):
        done = labelkit(*arguments, PYTHONPATH=path)
        assert done.returncode == 0, (arguments, done.stderr)
