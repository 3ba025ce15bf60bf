"""Gates: what they read, what decides them, and how each bad expression is refused."""

from __future__ import annotations

import operator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from labelkit.errors import UsageError
from labelkit.gates import check_key, parse_gate

SUMMARY: dict[str, JsonValue] = {
    "pass_rate": 0.6,
    "pass_rate_interval": [0.41, 0.79],
    "mean_value": None,
    "n_unscored": 0,
    "unscored": {"timeout": 2},
    "stopped_early": False,
    "name": "muffins",
    "tasks": {"in": 12, "kept": 10, "dropped": {"saturated": 2}},
    "pass_at_k": {"1": 0.6, "4": 0.9},
    "slices": {"gsm8k": {"pass_rate": 0.5}, "a.b": {"pass_rate": 0.25}, "two words": {"n": 3}},
    "tokens": 12345678901234567890,
}


def holds(expr: str) -> bool:
    return parse_gate(expr).judge(SUMMARY).holds


@pytest.mark.parametrize(
    ("expr", "actual", "expected"),
    [
        ("pass_rate >= 0.6", 0.6, True),
        ("pass_rate > 0.6", 0.6, False),
        ("pass_rate <= .6", 0.6, True),
        ("pass_rate < 6e-1", 0.6, False),
        ("n_unscored == 0", 0, True),
        ("n_unscored != 0", 0, False),
        ("  tasks.kept>=10  ", 10, True),
        ("pass_at_k.1 > 0.5", 0.6, True),
        ("slices.gsm8k.pass_rate >= 0.5", 0.5, True),
        ('slices."a.b".pass_rate >= 0.5', 0.25, False),
        ('slices."two words".n == 3', 3, True),
        ("pass_rate_interval.0 > 0.4", 0.41, True),
        ("n_unscored > -1", 0, True),
        ("tokens == 12345678901234567890", 12345678901234567890, True),
        ("tokens == 12345678901234567891", 12345678901234567890, False),
    ],
)
def test_gate_reads_the_summary(expr: str, actual: float, expected: bool) -> None:
    result = parse_gate(expr).judge(SUMMARY)
    assert result.as_json() == {"expr": expr.strip(), "actual": actual, "holds": expected}
    assert result.problem is None


@pytest.mark.parametrize("op", [">=", "<=", ">", "<", "==", "!="])
def test_null_never_holds(op: str) -> None:
    assert parse_gate(f"mean_value {op} 0").judge(SUMMARY).as_json() == {
        "expr": f"mean_value {op} 0",
        "actual": None,
        "holds": False,
    }


def test_a_part_of_null_is_null() -> None:
    result = parse_gate("pass_rate_interval.0 > 0").judge({"pass_rate_interval": None})
    assert (result.actual, result.holds, result.problem) == (None, False, None)


@pytest.mark.parametrize(
    ("expr", "problem"),
    [
        ("stopped_early == 0", "`stopped_early` is not a number"),
        ("name != 0", "`name` is not a number"),
        ("tasks > 0", "`tasks` is not a number"),
        ("pass_rte >= 0", "there is no `pass_rte`; did you mean `pass_rate`?"),
        ("slices.gsm8.pass_rate >= 0", "there is no `slices.gsm8`; did you mean `gsm8k`?"),
        ('slices."x.y".pass_rate >= 0', 'there is no `slices."x.y"`'),
        ("pass_rate_interval.2 >= 0", "there is no `pass_rate_interval.2`"),
        ("pass_rate.mean >= 0", "there is no `pass_rate.mean`"),
    ],
)
def test_what_is_no_number_does_not_hold_and_says_why(expr: str, problem: str) -> None:
    result = parse_gate(expr).judge(SUMMARY)
    assert (result.actual, result.holds, result.problem) == (None, False, problem)


def test_a_reason_that_did_not_occur_was_counted_zero_times() -> None:
    assert holds("unscored.timeout == 2")
    assert holds("unscored.provider_error == 0")
    assert holds("tasks.dropped.hopeless == 0")
    assert not holds("tasks.hopeless == 0")


def judged(expr: str, *pass_rates: float | None) -> tuple[float | None, bool]:
    gate = parse_gate(expr)
    assert gate.per_task
    for rate in pass_rates:
        gate.feed({"id": "t", "pass_rate": rate})
    result = gate.judge(SUMMARY)
    return result.actual, result.holds


def test_every_task_is_decided_by_the_worst_task() -> None:
    assert judged("every_task.pass_rate >= 0.5", 0.75, 0.5, 1.0) == (0.5, True)
    assert judged("every_task.pass_rate >= 0.5", 0.75, 0.25, 0.0, 1.0) == (0.0, False)
    assert judged("every_task.pass_rate < 1", 0.75, 1.0, 0.0) == (1.0, False)
    assert judged("every_task.pass_rate == 1", 1.0, 0.75) == (0.75, False)
    assert judged("every_task.pass_rate != 0", 0.5, 0.0) == (0.0, False)


def test_any_task_is_decided_by_the_best_task() -> None:
    assert judged("any_task.pass_rate > 0", 0.0, 0.25, 0.0) == (0.25, True)
    assert judged("any_task.pass_rate > 0.5", 0.0, 0.25) == (0.25, False)
    assert judged("any_task.pass_rate == 0", 0.5, 0.0) == (0.0, True)


def test_a_task_without_a_rate_fails_every_and_is_passed_over_by_any() -> None:
    assert judged("every_task.pass_rate >= 0", 1.0, None, 0.5) == (None, False)
    assert judged("every_task.pass_rate >= 0", None, 0.5) == (None, False)
    assert judged("any_task.pass_rate >= 0.5", None, 0.5, None) == (0.5, True)
    assert judged("any_task.pass_rate >= 0.5", None, None) == (None, False)


def test_a_run_without_tasks_fails_both() -> None:
    assert judged("every_task.pass_rate >= 0") == (None, False)
    assert judged("any_task.pass_rate >= 0") == (None, False)


OPERATORS = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
    "==": operator.eq,
    "!=": operator.ne,
}


@given(
    op=st.sampled_from(sorted(OPERATORS)),
    bound=st.sampled_from([0.0, 0.3, 0.5, 1.0]),
    rates=st.lists(st.floats(0, 1) | st.sampled_from([0.0, 0.3, 0.5, 1.0]), min_size=1),
)
def test_per_task_gates_agree_with_every_and_any(op: str, bound: float, rates: list[float]) -> None:
    answers = [OPERATORS[op](rate, bound) for rate in rates]
    assert judged(f"every_task.pass_rate {op} {bound}", *rates)[1] == all(answers)
    assert judged(f"any_task.pass_rate {op} {bound}", *rates)[1] == any(answers)


@pytest.mark.parametrize(
    ("expr", "fault", "fix"),
    [
        ("", "does not start with a key", "pass_rate >= 0.6"),
        (">= 0.5", "does not start with a key", "pass_rate >= 0.6"),
        ("pass_rate", "has no operator after `pass_rate`", ">= <= > < == !="),
        ("pass_rate 0.5", "has no operator after `pass_rate`", ">="),
        ("pass rate >= 0.5", "has no operator after `pass`", ">="),
        ("pass_rate = 0.5", "has the operator `=`", "write =="),
        ("pass_rate => 0.5", "has the operator `=>`", "write >="),
        ("pass_rate≥0.5", "has the operator `≥`", "write >="),
        ("pass_rate ~ 0.5", "has the operator `~`", "use >= <="),
        ("pass_rate >=", "ends without a number", "pass_rate >= 0.6"),
        ("pass_rate >= half", "has `half` where a number belongs", "pass_rate >= 0.6"),
        ("pass_rate >= 60%", "has `60%` where a number belongs", "write 0.6"),
        ("pass_rate >= nan", "has `nan` where a number belongs", "pass_rate >= 0.6"),
        ("pass_rate >= 1e999", "number out of range: 1e999", "pass_rate >= 0.6"),
        (
            "pass_rate >= true",
            "has `true` where a number belongs",
            "only be compared with a number",
        ),
        ("pass_rate >= 0.5 and k > 3", "where a number belongs", "one comparison a gate"),
        ("0.2 < pass_rate", "has a number where the key belongs", "write the key first"),
        ("pass_rate. >= 0.5", "has a dot with no name behind it", "pass_rate >= 0.6"),
        ("every_task >= 0.5", "names no key", "every_task.pass_rate >= 0.5"),
        (r'slices."\q".n > 1', "has a bad escape", r"only \" and \\"),
        ('slices."a.b > 1', "has a dot with no name behind it", "pass_rate >= 0.6"),
    ],
)
def test_bad_expressions_name_the_fault_and_the_fix(expr: str, fault: str, fix: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_gate(expr)
    assert f"gate `{expr.strip()}`" in str(caught.value)
    assert fault in str(caught.value)
    assert fix in (caught.value.hint or "")


@given(expr=st.text(max_size=30))
def test_any_text_is_a_gate_or_a_usage_error(expr: str) -> None:
    try:
        gate = parse_gate(expr)
    except UsageError:
        return
    assert not gate.judge({}).holds


def test_unknown_keys_are_found_before_the_run() -> None:
    known = ["pass_rate", "n_unscored", "tasks.kept", "slices.*.pass_rate", "pass_at_k.*"]
    for expr in ("pass_rate >= 0", 'slices."a.b".pass_rate > 0', "pass_at_k.8 > 0"):
        assert check_key(parse_gate(expr), known) is None
    fault = check_key(parse_gate("pas_rate >= 0.5"), known)
    assert fault is not None
    assert str(fault) == (
        "gate `pas_rate >= 0.5`: there is no number `pas_rate` (did you mean `pass_rate`?)"
    )
    far = check_key(parse_gate("slices.gsm8k.zzzzzzzzzzzzzz >= 0.5"), known)
    assert far is not None
    assert "pass_rate, n_unscored" in str(far)


def test_keys_of_per_task_gates_are_those_of_a_task() -> None:
    gate = parse_gate("every_task.pass_rate >= 0.5")
    assert check_key(gate, ["n_passed", "pass_rate"]) is None
    assert check_key(gate, ["n_passed"]) is not None
