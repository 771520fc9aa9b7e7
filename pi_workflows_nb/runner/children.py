"""What the nursery started, what that left behind, and how both end.

A child that ended keeps its number until it is collected, and so does its process group. Everything that signals by
number therefore happens before: the group of a runner is killed between its end and its collection.

A runner inherits the orphans of its own descendants, and the nursery inherits them from a runner that ended. So
whatever is a child of the nursery and no runner belonged to a runner that is gone; killing it brings its own children
here, until none is left. That needs no search through all processes, and finds those too that left the session.
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from typing import Final

from pi_workflows_nb.runner import proc

LEFTOVER_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class End:
    """The end of one runner; `status` is its exit code, or the negative number of the signal that ended it."""

    runner: int
    pid: int
    status: int


class Children:
    """The runners, by the server's ids and by pid, and what ended runners left."""

    def __init__(self) -> None:
        self._runner_of: dict[int, int] = {}
        self._pid_of: dict[int, int] = {}
        self._ended: list[End] = []
        self._patient_until = 0.0
        self._leftovers: list[int] = []
        self._immortal: set[int] = set()

    @property
    def unreported(self) -> bool:
        """Whether a runner ended whose end `ends` has not given yet."""
        return bool(self._ended)

    def add(self, runner: int, pid: int) -> None:
        """Note a child that was just forked."""
        self._pid_of[runner] = pid
        self._runner_of[pid] = runner

    def signal(self, runner: int, number: int) -> None:
        """Signal a runner's process group; nothing happens when it was collected already."""
        pid = self._pid_of.get(runner)
        if pid is not None:
            _signal_group(pid, number)

    def kill_all(self) -> None:
        """SIGKILL to every runner's group."""
        for pid in self._runner_of:
            _signal_group(pid, signal.SIGKILL)

    def collect(self) -> bool:
        """Collect every child that ended, and kill what an ended runner left. True while there are children."""
        while (found := self._next_ended()) is not None:
            pid, status = found
            self._immortal.discard(pid)
            runner = self._runner_of.pop(pid, None)
            if runner is not None:
                del self._pid_of[runner]
                self._ended.append(End(runner, pid, os.waitstatus_to_exitcode(status)))
                self._patient_until = time.monotonic() + LEFTOVER_SECONDS
        inherited = [pid for pid in proc.own_children() if pid not in self._runner_of]
        for pid in inherited:
            _signal(pid, signal.SIGKILL)
        self._leftovers = [pid for pid in inherited if pid not in self._immortal]
        return bool(self._runner_of or inherited)

    def ends(self) -> list[End]:
        """The runners of which nothing is left, each given once.

        What does not die within a second (a disk that hangs) is waited for no longer.
        """
        if self._leftovers and time.monotonic() < self._patient_until:
            return []
        self._immortal.update(self._leftovers)
        ended, self._ended = self._ended, []
        return ended

    def _next_ended(self) -> tuple[int, int] | None:
        """Collect one child that ended: its pid and wait status, None when there is none."""
        try:
            if not hasattr(os, "waitid"):
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid in self._runner_of:
                    _signal_group(pid, signal.SIGKILL)
                return (pid, status) if pid else None
            seen = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if seen is None:
                return None
            if seen.si_pid in self._runner_of:
                _signal_group(seen.si_pid, signal.SIGKILL)
            return os.waitpid(seen.si_pid, 0)
        except ChildProcessError:
            return None


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        pass


def _signal_group(pid: int, number: int) -> None:
    """Signal the group that a child of ours leads, or the child alone when it is too young to lead one."""
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        _signal(pid, number)
    except PermissionError:
        pass
