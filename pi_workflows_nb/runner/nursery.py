"""The process that forks runners, watches over them, and leaves nothing behind.

A server must not fork: it has threads, and its process belongs to a person. So it starts this one by exec, which has
one thread, has imported what every runner needs, and does nothing but fork on request, collect what ended, and pass
signals on. Three promises make the rest of the system simple:

- A runner's end is reported once, with its exact status, and only when every process it had started is gone too.
- A signal reaches exactly the runner that was meant: it is sent only while that runner has not been collected, so its
  number cannot have been given to another process.
- When the server ends, however it ends, everything started here is killed at once.

The second and third rest on the system: a pidfd of the server that becomes readable at its death (the end of the
control socket is the second sign, since a forked child of the server may hold a copy of that socket), SIGKILL for a
runner whose nursery died, and the place of this process, and of each runner, as the one that inherits orphans.

What is said on the control socket stands in `wire.nursery_messages`; what else is heard there ends this process.
"""

from __future__ import annotations

import fcntl
import gc
import importlib
import os
import select
import signal
import socket
import sys
import time
import traceback
import types
from array import array
from collections import deque
from typing import Final, NoReturn

from pi_workflows_nb.runner import birth, prctl, proc
from pi_workflows_nb.runner.birth import Entry
from pi_workflows_nb.runner.children import Children
from pi_workflows_nb.runner.guard import Guard
from pi_workflows_nb.wire import nursery_messages as messages
from pi_workflows_nb.wire.errors import ProtocolError

QUIET_LIBRARIES: Final = {
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}
GUARD_SECONDS: Final = 2.0
LEAVE_SECONDS: Final = 5.0


class Nursery:
    """The state of this process: its runners, by the server's ids and by pid, and what waits to be said."""

    def __init__(self, control: socket.socket, server: int) -> None:
        self.control = control
        self.server = server
        self.pid = os.getpid()
        self.environment = {name: value for name, value in os.environ.items() if name != proc.EPOCH_VARIABLE}
        self.mark = prctl.find_epoch_mark()
        self.sacrifice = proc.first_to_be_killed()
        self.entry: Entry | None = None
        self.guard: Guard | None = None
        self.guard_until: float | None = None
        self.children = Children()
        self.incoming = bytearray()
        self.descriptors: deque[int] = deque()
        self.outgoing = bytearray()
        self.woken, self.waker = os.pipe()
        os.set_blocking(self.woken, False)
        os.set_blocking(self.waker, False)
        control.setblocking(False)
        self.poll = select.poll()
        for descriptor in (control.fileno(), server, self.woken):
            if descriptor >= 0:
                self.poll.register(descriptor, select.POLLIN)

    # The loop

    def serve(self) -> NoReturn:
        """Do what the server asks and what the system reports, until the server says stop or is gone."""
        while True:
            ready = dict(self.poll.poll(self.patience()))
            if self.server in ready:
                self.leave()
            if self.woken in ready:
                _drain(self.woken)
            if self.woken in ready or self.children.unreported:
                self.children.collect()
                self.report_ends()
            if self.control.fileno() in ready:
                self.receive()
            if self.guard_until is not None:
                self.take_guard()
            if self.outgoing:
                self.send()

    def patience(self) -> int | None:
        """How long to wait for the next thing, in milliseconds; None: until it comes."""
        if self.guard_until is not None:
            return 2
        return 50 if self.children.unreported else None

    def receive(self) -> None:
        """Read what has come, and act on every whole line of it."""
        room = socket.CMSG_SPACE(64 * array("i").itemsize)
        try:
            data, ancillary, flags, _ = self.control.recvmsg(1 << 18, room, getattr(socket, "MSG_CMSG_CLOEXEC", 0))
        except BlockingIOError:
            return
        except OSError:
            self.leave()
        for level, kind, content in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                passed = array("i")
                passed.frombytes(content[: len(content) - len(content) % passed.itemsize])
                self.descriptors.extend(passed)
        if not data or flags & socket.MSG_CTRUNC:
            self.leave()
        self.incoming += data
        if b"\n" not in data:
            if len(self.incoming) > messages.MAX_COMMAND_BYTES:
                self.leave()
            return
        *lines, rest = self.incoming.split(b"\n")
        self.incoming = rest
        for line in lines:
            try:
                command = messages.read_command(bytes(line))
            except ProtocolError as error:
                sys.stderr.write(f"{error}\n")
                self.leave()
            self.act(command)

    def act(self, command: messages.Command) -> None:
        """One command of the server."""
        match command:
            case messages.Spawn():
                self.spawn(command)
            case messages.Signal():
                self.children.signal(command.id, command.signal)
            case messages.Begin():
                self.begin(command)
            case messages.Guard():
                path = os.fsdecode(command.path)
                if self.guard is not None and self.guard.path != path:
                    self.guard.release()
                    self.guard = None
                self.guard = self.guard or Guard(path)
                self.guard_until = time.monotonic() + GUARD_SECONDS
            case messages.Unguard():
                if self.guard is not None:
                    self.guard.release()
                self.guard = self.guard_until = None
                self.say(messages.Answer("unguard", None))
            case messages.Stop():
                self.leave()

    def say(self, event: messages.Event) -> None:
        """Tell the server, as soon as it listens."""
        self.outgoing += messages.encode(event) + b"\n"

    def send(self) -> None:
        """Hand over what waits; the rest goes when the socket has room again."""
        try:
            del self.outgoing[: self.control.send(self.outgoing)]
        except BlockingIOError:
            pass
        except OSError:
            self.leave()
        self.poll.modify(self.control.fileno(), select.POLLIN | (select.POLLOUT if self.outgoing else 0))

    # What is done once, before the first fork

    def begin(self, command: messages.Begin) -> None:
        """Import what all runners share, and make it cheap to fork."""
        os.environ.update(QUIET_LIBRARIES)
        try:
            module, _, function = command.entry.partition(":")
            self.entry = getattr(importlib.import_module(module), function)
            self.refuse_threads(module)
            for name in command.preload:
                importlib.import_module(name)
                self.refuse_threads(name)
        except BaseException as error:
            self.entry = None
            text = str(error) if isinstance(error, _ThreadStartedError) else traceback.format_exc()
            self.say(messages.Answer("begin", text.encode(errors="replace").decode()))
            return
        gc.collect()
        gc.disable()
        gc.freeze()
        self.say(messages.Answer("begin", None))

    def refuse_threads(self, module: str) -> None:
        """An error that names the module when there is a second thread now."""
        # A thread that only helped during the import gets a moment to end.
        for _ in range(20):
            if proc.thread_count() == 1:
                return
            time.sleep(0.005)
        raise _ThreadStartedError(
            f"importing {module!r} starts a thread, and a process with threads cannot be forked safely; "
            f"leave it out of preload= and import it inside the nodes that need it"
        )

    # Runners

    def spawn(self, command: messages.Spawn) -> None:
        """Fork one runner."""
        if not self.descriptors:
            self.say(messages.Refused(command.id, "the runner's channel did not arrive"))
            return
        descriptor = self.descriptors.popleft()
        threads = proc.thread_count()
        problem: str | None = None
        if self.entry is None:
            problem = "it is not ready"
        elif threads != 1:
            problem = f"it has {threads} threads, and forking would copy their locks but not them"
        else:
            try:
                pid = self.fork(self.entry, command, descriptor)
            except OSError as error:
                problem = f"the system refused the fork: {error.strerror}"
        os.close(descriptor)
        if problem is not None:
            self.say(messages.Refused(command.id, problem))
            return
        self.children.add(command.id, pid)
        self.say(messages.Spawned(command.id, pid, proc.start_identity(pid)))

    def fork(self, entry: Entry, command: messages.Spawn, descriptor: int) -> int:
        """Make the runner, and give its pid."""
        wanted = self.environment
        if command.environment is not None:
            wanted = {os.fsdecode(name): os.fsdecode(value) for name, value in command.environment}
        removed, changed = birth.differences(birth.with_epoch(wanted, command.epoch))
        others = (self.control.fileno(), self.server, self.woken, self.waker, *self.descriptors)
        guards = self.guard.descriptors if self.guard is not None else ()
        channel = socket.socket(fileno=descriptor)
        to_be = birth.Birth(
            entry=entry,
            channel=channel,
            mode=command.mode,
            log=os.fsdecode(command.log),
            epoch=command.epoch,
            folder=os.fsdecode(command.folder),
            mark=self.mark,
            parent=self.pid,
            sacrifice=self.sacrifice,
            removed=removed,
            changed=changed,
            closed=[number for number in (*others, *guards) if number >= 0],
        )
        try:
            pid = os.fork()
            if pid == 0:
                to_be.live()
        finally:
            channel.detach()
        return pid

    # Ends

    def report_ends(self) -> None:
        """Tell the server which runners ended."""
        for end in self.children.ends():
            self.say(messages.Exited(end.runner, end.pid, end.status))

    def leave(self) -> NoReturn:
        """Kill everything, collect it, and end."""
        self.children.kill_all()
        until = time.monotonic() + LEAVE_SECONDS
        while self.children.collect() and time.monotonic() < until:
            select.select([self.woken], [], [], 0.02)
            _drain(self.woken)
        self.report_ends()
        try:
            self.control.send(self.outgoing)
        except OSError:
            pass
        os._exit(0)

    def take_guard(self) -> None:
        """One try for the locks, and the answer when it worked or can no longer work."""
        assert self.guard is not None
        assert self.guard_until is not None
        problem: str | None = None
        try:
            if not self.guard.take():
                if time.monotonic() < self.guard_until:
                    return
                problem = "another program holds it locked"
        except OSError as error:
            problem = error.strerror or str(error)
        self.guard_until = None
        if problem is not None:
            self.guard.release()
        self.say(messages.Answer("guard", problem))


class _ThreadStartedError(Exception):
    pass


def _drain(descriptor: int) -> None:
    try:
        while len(os.read(descriptor, 4096)) == 4096:
            pass
    except BlockingIOError:
        pass


def _watch_parent() -> int:
    """A descriptor that becomes readable when the server ends, where there are no pidfds; -1 without such a thing."""
    if sys.platform == "darwin":
        queue = select.kqueue()
        _kept.append(queue)
        event = select.kevent(os.getppid(), select.KQ_FILTER_PROC, select.KQ_EV_ADD, select.KQ_NOTE_EXIT)
        queue.control([event], 0, 0)
        return queue.fileno()
    return -1


_kept: list[object] = []


def main() -> NoReturn:
    """Be the nursery. Arguments: the descriptor of the control socket, and that of the server's pidfd or -1."""
    control, server = int(sys.argv[1]), int(sys.argv[2])
    sys.argv[:] = [""]
    # User code must not find the nursery under the name that a program's own module has.
    sys.modules["__main__"] = types.ModuleType("__main__")
    birth.be_deaf()
    prctl.become_subreaper()
    prctl.set_name("pi-nursery")
    for descriptor in (control, server):
        if descriptor >= 0:
            fcntl.fcntl(descriptor, fcntl.F_SETFD, fcntl.FD_CLOEXEC)
    nursery = Nursery(socket.socket(fileno=control), server if server >= 0 else _watch_parent())
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    signal.set_wakeup_fd(nursery.waker, warn_on_full_buffer=False)
    nursery.serve()


if __name__ == "__main__":
    from pi_workflows_nb.runner.nursery import main as main_under_its_own_name

    main_under_its_own_name()
