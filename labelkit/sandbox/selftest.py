"""Proves, before anything is spent, that the sandbox of this machine holds.

A probe inside tries what a hostile candidate would try: to read a file outside, reach a TCP and a
UDP port of this machine, see the environment, fork without end, eat memory, write outside, signal
this process. Whatever succeeds ends the run: there is no weaker sandbox to fall back to.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from labelkit.errors import UsageError
from labelkit.sandbox import seccomp
from labelkit.sandbox.bubblewrap import Limits, find_bwraps, walled_command
from labelkit.sandbox.runner import Sandbox

_LIMITS = Limits(wall_s=10.0, memory_bytes=256 * 1024**2, processes=8, files_bytes=1024**2)
_TIMEOUT_S = 60.0
_PROBE = Path(__file__).with_name("probe.py")

_MEANINGS = {
    "files": "a file outside can be read",
    "environment": "environment variables can be seen",
    "tcp": "a TCP port of this machine can be reached",
    "udp": "a UDP port of this machine can be reached",
    "signals": "this process can be seen or signalled",
    "writing": "files can be written outside",
    "disk": "its own files are not limited in size",
    "memory": "its memory is not limited",
    "processes": "its processes are not limited",
}


def proven_sandbox() -> Sandbox:
    """The first bubblewrap of this machine that holds, proved once a process.

    Raises UsageError with cause and fix where none does.
    """
    importlib.import_module("labelkit.sandbox.guest")  # leaves bytecode that every start reads
    faults = []
    for bwrap in find_bwraps():
        try:
            prove(bwrap)
        except UsageError as error:
            faults.append(error)
        else:
            return Sandbox(bwrap)
    raise faults[0]


@functools.cache
def prove(bwrap: Path) -> None:
    """Raises UsageError where one of the walls does not stand."""
    with (
        tempfile.TemporaryDirectory(prefix="labelkit-proof-") as folder,
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
    ):
        os.chmod(folder, 0o777)
        secret = Path(folder, "secret")
        secret.write_text("secret")
        udp.bind(("127.0.0.1", 0))
        udp.setblocking(False)
        given = {
            "secret": str(secret),
            "folder": folder,
            "tcp": tcp.getsockname()[1],
            "udp": udp.getsockname()[1],
            "pid": os.getpid(),
            "memory_bytes": _LIMITS.memory_bytes,
            "files_bytes": _LIMITS.files_bytes,
            "processes": _LIMITS.processes,
        }
        broken = set(_run(bwrap, given))
        if _received(udp):
            broken.add("udp")
        if os.listdir(folder) != ["secret"]:
            broken.add("writing")
    if broken:
        told = "; ".join(text for name, text in _MEANINGS.items() if name in broken)
        raise UsageError(
            f"the sandbox ({bwrap}) does not hold: {told}",
            hint="use a current bubblewrap and kernel, or another machine",
        )


def _run(bwrap: Path, given: dict[str, Any]) -> list[str]:
    """The names of the walls that the probe got through."""
    frame = json.dumps([_PROBE.read_text(encoding="utf-8"), json.dumps(given)]) + "\n"
    with tempfile.TemporaryFile() as rules:
        rules.write(seccomp.program() or b"")
        rules.flush()
        rules.seek(0)
        command = walled_command(
            bwrap,
            "program",
            _LIMITS,
            seccomp_fd=rules.fileno() if seccomp.program() else None,
            status_fd=None,
        )
        try:
            probe = subprocess.run(
                command,
                input=frame.encode("ascii"),
                capture_output=True,
                env={},
                pass_fds=(rules.fileno(),),
                timeout=_TIMEOUT_S,
            )
        except subprocess.TimeoutExpired:
            late = f"the sandbox ({bwrap}) did not finish its self-test within {_TIMEOUT_S:g} s"
            raise UsageError(late, hint="try again on a machine with less load") from None
        except OSError as error:
            raise UsageError(f"{bwrap} cannot be started: {error}", hint="reinstall it") from None
    ready, _, told = probe.stdout.partition(b"\n")
    if probe.returncode != 0 or ready != b'["ready"]':
        said = probe.stderr.decode("utf-8", "replace").strip()
        reason = said.splitlines()[-1] if said else f"exit code {probe.returncode}"
        raise UsageError(f"the sandbox ({bwrap}) does not start: {reason}", hint=_fix())
    broken: list[str] = json.loads(told)
    return broken


def _received(udp: socket.socket) -> bool:
    try:
        udp.recv(16)
    except BlockingIOError:
        return False
    return True


def _fix() -> str:
    """What most likely keeps bubblewrap from making namespaces on this machine."""
    if Path("/.dockerenv").exists() or Path("/run/.containerenv").exists():
        return (
            "this container forbids namespaces: start it with "
            "--security-opt seccomp=unconfined --security-opt apparmor=unconfined"
        )
    switches = {
        "kernel.apparmor_restrict_unprivileged_userns": ("1", "0"),
        "kernel.unprivileged_userns_clone": ("0", "1"),
        "user.max_user_namespaces": ("0", "15000"),
    }
    for name, (bad, good) in switches.items():
        path = Path("/proc/sys", name.replace(".", "/"))
        if path.exists() and path.read_text().strip() == bad:
            return f"the kernel forbids user namespaces: sudo sysctl -w {name}={good}"
    return "see `bwrap --unshare-all --ro-bind / / true` for the cause"
