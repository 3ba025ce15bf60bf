"""Finds processes that were left behind, by a word on their command lines."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path


def command_lines(mark: str) -> list[str]:
    """The command lines of all living processes of this machine that hold `mark`."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
        except OSError:
            continue
        if mark in line:
            found.append(line)
    return found


async def wait_until_gone(mark: str) -> None:
    """Give the kernel a moment to finish what was killed; fails where something stays."""
    deadline = time.monotonic() + 5.0
    while left := command_lines(mark):
        assert time.monotonic() < deadline, left
        await asyncio.sleep(0.02)
