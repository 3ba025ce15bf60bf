"""Why a run stops admitting calls, and time that can be injected.

One `Halt` belongs to a run and is shared by everything that waits. It ends waiting, never a call
that is under way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Timer(Protocol):
    def cancel(self) -> None: ...


class Clock(Protocol):
    """Monotonic seconds and a wake-up call. A running event loop is one, and the one to use:
    a test that wants virtual time gives its loop virtual time."""

    def time(self) -> float: ...

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any) -> Timer: ...


class Halted(Exception):
    """The run has stopped admitting and no call is in flight for this draw: it is not run."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Halt:
    """The run's switch from admitting to draining; it is never switched back.

    `reason` is one word for the summary (`interrupted`, `budget`, `tokens`, `breaker`, `fatal`,
    `pilot`), None while the run goes on; `detail` one sentence. Only for the event loop's thread.
    """

    def __init__(self) -> None:
        self.reason: str | None = None
        self.detail: str | None = None
        self._waiting: set[asyncio.Future[Any]] = set()

    def stop(self, reason: str, detail: str | None = None) -> None:
        """Stop admitting; all that wait raise Halted. The first reason stays."""
        if self.reason is not None:
            return
        self.reason, self.detail = reason, detail
        for future in self._waiting:
            if not future.done():
                future.set_exception(Halted(reason))
                future.exception()  # a waiter cancelled meanwhile leaves nothing to complain about
        self._waiting.clear()

    def check(self) -> None:
        """Raise Halted where the run has stopped admitting."""
        if self.reason is not None:
            raise Halted(self.reason)

    async def wait(self, future: asyncio.Future[T]) -> T:
        """The future's result, or Halted as soon as the run stops admitting."""
        self.check()
        self._waiting.add(future)
        try:
            return await future
        finally:
            self._waiting.discard(future)

    async def sleep(self, delay_s: float, clock: Clock) -> None:
        """Sleep, or raise Halted as soon as the run stops admitting."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = clock.call_later(delay_s, _wake, future)
        try:
            await self.wait(future)
        finally:
            timer.cancel()


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
