"""What runs inside a sandbox: confines itself further, then serves one role.

`candidate` holds model-written code and answers calls; `tests` holds the test code and calls the
candidate through the trusted parent; `program` is a whole program with its own standard streams.
Nothing here decides anything that the parent believes about a candidate: the process of a candidate
is the candidate's, all of it. Standard library only.

Usage: guest.py SETTINGS, a JSON object of `role`, `limits`, `uid` (null: stay who you are) and
`writable`, the one folder that Landlock leaves writable (null: no Landlock).
Frames are JSON arrays on lines, over the standard streams as they are at the start.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import types
from collections.abc import Callable

from labelkit.sandbox import landlock
from labelkit.sandbox.peer import Peer, serve_candidate
from labelkit.sandbox.trial import run_tests


def main() -> None:
    settings = json.loads(sys.argv[1])
    sys.argv = ["solution.py"]
    if settings["writable"] is not None:
        landlock.restrict(settings["writable"])
    confine(settings["limits"], settings["uid"])
    requests = os.dup(0)
    _replace(0, os.O_RDONLY)
    if settings["role"] == "program":
        os.write(1, b'["ready"]\n')
        run_program(_read_line(requests))
        return
    answers = os.dup(1)
    _replace(1, os.O_WRONLY)
    peer = Peer(os.fdopen(requests, "rb"), os.fdopen(answers, "wb"))
    peer.send(["ready"])
    _replace(2, os.O_WRONLY)
    roles: dict[str, Callable[[Peer], None]] = {"candidate": serve_candidate, "tests": run_tests}
    roles[settings["role"]](peer)


def confine(limits: dict[str, int], uid: int | None) -> None:
    """Give up what the sandbox leaves: resources first, then the user id where it is root's."""
    if uid is not None:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
    for name, limit in limits.items():
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (limit, limit))
    if uid is not None:
        os.setresuid(uid, uid, uid)


def run_program(frame: bytes) -> None:
    """Run a whole program as `__main__` with the given standard input; ends as the program does."""
    source, stdin = json.loads(frame)
    given = os.memfd_create("stdin")
    os.write(given, stdin.encode("utf-8", "surrogatepass"))
    os.lseek(given, 0, os.SEEK_SET)
    os.dup2(given, 0)
    os.close(given)
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    exec(compile(source, "solution.py", "exec", dont_inherit=True), module.__dict__)


def _read_line(end: int) -> bytes:
    """One line, read without a buffer that could hold more; closes the pipe."""
    chunks = []
    while chunk := os.read(end, 65536):
        chunks.append(chunk)
        if chunk.endswith(b"\n"):
            break
    os.close(end)
    return b"".join(chunks)


def _replace(end: int, mode: int) -> None:
    null = os.open("/dev/null", mode)
    os.dup2(null, end)
    os.close(null)
