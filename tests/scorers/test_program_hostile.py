"""Hostile candidates: none passes, none outlives its limit, none reaches out of its sandbox."""

from __future__ import annotations

import asyncio
import os
import random
import re
import socket
import time
from pathlib import Path
from typing import cast

import pytest
from pydantic import JsonValue

from labelkit.records import Reply, Score, Task
from labelkit.scorers import Binding
from labelkit.scorers.program import ProgramScorer, ProgramSettings
from labelkit.seams import Draw
from tests.sandbox.leftovers import command_lines, wait_until_gone

NO_DRAW = cast(Draw, None)
ADD: JsonValue = {
    "entry_point": "add",
    "tests": "assert add(1, 2) == 3\nassert add(-1, 1) == 0",
}
HOSTILE = (Path(__file__).parent / "hostile_programs.txt").read_text(encoding="utf-8")
PROGRAMS = dict(re.findall(r"^# -- (.+)\n((?:(?!# -- ).*\n)+)", HOSTILE, re.M))


def bind(timeout_s: float = 20.0, memory_mib: int = 512) -> ProgramScorer:
    settings = ProgramSettings(timeout_s=timeout_s, memory_mib=memory_mib)
    return settings.bind(Binding(folder=Path(), processes=2))


def fenced(code: str) -> Reply:
    return Reply(text=f"```python\n{code}\n```")


def marked_memory() -> tuple[int, str]:
    """A memory limit that no other test has, and how it shows on command lines."""
    mib = 512 + random.randrange(100_000)
    return mib, str(mib * 1024**2)


async def passes(gold: JsonValue, code: str) -> bool:
    verdict = await bind().score(Task(id="t", prompt="p", gold=gold), fenced(code), NO_DRAW)
    assert isinstance(verdict, Score), verdict
    return verdict.passed


def test_every_hostile_program_is_read() -> None:
    assert len(PROGRAMS) == HOSTILE.count("\n# -- ") >= 40


@pytest.mark.parametrize("name", PROGRAMS)
async def test_hostile_candidate_never_passes_nor_overstays(name: str) -> None:
    """It has its limit twice: for loading, and again for being tested."""
    memory_mib, mark = marked_memory()
    scorer = bind(timeout_s=1.0, memory_mib=memory_mib)
    start = time.monotonic()
    verdict = await scorer.score(
        Task(id="t", prompt="p", gold=ADD), fenced(PROGRAMS[name]), NO_DRAW
    )
    took_s = time.monotonic() - start
    assert isinstance(verdict, Score)
    assert not verdict.no_answer
    assert not verdict.passed
    assert took_s < 2 * 1.0 + 3.0, "the rest is for start-up on a busy machine"
    await wait_until_gone(mark)


def spying(body: str, expected: str) -> tuple[JsonValue, str]:
    """A gold that only a candidate with a way out can meet, and the candidate."""
    indented = "\n".join("        " + line for line in body.splitlines())
    code = f"def spy():\n    try:\n{indented}\n    except Exception as e:\n        return repr(e)"
    return {"entry_point": "spy", "tests": f"assert spy() == {expected!r}"}, code


async def test_candidate_cannot_read_its_tests_or_files_outside(tmp_path: Path) -> None:
    secret = f"secret-{random.random()}"
    (tmp_path / "secret.txt").write_text(secret)
    os.chmod(tmp_path, 0o755)
    gold, code = spying(f"return open({str(tmp_path / 'secret.txt')!r}).read()", secret)
    assert not await passes(gold, code)
    search = """
import gc, sys, os
seen = []
frame = sys._getframe()
while frame:
    seen += [repr(frame.f_locals), repr(frame.f_globals)]
    frame = frame.f_back
seen += [repr(o) for o in gc.get_objects() if isinstance(o, (list, dict, str, bytes))]
for top, _, names in os.walk('/'):
    if top.startswith(('/usr', '/root', '/sandbox')): continue
    for name in names:
        try: seen.append(open(os.path.join(top, name), 'rb').read(10**5).decode('latin-1'))
        except OSError: pass
text = ''.join(seen)
at = text.find('secret-')
return text[at:at + 60].split("'")[0] if at >= 0 else None
"""
    gold, code = spying(search.strip(), secret)
    assert not await passes(gold, code)


async def test_candidate_sees_no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LABELKIT_CANARY", "canary-value")
    body = "import os, glob\ntext = repr(os.environ)\nfor f in glob.glob('/proc/*/environ'):\n"
    body += "    text += open(f).read()\nreturn 'canary-value' in text"
    gold, code = spying(body, "unused")
    gold = {"entry_point": "spy", "tests": "assert spy() is True"}
    assert not await passes(gold, code)


async def test_candidate_reaches_no_tcp_and_no_udp_port() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(type=socket.SOCK_DGRAM) as udp,
    ):
        udp.bind(("127.0.0.1", 0))
        udp.settimeout(0.2)
        ports = (tcp.getsockname()[1], udp.getsockname()[1])
        body = f"import socket\nsocket.create_connection(('127.0.0.1', {ports[0]}), 1)\nreturn 'in'"
        assert not await passes(*spying(body, "in"))
        body = "import socket\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
        body += f"s.sendto(b'x', ('127.0.0.1', {ports[1]}))\nreturn 'in'"
        assert not await passes(*spying(body, "in"))
        with pytest.raises(TimeoutError):
            udp.recv(1)


async def test_candidate_writes_nothing_outside(tmp_path: Path) -> None:
    os.chmod(tmp_path, 0o777)
    marker = tmp_path / "marker"
    gold, code = spying(f"open({str(marker)!r}, 'w').write('x')\nreturn 'in'", "in")
    assert not await passes(gold, code)
    assert not marker.exists()
    gold, code = spying("open('/tmp/labelkit-escape', 'w').write('x')\nreturn 'in'", "in")
    assert await passes(gold, code), "its own /tmp may be written"
    assert "labelkit-escape" not in os.listdir("/tmp")


async def test_candidate_cannot_reach_into_test_code_through_a_callback() -> None:
    tests = "secret = 'hunter2'\nassert spy(lambda: 1) == secret"
    code = "def spy(f):\n    return f.__globals__['secret']"
    assert not await passes({"entry_point": "spy", "tests": tests}, code)


async def test_cancelled_verification_leaves_no_process() -> None:
    memory_mib, mark = marked_memory()
    scorer = bind(timeout_s=60.0, memory_mib=memory_mib)
    reply = fenced("def add(a, b):\n    while True: pass")
    task = Task(id="t", prompt="p", gold=ADD)
    running = asyncio.create_task(scorer.score(task, reply, NO_DRAW))
    await asyncio.sleep(0.5)
    assert command_lines(mark)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await wait_until_gone(mark)


async def test_many_verifications_leave_no_process_and_no_file() -> None:
    memory_mib, mark = marked_memory()
    scorer = bind(memory_mib=memory_mib)
    task = Task(id="t", prompt="p", gold=ADD)
    reply = fenced("open('/tmp/labelkit-x', 'w').write('x')\ndef add(a, b): return a + b")
    before = set(os.listdir("/proc/self/fd"))
    verdicts = await asyncio.gather(*(scorer.score(task, reply, NO_DRAW) for _ in range(20)))
    assert all(isinstance(verdict, Score) and verdict.passed for verdict in verdicts)
    await wait_until_gone(mark)
    assert set(os.listdir("/proc/self/fd")) <= before
    assert "labelkit-x" not in os.listdir("/tmp")
