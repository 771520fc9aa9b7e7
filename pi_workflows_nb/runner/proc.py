"""What the system says about processes, and who a process is.

A pid alone names nobody: it is given away again as soon as its owner is gone. A *start identity* adds the boot, the
pid namespace and the moment of the start, so that two processes never share one. Everything here reads small files
under /proc; on systems without it a few questions are answered through `ps`, and the others with "unknown".
"""

from __future__ import annotations

import os
import sys
from functools import cache
from typing import NamedTuple

EPOCH_VARIABLE = "PI_WORKFLOWS_RUNNER_EPOCH"
# What stands in a nursery's environment where each of its runners writes its own epoch over it.
EPOCH_ROOM = 96
EPOCH_PLACEHOLDER = "-" * EPOCH_ROOM
OOM_ADJUSTMENT = "/proc/self/oom_score_adj"
OOM_STEP = 500


class Stat(NamedTuple):
    """The facts of one process: `start` in clock ticks since boot, `terminal` is 0 without a controlling terminal."""

    pid: int
    state: str
    parent: int
    group: int
    session: int
    terminal: int
    threads: int
    start: int

    @property
    def ended(self) -> bool:
        """Whether it executes nothing any more, even if nobody has collected its status yet."""
        return self.state in "ZXx" and self.threads <= 1


def read_file(path: str) -> bytes | None:
    """The whole content of a file under /proc, or None when its process is gone or not ours to read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        parts = []
        while part := os.read(descriptor, 1 << 16):
            parts.append(part)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return b"".join(parts)


def read_stat(pid: int) -> Stat | None:
    """The facts of a process, or None when there is none of that number (or no /proc)."""
    text = read_file(f"/proc/{pid}/stat")
    if not text:
        return None
    # The name of the program stands in parentheses and may hold spaces and parentheses itself.
    field = text[text.rindex(b")") + 2 :].split()
    return Stat(
        pid=pid,
        state=field[0].decode(),
        parent=int(field[1]),
        group=int(field[2]),
        session=int(field[3]),
        terminal=int(field[4]),
        threads=int(field[17]),
        start=int(field[19]),
    )


def all_pids() -> list[int]:
    """The numbers of all processes that can be seen; empty without /proc."""
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def thread_count() -> int:
    """How many threads this process has; 1 where the system does not say."""
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return 1


def own_children() -> list[int]:
    """The direct children of this process, dead ones that were not collected yet included."""
    me = os.getpid()
    # Only for a process with one thread: each thread has a list of its own.
    listed = read_file(f"/proc/self/task/{me}/children")
    if listed is not None:
        return [int(pid) for pid in listed.split()]
    stats = (read_stat(pid) for pid in all_pids())
    return [stat.pid for stat in stats if stat is not None and stat.parent == me]


def ancestors(pid: int) -> list[int]:
    """The parent of a process, its parent, and so on."""
    found: list[int] = []
    while (stat := read_stat(pid)) is not None and stat.parent > 1 and stat.parent not in found:
        pid = stat.parent
        found.append(pid)
    return found


def carries_epoch(pid: int, epoch: str) -> bool:
    """Whether a process was started inside the runner of that epoch, as its environment says."""
    environment = read_file(f"/proc/{pid}/environ")
    return environment is not None and f"{EPOCH_VARIABLE}={epoch}".encode() in environment.split(b"\0")


@cache
def boot_and_namespace() -> str | None:
    """The part of a start identity that all processes of this boot and this pid namespace share."""
    if sys.platform == "darwin":
        boot = _answer("sysctl", "-n", "kern.boottime")
        return None if boot is None else "darwin:" + boot.split("}")[0].strip("{ ").replace(" ", "") + ":0"
    boot_id = read_file("/proc/sys/kernel/random/boot_id")
    if boot_id is None:
        return None
    try:
        return f"linux:{boot_id.decode().strip()}:{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return None


def first_to_be_killed() -> bytes | None:
    """What a child writes to `OOM_ADJUSTMENT` so that, when memory is short, the system rather kills it than us.

    None where the system has no such thing.
    """
    ours = read_file(OOM_ADJUSTMENT)
    return None if ours is None else str(min(1000, int(ours) + OOM_STEP)).encode()


def write_file(path: str, data: bytes) -> None:
    """Write a file under /proc; nothing happens where that may not be."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(descriptor, data)
        finally:
            os.close(descriptor)
    except OSError:
        pass


def start_identity(pid: int) -> str | None:
    """Who the process `pid` is: `linux:<boot id>:<pid namespace>:<start ticks>`; None when there is no such process."""
    shared = boot_and_namespace()
    if shared is None:
        return None
    if sys.platform == "darwin":
        started = _answer("ps", "-o", "lstart=", "-p", str(pid))
        return f"{shared}:{started.replace(' ', '_').replace(':', '.')}" if started else None
    stat = read_stat(pid)
    return None if stat is None else f"{shared}:{stat.start}"


def _answer(*command: str) -> str | None:
    import subprocess

    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip() if answer.returncode == 0 else None
