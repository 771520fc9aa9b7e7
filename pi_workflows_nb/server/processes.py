"""Which processes live, which are leftovers to end, and what a forked copy of this process must not touch.

Nothing here signals a process on the strength of its number alone. A process is ended when it is exactly the one that
was recorded, when it belongs to the session that one had opened, or when its environment carries the runner's epoch.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import time
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Protocol

from pi_workflows_nb.runner import proc
from pi_workflows_nb.runner.proc import Stat, start_identity

__all__ = [
    "Leftover",
    "ProcessRegistry",
    "close_after_fork",
    "end_all_leftovers",
    "end_leftovers",
    "forked_child",
    "is_alive",
    "same_boot",
    "start_identity",
]

END_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class Leftover:
    """A runner as it was recorded: pid and start identity (None when that was not reached), and epoch."""

    pid: int | None
    identity: str | None
    epoch: str


def same_boot(identity: str) -> bool:
    """Whether a start identity was taken in this boot and this pid namespace, so that its pid means something here."""
    return identity.rpartition(":")[0] == proc.boot_and_namespace()


def is_alive(pid: int, identity: str) -> bool | None:
    """Whether exactly this process still executes; None when this boot and namespace cannot know.

    A process that ended and was not collected yet is not alive, and neither is another one under the same number.
    """
    if not same_boot(identity):
        return None
    if start_identity(pid) != identity:
        return False
    stat = proc.read_stat(pid)
    return stat is None or not stat.ended


def is_stopped(pid: int) -> bool:
    """Whether a process is stopped by a signal (state T), and so does nothing until it is continued."""
    stat = proc.read_stat(pid)
    return stat is not None and stat.state in "Tt"


def end_leftovers(pid: int | None, identity: str | None, epoch: str) -> list[int]:
    """Kill what is left of one runner, wait until it is gone, and give the pids; see `end_all_leftovers`."""
    return end_all_leftovers([Leftover(pid, identity, epoch)])


def end_all_leftovers(leftovers: Iterable[Leftover]) -> list[int]:
    """Kill what is left of these runners, wait up to 2 s until it is gone, and give the pids of what was killed.

    Killed are the recorded processes themselves, what is in the sessions they opened, and everything whose environment
    carries one of the epochs. A runner recorded in another boot or namespace is passed over. Never raises.
    """
    wanted = [leftover for leftover in leftovers if leftover.identity is None or same_boot(leftover.identity)]
    killed: dict[int, int] = {}
    if not wanted:
        return []
    try:
        # What is killed may have forked meanwhile; nothing that was found before is found again.
        while found := [(stat, pidfd) for stat, pidfd in _find(wanted) if killed.get(stat.pid) != stat.start]:
            for stat, pidfd in found:
                killed[stat.pid] = stat.start
                _kill(stat.pid, pidfd)
            _wait(pidfd for _, pidfd in found)
    except OSError:
        pass
    return sorted(killed)


def _find(wanted: list[Leftover]) -> Iterable[tuple[Stat, int]]:
    """The living leftovers with a pidfd each (-1 where there are none); whoever gets them closes them."""
    exact = {}
    for leftover in wanted:
        ticks = (leftover.identity or "").rpartition(":")[2]
        if leftover.pid is not None and leftover.pid > 1 and ticks.isdigit():
            exact[leftover.pid] = int(ticks)
    epochs = [leftover.epoch for leftover in wanted if leftover.epoch]
    sessions = {}
    for pid, start in exact.items():
        # While a session has members its number is given to nobody. So when the number now belongs to a process that
        # started at another moment, the session of the recorded one is empty, and one of that number is a stranger's.
        leader = proc.read_stat(pid)
        if leader is None or leader.start == start:
            sessions[pid] = start
    for pid in proc.all_pids():
        if pid == os.getpid() or not _is_leftover(pid, exact, sessions, epochs):
            continue
        pidfd = _pidfd(pid)
        # Looked at again once the pidfd is held: from here on the number cannot change its owner under us.
        stat = proc.read_stat(pid)
        if stat is not None and not stat.ended and _is_leftover(pid, exact, sessions, epochs):
            yield stat, pidfd
        elif pidfd >= 0:
            os.close(pidfd)


def _is_leftover(pid: int, exact: dict[int, int], sessions: dict[int, int], epochs: list[str]) -> bool:
    stat = proc.read_stat(pid)
    if stat is None or stat.ended:
        return False
    if exact.get(pid) == stat.start:
        return True
    # A runner's session never has a terminal; a person's login that got the same number later has one.
    if stat.session in sessions and stat.start >= sessions[stat.session] and stat.terminal == 0:
        return True
    return any(proc.carries_epoch(pid, epoch) for epoch in epochs)


def _pidfd(pid: int) -> int:
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return -1


def _kill(pid: int, pidfd: int) -> None:
    try:
        if pidfd >= 0:
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        else:
            os.kill(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass


def _wait(pidfds: Iterable[int]) -> None:
    """Wait until all of them ended, at most 2 s, and close them."""
    until = time.monotonic() + END_SECONDS
    for pidfd in pidfds:
        if pidfd >= 0:
            poll = select.poll()
            poll.register(pidfd, select.POLLIN)
            poll.poll(max(0, until - time.monotonic()) * 1000)
            os.close(pidfd)


class ProcessRegistry:
    """The processes that this server answers for: its children by their epoch, and what those have registered.

    All are known by start identity; a number that was given to another process is never signalled. What a child has
    registered is ended when the child ends, also where it left the child's session and inherited nothing from it.
    """

    def __init__(self) -> None:
        self._children: dict[str, tuple[int, str]] = {}
        self._registered: dict[str, dict[tuple[int, str], None]] = {}

    def add(self, epoch: str, pid: int, identity: str) -> None:
        """A child was started."""
        self._children[epoch] = pid, identity

    def remove(self, epoch: str) -> None:
        """A child is gone, and everything of it."""
        self._children.pop(epoch, None)
        self._registered.pop(epoch, None)

    def is_stopped(self, epoch: str) -> bool:
        """Whether a child is stopped by a signal (state T), and so does nothing until it is continued."""
        pid, identity = self._children.get(epoch, (0, ""))
        return bool(pid) and is_stopped(pid) and start_identity(pid) in {identity, None}

    def problem(self, epoch: str, pid: int, identity: str) -> str | None:
        """Why a child may not register that process, or None: it must be a living descendant of the child."""
        if is_alive(pid, identity) is not True:
            return f"process {pid} is not the one of that start identity, or has ended"
        child, _ = self._children.get(epoch, (0, ""))
        if not child or pid == child or child not in proc.ancestors(pid):
            return f"process {pid} was not started by this runner"
        return None

    def register(self, epoch: str, pid: int, identity: str) -> None:
        """End that process with the child from now on."""
        self._registered.setdefault(epoch, {})[pid, identity] = None

    def unregister(self, epoch: str, pid: int, identity: str) -> None:
        """It is nobody's concern any more."""
        self._registered.get(epoch, {}).pop((pid, identity), None)

    def registered(self, epoch: str) -> list[Leftover]:
        """What a child has registered."""
        return [Leftover(pid, identity, "") for pid, identity in self._registered.get(epoch, {})]

    async def end(self, epoch: str) -> None:
        """Kill what a gone child had registered, as far as it still lives, with its session."""
        left = [one for one in self.registered(epoch) if is_alive(one.pid or 0, one.identity or "") is not False]
        if left:
            await asyncio.to_thread(end_all_leftovers, left)


class Closable(Protocol):
    """Whatever has a `close`: a socket, a pipe's end as a file object."""

    def close(self) -> object:
        """Close the descriptor."""


_open: dict[int, weakref.ref[Closable]] = {}
_hook_installed = False
_first_pid = os.getpid()


def close_after_fork(*things: Closable) -> None:
    """Have these closed in every child that this process forks, so that no copy of a pipe or socket outlives us.

    Held weakly: what was closed or forgotten here needs no further word. A connection of SQLite must not be given:
    closing a copy in a child is what must never happen.
    """
    global _hook_installed
    if not _hook_installed:
        _hook_installed = True
        os.register_at_fork(after_in_child=_close_all)
    for thing in things:
        _open[id(thing)] = weakref.ref(thing, _forgetter(id(thing)))


def _forgetter(key: int) -> Callable[[object], None]:
    def forget(_gone: object) -> None:
        _open.pop(key, None)

    return forget


def _close_all() -> None:
    for reference in list(_open.values()):
        thing = reference()
        if thing is not None:
            with contextlib.suppress(Exception):
                thing.close()
    _open.clear()


def forked_child(home: int | None = None) -> bool:
    """Whether this process is a forked copy of the one with pid `home` (default: of the one that first imported this).

    An object that belongs to one process notes `os.getpid()` when it is made and refuses to work where this is true.
    """
    return os.getpid() != (_first_pid if home is None else home)
