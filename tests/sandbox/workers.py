"""Functions that the pool's tests run in workers: well-behaved ones and bad ones."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any


def calls(argument: Any) -> Callable[[Any], Any]:
    """A worker that does what its payload says; the argument comes back with the process ids."""

    def answer(payload: Any) -> Any:
        match payload:
            case {"echo": value}:
                return value
            case "pid":
                return [os.getpid(), argument]
            case "hang":
                time.sleep(3600)
            case "spawn and hang":
                child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
                print(child.pid, file=sys.stderr, flush=True)
                time.sleep(3600)
            case "eat":
                return len(bytearray(10**10))
            case "exit":
                print("giving up", file=sys.stderr, flush=True)
                os._exit(3)
            case "print":
                print("noise")
                return "quiet"
        raise ValueError(f"cannot do {payload!r}")

    return answer
