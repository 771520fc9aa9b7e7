"""What a test may leave behind: nothing.

A snapshot before the test knows the processes, threads and descriptors that were there; after it, whatever is new and
does not go away within a moment is a leak. A process counts as ours when it descends from this one, or carries the mark
of this test session in its environment, which everything inherits, also what was reparented or got its own session.
Memory that does not come back is a leak beyond what caches may hold; little leaks are found where one thing is done
hundreds of times, and by what a file of tests leaves alive of the objects that hold much.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import threading
import time
import uuid
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import psutil

MARK = "PI_WORKFLOWS_NB_TEST_SESSION"
DESCRIPTORS = Path("/proc/self/fd")
MOST_BYTES = 96 << 20
"""SQLite's cache of a server that outlives the test has 64 MB; the rest is for those of the interpreter."""
BYTES_OF_A_MODULE = 256 << 10
"""What a module that a test is the first to import may keep."""

HOLD_MUCH = {
    "pi_workflows_nb.client.connection": ("SocketConnection",),
    "pi_workflows_nb.notebook.attachment": ("Attachment",),
    "pi_workflows_nb.notebook.run_view": ("RunView",),
    "pi_workflows_nb.server.client": ("Client",),
    "pi_workflows_nb.server.local_connection": ("LocalConnection",),
    "pi_workflows_nb.server.nursery": ("Child", "Nursery"),
    "pi_workflows_nb.server.server": ("WorkflowServer",),
    "pi_workflows_nb.server.thread": ("ServerThread",),
    "pi_workflows_nb.server.workflow_runner_supervisor": ("WorkflowRunnerSupervisor",),
    "pi_workflows_nb.state.database": ("Database",),
}
"""Classes by module, whose objects are to be gone once nobody needs them."""


def mark_session() -> None:
    """Every process started from now on carries the mark."""
    os.environ.setdefault(MARK, uuid.uuid4().hex)


def is_ours(process: psutil.Process) -> bool:
    try:
        if any(parent.pid == os.getpid() for parent in process.parents()):
            return True
        return process.environ().get(MARK) == os.environ[MARK]
    except psutil.Error:
        return False


def new_processes(known: frozenset[int]) -> list[psutil.Process]:
    found = []
    for pid in set(psutil.pids()) - known:
        try:
            process = psutil.Process(pid)
        except psutil.Error:
            continue
        if is_ours(process):
            found.append(process)
    return found


def descriptors() -> dict[int, str]:
    """Open descriptors and what they lead to; empty where the system does not tell."""
    found = {}
    for entry in os.listdir(DESCRIPTORS) if DESCRIPTORS.exists() else ():
        try:
            found[int(entry)] = os.readlink(DESCRIPTORS / entry)
        except OSError:
            continue
    return found


def memory() -> int:
    """Bytes of this process that are in memory, and its own."""
    counted = psutil.Process().memory_info()
    return counted.rss - getattr(counted, "shared", 0)


def give_back() -> None:
    """Return what is not used any more to the system."""
    gc.collect()
    if sys.platform == "linux":
        ctypes.CDLL(None).malloc_trim(0)


def living() -> Counter[str]:
    """How many objects that hold much are reachable, by class."""
    gc.collect()
    classes = {
        getattr(sys.modules[module], name): name
        for module, names in HOLD_MUCH.items()
        if module in sys.modules
        for name in names
    }
    return Counter(classes[type(one)] for one in gc.get_objects() if type(one) in classes)


def kept_alive(before: Counter[str], patience: float = 5.0) -> list[str]:
    """What is alive, after `patience` seconds at most, beyond what was before; as lines for a person."""
    until = time.monotonic() + patience
    while (more := living() - before) and time.monotonic() < until:
        time.sleep(0.1)
    return [f"{count} of {name}" for name, count in sorted(more.items())]


def described(process: psutil.Process) -> str:
    try:
        if process.status() == psutil.STATUS_ZOMBIE:
            return f"process {process.pid}, ended, that nobody waited for"
        return f"process {process.pid}: {' '.join(process.cmdline())[:200]}"
    except psutil.Error:
        return f"process {process.pid}"


@dataclass(frozen=True)
class Snapshot:
    pids: frozenset[int]
    threads: frozenset[threading.Thread]
    descriptors: dict[int, str]
    memory: int
    modules: int

    @classmethod
    def take(cls) -> Snapshot:
        return cls(
            frozenset(psutil.pids()), frozenset(threading.enumerate()), descriptors(), memory(), len(sys.modules)
        )

    def grown(self) -> int:
        """Bytes that this process has taken and kept since, less what new modules may keep."""
        allowed = MOST_BYTES + BYTES_OF_A_MODULE * max(0, len(sys.modules) - self.modules)
        if memory() - self.memory <= allowed:
            return 0
        give_back()
        grown = memory() - self.memory
        return grown if grown > allowed else 0

    def new(self) -> list[str]:
        """What is there now and was not then, as lines for a person."""
        threads = [thread for thread in threading.enumerate() if thread not in self.threads]
        opened = [
            (number, target) for number, target in descriptors().items() if self.descriptors.get(number) != target
        ]
        return [
            *(described(process) for process in new_processes(self.pids)),
            *(f"thread {thread.name}" for thread in threads),
            *(f"descriptor {number}: {target}" for number, target in opened),
            *(f"memory: {grown >> 20} MB more" for grown in [self.grown()] if grown),
        ]

    def left(self, patience: float = 5.0) -> list[str]:
        """What is still new after `patience` seconds; returns at once when nothing is."""
        until = time.monotonic() + patience
        pause = 0.001
        while found := self.new():
            if time.monotonic() > until:
                return found
            gc.collect()
            time.sleep(pause)
            pause = min(0.1, pause * 2)
        return []

    def end_processes(self) -> None:
        """So that one leak is told once, and no machine is left with orphans."""
        for process in new_processes(self.pids):
            try:
                process.kill()
                process.wait(5)
            except psutil.Error:
                continue
