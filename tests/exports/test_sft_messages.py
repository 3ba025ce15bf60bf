"""sft-messages: TRL's `{messages}` rows of what passed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from labelkit.errors import UsageError
from tests.exports.written import (
    body,
    contents,
    exported,
    left_out,
    rows_of,
    run_of,
    sidecar,
)

THOUGHT = {"replies": ["<think>Sure?</think>yes", "yes", "no"]}


def test_only_what_passed_is_written_and_the_rest_is_counted(tmp_path: Path) -> None:
    run = run_of(tmp_path, {"replies": ["yes", "no", "yes"]}, {"replies": ["no", "maybe", "no"]})
    assert rows_of(run, "sft-messages") == 2 * [
        {
            "messages": [
                {"role": "user", "content": "Say yes."},
                {"role": "assistant", "content": "yes"},
            ]
        }
    ]
    assert left_out(run, "sft-messages") == {"failed": 4}
    assert sidecar(tmp_path / "sft-messages.jsonl")["rows"] == [
        {"task_id": "t0", "sample_index": 0, "score": 1.0},
        {"task_id": "t0", "sample_index": 2, "score": 1.0},
    ]


def test_reasoning_is_kept_in_its_own_key_in_every_message(tmp_path: Path) -> None:
    first, second = rows_of(run_of(tmp_path, THOUGHT), "sft-messages")
    assert first["messages"] == [
        {"role": "user", "content": "Say yes.", "reasoning_content": None},
        {"role": "assistant", "content": "yes", "reasoning_content": "Sure?"},
    ]
    assert second["messages"][1] == {
        "role": "assistant",
        "content": "yes",
        "reasoning_content": None,
    }


@pytest.mark.parametrize(
    ("reasoning", "text"), [("drop", "yes"), ("think-tags", "<think>\nSure?\n</think>\n\nyes")]
)
def test_reasoning_is_dropped_or_put_into_think_tags(
    tmp_path: Path, reasoning: str, text: str
) -> None:
    first, second = rows_of(run_of(tmp_path, THOUGHT), "sft-messages", reasoning=reasoning)
    assert first["messages"][1] == {"role": "assistant", "content": text}
    assert second["messages"][1] == {"role": "assistant", "content": "yes"}


def test_the_providers_own_reasoning_is_kept(tmp_path: Path) -> None:
    run = run_of(tmp_path, {"replies": [body("yes", reasoning_content="Hm.")]})
    [row] = rows_of(run, "sft-messages")
    assert row["messages"][1]["reasoning_content"] == "Hm."


@pytest.mark.parametrize(
    ("options", "prompt"),
    [
        ({}, [("system", "Be brief."), ("user", "Q: Say yes.")]),
        ({"system": "drop"}, [("user", "Q: Say yes.")]),
        ({"prompt": "raw"}, [("system", "Be brief."), ("user", "Say yes.")]),
        ({"prompt": "raw", "system": "drop"}, [("user", "Say yes.")]),
    ],
)
def test_prompts_are_as_sent_or_raw_with_or_without_the_system_text(
    tmp_path: Path, options: dict[str, str], prompt: list[tuple[str, str]]
) -> None:
    sampler = {"system": "Be brief.", "template": "Q: {{ prompt }}"}
    [row] = rows_of(
        run_of(tmp_path, {"replies": ["yes"]}, sampler=sampler), "sft-messages", **options
    )
    assert contents(row["messages"]) == [*prompt, ("assistant", "yes")]


def test_a_raw_prompt_of_messages_keeps_its_own_system_message(tmp_path: Path) -> None:
    question = [{"role": "system", "content": "Mine."}, {"role": "user", "content": "Say yes."}]
    run = run_of(tmp_path, {"question": question, "replies": ["yes"]})
    for prompt in ("sent", "raw"):
        [row] = rows_of(run, "sft-messages", prompt=prompt)
        assert row["messages"][:-1] == question


def test_what_was_sent_as_plain_text_is_exported_by_its_raw_prompt_only(tmp_path: Path) -> None:
    run = run_of(tmp_path, {"replies": ["yes"]}, sampler={"api": "completions"})
    with pytest.raises(UsageError, match="t0: was sent as plain text") as raised:
        exported(run, "sft-messages", tmp_path / "x.jsonl")
    assert "--prompt raw" in str(raised.value.hint)
    assert not list(tmp_path.glob("*x.jsonl*"))
    [row] = rows_of(run, "sft-messages", prompt="raw")
    assert contents(row["messages"]) == [("user", "Say yes."), ("assistant", "yes")]


def test_a_prefilled_reply_is_half_a_turn_and_left_out(tmp_path: Path) -> None:
    messages = [
        {"role": "user", "template": "{{ prompt }}"},
        {"role": "assistant", "template": "I say"},
    ]
    run = run_of(tmp_path, {"replies": ["yes"]}, sampler={"messages": messages})
    assert left_out(run, "sft-messages") == {"assistant_prefill": 1}


@pytest.mark.parametrize(
    ("command", "section"),
    [("rollout", {}), ("verify-traces", {}), ("best-of-n", {"best_of_n": {"bar": 1}})],
)
def test_tool_calls_are_left_out(tmp_path: Path, command: str, section: Any) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    replies = [body("yes", tool_calls=[call]), body("yes")]
    run = run_of(tmp_path, {"replies": replies}, command=command, **section)
    assert left_out(run, "sft-messages") == {"tool_calls": 1}


def test_cut_text_is_never_written(tmp_path: Path) -> None:
    run = run_of(tmp_path, {"replies": [body("yes", "length"), body("yes")]})
    assert len(rows_of(run, "sft-messages")) == 1


def test_verified_traces_do_not_repeat_the_text_as_reasoning(tmp_path: Path) -> None:
    """A trace's `reasoning` is cut from the text where the model has no thinking of its own."""
    replies = [body("First this. A: yes"), body("A: yes", reasoning_content="Hm.")]
    run = run_of(
        tmp_path,
        {"replies": replies},
        command="verify-traces",
        scorer={"exact": {"answer": {"after": "A:"}}},
    )
    first, second = rows_of(run, "sft-messages", reasoning="think-tags")
    assert first["messages"][1]["content"] == "First this. A: yes"
    assert second["messages"][1]["content"] == "<think>\nHm.\n</think>\n\nA: yes"


def test_a_traces_json_is_written_as_the_model_wrote_it(tmp_path: Path) -> None:
    text = '{"reasoning": "One \\u00e9tude.", "final_answer": "yes"}'
    run = run_of(
        tmp_path,
        {"replies": [text]},
        command="verify-traces",
        sampler={"response": {"reasoning": "str", "final_answer": "str"}},
        scorer={"exact": {"answer": {"field": "final_answer"}}},
    )
    [row] = rows_of(run, "sft-messages")
    assert contents(row["messages"])[-1] == ("assistant", text)
    assert "reasoning_content" not in row["messages"][-1]


def test_best_of_n_gives_the_chosen_text_and_its_reasoning(tmp_path: Path) -> None:
    replies = [body("no", reasoning_content="so not"), body("yes", reasoning_content="so yes")]
    run = run_of(tmp_path, {"replies": replies}, command="best-of-n", best_of_n={"bar": 1})
    [row] = rows_of(run, "sft-messages")
    assert row["messages"][-1]["content"] == "yes"
    assert row["messages"][-1]["reasoning_content"] == "so yes"
    told = sidecar(tmp_path / "sft-messages.jsonl")["rows"]
    assert told == [{"task_id": "t0", "sample_index": 1, "score": 1.0}]
    [thinking] = rows_of(run, "sft-messages", reasoning="think-tags")
    assert thinking["messages"][-1]["content"] == "<think>\nso yes\n</think>\n\nyes"
