"""What only the litellm transport does: its checks, its caches, its prices, its silence."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from labelkit.errors import ProviderError
from labelkit.samplers import SamplerSettings
from labelkit.samplers.endpoints import worst_usage
from labelkit.samplers.litellm import LitellmSampler, load
from tests.openai_server import OpenAIServer, Rule, Script
from tests.samplers.calls import call, failure, reply

Build = Callable[..., LitellmSampler]


@pytest.fixture
async def build(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Build]:
    for variable in ("OPENAI_API_KEY", "LABELKIT_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(variable, raising=False)
    made: list[LitellmSampler] = []

    def make(model: str, **settings: Any) -> LitellmSampler:
        chosen = SamplerSettings.model_validate({"model": model, **settings})
        made.append(LitellmSampler(chosen, Path()))
        return made[-1]

    yield make
    for sampler in made:
        await sampler.close()


def test_check_names_each_parameter_that_the_model_does_not_take(build: Build) -> None:
    # o3 is a reasoning model: OpenAI's API refuses temperature and top_p for it.
    sampler = build("openai/o3", api_base="http://127.0.0.1:9/v1")
    found = sampler.check(call(temperature=0.5, top_p=0.9, max_tokens=10).request)
    assert found[0] == "top_p: openai/o3 does not take it; remove it"
    assert "temperature=0.5" in found[1]
    assert "drop_params" not in " ".join(found)
    assert len(found) == 2


def test_check_names_sampling_extras_that_openai_does_not_take(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    (found,) = build("openai/gpt-4o").check(call(top_k=5).request)
    assert found.startswith("top_k: openai/gpt-4o")
    assert build("openai/m", api_base="http://127.0.0.1:9/v1").check(call(top_k=5).request) == []


@pytest.mark.parametrize(
    ("model", "variable"),
    [("openai/gpt-4o", "OPENAI_API_KEY"), ("anthropic/claude-sonnet-4-5", "ANTHROPIC_API_KEY")],
)
def test_check_names_the_variable_of_a_missing_key(build: Build, model: str, variable: str) -> None:
    (found,) = build(model).check(call().request)
    assert variable in found


def test_check_says_when_no_provider_is_known(
    build: Build, capfd: pytest.CaptureFixture[str]
) -> None:
    (found,) = build("no-such-model-at-all").check(call().request)
    assert "provider/model" in found
    assert capfd.readouterr().out == ""


async def test_no_key_is_asked_for_by_a_server_of_ones_own(
    build: Build, openai_server: OpenAIServer
) -> None:
    sampler = build("openai/m", api_base=openai_server.url)
    assert sampler.check(call().request) == []
    await sampler.sample(call())
    assert openai_server.calls[0].headers["authorization"] == "Bearer no-key"


async def test_keys_come_from_the_environment(
    build: Build, openai_server: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LABELKIT_API_KEY", "sk-from-env")
    openai_server.script = Script(api_key="sk-from-env")
    assert await build("openai/m", api_base=openai_server.url).sample(call())


@pytest.mark.parametrize("model", ["openai/m", "hosted_vllm/m", "anthropic/m"])
async def test_no_providers_key_follows_an_api_base(
    build: Build, openai_server: OpenAIServer, monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    for variable in ("OPENAI_API_KEY", "HOSTED_VLLM_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.setenv(variable, "sk-precious")
    sampler = build(model, api_base=openai_server.url)
    with contextlib.suppress(ProviderError):
        await sampler.sample(call())
    assert "sk-precious" not in str([each.headers for each in openai_server.calls])


async def test_a_cache_configured_in_litellm_is_neither_read_nor_filled(
    build: Build, openai_server: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    litellm = load()
    cache = litellm.Cache()
    monkeypatch.setattr(litellm, "cache", cache)
    sampler = build("openai/m", api_base=openai_server.url)
    texts = {(await reply(sampler.sample(call(temperature=1.0)))).text for _ in range(5)}
    assert len(texts) == 5
    assert openai_server.count == 5
    assert cache.cache.cache_dict == {}


async def test_price_table_of_litellm_gives_cost_and_worst_case(
    build: Build, openai_server: OpenAIServer
) -> None:
    # gpt-4o: 2.50 USD per million input tokens, 10.00 per million output tokens.
    openai_server.script = Script(
        usage={"prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100}
    )
    sampler = build("openai/gpt-4o", api_base=openai_server.url)
    assert (await reply(sampler.sample(call()))).cost_usd == pytest.approx(0.0035)
    worst = sampler.price_usd(worst_usage(call("x", max_tokens=1000)))
    assert worst is not None
    assert 0.01 < worst < 0.011
    openai_server.script = Script(usage="none")
    assert (await reply(sampler.sample(call()))).cost_usd is None
    unknown = build("openai/m", api_base=openai_server.url)
    assert unknown.price_usd(worst_usage(call(max_tokens=10))) is None


async def test_errors_print_nothing(
    build: Build, openai_server: OpenAIServer, capfd: pytest.CaptureFixture[str]
) -> None:
    openai_server.script = Script(rules=[Rule(fault="server_error")])
    await failure(build("openai/m", api_base=openai_server.url))
    captured = capfd.readouterr()
    assert captured.out == ""
    assert captured.err == ""


def test_user_and_password_are_refused_where_they_would_not_arrive(build: Build) -> None:
    sampler = build("hosted_vllm/m", api_base="http://user:secret-word@127.0.0.1:9/v1")
    (found,) = sampler.check(call().request)
    assert "direct/" in found
    assert "secret-word" not in found


async def test_schema_is_asked_for_in_the_prompt_where_the_model_takes_none(
    build: Build, openai_server: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENROUTER_API_KEY", "sk-or-test")
    schema = {"type": "object", "properties": {"final_answer": {"type": "integer"}}}
    sampler = build("openrouter/m", api_base=openai_server.url)
    asked = call("What is 3 + 4?", response_schema=schema)
    assert sampler.check(asked.request) == []
    await sampler.sample(asked)
    body = openai_server.calls[0].body
    assert "response_format" not in body
    (message,) = body["messages"]
    assert message["content"].startswith("What is 3 + 4?\n\n")
    assert '"final_answer"' in message["content"]
