"""The processes of one trial: who they are, killing some of them, and what is left of them.

All carry the trial's mark in their environment. Nothing without it is ever signalled, and a signal goes through a pidfd
that was held before the mark was looked for.
"""

from __future__ import annotations

import os
import random
import select
import signal
import time
from collections.abc import Iterable
from contextlib import ExitStack
from typing import Final

MARK: Final = "PI_WORKFLOWS_NB_TRIAL"


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def children(pid: int) -> list[int]:
    """The children of a process, of all its threads."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
    return [int(child) for thread in threads for child in _read(f"/proc/{pid}/task/{thread}/children").split()]


def lives(pid: int) -> bool:
    """Whether a process executes anything."""
    stat = _read(f"/proc/{pid}/stat")
    return bool(stat) and stat[stat.rindex(b")") + 2 :].split()[0] not in (b"Z", b"X")


class Family:
    """The processes that carry one mark."""

    def __init__(self, mark: str) -> None:
        self._mark = f"{MARK}={mark}".encode()

    def owns(self, pid: int) -> bool:
        return self._mark in _read(f"/proc/{pid}/environ").split(b"\0")

    def roles(self, kernel: int, server: int | None, placement: str) -> dict[str, list[int]]:
        """The living processes by what they are; `server` is the pid in the state file, if one stands there."""
        found: dict[str, list[int]] = {}
        if lives(kernel):
            found["kernel"] = [kernel]
        owners = [kernel]
        if placement == "process":
            started = [pid for pid in children(kernel) if b"pi_workflows_nb.server\0" in _read(f"/proc/{pid}/cmdline")]
            owners = sorted({pid for pid in [*started, *([server] if server else [])] if lives(pid) and self.owns(pid)})
            if owners:
                found["server"] = owners
        nurseries = [
            pid for owner in owners for pid in children(owner) if _read(f"/proc/{pid}/comm") == b"pi-nursery\n"
        ]
        if nurseries:
            found["nursery"] = nurseries
        runners = [pid for nursery in nurseries for pid in children(nursery)]
        if runners:
            found["runner"] = runners
        return found

    def kill(self, pids: Iterable[int]) -> list[int]:
        """SIGKILL to those of them that are of this family, at once, and wait until they are gone. Gives those hit."""
        with ExitStack() as opened:
            held = []
            for pid in pids:
                try:
                    pidfd = os.pidfd_open(pid)
                except ProcessLookupError:
                    continue
                opened.callback(os.close, pidfd)
                if self.owns(pid):
                    held.append((pid, pidfd))
            hit = []
            for pid, pidfd in held:
                try:
                    signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                except ProcessLookupError:
                    continue
                hit.append(pid)
            poll = select.poll()
            for pid, pidfd in held:
                poll.register(pidfd, select.POLLIN)
                if not poll.poll(10_000):
                    raise AssertionError(f"process {pid} did not die of SIGKILL within 10 s")
                poll.unregister(pidfd)
            return hit

    def living(self) -> list[int]:
        """All that execute, wherever they were moved to."""
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
        return [pid for pid in pids if pid != os.getpid() and self.owns(pid) and lives(pid)]

    def left(self, patience: float) -> list[str]:
        """What still lives after `patience` seconds, as text; at once when nothing does."""
        until = time.monotonic() + patience
        while pids := self.living():
            if time.monotonic() > until:
                commands = {pid: _read(f"/proc/{pid}/cmdline").replace(b"\0", b" ").decode()[:160] for pid in pids}
                return [f"process {pid}: {command}" for pid, command in commands.items()]
            time.sleep(0.01)
        return []

    def end(self) -> None:
        """Kill whatever is left."""
        for _ in range(20):
            pids = self.living()
            if not pids:
                return
            self.kill(pids)


def subset(choice: random.Random, roles: Iterable[str]) -> list[str]:
    """A random part of the roles, not empty, each equally likely, in random order."""
    present = sorted(roles)
    mask = choice.randrange(1, 1 << len(present))
    chosen = [role for bit, role in enumerate(present) if mask >> bit & 1]
    choice.shuffle(chosen)
    return chosen
