"""`--dry-run`: says what would be sent and drawn; spends and writes nothing."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from labelkit.errors import SpecError
from labelkit.prepare import Options, prepare
from labelkit.report.preview import preview
from labelkit.run import execute
from labelkit.spec import load
from tests.recorded import recorded_run, recorded_spec
from tests.runs import Silent, run, write_spec


def test_the_first_request_is_shown_as_it_would_be_sent(tmp_path: Path) -> None:
    spec = write_spec(
        tmp_path,
        tasks=[{"prompt": "What is\n7 + 5?\x1b[2J", "gold": "12"}],
        sampler={
            "model": "openai/gpt-x",
            "system": "Be brief.",
            "temperature": 0.5,
            "max_tokens": 9,
            "response": {"final_answer": "int"},
        },
        k=3,
    )
    text = preview(prepare(load(spec), "rollout", Options(directory=tmp_path / "run")))
    assert "  model: openai/gpt-x\n" in text
    assert '  parameters: {"temperature": 0.5, "max_tokens": 9}\n' in text
    assert '"final_answer"' in text
    assert "  system:\n    Be brief.\n" in text
    assert "  user:\n    What is\n    7 + 5?\n" in text
    assert "\x1b" not in text
    assert "1 task, 3 candidates planned" in text
    assert "to make: 3" in text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["spec.yaml"]


def test_draws_in_the_ledger_need_no_call(tmp_path: Path) -> None:
    directory = recorded_run(tmp_path, {"a": ["yes", "no"], "b": ["no", "no"]})
    before = sorted((path.name, path.read_bytes()) for path in directory.iterdir())
    text = preview(
        prepare(load(tmp_path / "spec.yaml", ["k=3"]), "rollout", Options(directory=directory))
    )
    assert "2 tasks, 6 candidates planned" in text
    assert "in the ledger: 4" in text
    assert "to make: 2" in text
    assert sorted((path.name, path.read_bytes()) for path in directory.iterdir()) == before


def test_draws_in_other_runs_are_counted_once(tmp_path: Path) -> None:
    replies = {"a": ["yes", "no"], "b": ["no", "no"]}
    spec = recorded_spec(tmp_path, replies)
    run(spec, tmp_path / "own", limit=1)
    run(spec, tmp_path / "other")
    options = Options(directory=tmp_path / "own", sources=[tmp_path / "other", tmp_path / "other"])
    text = preview(prepare(load(spec), "rollout", options))
    assert "in the ledger: 2" in text
    assert "in --from: 2" in text
    assert "to make: 0" in text


def priced(folder: Path, budget: float | None = None, **sampler: Any) -> str:
    """The dry run of ten draws of 1,200 bytes each at 1,000 and 10,000 USD a million tokens."""
    price = {"input_per_mtok": 1000.0, "output_per_mtok": 10_000.0}
    spec = write_spec(
        folder,
        tasks=[{"prompt": "x" * 1200, "gold": "12"}],
        sampler={"model": "direct/m", "api_base": "http://x/v1", "price": price, **sampler},
        k=10,
        budget=budget,
    )
    return preview(prepare(load(spec), "rollout", Options(directory=folder / "run")))


def test_the_projected_cost_has_a_range(tmp_path: Path) -> None:
    # At most 1,200 to 1,300 tokens in and 500 out, ten times; at least a sixth of them in, 1 out.
    text = priced(tmp_path, max_tokens=500)
    found = re.search(r"cost: \$([\d.]+) to \$([\d.]+) ", text)
    assert found is not None
    assert 2.1 <= float(found[1]) <= 2.3
    assert 62 <= float(found[2]) <= 63


@pytest.mark.parametrize(
    ("budget", "said"),
    [
        (2.0, "budget: $2.00: too little even for the shortest replies\n"),
        (60.0, "budget: $60.00: less than the longest replies would cost\n"),
        (64.0, None),
        (None, None),
    ],
)
def test_a_budget_that_the_projected_cost_may_exceed_is_told(
    tmp_path: Path, budget: float | None, said: str | None
) -> None:
    text = priced(tmp_path, budget, max_tokens=500)
    if said is None:
        assert "budget: " not in text
    else:
        assert said in text


@pytest.mark.parametrize(
    ("sections", "said"),
    [({}, "direct/m has no batch API"), ({"adaptive": True}, "set adaptive: false")],
)
def test_a_dry_run_refuses_the_batches_that_the_run_would_refuse(
    tmp_path: Path, sections: dict[str, Any], said: str
) -> None:
    sampler = {"model": "direct/m", "api_base": "http://127.0.0.1:9/v1"}
    spec = write_spec(tmp_path, tasks=[{"prompt": "p", "gold": "1"}], sampler=sampler, **sections)
    prepared = prepare(load(spec), "rollout", Options(directory=tmp_path / "run", batch=True))
    with pytest.raises(SpecError, match=said):
        preview(prepared)
    with pytest.raises(SpecError, match=said):
        execute(prepared, Silent())


def test_without_a_bound_or_a_price_the_cost_says_so(tmp_path: Path) -> None:
    assert "sampler.max_tokens would bound it" in priced(tmp_path)
    assert "cost: unknown; set sampler.price" in priced(tmp_path, price=None, max_tokens=5)
