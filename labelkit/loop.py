"""The event loop of a run, and the garbage collector beside it, made fit for many calls."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from functools import cache


@cache
def calm_collector() -> None:
    """Spare the garbage collector, once a process, what was made before the first draw."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


def fastest_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's, where it is installed (`pip install 'labelkit[speed]'`)."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
