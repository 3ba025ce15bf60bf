"""Runs that feed others with `--from`: what is copied, what differs, what is bought beside it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from labelkit.errors import UsageError
from tests.graded import SCRIPT, spec_file
from tests.openai_server import OpenAIServer, Rule
from tests.runs import Silent, comparable, go


@pytest.fixture
async def server() -> AsyncIterator[OpenAIServer]:
    async with OpenAIServer(SCRIPT) as each:
        yield each


async def test_another_run_feeds_this_one_without_a_call(
    tmp_path: Path, server: OpenAIServer
) -> None:
    spec = spec_file(tmp_path, server)
    await go(spec, tmp_path / "one")
    progress = Silent()
    sources = [tmp_path / "one"]
    await go(spec, tmp_path / "two", sources=sources, progress=progress)
    assert len(server.calls) == 10
    assert "--from holds 10 of 10 candidate draws" in progress.messages
    assert comparable(tmp_path / "two") == comparable(tmp_path / "one")


async def test_a_run_says_that_another_holds_its_draws(
    tmp_path: Path, server: OpenAIServer
) -> None:
    spec = spec_file(tmp_path, server)
    await go(spec, tmp_path / "one")
    same, other = Silent(), Silent()
    await go(spec, tmp_path / "two", progress=same)
    await go(spec, tmp_path / "three", "sampler.temperature=0.3", progress=other)
    assert any(f"{tmp_path / 'one'} holds draws" in message for message in same.messages)
    assert not any("holds draws" in message for message in other.messages)


async def test_from_names_the_field_that_differs_and_buys_nothing(
    tmp_path: Path, server: OpenAIServer
) -> None:
    spec = spec_file(tmp_path, server)
    await go(spec, tmp_path / "one", "sampler.max_tokens=100")
    with pytest.raises(UsageError, match=r"differs in `parameters\.max_tokens`") as raised:
        await go(spec, tmp_path / "two", "sampler.max_tokens=50", sources=[tmp_path / "one"])
    assert len(server.calls) == 10
    assert "--top-up" in str(raised.value.hint)


async def test_top_up_buys_only_what_the_sources_lack(tmp_path: Path, server: OpenAIServer) -> None:
    spec = spec_file(tmp_path, server)
    await go(spec, tmp_path / "one")
    await go(spec, tmp_path / "two", "k=3", sources=[tmp_path / "one"], top_up=True)
    assert len(server.calls) == 15


async def test_shards_merged_by_from_equal_the_whole(tmp_path: Path, server: OpenAIServer) -> None:
    spec = spec_file(tmp_path, server, n_tasks=7)
    await go(spec, tmp_path / "whole")
    await go(spec, tmp_path / "a", shard=(1, 2))
    await go(spec, tmp_path / "b", shard=(2, 2))
    assert len(server.calls) == 28
    await go(spec, tmp_path / "merged", sources=[tmp_path / "a", tmp_path / "b"])
    assert len(server.calls) == 28
    assert comparable(tmp_path / "merged") == comparable(tmp_path / "whole")


async def test_a_later_source_with_a_reply_wins_over_an_earlier_one_with_a_failure(
    tmp_path: Path, server: OpenAIServer
) -> None:
    good = server.script
    server.script = good.model_copy(update={"rules": [Rule(fault="bad_request")]})
    spec = spec_file(tmp_path, server, max_unscored=1.0)
    await go(spec, tmp_path / "failed")
    server.script = good
    await go(spec, tmp_path / "good")
    done = await go(spec, tmp_path / "run", sources=[tmp_path / "failed", tmp_path / "good"])
    assert done["n_unscored"] == 0
    assert len(server.calls) == 20
