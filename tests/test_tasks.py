"""Task sources: strict, lazy, repeatable, and surveyed before anything is spent."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from labelkit.errors import SpecError, UsageError
from labelkit.records import Task
from labelkit.spec import FieldMap, GoldFrom, TaskFile, load
from labelkit.tasks import Survey, TaskStream, survey

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


def ids(source: TaskStream) -> list[str]:
    return [task.id for task in source]


def rows(n: int) -> list[dict[str, Any]]:
    return [{"prompt": f"What is {i} + 1?", "gold": i + 1} for i in range(n)]


# Files


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("x.jsonl", "does not exist (the path starts at the spec's folder"),
        ("x.xlsx", "is of no format that labelkit reads (use .jsonl"),
    ],
)
def test_a_file_that_cannot_be_used_is_told_with_the_line_of_the_spec(
    tmp_path: Path, name: str, said: str
) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text(f"name: a\ntasks:\n  file: {name}\nsampler: {{}}\n")
    document = load(path)
    with pytest.raises(SpecError) as caught:
        TaskStream(TaskFile(file=name), tmp_path, document)
    assert str(caught.value).startswith(f"{path}:3: tasks.file: {tmp_path / name} {said}")


# Ids


def test_tasks_without_id_keep_theirs_when_the_file_is_reordered_or_filtered(
    tmp_path: Path,
) -> None:
    before = {task.prompt: task.id for task in stream(tmp_path, rows(6))}
    after = {task.prompt: task.id for task in stream(tmp_path, rows(6)[::-2])}
    assert after.items() <= before.items()
    assert len(set(before.values())) == 6


def test_the_gold_is_part_of_a_made_id(tmp_path: Path) -> None:
    [one, other] = stream(tmp_path, [{"prompt": "p", "gold": 1}, {"prompt": "p", "gold": "1"}])
    assert one.id != other.id


def test_exact_duplicates_get_an_occurrence(tmp_path: Path) -> None:
    row = {"prompt": "p", "gold": 1}
    first, second, third = ids(stream(tmp_path, [row, row, row]))
    assert (second, third) == (f"{first}-2", f"{first}-3")


def test_a_duplicate_id_names_both_lines(tmp_path: Path) -> None:
    content = [{"id": "a", "prompt": "p"}, {"id": "b", "prompt": "q"}, {"id": "a", "prompt": "r"}]
    assert faults(stream(tmp_path, content)) == [
        "t.jsonl:3: id: 'a' is also the id of line 1 (give each task its own)"
    ]


def test_a_given_id_that_equals_a_made_one_is_a_duplicate(tmp_path: Path) -> None:
    row = {"prompt": "p", "gold": 1}
    [made] = ids(stream(tmp_path, [row]))
    content = [{"id": f"{made}-2", "prompt": "q"}, row, row]
    assert faults(stream(tmp_path, content)) == [
        f"t.jsonl:3: id: '{made}-2' is also the id of line 1 (give each task its own)"
    ]


def test_rollout_rows_of_one_task_are_told_how_to_become_one(tmp_path: Path) -> None:
    row = {"id": "a", "prompt": "p", "gold": 1, "sample_index": 0, "provenance": {}}
    [fault] = faults(stream(tmp_path, [row, row]))
    assert "tasks: {dedupe: true} keeps the first" in fault
    assert ids(stream(tmp_path, [row, row], dedupe=True)) == ["a"]


# Inline tasks


def test_inline_tasks_are_numbered_by_position(tmp_path: Path) -> None:
    source = TaskStream([{"prompt": "p"}, {"id": "x", "prompt": "q"}, {"prompt": "p"}], tmp_path)
    assert ids(source) == ["t1", "x", "t3"]
    assert [task.line for task in source] == [1, 2, 3]


def test_faults_of_inline_tasks_name_the_line_of_the_spec(tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text("name: a\ntasks:\n- prompt: p\n- prompt: q\n  golb: 1\n- {id: t1, prompt: r}\n")
    document = load(path)
    inline: Any = document.values["tasks"]
    with pytest.raises(SpecError) as caught:
        survey(TaskStream(inline, tmp_path, document))
    assert str(caught.value).splitlines() == [
        f"{path}:5: tasks[1].golb: unknown key (did you mean `gold`?)",
        f"{path}:6: tasks[2].id: 't1' is also the id of task 1 (give each task its own)",
    ]


def test_faults_of_inline_tasks_name_the_field_without_a_document(tmp_path: Path) -> None:
    [fault] = faults(TaskStream([{"prompt": 5}], tmp_path))
    assert fault.startswith("tasks[0].prompt: is neither text nor chat messages: 5")


# Selection


@pytest.mark.parametrize(
    ("where", "left"),
    [
        ({"metadata.level": 1}, ["a"]),
        ({"metadata.level": 1.0}, ["a"]),
        ({"metadata.level": "1"}, ["b"]),
        ({"metadata.level": True}, ["c"]),
        ({"metadata.level": None}, ["d"]),
        ({"metadata.level": 1, "id": "a"}, ["a"]),
    ],
)
def test_where_keeps_rows_whose_field_equals_the_value(
    tmp_path: Path, where: dict[str, Any], left: list[str]
) -> None:
    levels = [("a", 1), ("b", "1"), ("c", True), ("d", None)]
    content = [{"id": i, "prompt": i, "metadata": {"level": level}} for i, level in levels]
    assert ids(stream(tmp_path, [*content, {"id": "e", "prompt": "p"}], where=where)) == left


@pytest.mark.parametrize(
    ("value", "left"), [(3, ["a"]), ("3", ["a"]), (True, ["b"]), (None, ["c"])]
)
def test_where_compares_csv_cells_as_the_text_they_are(
    tmp_path: Path, value: Any, left: list[str]
) -> None:
    content = "id,prompt,level\na,p,3\nb,q,True\nc,r,\n"
    fields = FieldMap(id="id")
    assert ids(stream(tmp_path, content, "t.csv", fields=fields, where={"level": value})) == left


def test_where_leaves_other_rows_unread(tmp_path: Path) -> None:
    content = [{"id": "a", "prompt": "p"}, {"id": "b", "other": "x"}]
    assert ids(stream(tmp_path, content, where={"id": "a"})) == ["a"]


def test_a_where_field_that_no_row_has_is_a_fault_with_the_nearest(tmp_path: Path) -> None:
    [fault] = faults(stream(tmp_path, [{"prompt": "p", "id": "a"}], where={"promt": "p"}))
    assert fault == "tasks.where.promt: there is no `promt` (did you mean `prompt`?)"


def test_a_where_field_that_a_header_lacks_is_a_fault(tmp_path: Path) -> None:
    [fault] = faults(stream(tmp_path, "prompt\np\n", "t.csv", where={"level": 3}))
    assert fault == "tasks.where.level: there is no `level` (the row has: prompt)"


def test_a_where_that_matches_nothing_is_a_fault(tmp_path: Path) -> None:
    [fault] = faults(stream(tmp_path, [{"prompt": "p", "id": "a"}], where={"id": "b"}))
    assert fault == (
        "t.jsonl: has rows, but none that `where` lets through (check tasks: {where: …})"
    )


def test_shuffle_is_a_fixed_permutation_for_a_seed(tmp_path: Path) -> None:
    plain = list(stream(tmp_path, rows(50)))
    first = list(stream(tmp_path, rows(50), shuffle=1))
    assert first == list(stream(tmp_path, rows(50), shuffle=1))
    assert first != plain
    assert first != list(stream(tmp_path, rows(50), shuffle=2))
    assert sorted(first, key=lambda task: task.line or 0) == plain
    assert all(task.row == {"prompt": task.prompt, "gold": task.gold} for task in first)


def test_shuffle_keeps_ids_occurrences_and_long_integers(tmp_path: Path) -> None:
    content = [{"prompt": "p", "gold": LONG}] * 3 + rows(5)
    plain = {(task.line, task.id, str(task.gold)) for task in stream(tmp_path, content)}
    shuffled = {(t.line, t.id, str(t.gold)) for t in stream(tmp_path, content, shuffle=7)}
    assert shuffled == plain


def test_iterations_side_by_side_do_not_disturb_each_other(tmp_path: Path) -> None:
    source = stream(tmp_path, rows(20), shuffle=3)
    assert all(one == other for one, other in zip(source, source, strict=True))


def test_same_prompts_are_warned_of_and_conflicting_golds_named(tmp_path: Path) -> None:
    content = [{"prompt": "p", "gold": 1}, {"prompt": "p", "gold": 1}, {"prompt": "p", "gold": 2}]
    source = stream(tmp_path, content)
    found = survey(source)
    assert (found.n_tasks, found.n_same_prompt, found.n_conflicting) == (3, 2, 1)
    assert found.warnings == (
        f"{source.shown}:2: has the prompt of line 1, and the same gold",
        f"{source.shown}:3: has the prompt of line 1, with another gold",
    )


def test_many_warnings_are_capped_and_the_rest_counted(tmp_path: Path) -> None:
    found = survey(stream(tmp_path, [{"prompt": "p"}] * 100))
    assert len(found.warnings) == 21
    assert found.warnings[-1] == "and 79 more like these"


def test_dedupe_drops_later_tasks_with_the_same_prompt(tmp_path: Path) -> None:
    content = [
        {"id": "a", "prompt": "p", "gold": 1},
        {"id": "b", "prompt": "q", "gold": 1},
        {"id": "c", "prompt": "p", "gold": 2},
    ]
    source = stream(tmp_path, content, dedupe=True)
    found = survey(source)
    assert (found.n_tasks, found.n_duplicates, found.n_conflicting) == (2, 1, 1)
    assert ids(source) == ["a", "b"]
    assert [(d.id, d.reason) for d in source.dropped()] == [("c", "duplicate_prompt")]
    assert len(found.warnings) == 1


def test_what_dedupe_drops_without_loss_is_no_warning(tmp_path: Path) -> None:
    found = survey(stream(tmp_path, [{"prompt": "p", "gold": 1}] * 100, dedupe=True))
    assert (found.n_tasks, found.n_duplicates, found.warnings) == (1, 99, ())


# Golds

QUESTION = FieldMap(prompt="question", gold=GoldFrom(column="answer", after="####"))


def odd(task: Task) -> str | None:
    return None if isinstance(task.gold, int) and task.gold % 2 else f"{task.gold!r} is not odd"


def test_bad_golds_are_faults_of_their_rows(tmp_path: Path) -> None:
    assert faults(stream(tmp_path, rows(3)), check=odd) == [
        "t.jsonl:2: gold: 2 is not odd (mend it, or tasks: {on_bad_gold: drop})"
    ]


def test_bad_golds_can_be_dropped_and_are_counted(tmp_path: Path) -> None:
    source = stream(tmp_path, rows(6), on_bad_gold="drop")
    found = survey(source, odd)
    assert (found.n_tasks, found.n_bad_golds) == (3, 3)
    assert [task.gold for task in source] == [1, 3, 5]
    assert [task.gold for task in source] == [1, 3, 5]
    assert [(d.reason, d.detail) for d in source.dropped()] == [
        ("bad_gold", f"{n} is not odd") for n in (2, 4, 6)
    ]


def test_a_gold_that_is_not_found_can_be_dropped(tmp_path: Path) -> None:
    content = [{"question": "p", "answer": "#### 5"}, {"question": "q", "answer": "?"}]
    source = stream(tmp_path, content, fields=QUESTION, on_bad_gold="drop")
    assert [task.gold for task in source] == ["5"]
    [dropped] = source.dropped()
    assert dropped.detail == "there is nothing after '####' in `answer`: '?'"


def test_a_good_gold_wins_over_a_bad_one_of_the_same_prompt(tmp_path: Path) -> None:
    content = [{"id": "a", "prompt": "p", "gold": 2}, {"id": "b", "prompt": "p", "gold": 1}]
    source = stream(tmp_path, content, on_bad_gold="drop", dedupe=True)
    survey(source, odd)
    assert ids(source) == ["b"]


def test_a_file_whose_golds_are_all_bad_is_a_fault(tmp_path: Path) -> None:
    source = stream(tmp_path, [{"prompt": "p", "gold": 2}], on_bad_gold="drop")
    assert faults(source, check=odd) == [
        "t.jsonl: has 1 tasks, and the gold of each is bad (mend the golds)"
    ]


# Digest, changes, memory


def digest(source: TaskStream) -> str:
    found: Survey = survey(source)
    return found.digest


def test_the_digest_depends_on_id_prompt_gold_and_order_alone(tmp_path: Path) -> None:
    base: list[dict[str, Any]] = [
        {"id": "a", "prompt": "p", "gold": 1},
        {"id": "b", "prompt": "q", "gold": 2},
    ]
    same = digest(stream(tmp_path, base))
    assert same == digest(stream(tmp_path, [{**row, "metadata": {"x": 1}} for row in base]))
    assert same == digest(TaskStream(base, tmp_path))
    changed = [
        base[::-1],
        base[:1],
        [base[0], {**base[1], "gold": "2"}],
        [base[0], {**base[1], "id": "c"}],
        [base[0], {**base[1], "prompt": "r"}],
    ]
    others = {digest(stream(tmp_path, rows)) for rows in changed}
    others |= {digest(stream(tmp_path, base, shuffle=seed)) for seed in (1, 2)}
    assert len(others | {same}) == 8


def test_a_file_that_changes_between_two_passes_is_refused(tmp_path: Path) -> None:
    source = stream(tmp_path, rows(3))
    survey(source)
    with (tmp_path / "t.jsonl").open("a") as file:
        file.write('{"prompt": "new"}\n')
    with pytest.raises(UsageError, match="has changed since it was first read"):
        list(source)


MEASURE = """
import json, sys
from pathlib import Path
from labelkit.spec import TaskFile
from labelkit.tasks import TaskStream, survey
path = Path(sys.argv[1])
with path.open("w") as file:
    for i in range(int(sys.argv[2])):
        row = {"prompt": f"What is {i} + {i}?" + " " * 2_000, "gold": 2 * i}
        file.write(json.dumps(row) + chr(10))
source = TaskStream(TaskFile(file=path.name, shuffle=1, dedupe=True), path.parent)
assert survey(source).n_tasks == sum(1 for _ in source) == int(sys.argv[2])
[peak] = [line for line in open("/proc/self/status") if line.startswith("VmHWM")]
print(peak.split()[1])
"""


def peak_kb(path: Path, n_tasks: int) -> int:
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(path), str(n_tasks)],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parent.parent,
    )
    return int(done.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_does_not_grow_with_the_number_of_tasks(tmp_path: Path) -> None:
    few, many = (peak_kb(tmp_path / "t.jsonl", n) for n in (1_000, 10_000))
    assert many - few < 5_000  # the rows alone take 20 MB
