"""Starting a process so that nobody waits for ever where that is cancelled.

asyncio waits without end for the end of a process whose start was cancelled half-way, and so does
whoever cancelled it; what the process has started by then is left behind.

This helps whoever is cancelled, not against a loop that is closed over a start: that cancels the
start's own tasks, asyncio's among them. A loop's main coroutine must await what starts processes.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def started(start: Coroutine[Any, Any, T], end: Callable[[T], Awaitable[None]]) -> T:
    """What is started. Where this is cancelled, the start is waited for, and `end` ends it."""
    task = asyncio.create_task(start)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([task])
        if not task.cancelled() and task.exception() is None:
            await asyncio.shield(end(task.result()))
        raise
