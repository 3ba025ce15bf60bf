"""Worker processes: killed when late, replaced, reused, and gone when their user is."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest
from pydantic import JsonValue

from labelkit.sandbox.keeper import KeeperSettings
from labelkit.sandbox.pool import (
    WorkerDiedError,
    WorkerLateError,
    WorkerPool,
    WorkerRaisedError,
)

ENTRY = KeeperSettings(entry="tests.sandbox.workers:calls", argument="a", memory_bytes=2**30)


@pytest.fixture(params=[True, False], ids=["preloaded", "loaded in the worker"])
async def pool(request: pytest.FixtureRequest) -> AsyncIterator[WorkerPool]:
    settings = KeeperSettings(
        entry=ENTRY.entry, argument="a", memory_bytes=2**30, preload=request.param
    )
    pool = WorkerPool(settings, workers=1)
    yield pool
    await pool.close()


async def test_answers_and_reuses_one_worker(pool: WorkerPool) -> None:
    first = await pid_of(pool)
    assert await pool.call({"echo": [1, 2**80, "é\u2028", None]}, 30) == [1, 2**80, "é\u2028", None]
    assert await pool.call("pid", 30) == [first, "a"]


async def test_long_answers_are_bounded_by_their_bytes_not_by_escapes(pool: WorkerPool) -> None:
    assert await pool.call({"echo": "é" * 5_000_000}, 30) == "é" * 5_000_000


async def test_half_of_a_surrogate_pair_in_an_answer_does_not_lose_it(pool: WorkerPool) -> None:
    assert await pool.call({"echo": "a\ud800b"}, 30) == "a?b"


async def test_late_call_is_killed_and_its_worker_replaced(pool: WorkerPool) -> None:
    before = await pid_of(pool)
    with pytest.raises(WorkerLateError, match=r"0\.1 s"):
        await pool.call("hang", 0.1)
    assert await pid_of(pool) != before
    assert not alive(before)


async def test_memory_cap_fails_the_call_only(pool: WorkerPool) -> None:
    with pytest.raises((WorkerRaisedError, WorkerDiedError)):
        await pool.call("eat", 30)
    assert await pool.call({"echo": 1}, 30) == 1


async def test_ended_worker_says_its_last_words_and_is_replaced(pool: WorkerPool) -> None:
    with pytest.raises(WorkerDiedError, match="giving up"):
        await pool.call("exit", 30)
    assert await pool.call({"echo": 1}, 30) == 1


async def test_raised_error_is_told_and_the_worker_kept(pool: WorkerPool) -> None:
    before = await pid_of(pool)
    with pytest.raises(WorkerRaisedError, match="ValueError: cannot do 'nothing'"):
        await pool.call("nothing", 30)
    assert await pid_of(pool) == before


async def test_printing_does_not_disturb_the_answers(pool: WorkerPool) -> None:
    assert await pool.call("print", 30) == "quiet"
    assert await pool.call({"echo": "x"}, 30) == "x"


async def test_cancelled_call_kills_its_worker(pool: WorkerPool) -> None:
    before = await pid_of(pool)
    call = asyncio.create_task(pool.call("hang", 600))
    await asyncio.sleep(0.1)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await gone(before)
    assert await pool.call({"echo": 1}, 30) == 1


async def test_close_leaves_no_process_even_in_the_middle_of_a_call() -> None:
    pool = WorkerPool(ENTRY, workers=2)
    one, two = await asyncio.gather(pid_of(pool), pid_of(pool))
    call = asyncio.create_task(pool.call("hang", 600))
    await asyncio.sleep(0.1)
    await pool.close()
    with pytest.raises(WorkerDiedError):
        await call
    await gone(one)
    await gone(two)


async def test_missing_entry_is_told_at_the_first_call() -> None:
    pool = WorkerPool(KeeperSettings(entry="tests.sandbox.workers:nowhere"))
    with pytest.raises(WorkerDiedError, match="nowhere"):
        await pool.call(1, 30)
    await pool.close()


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel kills orphans on Linux only")
def test_workers_die_with_the_process_that_uses_them() -> None:
    program = textwrap.dedent("""
        import asyncio, os, signal
        from labelkit.sandbox.keeper import KeeperSettings
        from labelkit.sandbox.pool import WorkerPool
        async def main():
            pool = WorkerPool(KeeperSettings(entry="tests.sandbox.workers:calls"), workers=1)
            print((await pool.call("pid", 30))[0], flush=True)
            await pool.call("spawn and hang", 600)
        asyncio.run(main())
    """)
    path = os.pathsep.join(os.path.abspath(part) for part in sys.path)
    user = subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        env={"PATH": os.defpath, "PYTHONPATH": path},
    )
    assert user.stdout is not None
    worker = int(user.stdout.readline())
    wait_until(lambda: len(group(worker)) == 2)
    user.send_signal(signal.SIGKILL)
    user.wait()
    wait_until(lambda: group(worker) == [])


def test_a_keeper_told_to_stop_while_it_stops_leaves_nothing_its_worker_started() -> None:
    """Where its user is killed, the end of the input and SIGTERM come one upon the other."""
    settings = json.dumps({"entry": "tests.sandbox.workers:calls"})
    program = f"import os; from labelkit.sandbox.keeper import main; main({settings!r}, "
    for delay_us in range(0, 400, 20):
        with subprocess.Popen(
            [sys.executable, "-c", f"{program}os.getppid())"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as keeper:
            assert keeper.stdin is not None
            assert keeper.stdout is not None
            keeper.stdin.write(b'30 "pid"\n')
            keeper.stdin.flush()
            assert keeper.stdout.readline() == b"ready\n"
            worker = json.loads(keeper.stdout.readline().removeprefix(b"ok "))[0]
            keeper.stdin.write(b'600 "spawn and hang"\n')
            keeper.stdin.flush()
            wait_until(partial(n_in_group, worker, 2))
            keeper.stdin.close()
            time.sleep(delay_us / 1e6)
            keeper.terminate()
        wait_until(partial(n_in_group, worker, 0))


def program(text: str) -> KeeperSettings:
    return KeeperSettings(argv=(sys.executable, "-c", textwrap.dedent(text)))


Call = Callable[[JsonValue, float], Awaitable[JsonValue]]


@pytest.fixture
async def running() -> AsyncIterator[Callable[[str], Call]]:
    pools: list[WorkerPool] = []

    def start(text: str) -> Call:
        pools.append(WorkerPool(program(text), workers=1, environment={"GREETING": "hi"}))
        return pools[-1].call

    yield start
    for pool in pools:
        await pool.close()


async def test_program_answers_line_by_line_with_the_given_environment_only(
    running: Callable[[str], Call],
) -> None:
    call = running("""
        import json, os, sys
        for line in sys.stdin:
            print(json.dumps([json.loads(line), dict(os.environ).get("GREETING"),
                              "PYTHONPATH" in os.environ]), flush=True)
    """)
    assert await call({"a": 1}, 30) == [{"a": 1}, "hi", False]
    assert await call(2, 30) == [2, "hi", False]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("print('not json', flush=True); input()", "not JSON"),
        ("print('1\\n2', flush=True); input()", "more than one line"),
        ("import sys; sys.exit('broken')", "broken"),
        ("import sys\nwhile True: sys.stdout.write('x' * 100000)", "more than 16,000,000 bytes"),
    ],
    ids=["no JSON", "two lines", "ends", "floods"],
)
async def test_program_that_breaks_the_protocol_is_told(
    running: Callable[[str], Call], text: str, message: str
) -> None:
    with pytest.raises(WorkerDiedError, match=message):
        await running(text)(1, 30)


async def test_program_that_is_not_there_is_told() -> None:
    pool = WorkerPool(KeeperSettings(argv=("/nowhere/at-all",)))
    with pytest.raises(WorkerDiedError, match="/nowhere/at-all: No such file"):
        await pool.call(1, 30)
    await pool.close()


async def pid_of(pool: WorkerPool) -> int:
    told = await pool.call("pid", 30)
    assert isinstance(told, list)
    assert isinstance(told[0], int)
    return told[0]


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def group(leader: int) -> list[str]:
    """The processes of a group that still run; zombies wait for a reaper and do nothing."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, pgid = stat.read_text().rpartition(")")[2].split()[:3]
            if int(pgid) == leader and state != "Z":
                found.append(stat.parent.name)
    return found


def n_in_group(leader: int, number: int) -> bool:
    return len(group(leader)) == number


async def gone(pid: int) -> None:
    for _ in range(500):
        if not alive(pid):
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"process {pid} is still there")


def wait_until(holds: Callable[[], bool]) -> None:
    for _ in range(500):
        if holds():
            return
        time.sleep(0.02)
    raise AssertionError("never came true")
