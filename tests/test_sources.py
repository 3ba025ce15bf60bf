"""`--from`: what another run's draws are good for, and what has to be bought beside them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from labelkit.errors import UsageError
from labelkit.prepare import Options, prepare
from labelkit.report.preview import preview
from labelkit.spec import load
from tests.openai_server import OpenAIServer, Script
from tests.recorded import recorded_spec
from tests.runs import Silent, comparable, go, run, summary, write_spec

# Decided by the first two draws, by the next two, and by none of the first eight.
REPLIES = {"a": "pfpfpfpf", "b": "ppfppppp", "c": "pppppppp"}
N_NEEDED = 2 + 4 + 8


@pytest.fixture
async def server() -> AsyncIterator[OpenAIServer]:
    """Answers the draws of a task in the order in which they come."""
    asked: dict[str, int] = dict.fromkeys(REPLIES, 0)

    def reply(ask: Any) -> str:
        name = ask.prompt.strip()[-1]
        said = REPLIES[name][asked[name]]
        asked[name] += 1
        return {"p": "yes", "f": "no"}[said]

    async with OpenAIServer(Script(reply=reply)) as each:
        yield each


def spec_file(folder: Path, server: OpenAIServer, **sections: Any) -> Path:
    tasks = [{"id": name, "prompt": f"Prompt {name}", "gold": "yes"} for name in REPLIES]
    sampler = {"model": "direct/fake", "api_base": server.url, "concurrency": 1}
    scorer = {"exact": {"answer": "whole"}}
    return write_spec(
        folder, **{"tasks": tasks, "sampler": sampler, "scorer": scorer, "k": 8, **sections}
    )


@pytest.mark.parametrize("command", ["learning-zone", "rl-select"])
async def test_an_adaptive_run_feeds_one_that_stops_where_it_did(
    tmp_path: Path, server: OpenAIServer, command: str
) -> None:
    spec = spec_file(tmp_path, server)
    await go(spec, tmp_path / "one", "adaptive=true", command="learning-zone")
    assert len(server.calls) == N_NEEDED
    progress = Silent()
    options: Any = {"command": command, "sources": [tmp_path / "one"], "progress": progress}
    await go(spec, tmp_path / "two", "adaptive=true", **options)
    assert f"--from holds {N_NEEDED} of {N_NEEDED} candidate draws" in progress.messages
    assert len(server.calls) == N_NEEDED
    if command == "learning-zone":
        assert comparable(tmp_path / "two") == comparable(tmp_path / "one")


async def test_a_run_that_has_all_that_it_wants_feeds_its_like(
    tmp_path: Path, server: OpenAIServer
) -> None:
    spec = spec_file(tmp_path, server, verify_traces={"want": 1})
    await go(spec, tmp_path / "one", command="verify-traces")
    await go(spec, tmp_path / "two", command="verify-traces", sources=[tmp_path / "one"])
    assert len(server.calls) == 6
    assert comparable(tmp_path / "two") == comparable(tmp_path / "one")


async def test_draws_that_an_adaptive_run_never_made_are_bought_on_request_only(
    tmp_path: Path, server: OpenAIServer
) -> None:
    spec = spec_file(tmp_path, server)
    await go(spec, tmp_path / "one", "adaptive=true", command="learning-zone")
    said = r"lacks 10 of 24 candidate draws \(first: task a\)"
    with pytest.raises(UsageError, match=said) as refused:
        await go(spec, tmp_path / "two", sources=[tmp_path / "one"])
    assert refused.value.hint == "add --top-up to buy them"
    assert len(server.calls) == N_NEEDED
    await go(spec, tmp_path / "two", sources=[tmp_path / "one"], top_up=True)
    assert len(server.calls) == 24


async def test_another_scorer_may_need_more_than_an_adaptive_run_holds(
    tmp_path: Path, server: OpenAIServer
) -> None:
    spec = spec_file(tmp_path, server)
    await go(spec, tmp_path / "one", "adaptive=true", command="learning-zone")
    other = ("adaptive=true", "scorer={contains: {}}")
    options: Any = {"command": "learning-zone", "sources": [tmp_path / "one"]}
    with pytest.raises(UsageError, match="lacks 10 of 24 candidate draws"):
        await go(spec, tmp_path / "two", *other, **options)
    await go(spec, tmp_path / "two", *other, **options, top_up=True)
    assert len(server.calls) == N_NEEDED


async def test_a_dry_run_counts_no_draw_that_the_decision_does_not_need(
    tmp_path: Path, server: OpenAIServer
) -> None:
    spec = spec_file(tmp_path, server)
    await go(spec, tmp_path / "one", "adaptive=true", command="learning-zone")
    document = load(spec, ["adaptive=true"])
    for options in (
        Options(directory=tmp_path / "one"),
        Options(directory=tmp_path / "two", sources=[tmp_path / "one"]),
    ):
        prepared = prepare(document, "learning-zone", options)
        assert "  to make: 0\n" in await asyncio.to_thread(preview, prepared)


def test_recorded_replies_that_a_source_lacks_are_read_since_they_cost_nothing(
    tmp_path: Path,
) -> None:
    words = {"p": "yes", "f": "no"}
    replies = {name: [words[each] for each in said] for name, said in REPLIES.items()}
    spec = recorded_spec(tmp_path, replies)
    run(spec, tmp_path / "one", "adaptive=true", command="learning-zone")
    progress = Silent()
    run(spec, tmp_path / "two", sources=[tmp_path / "one"], progress=progress)
    assert "--from holds 14 of 24 candidate draws" in progress.messages
    assert summary(tmp_path / "two")["n_attempts"] == 24
    run(spec, tmp_path / "three", progress=progress)
    assert not any("holds draws of the same" in message for message in progress.messages)
