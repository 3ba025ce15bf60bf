"""A command line in this process that must be refused, and the specs that it is given."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from labelkit.cli import main

BASE: dict[str, Any] = {
    "name": "bad",
    "tasks": [{"id": "a", "prompt": "What is 1 + 2?", "gold": 3}],
    "sampler": {"model": "direct/fake", "api_base": "http://127.0.0.1:9/v1", "max_tries": 1},
    "scorer": "numeric",
    "k": 2,
}
ROWS = '{"id": "a", "prompt": "p", "gold": 3}\n'


class Cli:
    """The command line in this process, and what it left behind."""

    def __init__(
        self, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.folder = folder
        self._capsys = capsys
        self._monkeypatch = monkeypatch
        for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "LABELKIT_API_KEY"):
            monkeypatch.delenv(name, raising=False)

    def __call__(self, *arguments: object) -> tuple[int, str]:
        """Exit code and what was said on stderr; stdout must stay empty where it failed."""
        with self._monkeypatch.context() as patch:
            patch.setattr(sys, "argv", ["labelkit", *map(str, arguments)])
            patch.setattr(sys, "stdout", sys.stdout)  # main replaces it
            with pytest.raises(SystemExit) as ended:
                main()
        out, err = self._capsys.readouterr()
        code = ended.value.code
        assert isinstance(code, int)
        assert code == 0 or out == ""
        return code, err

    def refused(self, *arguments: object) -> str:
        """The message of a command that must be refused without a trace."""
        before = sorted(self.folder.rglob("*"))
        code, message = self(*arguments)
        assert code == 2, message
        assert sorted(self.folder.rglob("*")) == before
        assert "Traceback" not in message
        return message

    def spec(self, values: dict[str, Any] | str, **files: str) -> Path:
        for name, content in files.items():
            (self.folder / name.replace("__", ".")).write_text(content, encoding="utf-8")
        path = self.folder / "spec.yaml"
        text = values if isinstance(values, str) else yaml.safe_dump(values, sort_keys=False)
        path.write_text(text, encoding="utf-8")
        return path


def changed(**sections: Any) -> dict[str, Any]:
    values = {**BASE, **sections}
    return {name: value for name, value in values.items() if value is not None}


def sampler(**settings: Any) -> dict[str, Any]:
    values = {**BASE["sampler"], **settings}
    return changed(sampler={name: value for name, value in values.items() if value is not None})


def tasks(**settings: Any) -> dict[str, Any]:
    return changed(tasks={"file": "rows.jsonl", **settings})


def one(**task: Any) -> dict[str, Any]:
    return changed(tasks=[{**BASE["tasks"][0], **task}])
