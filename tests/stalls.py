"""How long the event loop stands still while something runs on it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Watch:
    """`longest_s`: the longest time that the loop stood still; `elapsed_s`: the time in all."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self.elapsed_s = 0.0

    async def run(self) -> None:
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.001)
            self.longest_s = max(self.longest_s, time.monotonic() - before)


@asynccontextmanager
async def watched() -> AsyncIterator[Watch]:
    """Watches the loop for stalls inside the block; what it saw is whole after the block."""
    watch = Watch()
    watcher = asyncio.create_task(watch.run())
    try:
        await asyncio.sleep(0.01)
        started = time.monotonic()
        yield watch
        watch.elapsed_s = time.monotonic() - started
        await asyncio.sleep(0.01)
    finally:
        watcher.cancel()
