"""The README speaks of commands, options, targets and files that exist, and its spec is one."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest
from typer.testing import CliRunner

from labelkit.cli import VERBS, app
from labelkit.plan import Permissions, bind
from labelkit.spec import load

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", README, re.DOTALL)
LINES = [
    line.split("#")[0].strip()
    for language, block in BLOCKS
    if language == "sh"
    for line in block.splitlines()
]
COMMANDS = [line.removeprefix(".venv/bin/") for line in LINES if "labelkit " in line]
COMMANDS = [line for line in COMMANDS if line.startswith("labelkit ")]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_one(command: str) -> None:
    for verb in VERBS:
        import_module(f"labelkit.cli.{verb}")
    _, verb, *words = command.split()
    shown = CliRunner().invoke(app, [verb, "--help"])
    assert shown.exit_code == 0, shown.output
    for option in (word for word in words if word.startswith("-")):
        assert re.search(rf"(?<![\w-]){re.escape(option)}(?![\w-])", shown.output), option
    for word in words:
        if word.startswith("specs/"):
            assert (ROOT / word).is_file()


def test_every_target_is_one() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    told = set(re.findall(r"^make ([\w-]+)", "\n".join(LINES), re.MULTILINE))
    told |= set(re.findall(r"`make ([\w-]+)`", README))
    assert {"demo", "test"} <= told <= targets


def test_the_spec_binds(tmp_path: Path) -> None:
    [spec] = [block for language, block in BLOCKS if language == "yaml"]
    path = tmp_path / "spec.yaml"
    path.write_text(spec.replace("data/", f"{ROOT}/data/"), encoding="utf-8")
    plan = bind(load(path), "rollout", Permissions())
    assert plan.spec.k == 8


def test_every_file_named_is_there() -> None:
    named = re.findall(r"`((?:specs|data|benchmarks)/[\w./-]+)`", README)
    assert named
    assert all((ROOT / name).exists() for name in named)
