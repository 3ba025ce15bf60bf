"""Sandboxes as such: what runs inside has little, and nothing of it stays."""

from __future__ import annotations

import asyncio
import json
import os
import random
import tempfile
from pathlib import Path
from typing import Any

import pytest

from labelkit.sandbox import landlock
from labelkit.sandbox.bubblewrap import Limits, find_bwraps
from labelkit.sandbox.runner import Ended, Sandbox, SandboxError, TooLate, TooMuch
from labelkit.sandbox.selftest import proven_sandbox
from tests.sandbox.leftovers import wait_until_gone


async def printed(source: str, limits: Limits | None = None, stdin: str = "") -> tuple[str, int]:
    async with proven_sandbox().start("program", limits or Limits()) as program:
        await program.send([source, stdin])
        output, code = await program.output()
        return output.decode(), code


async def told(source: str) -> Any:
    """What a program prints as JSON."""
    output, code = await printed(source)
    assert code == 0
    return json.loads(output)


async def test_a_program_has_its_streams_and_its_exit_code() -> None:
    source = "import sys\nprint(sys.stdin.read().upper(), end='')\nsys.exit(3)"
    assert await printed(source, stdin="abc\u00e9") == ("ABC\u00c9", 3)


async def test_it_is_nobody_in_an_empty_place() -> None:
    seen = await told(
        "import json, os, sys\n"
        "print(json.dumps([os.getuid(), dict(os.environ), os.listdir('/tmp'), os.listdir('/dev'),"
        " sys.argv, __name__, os.path.exists('/proc/1'), os.path.exists('/etc/passwd')]))"
    )
    uid, environment, files, devices, argv, name, proc, etc = seen
    assert uid >= 65534
    assert set(environment) <= {"PWD", "LC_CTYPE"}
    assert files == []
    assert sorted(devices) == ["null", "random", "urandom", "zero"]
    assert (argv, name, proc, etc) == (["solution.py"], "__main__", False, False)


@pytest.mark.parametrize(
    "attempt",
    [
        "import socket; socket.socket(socket.AF_INET)",
        "import socket; socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)",
        "import ctypes; e = ctypes.CDLL(None, use_errno=True).unshare(0x10000000)\n"
        "if e: raise OSError",
        "import os; os.setuid(0)",
        "import os; os.setgroups([0])",
        "import os; os.chroot('/tmp')",
        "import os; os.mkdir('/x')",
        "import os; os.chmod('/sandbox', 0o777)",
        "import resource; resource.setrlimit(resource.RLIMIT_NPROC, (-1, -1))",
        "open('/tmp/big', 'wb').write(bytes(64 * 1024**2))",
    ],
)
async def test_it_gets_no_more_than_it_has(attempt: str) -> None:
    body = "\n".join("    " + line for line in attempt.splitlines())
    source = f"try:\n{body}\nexcept (OSError, ValueError): print('refused')"
    output, code = await printed(source)
    assert output == "refused\n" or code == 153, "153: ended by SIGXFSZ"


async def test_two_sandboxes_do_not_share_files() -> None:
    assert await printed("open('/tmp/x', 'w').write('x')") == ("", 0)
    assert await told("import os; print(int(os.path.exists('/tmp/x')))") == 0


async def test_limits_end_it() -> None:
    with pytest.raises(TooLate):
        await printed("while True: pass", Limits(wall_s=0.3))
    with pytest.raises(TooMuch):
        await printed("while True: print('x' * 10000)", Limits(output_bytes=100_000))
    _, code = await printed("x = bytearray(10**9)", Limits(memory_bytes=256 * 1024**2))
    assert code == 1


async def test_how_it_ended_is_told() -> None:
    sources = {
        "exit code 3": "import os; os._exit(3)",
        "signal 9": "import os; os.kill(os.getpid(), 9)",
    }
    for how, source in sources.items():
        async with proven_sandbox().start("candidate", Limits()) as candidate:
            await candidate.send([""])
            assert await candidate.receive() == b'["prelude"]\n'
            await candidate.send([source, "f"])
            with pytest.raises(Ended, match=how):
                await candidate.receive()


async def test_a_block_that_raises_leaves_no_process() -> None:
    memory_bytes = 2**30 + random.randrange(2**20)
    with pytest.raises(KeyError):
        async with proven_sandbox().start("candidate", Limits(memory_bytes=memory_bytes)):
            raise KeyError
    await wait_until_gone(str(memory_bytes))


async def test_a_start_that_is_cancelled_at_any_moment_ends_and_leaves_no_process() -> None:
    memory_bytes = 2**30 + random.randrange(2**20)

    async def use() -> None:
        async with proven_sandbox().start("candidate", Limits(memory_bytes=memory_bytes)):
            await asyncio.sleep(60)

    for turns in range(12):
        using = asyncio.create_task(use())
        for _ in range(turns):
            await asyncio.sleep(0)
        using.cancel()
        done, _ = await asyncio.wait([using], timeout=10)
        assert done, f"cancelled after {turns} turns of the loop, it goes on"
    await wait_until_gone(str(memory_bytes))


async def test_a_sandbox_that_does_not_start_says_why(tmp_path: Path) -> None:
    broken = tmp_path / "bwrap"
    broken.write_text("#!/bin/sh\necho no namespaces today >&2\nexit 1\n")
    broken.chmod(0o755)
    with pytest.raises(SandboxError, match="no namespaces today"):
        async with Sandbox(broken).start("candidate", Limits()):
            pass


async def test_without_walls_it_still_has_a_folder_that_goes_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    async with Sandbox(None).start("program", Limits(processes=4096)) as program:
        await program.send(["import os\nopen('x', 'w').write('x')\nprint(os.listdir())", ""])
        assert await program.output() == (b"['x']\n", 0)
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(landlock.version() == 0, reason="this kernel has no Landlock")
async def test_landlock_holds_where_a_wall_is_open(tmp_path: Path) -> None:
    """A bwrap that shows a folder of this machine writable: it is read and still not written."""
    os.chmod(tmp_path, 0o777)
    shown = tmp_path / "shown"
    await asyncio.to_thread(shown.mkdir, mode=0o777)
    os.chmod(shown, 0o777)
    opened = tmp_path / "bwrap"
    opened.write_text(f'#!/bin/sh\nexec {find_bwraps()[-1]} --bind {shown} /shown "$@"\n')
    opened.chmod(0o755)
    source = "import os\nprint(os.listdir('/shown'))\nopen('/shown/x', 'w')"
    async with Sandbox(opened).start("program", Limits()) as program:
        await program.send([source, ""])
        assert await program.output() == (b"[]\n", 1)
        assert "PermissionError: [Errno 13]" in program.stderr
    assert os.listdir(shown) == []
