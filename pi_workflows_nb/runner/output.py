"""What user code prints: one file per attempt, filled through the standard descriptors.

Descriptors 1 and 2 point at the runner's own log. When an attempt that printed anything ends, that file takes the
attempt's name and a new one takes its place, so that everything is caught, whatever wrote it: `print`, a C library, a
child process. An attempt that printed nothing costs a few calls of `fstat`, which also see whether the attempt closed
those descriptors or put something else in their place; they are put right before the next one starts.
"""

from __future__ import annotations

import errno
import faulthandler
import fcntl
import io
import os
import sys
import threading
from collections import deque
from pathlib import Path
from typing import Any, Final

MAX_BYTES: Final = 10 << 20
_PASSING: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
CUT: Final = b"\n[the output of this attempt was cut here: it is longer than 10 MiB]\n"
REMEMBERED: Final = 64
"""How many finished logs are looked after, in which children of their attempts may still write."""


def cut(path: Path) -> bool:
    """Bring a log that is too long to its greatest length, with a last line that says so; tells whether it was.

    May be repeated, and done by several processes while others append to the file: the result is always the same.
    """
    if path.stat().st_size <= MAX_BYTES:
        return False
    file = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.ftruncate(file, MAX_BYTES)
        os.pwrite(file, CUT, MAX_BYTES)
        os.ftruncate(file, MAX_BYTES + len(CUT))
    finally:
        os.close(file)
    return True


class AttemptLog:
    """The log of the attempt that runs. `path` is where it lies while it runs; finished ones lie beside it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._cut = False
        self._leads_to: tuple[int, int] | None = None
        self._finished: deque[Path] = deque(maxlen=REMEMBERED)
        self._lock = threading.Lock()
        self._open()
        # The streams of before may hold text of the process this one was forked from, and write it when collected.
        self._before = (sys.stdin, sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__)
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stdout = sys.__stdout__ = self._stdout = _stream(1)  # type: ignore[misc]
        sys.stderr = sys.__stderr__ = self._stderr = _stream(2)  # type: ignore[misc]
        faulthandler.enable(2)

    def end_attempt(self, attempt_id: str) -> None:
        """Give what was printed to this attempt."""
        with self._lock:
            flushed = self.flush()
            size = self._size()
            if size is None:
                # The attempt closed or redirected them: what Python still holds back goes where it belongs.
                self._open()
                flushed = self.flush()
                size = self._size()
            if not flushed:
                self._renew_streams()
            if not (size or self._cut):
                return
            self._check()
            finished = self._path.with_name(f"{attempt_id}.log")
            try:
                self._path.rename(finished)
            except OSError:
                return  # the folder is gone for now: what follows is added to this one
            self._finished.append(finished)
            self._cut = False
            self._open()

    def check(self) -> None:
        """Cut logs that have grown too long; cheap, may be called often and on any thread."""
        with self._lock:
            self._check()
            for path in self._finished:
                try:
                    cut(path)
                except OSError:
                    pass  # removed with its run, or unreachable for now

    def flush(self) -> bool:
        """Write what Python still holds back; tells whether it could be."""
        try:
            self._stdout.flush()
            self._stderr.flush()
        except (OSError, ValueError, RuntimeError):
            return False  # the user's code closed them, the disk is full, or a signal came in the middle of a write
        return True

    def _renew_streams(self) -> None:
        """The next attempt can print again; what was put in the place of a stream stays."""
        if self._stdout.closed:
            closed, self._stdout = self._stdout, _stream(1)
            sys.stdout = self._stdout if sys.stdout is closed else sys.stdout
            sys.__stdout__ = self._stdout  # type: ignore[misc]
        if self._stderr.closed:
            closed, self._stderr = self._stderr, _stream(2)
            sys.stderr = self._stderr if sys.stderr is closed else sys.stderr
            sys.__stderr__ = self._stderr  # type: ignore[misc]

    def _check(self) -> None:
        try:
            if cut(self._path) and not self._cut:
                self._cut = True
                if self._size() is not None:
                    self._open()
        except OSError:
            pass  # the folder is gone or the disk is full: output is the least of it

    def _size(self) -> int | None:
        """How long the log is, 0 once it was cut; None when the descriptors do not lead to it any more."""
        try:
            out, error = os.fstat(1), os.fstat(2)
        except OSError:
            return None
        if not (out.st_dev, out.st_ino) == self._leads_to == (error.st_dev, error.st_ino):
            return None
        return out.st_size

    def _open(self) -> None:
        """Point the standard descriptors at the log, or at nothing once it was cut."""
        try:
            file = -1 if self._cut else _opened(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        except OSError:
            file = -1
        try:
            if file < 0:
                file = _opened(os.devnull, os.O_WRONLY)
            else:
                os.fchmod(file, 0o600)  # whatever umask the user's code has set
            silence = _opened(os.devnull, os.O_RDONLY)
        except OSError:
            return  # not one descriptor is to be had
        status = os.fstat(file)
        self._leads_to = status.st_dev, status.st_ino
        os.dup2(file, 1)
        os.dup2(file, 2)
        os.dup2(silence, 0)
        os.close(file)
        os.close(silence)


def _opened(path: str | Path, flags: int) -> int:
    """Open a file, and never as one of the standard descriptors, which may be free."""
    first = os.open(path, flags | os.O_CLOEXEC, 0o600)
    if first > 2:
        return first
    try:
        return fcntl.fcntl(first, fcntl.F_DUPFD_CLOEXEC, 3)
    finally:
        os.close(first)


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
