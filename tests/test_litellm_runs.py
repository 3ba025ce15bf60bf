"""Whole runs through litellm: K samples are K calls, whatever litellm is told to remember."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from labelkit.errors import SpecError
from labelkit.samplers.litellm import load
from tests.openai_server import OpenAIServer, Script
from tests.runs import go, read_lines, write_spec

N_TASKS, K = 3, 4


@pytest.fixture
async def server() -> AsyncIterator[OpenAIServer]:
    async with OpenAIServer(Script(reply="reply {key}")) as each:
        yield each


@pytest.fixture
def remembering() -> Iterator[Any]:
    """litellm with its response cache on for everyone, as a program around labelkit may have it."""
    litellm = load()
    before = litellm.cache
    litellm.enable_cache(type="local", supported_call_types=["completion", "acompletion"])
    try:
        yield litellm
    finally:
        litellm.disable_cache()
        litellm.cache = before


def spec_file(folder: Path, server: OpenAIServer, **sampler: Any) -> Path:
    return write_spec(
        folder,
        tasks=[{"id": f"t{i}", "prompt": f"question {i % 2}", "gold": "x"} for i in range(N_TASKS)],
        sampler={"model": "openai/fake", "api_base": server.url, **sampler},
        k=K,
    )


async def test_litellm_would_answer_from_its_cache(remembering: Any, server: OpenAIServer) -> None:
    """What the next test is worth: without labelkit, some of equal calls never go out."""
    ask = {
        "model": "openai/fake",
        "messages": [{"role": "user", "content": "question"}],
        "api_base": server.url,
        "api_key": "none",
    }
    for _ in range(3):
        with contextlib.suppress(ImportError):  # some versions need the proxy's libraries for a hit
            await remembering.acompletion(**ask)
        await asyncio.sleep(0.2)  # replies are stored in the background
    assert server.count < 3


@pytest.mark.usefixtures("remembering")
async def test_a_cache_configured_in_litellm_is_not_used(
    tmp_path: Path, server: OpenAIServer
) -> None:
    done = await go(spec_file(tmp_path, server), tmp_path / "run")
    assert done["n_attempts"] == server.count == N_TASKS * K
    texts = [row["text"] for row in read_lines(tmp_path / "run" / "rows.jsonl")]
    assert len(set(texts)) == N_TASKS * K


async def test_k_calls_a_task_each_alone_and_as_the_spec_says(
    tmp_path: Path, server: OpenAIServer
) -> None:
    settings = {"temperature": 0.7, "max_tokens": 50, "top_p": 0.9, "stop": ["END"], "seed": 5,
                "system": "Be brief.", "extra_body": {"guided": 1}}  # fmt: skip
    await go(spec_file(tmp_path, server, **settings), tmp_path / "run")
    bodies = [call.body for call in server.calls]
    said = Counter(body["messages"][-1]["content"] for body in bodies)
    assert said == {"question 0": 2 * K, "question 1": K}
    for body in bodies:
        assert "n" not in body
        assert [message["role"] for message in body["messages"]] == ["system", "user"]
        assert (body["temperature"], body["top_p"], body["stop"]) == (0.7, 0.9, ["END"])
        assert body.get("max_tokens", body.get("max_completion_tokens")) == 50
        assert body["guided"] == 1
    assert len({body["seed"] for body in bodies}) == N_TASKS * K


async def test_both_transports_sample_the_same_requests(
    tmp_path: Path, server: OpenAIServer
) -> None:
    """With a seed the server's replies depend on messages and seed alone."""
    for model in ("openai", "direct"):
        spec = spec_file(tmp_path, server, seed=3, model=f"{model}/fake")
        await go(spec, tmp_path / model)
    texts = [
        [row["text"] for row in read_lines(tmp_path / model / "rows.jsonl")]
        for model in ("openai", "direct")
    ]
    assert texts[0] == texts[1]
    assert server.count == 2 * N_TASKS * K


async def test_an_unknown_parameter_of_a_model_stops_before_anything_is_spent(
    tmp_path: Path, server: OpenAIServer
) -> None:
    spec = spec_file(tmp_path, server, model="anthropic/claude-3-haiku-20240307", logprobs=True,
                     api_base=server.root)  # fmt: skip
    with pytest.raises(SpecError, match=r"logprobs: .* does not take it"):
        await go(spec, tmp_path / "run")
    assert server.count == 0
    assert not (tmp_path / "run").exists()
