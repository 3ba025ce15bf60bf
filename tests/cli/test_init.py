"""`labelkit init`."""

from __future__ import annotations

from pathlib import Path

import pytest

from labelkit.errors import UsageError
from labelkit.prepare import Options, prepare
from labelkit.spec import load
from tests.recorded import invoke, printed


def test_the_starter_is_written_and_the_next_command_named(tmp_path: Path) -> None:
    path = tmp_path / "my spec.yaml"
    assert f"next: labelkit rollout '{path}'" in printed("init", path)
    assert "# " in path.read_text()


def test_the_starter_has_no_fault(tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    printed("init", path)
    document = load(path, ["sampler.model=openai/x"])
    assert prepare(document, "rollout", Options()).survey.n_tasks == 4
    assert "\\boxed{}" in str(document.values["sampler"])
    assert load(path).values["sampler"]["model"] == "local/smollm2-135m"  # type: ignore[index, call-overload]


@pytest.mark.parametrize("name", ["there.yaml", "no/such/folder/x.yaml"])
def test_nothing_is_overwritten(tmp_path: Path, name: str) -> None:
    (tmp_path / "there.yaml").write_text("mine")
    error = invoke("init", tmp_path / name).exception
    assert isinstance(error, UsageError)
    assert error.hint
    assert (tmp_path / "there.yaml").read_text() == "mine"
