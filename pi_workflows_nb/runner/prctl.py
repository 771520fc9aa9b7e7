"""The four things a process can ask of Linux about itself that the standard library has no call for.

On other systems each of them does nothing and says so with False.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

from pi_workflows_nb.runner import proc

PR_SET_PDEATHSIG = 1
PR_SET_NAME = 15
PR_SET_CHILD_SUBREAPER = 36

_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def _prctl(option: int, argument: int | bytes) -> bool:
    if _libc is None:
        return False
    value = ctypes.c_char_p(argument) if isinstance(argument, bytes) else ctypes.c_ulong(argument)
    return bool(_libc.prctl(ctypes.c_int(option), value, ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0)) == 0)


def die_with_parent() -> bool:
    """Ask for SIGKILL when the thread that forked this process ends. The caller then checks that it still lives."""
    return _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def become_subreaper() -> bool:
    """Become the new parent of every descendant whose own parent ends. Not inherited by a fork."""
    return _prctl(PR_SET_CHILD_SUBREAPER, 1)


def set_name(name: str) -> bool:
    """Set the name that `ps` and `top` show, cut to 15 bytes."""
    return _prctl(PR_SET_NAME, name.encode()[:15])


def find_epoch_mark() -> int | None:
    """The address of the epoch's value in the environment that this process was exec'ed with, None if not found.

    The system shows that memory as /proc/PID/environ, and a fork copies it. Written there, the epoch also marks
    those descendants of a runner that are never exec'ed, which `os.environ` cannot do.
    """
    text = proc.read_file("/proc/self/stat")
    if not text:
        return None
    field = text[text.rindex(b")") + 2 :].split()
    start, end = int(field[47]), int(field[48])
    if not 0 < start < end:
        return None
    wanted = f"{proc.EPOCH_VARIABLE}={proc.EPOCH_PLACEHOLDER}\0".encode()
    offset = (b"\0" + ctypes.string_at(start, end - start)).find(b"\0" + wanted)
    return None if offset < 0 else start + offset + len(proc.EPOCH_VARIABLE) + 1


def write_epoch_mark(address: int | None, epoch: str) -> bool:
    """Write the epoch where `find_epoch_mark` found the place; False when there is none or the epoch is too long."""
    value = os.fsencode(epoch)
    if address is None or len(value) > proc.EPOCH_ROOM:
        return False
    ctypes.memmove(address, value.ljust(proc.EPOCH_ROOM, b"\0"), proc.EPOCH_ROOM)
    return True
