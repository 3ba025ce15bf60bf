"""A pool of killable worker processes for calls that may hang, crash or eat memory.

Threads cannot be stopped and alarms work in the main thread only, so what may hang runs in another
process that can be killed. Workers are reused between calls and replaced when they are late or
dead; each stands under a `keeper`, which times the call. Linux kills them all with this process.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import asdict

from pydantic import JsonValue

from labelkit.codec import clean_text, dumps, loads
from labelkit.errors import LabelkitError
from labelkit.sandbox.keeper import MAX_ANSWER_BYTES, KeeperSettings
from labelkit.sandbox.starting import started

# A keeper that says nothing this long after its worker's wall clock is itself stuck.
_GRACE_S = 10.0
_KEEPER = """
import json, sys
sys.path[:] = json.loads(sys.argv[3])
from labelkit.sandbox.keeper import main
main(sys.argv[1], int(sys.argv[2]))
"""


class WorkerError(LabelkitError):
    """A call that brought no answer; the message says why."""


class WorkerLateError(WorkerError):
    """The call was killed at its wall clock."""


class WorkerDiedError(WorkerError):
    """The worker ended (memory cap, crash) or broke the protocol; it has been replaced."""


class WorkerRaisedError(WorkerError):
    """The called function raised; the message is the exception's type and text."""


class WorkerPool:
    """Up to `workers` processes, started when first needed.

    A call waits for a free worker without bound, then has `timeout_s` of wall clock to itself.
    `environment` is all that the workers get to see (default: PATH alone);
    modules are found where this process finds them.
    Use from one event loop.
    """

    def __init__(
        self,
        settings: KeeperSettings,
        *,
        workers: int = 2,
        environment: Mapping[str, str] | None = None,
        folder: str | None = None,
    ) -> None:
        self._settings = settings
        self._environment = dict(environment or {"PATH": os.environ.get("PATH", os.defpath)})
        self._import_path = json.dumps([os.path.abspath(part) for part in sys.path])
        self._folder = folder
        self._free = asyncio.Semaphore(workers)
        self._idle: list[asyncio.subprocess.Process] = []
        self._busy: set[asyncio.subprocess.Process] = set()

    async def call(self, payload: JsonValue, timeout_s: float) -> JsonValue:
        """The worker's answer. Raises WorkerLateError, WorkerDiedError or WorkerRaisedError.

        Cancelling the call kills its worker.
        """
        frame = b"%.6f " % timeout_s + _encode(payload) + b"\n"
        limit_s = timeout_s + 2 * self._settings.start_timeout_s + _GRACE_S
        async with self._free:
            keeper = self._idle.pop() if self._idle else await self._start()
            self._busy.add(keeper)
            healthy = False
            try:
                async with asyncio.timeout(limit_s):
                    answer = await _exchange(keeper, frame)
                healthy = True
            except TimeoutError:
                raise WorkerDiedError(f"no word from the worker in {limit_s:g} s") from None
            except (OSError, ValueError) as error:
                raise WorkerDiedError(f"lost the worker: {error}") from None
            finally:
                self._busy.discard(keeper)
                if healthy:
                    self._idle.append(keeper)
                else:
                    await _kill(keeper)
        return _read(answer, timeout_s)

    async def close(self) -> None:
        """End every process; calls still under way fail."""
        idle, self._idle = self._idle, []
        await asyncio.gather(*(_kill(keeper) for keeper in [*idle, *self._busy]))

    async def _start(self) -> asyncio.subprocess.Process:
        starting = asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            "-c",
            _KEEPER,
            json.dumps(asdict(self._settings)),
            str(os.getpid()),
            self._import_path,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=2 * MAX_ANSWER_BYTES,
            env=self._environment,
            cwd=self._folder,
            start_new_session=True,
        )
        keeper = await started(starting, _kill)
        assert keeper.stdout is not None
        try:
            async with asyncio.timeout(self._settings.start_timeout_s):
                if await keeper.stdout.readline() == b"ready\n":
                    return keeper
            reason = await _last_words(keeper)
        except TimeoutError:
            reason = f"not ready within {self._settings.start_timeout_s:g} s"
        except BaseException:
            await _kill(keeper)
            raise
        await _kill(keeper)
        raise WorkerDiedError(f"a worker did not start: {reason}")


def _encode(payload: JsonValue) -> bytes:
    try:
        return dumps(payload)
    except ValueError:
        return clean_text(json.dumps(payload)).encode()


async def _exchange(keeper: asyncio.subprocess.Process, frame: bytes) -> bytes:
    assert keeper.stdin is not None
    assert keeper.stdout is not None
    keeper.stdin.write(frame)
    await keeper.stdin.drain()
    line = await keeper.stdout.readline()
    if not line.endswith(b"\n"):
        raise OSError(await _last_words(keeper))
    return line


def _read(frame: bytes, timeout_s: float) -> JsonValue:
    kind, _, rest = frame.rstrip(b"\n").partition(b" ")
    if kind == b"late":
        raise WorkerLateError(f"killed after {timeout_s:g} s")
    try:
        value = loads(rest)
    except ValueError:
        raise WorkerDiedError(f"answered what is not JSON: {rest[:200]!r}") from None
    if kind == b"error":
        raise WorkerRaisedError(str(value))
    if kind == b"died":
        raise WorkerDiedError(str(value))
    return value


async def _last_words(keeper: asyncio.subprocess.Process) -> str:
    """The end of what the keeper wrote to its standard error."""
    assert keeper.stderr is not None
    said = b""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(1.0):
            said = await keeper.stderr.read(65536)
    return said.decode("utf-8", "replace").strip()[-500:] or "it ended without a word"


async def _kill(keeper: asyncio.subprocess.Process) -> None:
    """Close the keeper's input, on which it ends its worker; kill it where that does not help."""
    assert keeper.stdin is not None
    keeper.stdin.close()
    if keeper.returncode is None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.05):
                await keeper.wait()
    if keeper.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(keeper.pid, signal.SIGKILL)
    await keeper.wait()
