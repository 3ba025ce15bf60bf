"""Starts sandboxes, talks to what runs in them, and leaves nothing behind.

Every sandbox ends with its `async with` block, by SIGKILL of its first process: all that it started
goes with it, however it was started. Answers are bytes from a stranger: bounded, never evaluated.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

from pydantic import JsonValue

from labelkit.errors import LabelkitError
from labelkit.sandbox import seccomp
from labelkit.sandbox.bubblewrap import Limits, Role, bare_command, walled_command
from labelkit.sandbox.starting import started

START_TIMEOUT_S = 30.0
_KILL_TIMEOUT_S = 10.0
_STDERR_TAIL = 2000


class SandboxError(LabelkitError):
    """A sandbox that did not come up, or was lost through no doing of the code in it."""


class Ended(Exception):
    """The code in a sandbox closed its output or ended before it answered; the text says how."""


class TooLate(Exception):
    """The wall clock of a sandbox ran out."""


class TooMuch(Exception):
    """The code in a sandbox answered with more than it may."""


class Sandbox:
    """How to start sandboxes: behind the walls of `bwrap`, or, where that is None, without any."""

    def __init__(self, bwrap: Path | None) -> None:
        self._bwrap = bwrap
        self._filter = seccomp.program()

    @contextlib.asynccontextmanager
    async def start(self, role: Role, limits: Limits) -> AsyncIterator[Confined]:
        """A sandbox that is ready for its first frame. Raises SandboxError where it is not."""
        async with contextlib.AsyncExitStack() as stack:
            if self._bwrap is None:
                folder = await asyncio.to_thread(tempfile.mkdtemp, prefix="labelkit-")
                stack.callback(shutil.rmtree, folder, ignore_errors=True)
                spawn = _spawn(bare_command(role, limits), limits, folder, ())
            else:
                spawn = self._spawn_walled(self._bwrap, role, limits)
            confined = await started(spawn, Confined.kill)
            try:
                await confined.expect_ready()
                yield confined
            finally:
                await asyncio.shield(confined.kill())

    async def _spawn_walled(self, bwrap: Path, role: Role, limits: Limits) -> Confined:
        status, status_end = os.pipe()
        handed = [status_end]
        try:
            if self._filter is not None:
                handed.append(_memory_file(self._filter))
            command = walled_command(
                bwrap,
                role,
                limits,
                seccomp_fd=handed[1] if self._filter is not None else None,
                status_fd=status_end,
            )
            confined = await _spawn(command, limits, "/", tuple(handed))
        except BaseException:
            os.close(status)
            raise
        finally:
            for end in handed:
                os.close(end)
        confined.status = status
        return confined


class Confined:
    """One running sandbox and the conversation with it."""

    def __init__(self, process: asyncio.subprocess.Process, limits: Limits) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self.status: int | None = None
        self._process = process
        self._limits = limits
        self._stdin, self._stdout = process.stdin, process.stdout
        self._deadline = time.monotonic() + START_TIMEOUT_S
        self._tail = b""
        self._drain = asyncio.create_task(self._read_stderr(process.stderr))

    async def expect_ready(self) -> None:
        """Wait until the walls stand; the wall clock of the code starts now."""
        try:
            first = await self.receive()
        except TooLate:
            raise SandboxError(f"a sandbox was not ready within {START_TIMEOUT_S:g} s") from None
        except (Ended, TooMuch):
            first = b""
        if first != b'["ready"]\n':
            await asyncio.wait([self._drain], timeout=1.0)
            raise SandboxError(f"a sandbox did not start: {self.stderr or 'no reason given'}")
        self.start_clock()

    def start_clock(self) -> None:
        """Give the code its wall clock from now on."""
        self._deadline = time.monotonic() + self._limits.wall_s

    async def send(self, frame: JsonValue | bytes) -> None:
        """Hand over a frame; bytes are a frame as received. Raises Ended or TooLate."""
        line = frame if isinstance(frame, bytes) else json.dumps(frame).encode("ascii") + b"\n"
        try:
            async with asyncio.timeout(self._left()):
                self._stdin.write(line)
                await self._stdin.drain()
        except ConnectionError:
            raise Ended(await self._end()) from None
        except TimeoutError:
            raise TooLate from None

    async def receive(self) -> bytes:
        """The next frame, unread. Raises Ended, TooLate or TooMuch."""
        try:
            async with asyncio.timeout(self._left()):
                return await self._stdout.readuntil(b"\n")
        except asyncio.LimitOverrunError:
            raise TooMuch from None
        except (asyncio.IncompleteReadError, ConnectionError):
            raise Ended(await self._end()) from None
        except TimeoutError:
            raise TooLate from None

    async def output(self) -> tuple[bytes, int]:
        """What the program prints from here on, and its exit code. Raises TooLate or TooMuch."""
        printed = bytearray()
        try:
            async with asyncio.timeout(self._left()):
                while chunk := await self._stdout.read(65536):
                    printed += chunk
                    if len(printed) > self._limits.output_bytes:
                        raise TooMuch
                return bytes(printed), await self._process.wait()
        except TimeoutError:
            raise TooLate from None

    @property
    def stderr(self) -> str:
        """The end of what was written to standard error so far."""
        return self._tail.decode("utf-8", "replace").strip()

    async def kill(self) -> None:
        """End everything in the sandbox and reap it."""
        first = self._first_process()
        try:
            if self._process.returncode is None:
                if first is not None:
                    signal.pidfd_send_signal(first, signal.SIGKILL)
                else:
                    os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        finally:
            if first is not None:
                os.close(first)
        self._stdin.close()
        try:
            async with asyncio.timeout(_KILL_TIMEOUT_S):
                while await self._stdout.read(65536):
                    pass  # asyncio sees a process end only when its pipes are read to their ends
                await self._process.wait()
        except TimeoutError:
            raise SandboxError("a process outlived the end of its sandbox") from None
        finally:
            self._drain.cancel()

    def _left(self) -> float:
        return max(0.0, self._deadline - time.monotonic())

    async def _end(self) -> str:
        """How the code ended, given a moment to do so."""
        try:
            async with asyncio.timeout(min(1.0, self._left())):
                code = await self._process.wait()
        except TimeoutError:
            return "it closed its output"
        if code > 128:
            return f"it was ended by signal {code - 128}"
        return f"it ended with exit code {code}"

    async def _read_stderr(self, stderr: asyncio.StreamReader) -> None:
        while chunk := await stderr.read(65536):
            self._tail = (self._tail + chunk)[-_STDERR_TAIL:]

    def _first_process(self) -> int | None:
        """A pidfd of the sandbox's first process, whose end ends them all; None without walls."""
        if self.status is None:
            return None
        try:
            os.set_blocking(self.status, False)
            told = os.read(self.status, 4096)
            pid = json.loads(told.partition(b"\n")[0])["child-pid"]
            return os.pidfd_open(pid)
        except (BlockingIOError, ValueError, KeyError, ProcessLookupError):
            return None
        finally:
            os.close(self.status)
            self.status = None


async def _spawn(
    command: list[str], limits: Limits, folder: str, handed: tuple[int, ...]
) -> Confined:
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={},
        cwd=folder,
        pass_fds=handed,
        limit=limits.output_bytes,
        start_new_session=True,
    )
    return Confined(process, limits)


def _memory_file(content: bytes) -> int:
    end = os.memfd_create("labelkit")
    os.write(end, content)
    os.lseek(end, 0, os.SEEK_SET)
    return end
