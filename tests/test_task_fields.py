"""Rows as tasks: native ones strictly, foreign ones by a field map, faults with their place."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from labelkit.errors import SpecError
from labelkit.spec import FieldMap, GoldFrom, TaskFile, load
from labelkit.tasks import TaskStream, survey

LONG = 6747742486863689476416508396372901


def stream(folder: Path, content: Any, name: str = "t.jsonl", **settings: Any) -> TaskStream:
    """A stream over a file of that content; lists become JSON lines."""
    if isinstance(content, list):
        content = "".join(json.dumps(row) + "\n" for row in content)
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return TaskStream(TaskFile(file=name, **settings), folder)


def faults(source: TaskStream, **options: Any) -> list[str]:
    with pytest.raises(SpecError) as caught:
        survey(source, **options)
    return [
        str(fault).replace(source.shown, Path(source.shown).name) for fault in caught.value.faults
    ]


# Native rows


def test_native_rows_carry_everything_exactly(tmp_path: Path) -> None:
    row = {"id": "r7", "prompt": "p", "gold": LONG, "metadata": {"a": [LONG, "x\u2028"]}}
    [task] = stream(tmp_path, json.dumps(row, ensure_ascii=False))
    assert task.model_dump() == row
    assert (task.row, task.line) == (row, 1)


def test_chat_prompts_are_kept_as_messages(tmp_path: Path) -> None:
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    [task] = stream(tmp_path, [{"prompt": messages}])
    assert task.prompt == tuple(messages)


def test_rows_that_labelkit_wrote_are_read_as_tasks(tmp_path: Path) -> None:
    row = {
        "id": "a",
        "prompt": "p",
        "gold": 1,
        "metadata": {"m": 1},
        "pass_rate": 0.5,
        "outcomes": [],
        "messages": [],
        "provenance": {"run": "x"},
    }
    [task] = stream(tmp_path, [row])
    assert (task.id, task.prompt, task.gold, task.metadata) == ("a", "p", 1, {"m": 1})


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"prompt": "p", "golds": 1}, "t.jsonl:1: golds: unknown key (did you mean `gold`?)"),
        ({"prompt": "p", "Gold": 1}, "t.jsonl:1: Gold: unknown key (did you mean `gold`?)"),
        ({"prompt": "p", "expected": 1}, "t.jsonl:1: expected: unknown key (known: id, prompt"),
        (
            {"id": "a", "prompt": "p", "glod": 1, "provenance": {}},
            "t.jsonl:1: glod: unknown key (did you mean `gold`?)",
        ),
        ({"prompt": "p", "provenance": "me"}, "t.jsonl:1: provenance: unknown key"),
        ({"gold": 1}, 't.jsonl:1: prompt: there is no `prompt` (add "prompt"'),
        ({"prompt": 5}, "t.jsonl:1: prompt: is neither text nor chat messages: 5 (write"),
        ({"prompt": None}, "t.jsonl:1: prompt: is neither text nor chat messages: null"),
        ({"prompt": " "}, "t.jsonl:1: prompt: is empty (write"),
        ({"prompt": []}, "t.jsonl:1: prompt: is empty (write"),
        ({"prompt": ["hi"]}, "t.jsonl:1: prompt[0]: is no message: 'hi' (write"),
        (
            {"prompt": [{"role": "bot", "content": "x"}]},
            "t.jsonl:1: prompt[0].role: is 'bot' (one of system, developer",
        ),
        (
            {"prompt": [{"role": "user", "content": 5}]},
            "t.jsonl:1: prompt[0].content: is 5 (write text",
        ),
        ({"prompt": "p", "id": 7}, 't.jsonl:1: id: is not text: 7 (write it as "7")'),
        ({"prompt": "p", "id": None}, "t.jsonl:1: id: is not text: null"),
        ({"prompt": "p", "id": ""}, "t.jsonl:1: id: is empty (give it one"),
        ({"prompt": "p", "metadata": []}, "t.jsonl:1: metadata: is not an object: [] (write"),
        ({"prompt": "p\ud800"}, "t.jsonl:1: prompt: has half of a surrogate pair"),
        ({"prompt": "p", "gold": ["\udfff"]}, "t.jsonl:1: gold: has half of a surrogate pair"),
        ({"prompt": "p", "metadata": {"\ud800": 1}}, "t.jsonl:1: metadata: has half of a surr"),
        ({"prompt": "p", "id": "\ud800"}, "t.jsonl:1: id: has half of a surrogate pair"),
    ],
)
def test_a_bad_native_row_is_told_with_file_line_field_and_fix(
    tmp_path: Path, row: dict[str, Any], said: str
) -> None:
    [fault] = faults(stream(tmp_path, [row]))
    assert fault.startswith(said)


def test_a_gold_nested_too_deeply_is_a_fault(tmp_path: Path) -> None:
    text = '{"prompt": "p", "gold": ' + "[" * 300 + "]" * 300 + "}"
    [fault] = faults(stream(tmp_path, text))
    assert fault.startswith("t.jsonl:1: gold: is nested more than 100 levels deep")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("t.jsonl", "", "t.jsonl: has no tasks (add at least one)"),
        ("t.jsonl", "\n \n", "t.jsonl: has no tasks"),
        ("t.json", "[]", "t.json: has no tasks"),
        ("t.csv", "", "t.csv:1: is empty (its first line names the columns)"),
        ("t.csv", "prompt\n", "t.csv: has no tasks"),
        ("t.csv", "question\nx\n", "t.csv:1: question: unknown key (known: id, prompt"),
        ("t.csv", "prompt,gold\nx\n", "t.csv:2: has 1 cells where the header has 2"),
        ("t.jsonl", '{"prompt": "p"}\n{"prompt": NaN}\n', "t.jsonl:2: is not JSON: NaN"),
        ("t.jsonl", b'{"prompt": "\xe9"}\n', "t.jsonl:1: is not UTF-8 text"),
        (
            "t.jsonl",
            '{"prompt": "p"}\n'.encode("utf-16"),
            "t.jsonl: is UTF-16 text (save it as UTF-8)",
        ),
    ],
)
def test_a_bad_file_is_told_with_its_fault(
    tmp_path: Path, name: str, content: str | bytes, said: str
) -> None:
    assert faults(stream(tmp_path, content, name))[0].startswith(said)


def test_all_faults_come_at_once(tmp_path: Path) -> None:
    content = 'bad\n{"prompt": 5, "golb": 1}\n{"prompt": "p"}\n[]\n'
    assert [fault.split(":")[1] for fault in faults(stream(tmp_path, content))] == list("1224")


def test_many_faults_are_capped_and_the_rest_counted(tmp_path: Path) -> None:
    found = faults(stream(tmp_path, "bad\n" * 1000))
    assert len(found) == 51
    assert found[-1] == "t.jsonl: and 950 more faults"


def test_iterating_a_bad_file_raises_before_the_first_task(tmp_path: Path) -> None:
    with pytest.raises(SpecError):
        next(iter(stream(tmp_path, '{"prompt": "p"}\nbad\n')))


# Foreign files

QUESTION = FieldMap(prompt="question", gold=GoldFrom(column="answer", after="####"))


def test_fields_map_dotted_columns_and_carry_the_rest(tmp_path: Path) -> None:
    row = {"q": {"text": "p"}, "n": 7, "a": [{"v": LONG}], "src": "x", "more": None}
    [task] = stream(
        tmp_path,
        [row],
        fields=FieldMap(prompt="q.text", id="n", gold="a.0.v", metadata="all"),
    )
    metadata = {"src": "x", "more": None}
    assert task.model_dump() == {"id": "7", "prompt": "p", "gold": LONG, "metadata": metadata}
    assert task.row == row


def test_named_metadata_may_be_absent_from_a_row(tmp_path: Path) -> None:
    fields = FieldMap(prompt="q", metadata={"level": "info.level"})
    found = stream(tmp_path, [{"q": "a", "info": {"level": 3}}, {"q": "b"}], fields=fields)
    assert [task.metadata for task in found] == [{"level": 3}, {"level": None}]


@pytest.mark.parametrize(
    ("gold", "text", "taken"),
    [
        (GoldFrom(column="a", after="####"), "1 #### 2\n#### 1,000 ", "1,000"),
        (GoldFrom(column="a", regex=r"is (\d+)"), "it is 12, or is 13", "12"),
        (GoldFrom(column="a", regex=r"\d+"), "it is 12", "12"),
    ],
)
def test_golds_are_taken_out_of_texts(
    tmp_path: Path, gold: GoldFrom, text: str, taken: str
) -> None:
    [task] = stream(tmp_path, [{"q": "p", "a": text}], fields=FieldMap(prompt="q", gold=gold))
    assert task.gold == taken


def test_golds_of_csv_stay_text_with_every_digit(tmp_path: Path) -> None:
    [task] = stream(tmp_path, f"prompt,gold\np,{LONG}\n", "t.csv")
    assert task.gold == str(LONG)


def test_gzipped_files_are_read(tmp_path: Path) -> None:
    content = gzip.compress(b'{"id": "a", "prompt": "p"}\n')
    assert [task.id for task in stream(tmp_path, content, "t.jsonl.gz")] == ["a"]


def test_chat_prompts_of_parquet_are_read(tmp_path: Path) -> None:
    table = pyarrow.table(
        {
            "prompt": [[{"role": "user", "content": "hi"}]],
            "reward_model": [{"ground_truth": "5"}],
            "data_source": ["x"],
        }
    )
    pyarrow.parquet.write_table(table, tmp_path / "t.parquet")
    fields = FieldMap(gold="reward_model.ground_truth", metadata="all")
    [task] = TaskStream(TaskFile(file="t.parquet", fields=fields), tmp_path)
    assert task.prompt == ({"role": "user", "content": "hi"},)
    assert (task.gold, task.metadata) == ("5", {"data_source": "x"})


@pytest.mark.parametrize(
    ("row", "fields", "said"),
    [
        (
            {"questions": "p"},
            FieldMap(prompt="question"),
            "t.jsonl:1: prompt: there is no `question` (did you mean `questions`?)",
        ),
        (
            {"q": "p", "x": 1},
            FieldMap(prompt="text.en"),
            "t.jsonl:1: prompt: there is no `text.en` (the row has: q, x)",
        ),
        ({"q": "p"}, FieldMap(prompt="q", id="n"), "t.jsonl:1: id: there is no `n`"),
        ({"q": "p", "n": None}, FieldMap(prompt="q", id="n"), "t.jsonl:1: id: there is no `n`"),
        (
            {"q": "p", "n": 1.5},
            FieldMap(prompt="q", id="n"),
            "t.jsonl:1: id: is neither text nor a whole number: 1.5",
        ),
        ({"q": 5}, FieldMap(prompt="q"), "t.jsonl:1: prompt: is neither text nor chat"),
        (
            {"q": "p", "ans": 1},
            FieldMap(prompt="q", gold="answer"),
            "t.jsonl:1: gold: there is no `answer`",
        ),
        ({"q": "p", "a": None}, FieldMap(prompt="q", gold="a"), "t.jsonl:1: gold: `a` is empty"),
        (
            {"question": "p", "answer": "no mark"},
            QUESTION,
            "t.jsonl:1: gold: there is nothing after '####' in `answer`: 'no mark' (mend it",
        ),
        (
            {"question": "p", "answer": "x #### "},
            QUESTION,
            "t.jsonl:1: gold: there is nothing after '####'",
        ),
        ({"question": "p", "answer": 5}, QUESTION, "t.jsonl:1: gold: `answer` is not text: 5"),
        (
            {"q": "p", "a": "x"},
            FieldMap(prompt="q", gold=GoldFrom(column="a", regex=r"\d+")),
            "t.jsonl:1: gold: the regex '\\\\d+' finds nothing in `a`: 'x'",
        ),
        (
            {"q": "p", "a": "a" * 60 + "!"},
            FieldMap(prompt="q", gold=GoldFrom(column="a", regex="^(a|aa)+$")),
            "t.jsonl:1: gold: the pattern '^(a|aa)+$' took over 2 s (write the regex",
        ),
        (
            {"q": "p"},
            FieldMap(prompt="q", metadata={"level": "lvl"}),
            "tasks.fields.metadata.level: there is no `lvl` (the row has: q)",
        ),
    ],
)
def test_a_bad_foreign_row_is_told_with_file_line_field_and_fix(
    tmp_path: Path, row: dict[str, Any], fields: FieldMap, said: str
) -> None:
    [fault] = faults(stream(tmp_path, [row], fields=fields))
    assert fault.startswith(said)


def test_a_gold_regex_that_takes_too_long_is_a_fault_even_where_bad_golds_are_dropped(
    tmp_path: Path,
) -> None:
    rows = [{"q": "p", "a": text} for text in ("aa", "a" * 60 + "!", "a")]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "t.jsonl").write_text(lines)
    fields = FieldMap(prompt="q", gold=GoldFrom(column="a", regex="^(a|aa)+$"))
    source = TaskFile(file="t.jsonl", fields=fields, on_bad_gold="drop")
    assert len(faults(TaskStream(source, tmp_path))) == 2


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (
            FieldMap(prompt="question"),
            "t.csv:1: prompt: there is no `question` (did you mean `questions`?)",
        ),
        (FieldMap(prompt="questions", gold="a"), "t.csv:1: gold: there is no `a`"),
        (FieldMap(prompt="questions", id="n"), "t.csv:1: id: there is no `n`"),
        (FieldMap(prompt="questions", metadata={"x": "y"}), "t.csv:1: metadata.x: there is no `y`"),
    ],
)
def test_a_missing_column_is_told_once_where_a_header_names_them(
    tmp_path: Path, fields: FieldMap, said: str
) -> None:
    [fault] = faults(stream(tmp_path, "questions\na\nb\nc\n", "t.csv", fields=fields))
    assert fault.startswith(said)


def test_a_missing_column_of_parquet_is_told_once(tmp_path: Path) -> None:
    table = pyarrow.table({"question": ["a", "b"], "answr": ["1", "2"]})
    pyarrow.parquet.write_table(table, tmp_path / "t.parquet")
    fields = FieldMap(prompt="question", gold="answer")
    [fault] = faults(TaskStream(TaskFile(file="t.parquet", fields=fields), tmp_path))
    assert fault == "t.parquet:1: gold: there is no `answer` (did you mean `answr`?)"


@pytest.mark.parametrize(
    ("gold", "said"),
    [
        ("{column: a}", ":5: tasks.fields.gold: needs `after` or `regex`, one of them"),
        ("{after: x, regex: y}", ":5: tasks.fields.gold: needs `after` or `regex`, one of them"),
        ("{regex: (}", ":5: tasks.fields.gold.regex: is not a regular expression"),
        ("{after: ''}", ":5: tasks.fields.gold.after: is empty"),
    ],
)
def test_a_field_map_that_cannot_work_is_told_with_the_line_of_the_spec(
    tmp_path: Path, gold: str, said: str
) -> None:
    (tmp_path / "t.jsonl").write_text("{}\n")
    path = tmp_path / "spec.yaml"
    path.write_text(
        f"name: a\ntasks:\n  file: t.jsonl\n  fields:\n    gold: {gold}\nsampler: {{}}\n"
    )
    document = load(path)
    settings = TaskFile.model_validate(document.values["tasks"])
    with pytest.raises(SpecError) as caught:
        TaskStream(settings, tmp_path, document)
    assert str(caught.value).startswith(f"{path}{said}")
