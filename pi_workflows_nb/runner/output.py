"""What user code prints: one file per attempt, filled through the standard descriptors.

Descriptors 1 and 2 point at the runner's own log. When an attempt that printed anything ends, that file takes the
attempt's name and a new one takes its place, so that everything is caught, whatever wrote it: `print`, a C library, a
child process. An attempt that printed nothing costs one `fstat`.
"""

from __future__ import annotations

import errno
import faulthandler
import io
import os
import sys
from pathlib import Path
from typing import Any, Final

MAX_BYTES: Final = 10 << 20
_PASSING: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO})
CUT: Final = b"\n[the output of this attempt was cut here: it is longer than 10 MiB]\n"


class AttemptLog:
    """The log of the attempt that runs. `path` is where it lies while it runs; finished ones lie beside it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._cut = False
        self._open()
        silence = os.open(os.devnull, os.O_RDONLY)
        os.dup2(silence, 0)
        os.close(silence)
        # The streams of before may hold text of the process this one was forked from, and write it when collected.
        self._before = (sys.stdin, sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__)
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stdout = sys.__stdout__ = self._stdout = _stream(1)  # type: ignore[misc]
        sys.stderr = sys.__stderr__ = self._stderr = _stream(2)  # type: ignore[misc]
        faulthandler.enable(2)

    def end_attempt(self, attempt_id: str) -> None:
        """Give what was printed to this attempt."""
        self.flush()
        size = os.fstat(1).st_size if not self._cut else 1
        if not size:
            return
        self.check()
        try:
            self._path.rename(self._path.with_name(f"{attempt_id}.log"))
        except OSError:
            return  # the folder is gone for now: what follows is added to this one
        self._cut = False
        self._open()

    def check(self) -> None:
        """Cut the log when it has grown too long; cheap, may be called often and on any thread."""
        try:
            if self._cut:
                # Child processes still write to the file that was cut.
                if self._path.stat().st_size > MAX_BYTES + len(CUT):
                    os.truncate(self._path, MAX_BYTES + len(CUT))
                return
            if os.fstat(1).st_size <= MAX_BYTES:
                return
            self._cut = True
            os.truncate(self._path, MAX_BYTES)
            os.write(1, CUT)
            silence = os.open(os.devnull, os.O_WRONLY)
            os.dup2(silence, 1)
            os.dup2(silence, 2)
            os.close(silence)
        except OSError:
            pass  # the folder is gone or the disk is full: output is the least of it

    def flush(self) -> None:
        """Write what Python still holds back."""
        try:
            self._stdout.flush()
            self._stderr.flush()
        except (OSError, ValueError, RuntimeError):
            pass  # the user's code closed them, the disk is full, or a signal came in the middle of a write

    def _open(self) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        try:
            file = os.open(self._path, flags, 0o600)
        except OSError:
            file = os.open(os.devnull, os.O_WRONLY)
        os.dup2(file, 1)
        os.dup2(file, 2)
        os.close(file)


class _Forgiving(io.FileIO):
    """A log that a full disk cuts short: no node fails because of what it prints."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data) or 0
        except OSError as error:
            if error.errno not in _PASSING:
                raise
            return memoryview(data).nbytes


def _stream(descriptor: int) -> io.TextIOWrapper:
    raw = _Forgiving(descriptor, "w", closefd=False)
    return io.TextIOWrapper(io.BufferedWriter(raw), encoding="utf-8", errors="backslashreplace", line_buffering=True)
