"""The transports that the contract tests run over."""

from __future__ import annotations

import importlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from labelkit.samplers import REGISTRY, SamplerSettings
from labelkit.seams import Sampler
from tests.openai_server import OpenAIServer
from tests.samplers.calls import Make

MODELS = ("direct/m", "openai/m", "hosted_vllm/m")


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def make(
    model: str, openai_server: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Make]:
    for variable in ("OPENAI_API_KEY", "LABELKIT_API_KEY", "HOSTED_VLLM_API_KEY"):
        monkeypatch.delenv(variable, raising=False)
    made: list[Sampler] = []

    def build(**settings: Any) -> Sampler:
        chosen = SamplerSettings.model_validate(
            {"model": model, "api_base": openai_server.url, **settings}
        )
        module, name = REGISTRY[chosen.transport].split(":")
        sampler: Sampler = getattr(importlib.import_module(module), name)(chosen, Path())
        made.append(sampler)
        return sampler

    yield build
    for sampler in made:
        await sampler.close()
