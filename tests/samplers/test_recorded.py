"""Replies from a file: joined by row or by id, in every shape that outputs come in."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from labelkit.errors import ProviderError, SpecError
from labelkit.records import Completion, Task, Usage
from labelkit.samplers import SamplerSettings
from labelkit.samplers.recorded import RecordedSampler
from tests.samplers.calls import call

BODY: dict[str, Any] = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "model": "gpt-x",
    "choices": [
        {
            "index": 0,
            "finish_reason": "length",
            "message": {
                "role": "assistant",
                "content": "it is 7",
                "reasoning_content": "three and four",
                "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
                ],
            },
        }
    ],
    "usage": {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13},
}


def write(path: Path, rows: Iterable[Any]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path.name


def sampler(folder: Path, **recorded: Any) -> RecordedSampler:
    settings = SamplerSettings.model_validate({"recorded": {"file": "replies.jsonl", **recorded}})
    return RecordedSampler(settings, folder)


def task(name: str = "t1", row: dict[str, Any] | None = None) -> Task:
    return Task(id=name, prompt="p", row=row, line=3)


async def texts(made: RecordedSampler, of: Task, count: int) -> list[str | None]:
    drawn = [await made.sample(call(task=of, sample_index=index)) for index in range(count)]
    await made.close()
    return [None if one is None else one.text for one in drawn]


async def only(made: RecordedSampler, of: Task) -> Completion:
    completion = await made.sample(call(task=of))
    await made.close()
    assert completion is not None
    return completion


async def test_row_of_the_task_itself_holds_its_reply(tmp_path: Path) -> None:
    made = sampler(tmp_path, text="answer.text")
    assert await texts(made, task(row={"answer": {"text": "A: 7"}}), 2) == ["A: 7", None]


async def test_list_valued_path_holds_a_reply_a_sample(tmp_path: Path) -> None:
    made = sampler(tmp_path, text="outputs")
    assert await texts(made, task(row={"outputs": ["a", "b", "a"]}), 4) == ["a", "b", "a", None]


async def test_several_paths_are_several_samples(tmp_path: Path) -> None:
    made = sampler(tmp_path, texts=["first", "second"])
    assert await texts(made, task(row={"first": "a", "second": "b"}), 3) == ["a", "b", None]


async def test_missing_replies_are_no_failure(tmp_path: Path) -> None:
    made = sampler(tmp_path, text="reply")
    assert await texts(made, task(row={"reply": None}), 2) == [None, None]


async def test_replies_of_a_file_of_their_own_are_joined_by_id_in_their_order(
    tmp_path: Path,
) -> None:
    rows = [{"q": name, "out": f"{name}{n}"} for n in range(3) for name in ("a", "b")]
    write(tmp_path / "replies.jsonl", [*rows, {"q": 12, "out": "twelve"}])
    for name, expected in (
        ("b", ["b0", "b1", "b2", None]),
        ("a", ["a0", "a1", "a2", None]),
        ("12", ["twelve", None, None, None]),
        ("unknown", [None] * 4),
    ):
        assert await texts(sampler(tmp_path, id="q", text="out"), task(name), 4) == expected


async def test_one_index_serves_all_tasks_and_samples(tmp_path: Path) -> None:
    count = 3_000
    write(
        tmp_path / "replies.jsonl",
        ({"id": f"t{i % count}", "out": [f"{i}x", f"{i}y"]} for i in range(2 * count)),
    )
    made = sampler(tmp_path, id="id", text="out")
    for i in (0, 1, count - 1):
        drawn = [await made.sample(call(task=task(f"t{i}"), sample_index=n)) for n in range(5)]
        expected = [f"{i}x", f"{i}y", f"{i + count}x", f"{i + count}y"]
        assert [one.text for one in drawn if one] == expected
        assert drawn[4] is None
    await made.close()


async def test_compressed_files_are_read(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "replies.jsonl.gz", "wt") as file:
        file.write('{"id": "t1", "out": "zipped"}\n')
    made = sampler(tmp_path, file="replies.jsonl.gz", id="id", text="out")
    assert await texts(made, task(), 1) == ["zipped"]


def check_body(completion: Completion) -> None:
    assert completion.text == "it is 7"
    assert completion.reasoning == "three and four"
    assert completion.finish_reason == "length"
    assert completion.usage == Usage(input_tokens=9, output_tokens=4)
    assert completion.tool_calls[0].name == "f"
    assert completion.model_served == "gpt-x"
    assert completion.cost_usd is None


async def test_chat_completion_bodies_are_read_whole(tmp_path: Path) -> None:
    check_body(await only(sampler(tmp_path), task(row=BODY)))
    check_body(await only(sampler(tmp_path, text="raw"), task(row={"raw": BODY})))


async def test_every_choice_of_a_body_is_a_sample(tmp_path: Path) -> None:
    choices = [{"message": {"role": "assistant", "content": text}} for text in ("x", "y")]
    assert await texts(sampler(tmp_path), task(row={"choices": choices}), 3) == ["x", "y", None]


async def test_batch_output_rows_are_joined_by_custom_id(tmp_path: Path) -> None:
    ok = {"custom_id": "t1", "response": {"status_code": 200, "body": BODY}, "error": None}
    write(tmp_path / "replies.jsonl", [ok])
    check_body(await only(sampler(tmp_path, id="custom_id"), task()))


@pytest.mark.parametrize(
    ("code", "kind"), [("content_filter", "content_filter"), ("rate_limit_exceeded", "row")]
)
async def test_failed_batch_rows_are_failures_that_are_not_tried_again(
    tmp_path: Path, code: str, kind: str
) -> None:
    body = {"error": {"message": "no", "code": code}}
    status = 400 if code == "content_filter" else 429
    failed = {"custom_id": "t1", "response": {"status_code": status, "body": body}}
    write(tmp_path / "replies.jsonl", [failed])
    made = sampler(tmp_path, id="custom_id")
    with pytest.raises(ProviderError) as raised:
        await made.sample(call(task=task()))
    assert (raised.value.kind, raised.value.error_type) == (kind, code)
    await made.close()


async def test_chat_rows_end_with_the_reply(tmp_path: Path) -> None:
    messages = [
        {"role": "user", "content": "3 + 4?"},
        {"role": "assistant", "content": "7", "reasoning_content": "counting"},
    ]
    completion = await only(sampler(tmp_path), task(row={"messages": messages}))
    assert (completion.text, completion.reasoning) == ("7", "counting")


async def test_only_candidates_are_recorded(tmp_path: Path) -> None:
    made = sampler(tmp_path, text="reply")
    of = task(row={"reply": "A: 7"})
    assert await made.sample(call(task=of, stage="judge/0/0")) is None


async def test_lone_surrogates_become_replacement_marks(tmp_path: Path) -> None:
    (tmp_path / "replies.jsonl").write_text('{"id": "t1", "out": "a \\ud83d b"}\n')
    assert await texts(sampler(tmp_path, id="id", text="out"), task(), 1) == ["a \ufffd b"]
    assert await texts(sampler(tmp_path, text="out"), task(row={"out": "\ud83d"}), 1) == ["\ufffd"]


def test_every_fault_of_the_file_is_named_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "replies.jsonl").write_text(
        '{"id": "t1", "out": "fine"}\n'
        '{"id": "t2", "text": "misnamed"}\n'
        "{not json\n"
        '{"id": true, "out": "x"}\n'
        '{"id": "t3", "out": 5}\n'
    )
    with pytest.raises(SpecError) as raised:
        sampler(tmp_path, id="id", text="out").check(call().request)
    faults = raised.value.faults
    assert [fault.line for fault in faults] == [2, 3, 4, 5]
    assert {fault.file for fault in faults} == {"replies.jsonl"}
    assert "`out`" in str(faults[0])
    assert "text" in str(faults[0])


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"replies\.jsonl"):
        sampler(tmp_path, id="id", text="out").check(call().request)


async def test_a_row_without_a_reply_says_what_it_has(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"replies\.jsonl:3: .*question") as raised:
        await sampler(tmp_path).sample(call(task=task(row={"question": "?"})))
    assert "recorded.text" in str(raised.value)


async def test_tasks_without_rows_need_an_id_to_join(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"recorded\.id"):
        await sampler(tmp_path, text="out").sample(call(task=task(row=None)))


def test_text_and_texts_exclude_each_other(tmp_path: Path) -> None:
    (found,) = sampler(tmp_path, text="a", texts=["b"]).check(call().request)
    assert "not both" in found
