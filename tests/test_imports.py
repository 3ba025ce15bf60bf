"""What a verb imports: looking at specs and runs costs no provider library and no model runtime."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.runs import environment, run, write_spec

HEAVY = {"litellm", "openai", "httpx", "aiohttp", "xllamacpp", "sympy", "math_verify", "pyarrow"}


def imported(*arguments: object) -> set[str]:
    """The top-level modules that a command imported; it must succeed."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "labelkit", *map(str, arguments)],
        capture_output=True,
        text=True,
        env=environment(),
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    names = set(re.findall(r"^import time:.*\| +(\w+)", done.stderr, re.M))
    assert "labelkit" in names
    return names


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run whose only attempt is wrong."""
    folder = tmp_path_factory.mktemp("run")
    (folder / "replies.jsonl").write_text('{"id": "a", "text": "no"}\n')
    spec = write_spec(
        folder,
        tasks=[{"id": "a", "prompt": "q", "gold": "yes"}],
        sampler={"recorded": {"file": "replies.jsonl", "id": "id", "text": "text"}},
        k=1,
    )
    run(spec, folder / "run")
    return folder / "run"


def test_help_imports_nothing_heavy() -> None:
    names = imported("--help")
    assert names.isdisjoint(HEAVY | {"jinja2", "sqlite3", "asyncio", "orjson", "yaml"})


@pytest.mark.parametrize("model", ["openai/gpt-4.1", "direct/served", "local/model.gguf"])
def test_check_imports_nothing_heavy(tmp_path: Path, model: str) -> None:
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    sampler = {"model": model, "api_base": "http://127.0.0.1:9/v1"}
    spec = write_spec(
        tmp_path, tasks=[{"prompt": "q", "gold": 1}], sampler=sampler, scorer="numeric"
    )
    assert imported("check", spec).isdisjoint(HEAVY)


@pytest.mark.parametrize(
    "arguments",
    [("show",), ("show", "a"), ("show", "a", "0"), ("errors",)],
    ids=["grid", "task", "transcript", "errors"],
)
def test_looking_at_a_run_imports_nothing_heavy(
    directory: Path, arguments: tuple[str, ...]
) -> None:
    verb, *what = arguments
    assert imported(verb, directory, *what).isdisjoint(HEAVY)


def test_comparing_runs_imports_nothing_heavy(directory: Path) -> None:
    assert imported("diff", directory, directory).isdisjoint(HEAVY)
