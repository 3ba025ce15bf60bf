"""Landlock on top of the namespaces: a process gives up rights to files, TCP ports and signals.

A third lock, where the kernel has it: without it the sandbox must still hold. Linux's
`landlock(7)` and `linux/landlock.h` are the source of all numbers. Runs inside sandboxes: standard
library only.
"""

from __future__ import annotations

import ctypes
import os
import struct

_CREATE, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION_FLAG = 1
_PATH_BENEATH = 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_MAKE_DEVICES = 1 << 6 | 1 << 11
_FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 5: 16}
"""Number of file rights, by the first version of the interface that has so many."""
_TCP_SINCE, _SCOPES_SINCE = 4, 6


def version() -> int:
    """The kernel's version of the interface; 0 where there is none."""
    try:
        return _call(_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint(_VERSION_FLAG))
    except OSError:
        return 0


def restrict(writable: str) -> None:
    """Keep this process and all that it starts to reading, but for one folder and for devices.

    TCP, abstract sockets and signals to others go as well, as far as the kernel knows how. Needs
    no_new_privs. Raises OSError where the kernel has Landlock and refuses.
    """
    known = version()
    if known == 0:
        return
    rights = (1 << max(n for since, n in _FILE_RIGHTS.items() if since <= known)) - 1
    attributes = struct.pack("Q", rights)
    if known >= _TCP_SINCE:
        attributes += struct.pack("Q", 0b11)
    if known >= _SCOPES_SINCE:
        attributes += struct.pack("Q", 0b11)
    rules = _call(_CREATE, attributes, ctypes.c_size_t(len(attributes)), ctypes.c_uint(0))
    allowed = {
        "/": _EXECUTE | _READ_FILE | _READ_DIR,
        "/dev": _READ_FILE | _READ_DIR | _WRITE_FILE,
        writable: rights & ~_MAKE_DEVICES,
    }
    for path, access in allowed.items():
        folder = os.open(path, os.O_PATH)
        rule = struct.pack("=Qi", access, folder)
        _call(_ADD_RULE, ctypes.c_int(rules), ctypes.c_int(_PATH_BENEATH), rule, ctypes.c_uint(0))
        os.close(folder)
    _call(_RESTRICT_SELF, ctypes.c_int(rules), ctypes.c_uint(0))
    os.close(rules)


def _call(number: int, *arguments: object) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    done: int = libc.syscall(ctypes.c_long(number), *arguments)
    if done < 0:
        raise OSError(ctypes.get_errno(), f"landlock system call {number}")
    return done
