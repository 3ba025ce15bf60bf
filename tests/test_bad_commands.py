"""Bad command lines and scorer files, as a user meets them: see `test_bad_specs`."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.refusals import BASE, Cli, changed


@pytest.fixture
def cli(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    return Cli(tmp_path, capsys, monkeypatch)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("-k", "0"), ["-k"]),
        (("-k", "many"), ["-k", "'many'", "whole number", "rollout --help"]),
        (("--limit=0",), ["--limit", "'0'", "greater than or equal to 1"]),
        (("--budget", "ten"), ["--budget", "'ten'", "a number"]),
        (("--shard", "5/4"), ["--shard 5/4", "1/4"]),
        (("--shard", "0/4"), ["--shard 0/4"]),
        (("--gate", "pas_rate > 1"), ["pas_rate", "`pass_rate`"]),
        (("--set", "sampler.temprature=1"), ["sampler.temprature", "`temperature`"]),
        (("--set", "sampler.temperature=hot"), ["sampler.temperature: 'hot'"]),
        (("--set", "nonsense"), ["--set nonsense"]),
        (("--set", "name.x=1"), ["--set name.x"]),
        (("--model", ""), ["model"]),
        (("--budget", "-5"), ["budget: -5"]),
        (("--task", "zzz"), ["--task zzz", "the first is a"]),
        (("--task", "a", "--task", "b"), ["--task b"]),
        (("--from", "nowhere"), ["nowhere", "run directory"]),
        (("--frm", "x"), ["--frm", "--from"]),
    ],
)
def test_a_bad_command_line_is_told(cli: Cli, flags: tuple[str, ...], said: list[str]) -> None:
    message = cli.refused("rollout", cli.spec(BASE), "-o", cli.folder / "run", *flags)
    for part in said:
        assert part in message


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (None, ["s.py"]),
        ("def f(:\n", ["s.py"]),
        ("def g(attempt, gold): return 1\n", ["'f'"]),
        ("f = 3\n", ["f"]),
        ("import nowhere_to_be_found\ndef f(a, g): return 1\n", ["nowhere_to_be_found"]),
        ("def f(): return 1\n", ["f"]),
    ],
)
def test_a_scorer_file_that_cannot_be_used_is_told(
    cli: Cli, code: str | None, said: list[str]
) -> None:
    files = {} if code is None else {"s__py": code}
    spec = cli.spec(changed(scorer={"python": "s.py:f"}), **files)
    message = cli.refused("rollout", spec, "--allow-code", "-o", cli.folder / "run")
    for part in said:
        assert part in message


def test_a_bad_argument_is_told_with_its_value(cli: Cli) -> None:
    assert "N: 'one': should be a whole number" in cli.refused("show", cli.folder, "t", "one")
    said = cli.refused("show", cli.folder, "--only", "wrong")
    assert "--only: 'wrong' is not one of 'failed', 'errors', 'passed'" in said


def test_a_spec_that_is_not_there_is_told(cli: Cli) -> None:
    for path in (cli.folder / "gone.yaml", cli.folder):
        message = cli.refused("check", path)
        assert str(path) in message
        assert "labelkit init" in message


def test_looking_at_what_is_no_run_is_told(cli: Cli) -> None:
    for command in (("show",), ("errors",), ("rescore", cli.spec(BASE))):
        verb, *rest = command
        assert "is not a run directory" in cli.refused(verb, cli.folder, *rest)


@pytest.fixture
def finished(cli: Cli) -> tuple[Path, Path]:
    """A spec and its finished run."""
    values = changed(
        sampler={"recorded": {"file": "replies.jsonl", "id": "id", "text": "text"}}, k=1
    )
    spec = cli.spec(values, replies__jsonl='{"id": "a", "text": "The answer is 3."}\n')
    directory = cli.folder / "run"
    assert cli("rollout", spec, "-o", directory, "-q")[0] == 0
    return spec, directory


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"run_id": "../../x"}', ""])
def test_a_damaged_record_of_a_run_is_told_by_every_command(
    cli: Cli, finished: tuple[Path, Path], content: str
) -> None:
    spec, directory = finished
    (directory / "run.json").write_text(content)
    (directory / "summary.json").unlink()
    for command in (
        ("rollout", spec, "-o", directory),
        ("rollout", spec, "-o", directory, "--fresh"),
        ("rollout", spec, "-o", cli.folder / "other", "--from", directory),
        ("rescore", directory, spec),
        ("show", directory),
        ("errors", directory),
    ):
        assert "run.json" in cli.refused(*command)


@pytest.mark.parametrize("content", ["{", "[]", "{}", ""])
def test_a_damaged_summary_is_made_anew_from_the_ledger(
    cli: Cli, finished: tuple[Path, Path], content: str
) -> None:
    spec, directory = finished
    path = directory / "summary.json"
    before = json.loads(path.read_bytes())
    path.write_text(content)
    assert cli("rollout", spec, "-o", directory, "-q")[0] == 0
    assert json.loads(path.read_bytes())["n_passed"] == before["n_passed"] == 1


def test_a_damaged_line_of_tasks_is_told_with_its_number(
    cli: Cli, finished: tuple[Path, Path]
) -> None:
    _, directory = finished
    with open(directory / "tasks.jsonl", "a") as file:
        file.write("x\n")
    summary = directory / "summary.json"
    os.utime(summary)
    for command in (("show", directory), ("diff", directory, directory)):
        assert "tasks.jsonl:2: is damaged" in cli.refused(*command)


def test_a_task_that_no_run_can_have_is_told(cli: Cli, finished: tuple[Path, Path]) -> None:
    for task_id in ("zzz", "\udcff", ""):
        assert "no draw of a task" in cli.refused("show", finished[1], task_id)
