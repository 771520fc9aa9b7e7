"""All processes that one command has started, found again when they must end.

Links from child to parent break when a process between them ends first, so each command also carries a mark in its
environment, which everything that descends from it inherits and nothing else has.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Final

MARK: Final = "PI_WORKFLOWS_COMMAND"
_ROUNDS: Final = 50
_PAUSE: Final = 0.02


class ProcessTree:
    """The process `root` and what descends from it or carries `mark` in its environment."""

    def __init__(self, root: int, mark: str) -> None:
        self._root = root
        self._mark = f"{MARK}={mark}".encode()

    def members(self) -> list[int]:
        """The ids of those that live now, the root among them until it is waited for; zombies do not count."""
        if not Path("/proc/self/stat").exists():
            return self._members_by_ps()
        parents: dict[int, int] = {}
        found: set[int] = set()
        for entry in os.scandir("/proc"):
            if not entry.name.isdigit():
                continue
            pid = int(entry.name)
            state, parent = _state_and_parent(pid)
            if state in ("Z", "X", ""):
                continue
            parents[pid] = parent
            if pid == self._root or self._is_marked(pid):
                found.add(pid)
        return sorted(_with_descendants(found, parents) - {os.getpid()})

    def signal(self, number: int) -> bool:
        """Send a signal to every member; whether there was one."""
        members = self.members()
        for pid in members:
            try:
                os.kill(pid, number)
            except OSError:
                pass  # it has ended, or taken another user's rights
        return bool(members)

    def kill(self) -> None:
        """End every member, also those that are being started meanwhile; returns after at most a second."""
        for _ in range(_ROUNDS):
            if not self.signal(signal.SIGKILL):
                return
            time.sleep(_PAUSE)

    def _is_marked(self, pid: int) -> bool:
        try:
            return self._mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            return False

    def _members_by_ps(self) -> list[int]:
        listing = subprocess.run(["ps", "-axo", "pid=,ppid=,stat="], capture_output=True, text=True, check=False)
        parents: dict[int, int] = {}
        for line in listing.stdout.splitlines():
            pid, parent, state = line.split(None, 2)
            if not state.startswith("Z"):
                parents[int(pid)] = int(parent)
        return sorted(_with_descendants({self._root} & parents.keys(), parents) - {os.getpid()})


def _state_and_parent(pid: int) -> tuple[str, int]:
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return "", 0
    fields = stat[stat.rindex(b")") + 2 :].split()
    return fields[0].decode(), int(fields[1])


def _with_descendants(found: set[int], parents: dict[int, int]) -> set[int]:
    grown = set(found)
    size = -1
    while size != len(grown):
        size = len(grown)
        grown.update(pid for pid, parent in parents.items() if parent in grown)
    return grown
