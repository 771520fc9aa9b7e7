"""The nursery as the server sees it: runners are asked for, signalled and waited for, all on the server's loop.

The end of a runner is what the nursery reports, its wait status, and never the end of a stream. When the nursery
itself ends, its runners are killed by the system; what they had started is searched for and killed here, and only then
do their ends resolve, to None.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import io
import logging
import os
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pi_workflows_nb.runner import proc
from pi_workflows_nb.server import processes
from pi_workflows_nb.server.processes import Leftover
from pi_workflows_nb.wire import nursery_messages as messages
from pi_workflows_nb.wire.errors import PiWorkflowsError, ProtocolError, StateUnavailableError

log = logging.getLogger(__name__)

ENTRY: Final = "pi_workflows_nb.runner.entry:main"
PROGRAM: Final = (
    "import sys; path = sys.argv.pop(); sys.path[:] = path.split('\\n') if path else sys.path; "
    "from pi_workflows_nb.runner.nursery import main; main()"
)
READY_SECONDS: Final = 120.0
ANSWER_SECONDS: Final = 15.0
STOP_SECONDS: Final = 6.0
GRACE_SECONDS: Final = 2.0


class NurseryEndedError(StateUnavailableError):
    """The nursery ended before it did what it was asked; another one may do it."""


class Child:
    """One runner: `pid`, start `identity` (`unknown` where the system has none), `epoch`, and the server's end of its
    channel as a non-blocking `socket`, which belongs to the caller and is closed by it.

    `exited` resolves once nothing of the runner is left: to its exit code, to the negative number of the signal that
    ended it, or to None when the nursery ended and nobody saw how.
    """

    def __init__(self, nursery: Nursery, number: int, epoch: str, channel: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        self.pid = 0
        self.identity = "unknown"
        self.epoch = epoch
        self.socket = channel
        self.exited: asyncio.Future[int | None] = loop.create_future()
        self._spawned: asyncio.Future[None] = loop.create_future()
        self._nursery = nursery
        self._number = number

    def __repr__(self) -> str:
        """Pid and state, for logs."""
        state = f"ended {self.exited.result()}" if self.exited.done() else "alive"
        return f"<runner process {self.pid}, {state}>"

    def signal(self, number: int) -> None:
        """Signal the runner's process group. Nothing happens when it has ended; the number cannot hit another one."""
        if not self.exited.done():
            self._nursery._say(messages.Signal(self._number, int(number)))

    async def stop(self, grace: float = GRACE_SECONDS) -> int | None:
        """SIGTERM, `grace` seconds, SIGKILL; the status, as in `exited`."""
        self.signal(signal.SIGTERM)
        await asyncio.wait([self.exited], timeout=grace)
        if not self.exited.done():
            self.signal(signal.SIGKILL)
        return await asyncio.shield(self.exited)


class Nursery:
    """A running nursery process. Made by `start`; used on one loop; after its end, or `stop`, of no more use."""

    def __init__(self, process: subprocess.Popen[bytes], control: socket.socket, on_lost: Callable[[], None]) -> None:
        self.pid = process.pid
        self._process = process
        self._control = control
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._children: dict[int, Child] = {}
        self._numbers = 0
        self._incoming = b""
        self._outgoing: deque[tuple[bytes, socket.socket | None]] = deque()
        self._answers: dict[str, asyncio.Future[str | None]] = {}
        self._serving = False
        self._ended = False
        self._cleared: asyncio.Future[None] = self._loop.create_future()
        self._clearing: asyncio.Task[None] | None = None
        # As a file object, so that a forked child of this process can be told to close it.
        self._pidfd = io.FileIO(os.pidfd_open(self.pid)) if hasattr(os, "pidfd_open") else None
        processes.close_after_fork(control, *([self._pidfd] if self._pidfd is not None else []))
        self._loop.add_reader(control, self._on_readable)
        if self._pidfd is not None:
            self._loop.add_reader(self._pidfd, self._on_end)

    @classmethod
    async def start(
        cls,
        *,
        preload: Sequence[str] = (),
        on_lost: Callable[[], None],
        interpreter: str | None = None,
        folder: Path | None = None,
        stderr: Path | None = None,
        path: Sequence[str] | None = None,
        entry: str = ENTRY,
    ) -> Nursery:
        """Start a nursery and wait until it can fork.

        `preload` names modules to import once for all runners; `on_lost` is called on this loop when the nursery ends
        without `stop`, before anything else happens. `interpreter`, `folder` and the module path `path` are those of
        this process by default (of another interpreter, its own path). What the nursery says goes to the file `stderr`.

        A module that cannot be preloaded is a PiWorkflowsError that names it; a nursery that ends before it is ready
        is a StateUnavailableError.
        """
        if path is None:
            path = sys.path if interpreter in {None, sys.executable} else ()
        ours, theirs = socket.socketpair()
        try:
            process = _execute(interpreter or sys.executable, path, folder, stderr, theirs)
            ours.setblocking(False)
            nursery = cls(process, ours, on_lost)
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        try:
            error = await nursery._ask("begin", messages.Begin(entry, list(preload)), READY_SECONDS)
            if error is not None:
                raise PiWorkflowsError(f"the process that starts runners could not get ready: {error}")
        except BaseException:
            await nursery.stop()
            raise
        nursery._serving = True
        return nursery

    async def guard(self, path: Path) -> None:
        """Hold the locks that keep other programs from removing the WAL of the live state file at `path`.

        The file and its `-shm` must exist, so the server has opened it before. StateUnavailableError when the locks
        cannot be had within 2 s.
        """
        error = await self._ask("guard", messages.Guard(os.fsencode(path)))
        if error is not None:
            raise StateUnavailableError(f"the locks that protect {path} could not be taken: {error}")

    async def unguard(self) -> None:
        """Give the locks up, which must be done before the server's last close of the file."""
        if not self._ended:
            with contextlib.suppress(StateUnavailableError):
                await self._ask("unguard", messages.Unguard())

    async def spawn(
        self, *, mode: str, environment: Mapping[str, str] | None, folder: str, log: Path, epoch: str
    ) -> Child:
        """Fork a runner that works in `folder` with this environment (None: the one this process had at the start).

        StateUnavailableError when the nursery has ended or cannot fork.
        """
        if not self._serving:
            raise StateUnavailableError("the process that starts runners is gone; it is being replaced")
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        processes.close_after_fork(ours, theirs)
        self._numbers += 1
        number = self._numbers
        child = self._children[number] = Child(self, number, epoch, ours)
        pairs = None
        if environment is not None:
            pairs = [(os.fsencode(name), os.fsencode(value)) for name, value in environment.items()]
        self._say(messages.Spawn(number, mode, os.fsencode(folder), os.fsencode(log), epoch, pairs), theirs)
        try:
            await asyncio.wait_for(asyncio.shield(child._spawned), ANSWER_SECONDS)
        except BaseException as error:
            # It may be forked all the same; commands are followed in order, so this reaches it.
            child.signal(signal.SIGKILL)
            child._spawned.cancel()
            ours.close()
            if isinstance(error, TimeoutError):
                raise StateUnavailableError("the process that starts runners does not answer") from None
            raise
        return child

    async def stop(self) -> None:
        """Kill all runners, wait for their ends, and end the nursery. `on_lost` is not called. May be repeated."""
        if not self._ended:
            self._serving = False
            self._say(messages.Stop())
            await asyncio.wait([self._cleared], timeout=STOP_SECONDS)
            if not self._ended:
                self._process.kill()
                self._on_end()
        await asyncio.shield(self._cleared)

    # What goes out

    def _say(self, command: messages.Command, passed: socket.socket | None = None) -> None:
        """Send a command, with the channel to pass if there is one, which is closed here once it was sent."""
        if self._ended:
            if passed is not None:
                passed.close()
            return
        self._outgoing.append((messages.encode(command) + b"\n", passed))
        if len(self._outgoing) == 1:
            self._on_writable()

    def _on_writable(self) -> None:
        while self._outgoing:
            data, passed = self._outgoing[0]
            try:
                if passed is None:
                    sent = self._control.send(data)
                else:
                    descriptors = array.array("i", [passed.fileno()])
                    sent = self._control.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)])
                    passed.close()
            except BlockingIOError:
                self._loop.add_writer(self._control, self._on_writable)
                return
            except OSError:
                self._on_end()
                return
            if sent < len(data):
                self._outgoing[0] = (data[sent:], None)
            else:
                self._outgoing.popleft()
        self._loop.remove_writer(self._control)

    async def _ask(self, operation: str, command: messages.Command, patience: float = ANSWER_SECONDS) -> str | None:
        """Send a command, wait until it was followed, and give the error if it was not; one of a kind at a time."""
        while (earlier := self._answers.get(operation)) is not None:
            await asyncio.wait([earlier])
        if self._ended:
            raise NurseryEndedError("the process that starts runners is gone; it is being replaced")
        future = self._answers[operation] = self._loop.create_future()
        self._say(command)
        try:
            return await asyncio.wait_for(future, patience)
        except TimeoutError:
            raise StateUnavailableError("the process that starts runners does not answer") from None
        finally:
            del self._answers[operation]

    # What comes in

    def _on_readable(self) -> None:
        with contextlib.suppress(BlockingIOError):
            if not self._receive():
                self._on_end()

    def _receive(self) -> bool:
        """Take in what has come; False at the end of the stream, BlockingIOError when there is nothing now."""
        try:
            data = self._control.recv(1 << 16)
        except ConnectionError:
            return False
        *lines, self._incoming = (self._incoming + data).split(b"\n")
        for line in lines:
            try:
                event = messages.read_event(line)
            except ProtocolError as error:
                log.warning("the process that starts runners is given up: %s", error)
                return False
            self._on_event(event)
        return bool(data) and len(self._incoming) <= messages.MAX_COMMAND_BYTES

    def _on_event(self, event: messages.Event) -> None:
        if isinstance(event, messages.Answer):
            future = self._answers.get(event.to)
            if future is not None and not future.done():
                future.set_result(event.error)
            return
        child = self._children.get(event.id)
        if child is None:
            return
        if isinstance(event, messages.Spawned):
            child.pid, child.identity = event.pid, event.identity or "unknown"
            if not child._spawned.done():
                child._spawned.set_result(None)
            return
        del self._children[event.id]
        if isinstance(event, messages.Refused):
            child.exited.set_result(None)
            if not child._spawned.done():
                child._spawned.set_exception(StateUnavailableError(f"no runner could be started: {event.error}"))
        else:
            child.exited.set_result(event.status)

    def _on_end(self) -> None:
        """The nursery is gone, or of no use: everything that waits for it is told, and its leftovers are ended."""
        if self._ended:
            return
        self._ended = True
        with contextlib.suppress(BlockingIOError):
            while self._receive():
                pass
        self._loop.remove_reader(self._control)
        self._loop.remove_writer(self._control)
        self._control.close()
        if self._pidfd is not None:
            self._loop.remove_reader(self._pidfd)
            self._pidfd.close()
        for _, passed in self._outgoing:
            if passed is not None:
                passed.close()
        self._outgoing.clear()
        self._process.kill()
        if self._serving:
            self._serving = False
            log.warning("the process that starts runners ended unexpectedly")
            try:
                self._on_lost()
            except Exception:
                log.exception("what follows the end of the nursery failed")
        gone = NurseryEndedError("the process that starts runners ended; what it said last is in its log")
        waiting: list[asyncio.Future[Any]] = list(self._answers.values())
        waiting += [child._spawned for child in self._children.values()]
        for future in waiting:
            if not future.done():
                future.set_exception(gone)
        self._clearing = self._loop.create_task(self._clear())

    async def _clear(self) -> None:
        """End what the runners left, collect the nursery, and let the runners' ends be known."""
        children = list(self._children.values())
        # One that was forked, but not reported any more, is known by its epoch alone.
        leftovers = [
            Leftover(child.pid, child.identity, child.epoch) if child.pid else Leftover(None, None, child.epoch)
            for child in children
        ]

        def end() -> None:
            self._process.wait()
            processes.end_all_leftovers(leftovers)

        try:
            await asyncio.to_thread(end)
        except RuntimeError:
            # The interpreter is shutting down and starts no more threads.
            end()
        for child in children:
            if not child.exited.done():
                child.exited.set_result(None)
        self._children.clear()
        self._cleared.set_result(None)


def _execute(
    interpreter: str, path: Sequence[str], folder: Path | None, stderr: Path | None, theirs: socket.socket
) -> subprocess.Popen[bytes]:
    """Start the process by exec, with nothing of this one but the control socket and a pidfd of it."""
    environment = {**os.environ, proc.EPOCH_VARIABLE: proc.EPOCH_PLACEHOLDER}
    with contextlib.ExitStack() as opened:
        passed = [theirs.fileno()]
        if hasattr(os, "pidfd_open"):
            # Of this process: it cannot end and be replaced under the nursery's eyes.
            mine = os.pidfd_open(os.getpid())
            opened.callback(os.close, mine)
            passed.append(mine)
        output: int = subprocess.DEVNULL
        if stderr is not None:
            output = os.open(stderr, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            opened.callback(os.close, output)
        opened.enter_context(_without_debugger())
        return subprocess.Popen(
            [
                interpreter,
                "-c",
                PROGRAM,
                str(passed[0]),
                str(passed[1] if len(passed) > 1 else -1),
                "\n".join(entry for entry in path if "\n" not in entry),
            ],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=folder,
            env=environment,
            pass_fds=passed,
            start_new_session=True,
        )


@contextlib.contextmanager
def _without_debugger() -> Iterator[None]:
    """JupyterLab's debugger puts itself, with threads, into every Python that is started; not into this one."""
    monkey = sys.modules.get("_pydev_bundle.pydev_monkey")
    if monkey is None or not hasattr(monkey, "skip_subprocess_arg_patch"):
        yield
    else:
        with monkey.skip_subprocess_arg_patch():
            yield
