"""The live display, driven as a run drives it."""

from __future__ import annotations

import asyncio
import io
import time
import tracemalloc
from typing import Any

import pytest

from labelkit.limits import EndpointState
from labelkit.records import Attempt, DrawKey, NotRun, Outcome, Sampled, Score, Task
from labelkit.report.live import MAX_ROWS, Counts, display, limits_text


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class OneEndpoint:
    def __init__(self, *states: EndpointState) -> None:
        self._states = states

    def snapshot(self) -> tuple[EndpointState, ...]:
        return self._states


FLEETS: Any = {"policy": OneEndpoint(EndpointState("ok", 12, 9, 3, "429 at 16 in flight"))}


def attempt(task_id: str, index: int, passed: bool | None) -> Attempt:
    key = DrawKey(task_id=task_id, stage="candidate", request="r", sample_index=index)
    if passed is None:
        return Attempt(sampled=Sampled(key=key), stop_reason="timeout")
    score = Score(value=float(passed), passed=passed)
    return Attempt(sampled=Sampled(key=key), stop_reason="completed", score=score)


def outcome(task_id: str, *attempts: Attempt) -> Outcome:
    planned = len(attempts)
    return Outcome(task_id=task_id, status="kept", attempts=attempts, planned=planned)


def do_task(progress: Any, task_id: str) -> None:
    task = Task(id=task_id, prompt="p")
    made = (attempt(task_id, 0, True), attempt(task_id, 1, False))
    for each in made:
        progress.attempt(task, each)
        progress.spent(0.25, 100)
    progress.task(outcome(task_id, *made))


async def test_piped_output_is_plain_lines_with_a_final_one() -> None:
    stream = io.StringIO()
    with display(quiet=False, stream=stream) as progress:
        progress.start(2, 2, FLEETS)
        progress.message("--from holds \x1b[31m3 draws")
        do_task(progress, "a")
        do_task(progress, "b")
        progress.finish()
    first, final = stream.getvalue().splitlines()
    assert first == "--from holds 3 draws"
    assert final.startswith("4/4 draws · 2/2 tasks · 50.0% passed")
    assert "$1.00" in final


async def test_the_session_s_money_includes_the_pilot_s() -> None:
    stream = io.StringIO()
    with display(quiet=False, stream=stream) as progress:
        for n_tasks in (1, 2):
            progress.start(n_tasks, 2, FLEETS)
            progress.spent(0.25, 10)
            progress.finish()
    pilot, whole = stream.getvalue().splitlines()
    assert "$0.25 in this session" in pilot
    assert "$0.50 in this session" in whole


async def test_quiet_says_nothing() -> None:
    stream = io.StringIO()
    with display(quiet=True, stream=stream) as progress:
        progress.start(2, 2, FLEETS)
        progress.message("anything")
        do_task(progress, "a")
        progress.finish()
    assert stream.getvalue() == ""


async def test_a_terminal_shows_glyphs_limits_and_nothing_hostile() -> None:
    stream = Terminal()
    with display(quiet=False, stream=stream) as progress:
        progress.start(100, 2, FLEETS)
        for number in range(30):
            do_task(progress, f"task{number}\x1b]0;owned\x07")
        progress.attempt(Task(id="going", prompt="p"), attempt("going", 0, None))
        await asyncio.sleep(0.6)
        progress.finish()
    shown = stream.getvalue()
    assert "█░" in shown
    assert "going                 ▲" in shown
    assert "9/12 in flight (429 at 16 in flight)" in shown
    assert "owned" not in shown
    assert "task29" in shown
    assert "task3 " not in shown


async def test_a_message_stands_above_the_grid() -> None:
    stream = Terminal()
    with display(quiet=False, stream=stream) as progress:
        progress.start(1, 2, FLEETS)
        progress.message("[bold]stopping[/bold]")
        progress.finish()
    assert "[bold]stopping[/bold]" in stream.getvalue()


async def test_a_run_that_never_started_only_says_its_message() -> None:
    stream = io.StringIO()
    with display(quiet=False, stream=stream) as progress:
        progress.message("complete, nothing to do")
    assert stream.getvalue() == "complete, nothing to do\n"


def test_memory_does_not_grow_with_finished_tasks() -> None:
    counts = Counts(10**6, 2, 0.0)

    def do(numbers: range) -> None:
        for number in numbers:
            made = (attempt(f"t{number}", 0, True), attempt(f"t{number}", 1, True))
            for each in made:
                counts.attempt(f"t{number}", each)
            counts.task(outcome(f"t{number}", *made))
            counts.mark(number * 1.5)

    do(range(1_000))
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    do(range(1_000, 6_000))
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 20_000
    assert len(counts.rows(1_000)) == MAX_ROWS


def test_counting_an_attempt_draws_nothing_and_is_cheap() -> None:
    counts = Counts(10**6, 2, 0.0)
    made = attempt("t", 0, True)
    begun = time.process_time()
    for _ in range(20_000):
        counts.attempt("t", made)
    assert (time.process_time() - begun) / 20_000 < 100e-6


def test_time_left_follows_the_recent_speed_not_what_was_read_back() -> None:
    counts = Counts(100, 1, now_s=0.0)
    for number in range(50):
        counts.task(outcome(f"t{number}", attempt(f"t{number}", 0, True)))
    counts.spent(None, 10, now_s=10.0)
    for second in range(1, 11):
        counts.task(outcome(f"u{second}", attempt(f"u{second}", 0, True)))
        counts.spent(None, 10, now_s=10.0 + second)
        counts.mark(10.0 + second)
    assert "60/100 draws" in counts.status(20.0)
    assert "1.0 draws/s" in counts.status(20.0)
    assert "ETA 40 s" in counts.status(20.0)


def test_draws_that_a_decision_made_superfluous_count_as_done() -> None:
    counts = Counts(2, 8, now_s=0.0)
    counts.task(outcome("a", attempt("a", 0, True), attempt("a", 1, False)))
    assert counts.done == 8
    key = DrawKey(task_id="b", stage="candidate", request="r", sample_index=0)
    counts.attempt("b", NotRun(key=key, reason="budget"))
    assert counts.done == 8
    assert "1 not run" in counts.status(1.0)


def test_draws_that_were_not_run_are_none_and_make_no_speed() -> None:
    counts = Counts(3, 4, now_s=0.0)
    counts.spent(0.25, 10, now_s=0.0)
    counts.attempt("a", attempt("a", 0, True))
    lost = [
        NotRun(
            key=DrawKey(task_id=name, stage="candidate", request="r", sample_index=i),
            reason="budget",
        )
        for name in "ab"
        for i in range(4)
    ]
    for each in lost[1:]:
        counts.attempt(each.key.task_id, each)
    made = outcome("a", attempt("a", 0, True))
    counts.task(made.model_copy(update={"not_run": tuple(lost[1:4])}))
    counts.task(outcome("b").model_copy(update={"not_run": tuple(lost[4:])}))
    status = counts.status(10.0)
    assert status.startswith("1/12 draws · 2/3 tasks")
    assert "7 not run" in status
    assert "0.1 draws/s" in status
    assert "$0.25 in this session" in status
    assert "ETA 40 s" in status


@pytest.mark.parametrize(
    ("states", "said"),
    [
        ([("ok", 4, 4, "start"), ("ok", 8, 2, "start")], "6/12 in flight (start)"),
        (
            [("ok", 4, 4, "start"), ("open", 1, 0, "20 failures in a row")],
            "4/5 in flight (open: 20 failures in a row)",
        ),
    ],
)
def test_replicas_are_summed_and_the_troubled_one_named(
    states: list[tuple[str, int, int, str]], said: str
) -> None:
    endpoints = [EndpointState(s, limit, flying, 0, why) for s, limit, flying, why in states]
    fleets: Any = {"policy": OneEndpoint(*endpoints)}
    assert limits_text(fleets) == said
