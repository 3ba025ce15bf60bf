"""What the self-test runs inside the sandbox: tries every wall, prints those that gave way.

A program on its own: reads what to try as JSON from standard input, prints a JSON list of names.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

_HARMLESS = {"PWD", "LC_CTYPE"}


def reads(given: dict[str, Any]) -> bool:
    with open(given["secret"], encoding="utf-8") as file:
        return file.read() == "secret"


def sees_environment(given: dict[str, Any]) -> bool:
    if set(os.environ) - _HARMLESS:
        return True
    pids = [name for name in os.listdir("/proc") if name.isdigit()]
    return any(_sees_variables_of(pid) for pid in pids)


def connects(given: dict[str, Any]) -> bool:
    socket.create_connection(("127.0.0.1", given["tcp"]), timeout=2).close()
    return True


def sends(given: dict[str, Any]) -> bool:
    """Sending may succeed into the void: whether anything arrived is for the receiver to say."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.sendto(b"x", ("127.0.0.1", given["udp"]))
    return False


def signals(given: dict[str, Any]) -> bool:
    try:
        os.kill(given["pid"], 0)
    except PermissionError:
        return True  # it is there, and only its owner keeps it safe
    return True


def writes(given: dict[str, Any]) -> bool:
    places = [given["folder"], "/", "/usr", "/usr/lib", "/dev", "/sandbox", sys.base_prefix]
    return any(_can_create(os.path.join(place, "labelkit-probe")) for place in places)


def fills_disk(given: dict[str, Any]) -> bool:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    for number in range(4):
        with open(f"/tmp/{number}", "wb", buffering=0) as file:
            block = bytes(given["files_bytes"])
            if file.write(block) < len(block):
                return False
    return True


def eats_memory(given: dict[str, Any]) -> bool:
    return len(bytearray(given["memory_bytes"])) > 0


def forks(given: dict[str, Any]) -> bool:
    children = []
    try:
        for _ in range(given["processes"] + 1):
            child = os.fork()
            if child == 0:
                time.sleep(60)
                os._exit(0)
            children.append(child)
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    return True


def _can_create(path: str) -> bool:
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT))
    except OSError:
        return False
    os.unlink(path)
    return True


def _sees_variables_of(pid: str) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            names = {item.partition(b"=")[0].decode() for item in file.read().split(b"\0")}
    except OSError:
        return False
    return bool(names - _HARMLESS - {""})


def main() -> None:
    given = json.load(sys.stdin)
    attacks: dict[str, Callable[[dict[str, Any]], bool]] = {
        "files": reads,
        "environment": sees_environment,
        "tcp": connects,
        "udp": sends,
        "signals": signals,
        "writing": writes,
        "disk": fills_disk,
        "memory": eats_memory,
        "processes": forks,
    }
    through = []
    for name, attack in attacks.items():
        try:
            if attack(given):
                through.append(name)
        except (OSError, MemoryError):
            continue
    print(json.dumps(through))


if __name__ == "__main__":
    main()
