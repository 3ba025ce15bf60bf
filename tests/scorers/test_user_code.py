"""`python` and `verl`: what a user's reward function gets, what it may return, what faults cost."""

from __future__ import annotations

import textwrap
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import pytest
from pydantic import JsonValue, ValidationError

from labelkit.errors import UsageError
from labelkit.records import Abstention, Reply, Score, Task, Verdict
from labelkit.sandbox.pool import WorkerDiedError, WorkerError, WorkerLateError
from labelkit.scorers import Binding
from labelkit.scorers.user_code import PythonSettings, RewardError, VerlSettings, code_hashes
from labelkit.seams import Draw, Scorer

NO_DRAW = cast(Draw, None)
TASK = Task(
    id="t1",
    prompt="What is 2+2?",
    gold="4",
    metadata={"data_source": "openai/gsm8k", "extra_info": {"split": "train"}},
)

Bind = Callable[..., Scorer]
Judge = Callable[..., Awaitable[Verdict]]


@pytest.fixture
async def bind(tmp_path: Path) -> AsyncIterator[Bind]:
    """Binds a scorer to the given source of reward.py; closes what it bound."""
    bound: list[Scorer] = []

    def make(
        source: str, kind: type[PythonSettings | VerlSettings] = PythonSettings, **more: Any
    ) -> Scorer:
        (tmp_path / "reward.py").write_text(textwrap.dedent(source))
        settings = kind(**{"function": "reward.py:score", **more})
        bound.append(settings.bind(Binding(folder=tmp_path, allow_code=True, processes=1)))
        return bound[-1]

    yield make
    for scorer in bound:
        await scorer.close()


@pytest.fixture
def judge(bind: Bind) -> Judge:
    async def run(source: str, text: str = "4", **more: Any) -> Verdict:
        return await bind(source, **more).score(TASK, Reply(text=text), NO_DRAW)

    return run


async def test_function_sees_the_reply_the_gold_and_the_task(bind: Bind) -> None:
    scorer = bind("""
        def score(attempt, gold, task):
            assert attempt.text == "4" and attempt.reasoning == "easy"
            assert attempt.parsed == {"a": 1} and attempt.finish_reason == "stop"
            assert attempt.tool_calls[0].name == "add" and attempt.index == 3
            assert gold == "4"
            assert (task.id, task.prompt, task.metadata["data_source"]) == (
                "t1", "What is 2+2?", "openai/gsm8k")
            return True
    """)
    reply = Reply.model_validate(
        {
            "text": "4",
            "reasoning": "easy",
            "parsed": {"a": 1},
            "finish_reason": "stop",
            "tool_calls": [{"name": "add", "arguments": "{}"}],
            "index": 3,
        }
    )
    assert await scorer.score(TASK, reply, NO_DRAW) == Score(value=1.0, passed=True)


@pytest.mark.parametrize(
    ("body", "verdict"),
    [
        ("return True", Score(value=1.0, passed=True)),
        ("return False", Score(value=0.0, passed=False)),
        ("return 1", Score(value=1.0, passed=True)),
        ("return 0.5", Score(value=0.5, passed=True)),
        ("return 0.49", Score(value=0.49, passed=False)),
        (
            "return {'value': 0.9, 'passed': False, 'reason': 'late'}",
            Score(value=0.9, passed=False, reason="late"),
        ),
        (
            "from labelkit.records import Score; return Score(value=0.2, passed=True, answer='4')",
            Score(value=0.2, passed=True, answer="4"),
        ),
        (
            "from labelkit.records import Abstention; return Abstention(reason='too long')",
            Abstention(reason="too long"),
        ),
    ],
)
async def test_return_values_become_verdicts(judge: Judge, body: str, verdict: Verdict) -> None:
    assert await judge(f"def score(attempt, gold):\n    {body}") == verdict


@pytest.mark.parametrize(
    "body",
    [
        "return 1.5",
        "return -0.1",
        "return float('nan')",
        "return float('inf')",
        "return None",
        "return 'yes'",
        "return [1.0]",
        "return object()",
        "return {'passed': True}",
        "return {'value': 2}",
        "return {'value': 1.0, 'pased': True}",
    ],
)
async def test_what_is_no_verdict_is_a_fault_and_never_clamped(judge: Judge, body: str) -> None:
    with pytest.raises((RewardError, WorkerError)):
        await judge(f"def score(attempt, gold):\n    {body}")


async def test_pass_threshold_and_range(judge: Judge) -> None:
    source = "def score(attempt, gold): return 0.5"
    assert await judge(source, pass_threshold=0.6) == Score(value=0.5, passed=False)
    assert await judge(source, range=[-1.0, 1.0]) == Score(value=0.75, passed=True)
    with pytest.raises(ValidationError, match="must rise"):
        PythonSettings(function="reward.py:score", range=(1.0, 1.0))


async def test_async_function_is_awaited(judge: Judge) -> None:
    source = """
        import asyncio
        async def score(attempt, gold):
            await asyncio.sleep(0)
            return attempt.text == gold
    """
    assert await judge(source) == Score(value=1.0, passed=True)


async def test_hung_function_costs_its_wall_clock_and_one_worker(bind: Bind) -> None:
    scorer = bind(
        """
        def score(attempt, gold):
            while attempt.text == "hang":
                pass
            return True
        """,
        timeout_s=0.3,
    )
    assert await scorer.score(TASK, Reply(text="4"), NO_DRAW) == Score(value=1.0, passed=True)
    start = time.monotonic()
    with pytest.raises(WorkerLateError, match=r"0\.3 s"):
        await scorer.score(TASK, Reply(text="hang"), NO_DRAW)
    assert time.monotonic() - start < 5
    assert await scorer.score(TASK, Reply(text="4"), NO_DRAW) == Score(value=1.0, passed=True)


async def test_raised_error_names_type_and_place(judge: Judge) -> None:
    with pytest.raises(WorkerError, match=r"ZeroDivisionError: division by zero \(reward\.py:2\)"):
        await judge("def score(attempt, gold):\n    return 1 / 0\n")


async def test_exit_is_a_fault_and_not_a_verdict(judge: Judge) -> None:
    with pytest.raises(WorkerDiedError):
        await judge("import os\ndef score(attempt, gold): os._exit(0)")


async def test_prints_do_not_reach_the_protocol(judge: Judge) -> None:
    source = """
        import os, sys
        print('{"value": 0}')
        def score(attempt, gold):
            print("thinking"); sys.stdout.flush(); os.write(1, b"ok 0.0\\n")
            return True
    """
    assert await judge(source) == Score(value=1.0, passed=True)


async def test_file_imports_its_neighbours(judge: Judge, tmp_path: Path) -> None:
    (tmp_path / "neighbour.py").write_text("def same(a, b): return a == b")
    source = "import neighbour\ndef score(attempt, gold): return neighbour.same(attempt.text, gold)"
    assert await judge(source) == Score(value=1.0, passed=True)


async def test_verl_function_is_called_as_verl_does(bind: Bind) -> None:
    scorer = bind(
        """
        def score(data_source, solution_str, ground_truth, extra_info=None):
            assert data_source == "openai/gsm8k" and ground_truth == "4"
            assert extra_info == {"split": "train", "index": 2}
            return {"score": float(solution_str == ground_truth), "acc": True, "pred": "4"}
        """,
        VerlSettings,
    )
    verdict = await scorer.score(TASK, Reply(text="4", index=2), NO_DRAW)
    assert verdict == Score(value=1.0, passed=True, detail={"acc": True, "pred": "4"})


async def test_verl_number_and_range(judge: Judge) -> None:
    source = "def score(data_source, solution_str, ground_truth, extra_info): return -1"
    verdict = await judge(source, kind=VerlSettings, range=[-1.0, 1.0])
    assert verdict == Score(value=0.0, passed=False)
    with pytest.raises(RewardError, match=r"-1, outside \[0, 1\]"):
        await judge(source, kind=VerlSettings)


async def test_verl_object_without_score_is_a_fault(judge: Judge) -> None:
    source = "def score(data_source, solution_str, ground_truth, extra_info): return {'acc': 1}"
    with pytest.raises(RewardError, match="no `score`"):
        await judge(source, kind=VerlSettings)


def test_code_needs_allow_code(tmp_path: Path) -> None:
    for kind in (PythonSettings, VerlSettings):
        with pytest.raises(UsageError) as caught:
            kind(function="reward.py:score").bind(Binding(folder=tmp_path))
        assert "--allow-code" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (None, "does not exist"),
        ("def score(attempt, gold) return 1", "SyntaxError"),
        ("import no_such_module_here\ndef score(attempt, gold): return 1", "no_such_module_here"),
        ("def other(attempt, gold): return 1", "score"),
        ("score = 3", "not a function"),
        ("def score(attempt): return 1", "too many positional"),
        ("def score(attempt, gold, *, strict): return 1", "strict"),
    ],
)
def test_faults_of_the_file_are_told_when_it_is_bound(
    tmp_path: Path, source: str | None, message: str
) -> None:
    if source is not None:
        (tmp_path / "reward.py").write_text(source)
    with pytest.raises(UsageError, match=message):
        PythonSettings(function="reward.py:score").bind(Binding(folder=tmp_path, allow_code=True))


def test_short_form_needs_a_file_and_a_function() -> None:
    with pytest.raises(ValidationError):
        PythonSettings(function="reward.py")


def test_fingerprint_changes_with_the_code_and_what_it_imports_only(tmp_path: Path) -> None:
    def hashes() -> dict[str, JsonValue]:
        return code_hashes(tmp_path / "reward.py")

    package = tmp_path / "rules"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "sums.py").write_text("from . import terms\n")
    (package / "terms.py").write_text("")
    (tmp_path / "unrelated.py").write_text("")
    (tmp_path / "reward.py").write_text("def score(a, g):\n    from rules.sums import x\n")
    before = hashes()
    assert list(before) == ["reward.py", "rules/__init__.py", "rules/sums.py", "rules/terms.py"]
    (tmp_path / "unrelated.py").write_text("x = 1")
    assert hashes() == before
    (package / "terms.py").write_text("x = 1")
    assert hashes() != before


def test_fingerprint_of_the_scorer_carries_code_and_settings(bind: Bind) -> None:
    first = bind("def score(a, g): return 1").fingerprint
    assert first != bind("def score(a, g): return 0").fingerprint
    assert first != bind("def score(a, g): return 1", pass_threshold=0.9).fingerprint
    assert first == bind("def score(a, g): return 1").fingerprint
