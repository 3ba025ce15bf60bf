"""A seccomp filter on top of the namespaces: system calls that no honest candidate needs.

A second lock, not the first: without it the sandbox must still hold. Refused calls fail with EPERM,
so that a program which merely tries one goes on. Sockets other than AF_UNIX are refused, too.
"""

from __future__ import annotations

import errno
import platform
import struct

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCH, _FIRST_ARGUMENT = 0, 4, 16
_ALLOW = 0x7FFF0000
_REFUSE = 0x00050000 | errno.EPERM
_ABSENT = 0x00050000 | errno.ENOSYS
_X32 = 0x40000000
_CLONE3 = 435  # its flags lie in memory that a filter cannot read; libc falls back to clone
_NEW_NAMESPACES = 0x7E020000
_AF_UNIX = 1

_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_REFUSED = {
    # ptrace process_vm_readv process_vm_writev kcmp mount umount2 pivot_root chroot unshare setns
    # bpf perf_event_open keyctl add_key request_key userfaultfd kexec_load init_module
    # finit_module delete_module name_to_handle_at open_by_handle_at swapon reboot
    "x86_64": "101 310 311 312 165 166 155 161 272 308 321 298 250 248 249 323 246 175 313 176 303 "
    "304 167 169",
    "aarch64": "117 270 271 272 40 39 41 51 97 268 280 241 219 217 218 282 104 105 273 106 264 265 "
    "224 142",
}
# io_uring_setup io_uring_enter io_uring_register open_tree move_mount fsopen fsconfig fsmount
# fspick pidfd_getfd mount_setattr: the same numbers everywhere
_REFUSED_EVERYWHERE = (425, 426, 427, 428, 429, 430, 431, 432, 433, 438, 442)
_SOCKET = {"x86_64": 41, "aarch64": 198}
_CLONE = {"x86_64": 56, "aarch64": 220}


def program(machine: str | None = None) -> bytes | None:
    """The filter as `struct sock_filter[]`; None where this machine's numbers are not known."""
    machine = machine or platform.machine()
    if machine not in _AUDIT_ARCH:
        return None
    numbers = [*map(int, _REFUSED[machine].split()), *_REFUSED_EVERYWHERE]
    lines = [
        (_LOAD, 0, 0, _ARCH),
        (_EQUAL, 1, 0, _AUDIT_ARCH[machine]),
        (_RETURN, 0, 0, _REFUSE),
        (_LOAD, 0, 0, _NUMBER),
        (_AT_LEAST, 0, 1, _X32),
        (_RETURN, 0, 0, _REFUSE),
    ]
    for number in numbers:
        lines += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _REFUSE)]
    lines += [
        (_EQUAL, 0, 1, _CLONE3),
        (_RETURN, 0, 0, _ABSENT),
        (_EQUAL, 0, 4, _CLONE[machine]),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (_ANY_BIT, 0, 1, _NEW_NAMESPACES),
        (_RETURN, 0, 0, _REFUSE),
        (_RETURN, 0, 0, _ALLOW),
        (_EQUAL, 0, 3, _SOCKET[machine]),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (_EQUAL, 1, 0, _AF_UNIX),
        (_RETURN, 0, 0, _REFUSE),
        (_RETURN, 0, 0, _ALLOW),
    ]
    return b"".join(struct.pack("HBBI", *line) for line in lines)
