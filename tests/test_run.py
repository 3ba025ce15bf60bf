"""Whole runs against the fake server: isolation, resume, topping up, identity."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from labelkit.errors import RunMismatchError, SpecError, StorageError, UsageError
from tests.graded import SCRIPT, spec_file, tasks
from tests.openai_server import OpenAIServer, Rule, Script
from tests.recorded import recorded_spec
from tests.runs import Silent, comparable, go, read_lines, run, summary, write_lines, write_spec


@pytest.fixture
async def server() -> AsyncIterator[OpenAIServer]:
    async with OpenAIServer(SCRIPT) as each:
        yield each


async def test_k_requests_a_task_each_alone(tmp_path: Path, server: OpenAIServer) -> None:
    spec = spec_file(tmp_path, server, k=3)
    done = await go(spec, tmp_path / "run")
    assert done["exit_code"] == 0
    prompts = Counter(call.body["messages"][-1]["content"] for call in server.calls)
    assert prompts == {f"gold={i} share=0.5": 3 for i in range(5)}
    assert all("n" not in call.body for call in server.calls)
    assert all(len(call.body["messages"]) == 1 for call in server.calls)
    assert len({call.body["seed"] for call in server.calls}) == 15


async def test_two_tasks_with_one_prompt_get_their_own_draws(
    tmp_path: Path, server: OpenAIServer
) -> None:
    twins = [{"id": name, "prompt": "gold=1 share=0.5", "gold": "is 1"} for name in "ab"]
    spec = spec_file(tmp_path, server, tasks=twins, k=4)
    await go(spec, tmp_path / "run")
    rows = read_lines(tmp_path / "run" / "rows.jsonl")
    assert len(server.calls) == 8
    assert len({row["text"] for row in rows}) == 8


async def test_a_second_run_makes_no_call_and_gives_the_same_exit_code(
    tmp_path: Path, server: OpenAIServer
) -> None:
    spec = spec_file(tmp_path, server, gates=["pass_rate > 0.99"])
    progress = Silent()
    first = await go(spec, tmp_path / "run")
    second = await go(spec, tmp_path / "run", progress=progress)
    assert len(server.calls) == 10
    assert first["exit_code"] == second["exit_code"] == 3
    assert any("nothing to do" in message for message in progress.messages)


async def test_a_higher_k_tops_up(tmp_path: Path, server: OpenAIServer) -> None:
    spec = spec_file(tmp_path, server)
    await go(spec, tmp_path / "run", "k=4")
    before = len(server.calls)
    await go(spec, tmp_path / "run", "k=8")
    again = Counter(call.body["messages"][-1]["content"] for call in server.calls[before:])
    assert again == {f"gold={i} share=0.5": 4 for i in range(5)}
    await go(spec, tmp_path / "whole", "k=8")
    assert comparable(tmp_path / "run") == comparable(tmp_path / "whole")


async def test_added_tasks_are_topped_up_and_a_reordered_file_costs_nothing(
    tmp_path: Path, server: OpenAIServer
) -> None:
    spec = spec_file(tmp_path, server)
    await go(spec, tmp_path / "run")
    write_lines(tmp_path / "tasks.jsonl", reversed(tasks(range(5))))
    await go(spec, tmp_path / "run")
    assert len(server.calls) == 10
    ids = [line["id"] for line in read_lines(tmp_path / "run" / "tasks.jsonl")]
    assert ids == ["t4", "t3", "t2", "t1", "t0"]
    write_lines(tmp_path / "tasks.jsonl", tasks(range(6)))
    await go(spec, tmp_path / "run")
    assert len(server.calls) == 12


async def test_a_changed_prompt_under_an_old_id_is_refused(
    tmp_path: Path, server: OpenAIServer
) -> None:
    spec = spec_file(tmp_path, server)
    await go(spec, tmp_path / "run")
    write_lines(tmp_path / "tasks.jsonl", [{**tasks(range(1))[0], "prompt": "another"}])
    with pytest.raises(UsageError, match=r"t0: messages\[0\].content differs"):
        await go(spec, tmp_path / "run")
    assert len(server.calls) == 10


@pytest.mark.parametrize(
    ("override", "field"),
    [
        ("sampler.temperature=0.5", "temperature"),
        ("sampler.system=Hi", "system"),
        ("sampler.revision=step-2", "revision"),
        ("sampler.max_tokens=9", "max_tokens"),
        ("sampler.seed=2", "seed"),
        ("scorer={exact: {}}", "scorer.kind"),
        ("on_truncated=unscored", "on_truncated"),
    ],
)
async def test_what_shapes_replies_or_scores_may_not_change(
    tmp_path: Path, server: OpenAIServer, override: str, field: str
) -> None:
    spec = spec_file(tmp_path, server)
    await go(spec, tmp_path / "run")
    with pytest.raises(RunMismatchError, match=field):
        await go(spec, tmp_path / "run", override)
    assert len(server.calls) == 10


async def test_operational_settings_and_selection_may_change(
    tmp_path: Path, server: OpenAIServer
) -> None:
    spec = spec_file(tmp_path, server)
    await go(spec, tmp_path / "run")
    limits = ("concurrency=3", "timeout_s=5", "total_timeout_s=50", "give_up_s=500")
    changes = (*(f"sampler.{limit}" for limit in limits), "gates=['k == 2']", "slice_by=id")
    done = await go(spec, tmp_path / "run", *changes)
    assert len(server.calls) == 10
    assert done["gates"] == [{"expr": "k == 2", "actual": 2, "holds": True}]
    assert set(done["slices"]) == {"t0", "t1", "t2", "t3", "t4"}


async def test_slices_by_several_paths_are_kept_apart(tmp_path: Path, server: OpenAIServer) -> None:
    sources = [{"source": "x", "split": "y"}, {"source": "y", "split": "y"}]
    tasks = [{"prompt": "p", "gold": "g", "metadata": each} for each in sources]
    paths = ["metadata.source", "metadata.split"]
    spec = spec_file(tmp_path, server, tasks=tasks, slice_by=paths)
    done = await go(spec, tmp_path / "run")
    counts = {name: rates["n_tasks"] for name, rates in done["slices"].items()}
    assert counts == {"metadata.source=x": 1, "metadata.source=y": 1, "metadata.split=y": 2}


def test_a_directory_that_is_no_run_is_left_as_it_is(tmp_path: Path) -> None:
    spec = recorded_spec(tmp_path / "spec", {"a": ["yes"]})
    write_lines(tmp_path / "mine.jsonl", [])
    with pytest.raises(UsageError, match="is not empty and no run directory"):
        run(spec, tmp_path)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["mine.jsonl", "spec"]


def test_fresh_needs_a_name_to_set_a_run_aside_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = recorded_spec(tmp_path / "spec", {"a": ["yes"]})
    (tmp_path / "run").mkdir()
    monkeypatch.chdir(tmp_path / "run")
    run(spec, Path())
    with pytest.raises(UsageError, match="cannot be set aside by this name"):
        run(spec, Path(), fresh=True)
    assert summary(tmp_path / "run")["n_passed"] == 1


def test_a_full_disk_names_the_file_and_leaves_no_partial_ones(tmp_path: Path) -> None:
    spec = recorded_spec(tmp_path / "spec", {"a": ["yes", "no"]})
    directory = tmp_path / "run"
    run(spec, directory, "k=1")
    before = (directory / "rows.jsonl").read_bytes()
    (directory / ".rows.jsonl.partial").symlink_to("/dev/full")
    with pytest.raises(StorageError, match=r"run/rows\.jsonl: No space left"):
        run(spec, directory)
    assert not list(directory.glob(".*.partial"))
    assert (directory / "rows.jsonl").read_bytes() == before
    assert run(spec, directory)["n_attempts"] == 2


async def test_fresh_sets_the_old_run_aside(tmp_path: Path, server: OpenAIServer) -> None:
    spec = spec_file(tmp_path, server)
    first = await go(spec, tmp_path / "run")
    await go(spec, tmp_path / "run", "sampler.temperature=0.5", fresh=True)
    assert len(server.calls) == 20
    old = tmp_path / f"run.{first['provenance']['run_id']}"
    assert summary(old)["n_attempts"] == 10


async def test_files_that_were_lost_are_written_again(tmp_path: Path, server: OpenAIServer) -> None:
    spec = spec_file(tmp_path, server)
    await go(spec, tmp_path / "run")
    (tmp_path / "run" / "tasks.jsonl").unlink()
    await go(spec, tmp_path / "run")
    assert len(read_lines(tmp_path / "run" / "tasks.jsonl")) == 5
    assert len(server.calls) == 10


async def test_a_run_that_meets_another_model_stops_before_it_samples(
    tmp_path: Path, server: OpenAIServer
) -> None:
    server.script = server.script.model_copy(update={"root": "org/one"})
    spec = spec_file(tmp_path, server)
    await go(spec, tmp_path / "run")
    server.script = server.script.model_copy(update={"root": "org/two"})
    with pytest.raises(RunMismatchError, match="org/two"):
        await go(spec, tmp_path / "run", "k=4")
    assert len(server.calls) == 10


async def test_a_run_that_gets_replies_of_another_model_stops(
    tmp_path: Path, server: OpenAIServer
) -> None:
    server.script = server.script.model_copy(update={"root": "org/one"})
    spec = spec_file(tmp_path, server)
    await go(spec, tmp_path / "run")
    server.script = server.script.model_copy(update={"served_model": "other"})
    done = await go(spec, tmp_path / "run", "k=4")
    assert done["stopped_early"] == "policy_changed"
    assert done["exit_code"] == 4
    assert len(server.calls) == 11


async def test_resume_redraws_only_what_is_owed(tmp_path: Path, server: OpenAIServer) -> None:
    """A dead key is owed again; a refused prompt is final until --retry-errors."""
    rules = [Rule(fault="bad_request", contains="gold=1 "), Rule(fault="unauthorized", after=4)]
    good = server.script
    server.script = good.model_copy(update={"rules": rules})
    spec = spec_file(tmp_path, server, sampler={"model": "direct/fake", "api_base": server.url,
                                                "concurrency": 1, "seed": 1})  # fmt: skip
    done = await go(spec, tmp_path / "run")
    assert done["stopped_early"] == "fatal"
    assert done["exit_code"] == 4
    server.script = good.model_copy(update={"rules": rules[:1]})
    done = await go(spec, tmp_path / "run")
    assert done["unscored"] == {"provider_error": 2}
    refused = [call for call in server.calls if call.fault == "bad_request"]
    assert len(refused) == 2
    server.script = good
    done = await go(spec, tmp_path / "run", retry_errors=True)
    assert done["n_unscored"] == 0
    assert done["exit_code"] == 0


async def test_too_many_unscored_attempts_make_a_run_incomplete(
    tmp_path: Path, server: OpenAIServer
) -> None:
    server.script = server.script.model_copy(
        update={"rules": [Rule(fault="content_filter", contains="gold=1 ")]}
    )
    done = await go(spec_file(tmp_path, server), tmp_path / "run")
    assert done["exit_code"] == 4
    assert "2 of 10 attempts are unscored" in done["incomplete"][0]
    done = await go(spec_file(tmp_path, server, max_unscored=0.2), tmp_path / "other")
    assert done["exit_code"] == 0
    assert done["pass_rate"] == done["n_passed"] / 8
    assert done["pass_rate_with_unscored"] == done["n_passed"] / 10


@pytest.mark.parametrize("choice", ["fail", "unscored"])
async def test_cut_replies_are_never_kept(
    tmp_path: Path, server: OpenAIServer, choice: str
) -> None:
    server.script = server.script.model_copy(update={"finish_reason": "length"})
    spec = spec_file(tmp_path, server, on_truncated=choice)
    done = await go(spec, tmp_path / "run")
    assert read_lines(tmp_path / "run" / "rows.jsonl") == []
    assert done["dropped"] == {"truncated": 10}
    assert done["failed"] == ({"truncated": 10} if choice == "fail" else {})
    assert done["unscored"] == ({} if choice == "fail" else {"truncated": 10})


async def test_a_long_integer_gold_goes_through_every_file_exactly(
    tmp_path: Path, server: OpenAIServer
) -> None:
    gold = 6747742486863689476416508396372901
    server.script = Script(reply=f"the answer is {gold}")
    spec = spec_file(
        tmp_path,
        server,
        tasks=[{"prompt": "73482915684921637 * 91827364550918273?", "gold": gold}],
        scorer="numeric",
    )
    done = await go(spec, tmp_path / "run")
    assert done["n_passed"] == 2
    rows = read_lines(tmp_path / "run" / "rows.jsonl")
    assert [row["gold"] for row in rows] == [gold, gold]
    await go(spec, tmp_path / "two", sources=[tmp_path / "run"])
    assert read_lines(tmp_path / "two" / "rows.jsonl")[0]["gold"] == gold


async def test_tasks_that_the_source_drops_are_accounted_for(
    tmp_path: Path, server: OpenAIServer
) -> None:
    spec = spec_file(tmp_path, server, tasks={"file": "tasks.jsonl", "dedupe": True})
    rows = tasks(range(3))
    write_lines(tmp_path / "tasks.jsonl", [*rows, {**rows[0], "id": "again"}])
    done = await go(spec, tmp_path / "run")
    assert done["tasks"] == {"in": 4, "kept": 3, "dropped": 1, "undecided": 0, "not_run": 0}
    assert done["n_tasks"] == 3
    assert read_lines(tmp_path / "run" / "dropped.jsonl")[0]["reason"] == "duplicate_prompt"


@pytest.mark.parametrize(
    "break_it",
    [
        lambda values: values.update(gates=["pass_rat > 1"]),
        lambda values: values.update(sampler={"model": "direct/fake"}),
        lambda values: values.update(scorer={"numerc": {}}),
    ],
)
async def test_a_bad_spec_writes_and_spends_nothing(
    tmp_path: Path, server: OpenAIServer, break_it: Callable[[dict[str, Any]], None]
) -> None:
    values: dict[str, Any] = {}
    break_it(values)
    spec = spec_file(tmp_path, server, **values)
    with pytest.raises(SpecError):
        await go(spec, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    assert server.calls == []


async def test_a_directory_that_is_no_run_is_left_alone(
    tmp_path: Path, server: OpenAIServer
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.txt").write_text("mine")
    with pytest.raises(UsageError, match="no run directory"):
        await go(spec_file(tmp_path, server), tmp_path / "run")
    assert [each.name for each in (tmp_path / "run").iterdir() if each.name != "lock"] == [
        "thesis.txt"
    ]


async def test_every_call_of_a_judge_has_a_nonce_of_its_own(
    tmp_path: Path, server: OpenAIServer
) -> None:
    server.script = Script(reply='{"reason": "", "passed": true}')
    judge = {"model": "direct/judge", "api_base": server.url, "rubric": "Is it polite?"}
    spec = spec_file(tmp_path, server, scorer={"judge": judge})
    done = await go(spec, tmp_path / "run")
    assert done["n_passed"] == 10
    said = [str(call.body["messages"]) for call in server.calls if call.body["model"] == "judge"]
    nonces = [set(re.findall(r"=== BEGIN REPLY (\w+) ===", each)) for each in said]
    assert all(len(each) == 1 for each in nonces)
    assert len(set.union(*nonces)) == 10


async def test_a_run_killed_while_it_wrote_its_identity_starts_anew(
    tmp_path: Path, server: OpenAIServer
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "lock").write_text("host x pid 1")
    (tmp_path / "run" / ".run.json.partial").write_text('{"run_i')
    assert (await go(spec_file(tmp_path, server), tmp_path / "run"))["exit_code"] == 0


async def test_no_template_sees_the_gold_of_a_foreign_file(
    tmp_path: Path, server: OpenAIServer
) -> None:
    write_lines(tmp_path / "foreign.jsonl", [{"q": "Two?", "answer": "SECRET-2", "hint": "even"}])
    spec = spec_file(
        tmp_path,
        server,
        tasks={"file": "foreign.jsonl", "fields": {"prompt": "q", "gold": "answer"}},
    )
    await go(spec, tmp_path / "run", "sampler.template='{{ prompt }} {{ row.hint }} {{ row }}'")
    sent = str([call.body["messages"] for call in server.calls])
    assert "even" in sent
    assert "SECRET" not in sent
    with pytest.raises(SpecError, match=r"answer"):
        await go(spec, tmp_path / "two", "sampler.template='{{ prompt }} {{ row.answer }}'")


def test_replies_that_belong_to_no_task_make_a_run_incomplete(tmp_path: Path) -> None:
    write_lines(tmp_path / "replies.jsonl", [{"task": "x", "text": "1"}])
    spec = write_spec(
        tmp_path,
        tasks=[{"id": "a", "prompt": "q", "gold": "1"}],
        sampler={"recorded": {"file": "replies.jsonl", "id": "task", "text": "text"}},
    )
    done = run(spec, tmp_path / "run")
    assert done["exit_code"] == 4
    assert "no reply belongs to any task" in done["incomplete"][0]


async def test_the_summary_keys_are_frozen(tmp_path: Path, server: OpenAIServer) -> None:
    done = await go(spec_file(tmp_path, server), tmp_path / "run")
    frozen = """command name k n_tasks n_attempts n_scored n_unscored unscored failed n_passed
        pass_rate pass_rate_interval pass_rate_with_unscored mean_value pass_at_k kept dropped
        tasks draws rows stages input_tokens output_tokens cost_usd duration_s env_fingerprint
        policy_fingerprint stopped_early slices canaries detail gates exit_code labelkit_version"""
    assert set(frozen.split()) <= set(done)
    written = json.loads((tmp_path / "run" / "summary.json").read_bytes())
    assert written == json.loads(json.dumps(done))
