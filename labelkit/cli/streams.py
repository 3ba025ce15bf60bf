"""The process's standard streams as a command line can rely on them.

A closed one is opened to nothing, so that no ledger ever gets its number; text is UTF-8 whatever
the locale; what cannot be written is one of labelkit's errors and is told once.
"""

from __future__ import annotations

import errno
import os
import sys
from typing import TextIO

from labelkit.errors import StorageError


class ReaderGoneError(Exception):
    """Nobody reads stdout any more (`| head`): there is nobody to tell, and no harm done."""


def open_streams() -> None:
    """Put all three in place; to be called before anything else opens a file."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free: this one
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "r" if number == 0 else "w", encoding="utf-8"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8", errors="replace")  # type: ignore[union-attr]
    sys.stdout = _Stdout(sys.stdout)
    sys.stderr = _Stderr(sys.stderr)


class _Stdout:
    """stdout that ends with ReaderGoneError or StorageError, and after that takes anything."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except OSError as error:
            raise self._given_up(error) from None

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as error:
            raise self._given_up(error) from None

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)

    def _given_up(self, error: OSError) -> Exception:
        os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())
        if error.errno == errno.EPIPE:
            return ReaderGoneError()
        return StorageError(f"stdout: {error.strerror}")


class _Stderr:
    """stderr that nobody may be watching: what cannot be written there is nobody's loss.

    The number is pointed at nothing then, or the interpreter would fail at its last flush and exit
    with a code of its own.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            self._stream.write(text)
        except OSError:
            self._give_up()
        return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError:
            self._give_up()

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)

    def _give_up(self) -> None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())
