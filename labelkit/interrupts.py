"""How a run is told to stop from outside: SIGINT, SIGTERM, and whoever waits for the end.

Nothing here decides what stopping means; a second signal must reach the run while the first one's
drain is under way.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Callable
from typing import Any

from labelkit.limits import Halt, Halted


class Signals:
    """SIGINT and SIGTERM while a run is live: `first` on the first, `again` on every later one.

    Outside the main thread, where Python hands out no signals, nothing is installed.
    """

    def __init__(self, first: Callable[[int], None], again: Callable[[int], Any]) -> None:
        self._first = first
        self._again = again
        self._seen = False
        in_main = threading.current_thread() is threading.main_thread()
        self._numbers = (signal.SIGINT, signal.SIGTERM) if in_main else ()

    def _handle(self, number: int) -> None:
        if self._seen:
            self._again(number)
        else:
            self._seen = True
            self._first(number)

    def __enter__(self) -> None:
        for number in self._numbers:
            asyncio.get_running_loop().add_signal_handler(number, self._handle, number)

    def __exit__(self, *_: object) -> None:
        for number in self._numbers:
            asyncio.get_running_loop().remove_signal_handler(number)


async def stopped(halt: Halt) -> None:
    """Returns when the run stops admitting."""
    never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    with contextlib.suppress(Halted):
        await halt.wait(never)
