"""What is found before a run begins, beyond the faults in `test_bad_specs`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.recorded import printed
from tests.runs import Silent, run, write_lines, write_spec


def spec_of(folder: Path, metadata: list[dict[str, Any]], **sections: Any) -> Path:
    """A spec with a task for each metadata, all of them answered rightly."""
    rows = [
        {"id": f"t{n}", "prompt": f"p{n}", "gold": "yes", "metadata": each}
        for n, each in enumerate(metadata)
    ]
    write_lines(folder / "tasks.jsonl", rows)
    write_lines(folder / "replies.jsonl", [{"id": row["id"], "text": "yes"} for row in rows])
    sampler = {"recorded": {"file": "replies.jsonl", "id": "id", "text": "text"}}
    return write_spec(folder, tasks={"file": "tasks.jsonl"}, sampler=sampler, k=1, **sections)


def test_tasks_without_the_path_of_a_slice_are_said_to_stand_under_null(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, [{"source": "x"}, {}, {}], slice_by="metadata.source")
    said = "slice_by: 'metadata.source': 2 of 3 tasks have no such path"
    assert said in printed("check", spec)
    progress = Silent()
    done = run(spec, tmp_path / "run", progress=progress)
    assert any(said in message for message in progress.messages)
    assert {name: rates["n_tasks"] for name, rates in done["slices"].items()} == {"x": 1, "null": 2}


def test_slices_reach_into_lists_and_keys_with_dots(tmp_path: Path) -> None:
    metadata = [{"tags": ["a", "b"], "v1.5": "p"}, {"tags": ["c"], "v1.5": "q"}]
    spec = spec_of(tmp_path, metadata, slice_by=["metadata.tags.0", "metadata.v1.5"])
    done = run(spec, tmp_path / "run")
    assert set(done["slices"]) == {
        "metadata.tags.0=a",
        "metadata.tags.0=c",
        "metadata.v1.5=p",
        "metadata.v1.5=q",
    }


def test_a_path_that_only_tasks_beyond_the_limit_have_is_one(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, [{}, {"source": "x"}], slice_by="metadata.source")
    assert set(run(spec, tmp_path / "run", limit=1)["slices"]) == {"null"}
