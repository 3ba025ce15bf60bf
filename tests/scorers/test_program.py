"""`program`: right candidates pass, wrong ones fail, tests at fault leave them undecided."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import pytest
from pydantic import JsonValue

from labelkit.records import Abstention, Reply, Score, Task, Verdict
from labelkit.scorers import Binding
from labelkit.scorers.program import ProgramScorer, ProgramSettings
from labelkit.seams import Draw

NO_DRAW = cast(Draw, None)
ADD: dict[str, JsonValue] = {
    "entry_point": "add",
    "tests": "assert add(1, 2) == 3\nassert add(-1, 1) == 0",
}

Judge = Callable[..., Awaitable[Verdict]]


def bind(unsafe: bool = False, **settings: Any) -> ProgramScorer:
    limits = {"timeout_s": 20.0, **settings}
    return ProgramSettings(**limits).bind(
        Binding(folder=Path(), processes=2, unsafe_no_sandbox=unsafe)
    )


async def judge(gold: Any, code: str, *, fenced: bool = True, **settings: Any) -> Verdict:
    text = f"Here:\n```python\n{code}\n```\n" if fenced else code
    task = Task(id="t1", prompt="Write it.", gold=gold)
    scorer = bind(**settings)
    assert scorer.check_gold(task) is None
    return await scorer.score(task, Reply(text=text), NO_DRAW)


async def passes(gold: Any, code: str, **settings: Any) -> bool:
    verdict = await judge(gold, code, **settings)
    assert isinstance(verdict, Score), verdict
    return verdict.passed


async def test_verdict_carries_code_span_and_rule() -> None:
    verdict = await judge(ADD, "def add(a, b):\n    return a + b")
    assert isinstance(verdict, Score)
    assert verdict.answer == "def add(a, b):\n    return a + b"
    assert verdict.span is not None
    assert verdict.rule == "code:last · tests"
    assert (verdict.value, verdict.passed, verdict.reason) == (1.0, True, None)


async def test_failure_names_the_test_that_failed() -> None:
    verdict = await judge(ADD, "def add(a, b):\n    return a + b if a > 0 else 7")
    assert isinstance(verdict, Score)
    assert not verdict.passed
    assert verdict.reason == "AssertionError, at: assert add(-1, 1) == 0"


async def test_cut_reply_and_reply_without_the_function_are_no_answer() -> None:
    scorer = bind()
    task = Task(id="t1", prompt="p", gold=cast(JsonValue, ADD))
    code = "```python\ndef add(a, b):\n    return a + b\n```"
    for reply in (Reply(text=code, cut=True), Reply(text="Use `+`."), Reply(text="")):
        verdict = await scorer.score(task, reply, NO_DRAW)
        assert isinstance(verdict, Score)
        assert verdict.no_answer
        assert not verdict.passed


@pytest.mark.parametrize(
    ("name", "tests", "code"),
    [
        ("tuple", "assert f() == (1, [2])", "def f(): return (1, [2])"),
        ("nan", "r = f()\nassert r != r", "def f(): return float('nan')"),
        ("set", "assert f({1}) == {1, 2}", "def f(s): return s | {2}"),
        ("int keys", "assert f() == {1: 'a', (2, 3): 0}", "def f(): return {1: 'a', (2, 3): 0}"),
        ("big", "assert f(2**70) == 2**140", "def f(n): return n * n"),
        ("bytes", "assert f(b'ab') == b'ba'", "def f(b): return b[::-1]"),
        ("keywords", "assert f(1, b=2) == 3", "def f(a, *, b): return a + b"),
        ("raises",
         "try:\n    f()\n    assert False\nexcept ValueError as e:\n    assert str(e) == 'no'",
         "class Bad(ValueError): pass\ndef f(): raise Bad('no')"),
        ("in place", "x = [3, 1]\nf(x)\nassert x == [1, 3]", "def f(x): x.sort()"),
        ("generator", "assert list(f(3)) == [0, 1, 2]", "def f(n):\n    yield from range(n)"),
        ("endless", "g = f()\nassert [next(g), next(g)] == [0, 1]",
         "import itertools\ndef f(): return itertools.count()"),
        ("callback", "assert f(lambda x: x + 1, 2) == 3", "def f(g, x): return g(x)"),
        ("closure", "assert f(2)(3) == 5", "def f(a): return lambda b: a + b"),
        ("class", "s = F()\ns.push(4)\nassert s.pop() == 4\nassert len(s) == 0",
         "class F:\n    def __init__(self): self.x = []\n    def push(self, v): self.x.append(v)\n"
         "    def pop(self): return self.x.pop()\n    def __len__(self): return len(self.x)"),
        ("dataclass", "assert F(1) == F(1) and F(1) != F(2) and F(3).a == 3",
         "from dataclasses import dataclass\n@dataclass\nclass F:\n    a: int"),
        ("async", "import asyncio\nassert asyncio.run(f(1)) == 2", "async def f(x): return x + 1"),
        ("check", "def check(candidate):\n    assert candidate(1) == 2", "def f(x): return x + 1"),
        ("pytest style", "def test_f():\n    assert f(1) == 2", "def f(x): return x + 1"),
        ("unittest", "import unittest\nclass T(unittest.TestCase):\n    def test(self):\n"
         "        self.assertEqual(f(2), 4)\nunittest.main()", "def f(x): return x * x"),
        ("prints", "assert f() == 1", "def f():\n    print('x' * 99)\n    return 1"),
        ("recursion", "assert f(5) == 120", "def f(n): return 1 if n < 2 else n * f(n - 1)"),
        ("global state", "f()\nassert f() == 2",
         "n = 0\ndef f():\n    global n\n    n += 1\n    return n"),
    ],
)  # fmt: skip
async def test_right_candidates_pass(name: str, tests: str, code: str) -> None:
    entry_point = "F" if "F(" in tests else "f"
    assert await passes({"entry_point": entry_point, "tests": tests}, code)


@pytest.mark.parametrize(
    ("tests", "code"),
    [
        ("assert f() == (1, 2)", "def f(): return [1, 2]"),
        ("assert f() == [1, 2]", "def f(): return iter([1, 2])"),
        ("def check(candidate):\n    assert candidate(1) == 2", "def f(x): return x"),
        ("def test_f():\n    assert f(1) == 2", "def f(x): return x"),
        ("import unittest\nclass T(unittest.TestCase):\n    def test(self):\n"
         "        self.assertEqual(f(2), 4)", "def f(x): return x"),
        ("assert f(1)", "async def f(x): return 1"),
        ("f()", "def f(): raise KeyError('x')"),
        ("assert f()", "def f(): raise NameError('x')"),
    ],
)  # fmt: skip
async def test_wrong_candidates_fail(tests: str, code: str) -> None:
    assert not await passes({"entry_point": "f", "tests": tests}, code)


async def test_hidden_tests_decide_too() -> None:
    gold = {**ADD, "hidden_tests": "assert add(5, 6) == 11"}
    assert await passes(gold, "def add(a, b): return a + b")
    assert not await passes(gold, "def add(a, b): return {(1, 2): 3, (-1, 1): 0}[(a, b)]")


async def test_prelude_serves_candidate_and_tests() -> None:
    prelude = "import math\ndef twice(x): return 2 * x\ndef f(x):\n    '''Say what f does.'''\n"
    gold = {"entry_point": "f", "prelude": prelude, "tests": "assert f(3) == twice(3) + math.pi"}
    assert await passes(gold, "def f(x): return twice(x) + math.pi")
    assert await passes(gold, "    return twice(x) + math.pi", fenced=False)
    assert await passes(gold, "return twice(x) + math.pi", fenced=False)
    assert not await passes(gold, "    return twice(x)", fenced=False)


async def test_prompt_may_be_the_prelude() -> None:
    task = Task(id="t", prompt="def f(x):\n    '''Double.'''\n", gold="assert f(2) == 4")
    verdict = await bind(prelude="prompt").score(task, Reply(text="    return 2 * x"), NO_DRAW)
    assert isinstance(verdict, Score)
    assert verdict.passed


@pytest.mark.parametrize(
    ("case", "code", "right"),
    [
        ([[1, 2], 3], "def f(a, b): return a + b", True),
        ([[1, 2], 3], "def f(a, b): return float(a + b)", True),
        ([[1, 2], 3], "def f(a, b): return a - b", False),
        ([[], [1, 2]], "def f(): return (1, 2)", True),
        ([[], [1, 2]], "def f(): return [1, 2, 3]", False),
        ([[], {"a": [None]}], "def f(): return {'a': [None]}", True),
        ([[], {"1": 2}], "def f(): return {1: 2}", False),
        ([[], True], "def f(): return 1", False),
        ([[], 1], "def f(): return True", False),
        ([[], 10**30], "def f(): return 10**30", True),
        ([[], 0.3], "def f(): return 0.1 + 0.2", False),
        ({"args": [2], "kwargs": {"b": 1}, "expected": 3}, "def f(a, b): return a + b", True),
        ({"args": [2], "raises": "ValueError"}, "def f(a): raise ValueError", True),
        ({"args": [2], "raises": "ValueError"}, "def f(a): return 1", False),
    ],
)
async def test_cases_compare_json_values(case: JsonValue, code: str, right: bool) -> None:
    assert await passes({"entry_point": "f", "cases": [case]}, code) is right


async def test_tolerance_of_cases_is_a_setting() -> None:
    gold: JsonValue = {"entry_point": "f", "cases": [[[], 0.3]]}
    assert await passes(gold, "def f(): return 0.1 + 0.2", tolerance=1e-9)


async def test_stdin_tests_compare_what_is_printed() -> None:
    gold: JsonValue = {
        "stdin_tests": [
            {"stdin": "3\n", "stdout": "1 2 3\n"},
            {"stdin": "1\n", "stdout": "1"},
        ]
    }
    head = "n = int(input())\n"
    main = "def main():\n    print(*range(1, int(input()) + 1))\n"
    main += "if __name__ == '__main__':\n    main()"
    assert await passes(gold, main)
    assert await passes(gold, head + "print(*range(1, n + 1), end=' \\r\\n\\n')")
    assert not await passes(gold, head + "print(*range(1, n + 1), sep='\\n')")
    assert not await passes(gold, head + "print(1, 2, 3)")
    assert not await passes(gold, head + "print(*range(1, n + 1))\nraise ValueError")
    assert not await passes(
        gold, head + "print(*range(1, n + 1), flush=True)\nwhile n: pass", timeout_s=1.0
    )


@pytest.mark.parametrize(
    ("gold", "reason"),
    [
        ({"entry_point": "f", "tests": "assert undefined_helper(f(1))"}, "undefined_helper"),
        ({"entry_point": "f", "tests": "import no_such_module"}, "no_such_module"),
        ({"entry_point": "f", "tests": "assert True"}, "never called"),
        ({"entry_point": "f", "tests": "assert f(1) == 1", "prelude": "1 / 0"}, "ZeroDivision"),
        ({"entry_point": "f", "tests": "class A: pass\nf(A())"}, "A object cannot be handed"),
        ({"entry_point": "f", "tests": "f(1)\nwhile True: pass"}, "took more than"),
    ],
)
async def test_tests_that_cannot_be_carried_out_leave_it_undecided(
    gold: JsonValue, reason: str
) -> None:
    verdict = await judge(gold, "def f(x): return x", timeout_s=2.0)
    assert isinstance(verdict, Abstention)
    assert reason in verdict.reason


@pytest.mark.parametrize(
    ("gold", "problem"),
    [
        (None, "a mapping with `tests`"),
        (1, "a mapping with `tests`"),
        ({}, "exactly one"),
        ({"entry_point": "f"}, "exactly one"),
        ({"entry_point": "f", "tests": ""}, "exactly one"),
        ({"tests": "assert f(1)", "cases": [[[1], 2]]}, "exactly one"),
        ({"entry_point": "f", "tests": "assert f(1"}, "tests.py is not Python"),
        ({"entry_point": "f", "tests": "f()", "hidden_tests": "f(("}, "hidden_tests.py"),
        ({"entry_point": "f", "tests": "f()", "prelude": "def"}, "prelude is not Python"),
        ({"tests": "assert f(g(1))"}, "entry_point"),
        ({"entry_point": "f", "test_cases": []}, "test_cases: unknown key"),
        ({"tests": 3}, "tests: 3: should be text or a list"),
        ({"cases": [[[1], 2]]}, "entry_point"),
        ({"stdin_tests": [{"stdin": "3"}]}, "stdout"),
    ],
)
def test_faults_of_golds_are_told(gold: JsonValue, problem: str) -> None:
    told = bind().check_gold(Task(id="t", prompt="p", gold=gold))
    assert told is not None
    assert problem in told


@pytest.mark.parametrize(
    "gold",
    ["assert add(1, 2) == 3", ["assert add(1, 2) == 3", "assert set([add(0, 1)]) == {1}"]],
)
async def test_entry_point_is_read_off_the_tests(gold: JsonValue) -> None:
    assert await passes(gold, "def add(a, b): return a + b")


async def test_without_sandbox_it_says_so_and_still_limits(
    caplog: pytest.LogCaptureFixture,
) -> None:
    walled, bare = bind().fingerprint, bind(unsafe=True).fingerprint
    assert (walled["sandbox"], bare["sandbox"]) == ("bubblewrap", "none")
    assert "--unsafe-no-sandbox" in caplog.text
    honest = "def add(a, b):\n    return a + b\n"
    assert await passes(ADD, honest, unsafe=True)
    assert not await passes(ADD, "def add(a, b): return 0", unsafe=True)
    assert not await passes(ADD, honest + "x = bytearray(64 * 1024**3)", unsafe=True)
    assert not await passes(ADD, "def add(a, b):\n    while True: pass", unsafe=True, timeout_s=1.0)
