"""From the nursery's fork to the first line of the entry.

Every page of memory that a child touches first has to be copied, which costs more than the work itself. So what can
be known before the fork is worked out before it, by the parent, and the child only carries it out.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from os import _exit
from typing import Final, NoReturn

from pi_workflows_nb.runner import prctl, proc

# Blocked in the nursery for good, which makes it deaf to them. Their actions are the usual ones, and a child unblocks
# them: what was sent to a child before it got that far waits for this moment and then acts.
NOT_FOR_THE_NURSERY: Final = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)

Entry = Callable[[socket.socket, str, str], object]


@dataclass(frozen=True, slots=True)
class Birth:
    """All that a new runner is to be.

    `closed` are the descriptors of the nursery and of other runners; `removed` and `changed` make its environment out
    of the nursery's; `mark` is the place that `prctl.find_epoch_mark` found; `sacrifice` is of
    `proc.first_to_be_killed`.
    """

    entry: Entry
    channel: socket.socket
    mode: str
    log: str
    epoch: str
    folder: str
    mark: int | None
    parent: int
    sacrifice: bytes | None
    removed: Sequence[str]
    changed: Sequence[tuple[str, str]]
    closed: Sequence[int]

    def live(self) -> NoReturn:
        """Be that runner; called in the child. Ends the process with the entry, in every case."""
        code = 1
        try:
            prctl.die_with_parent()
            if os.getppid() != self.parent:
                _exit(1)
            os.setsid()
            prctl.become_subreaper()
            prctl.set_name("pi-runner")
            prctl.write_epoch_mark(self.mark, self.epoch)
            if self.sacrifice is not None:
                proc.write_file(proc.OOM_ADJUSTMENT, self.sacrifice)
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for descriptor in self.closed:
                os.close(descriptor)
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            environment = os.environ
            for name in self.removed:
                del environment[name]
            for name, value in self.changed:
                environment[name] = value
            os.chdir(self.folder)
            if (numpy_random := sys.modules.get("numpy.random")) is not None:
                # The random module does this by itself.
                numpy_random.seed()
            gc.enable()
            self.entry(self.channel, self.mode, self.log)
            code = 0
        except SystemExit as left:
            code = left.code if isinstance(left.code, int) else int(left.code is not None)
        except BaseException:
            os.write(2, traceback.format_exc().encode(errors="backslashreplace"))
        finally:
            _end(code)


def differences(wanted: Mapping[str, str]) -> tuple[list[str], list[tuple[str, str]]]:
    """What must be removed from this process's environment, and what changed, to make it `wanted`."""
    present = os.environ
    removed = [name for name in present if name not in wanted]
    return removed, [(name, value) for name, value in wanted.items() if present.get(name) != value]


def be_deaf() -> None:
    """Make the nursery deaf to the signals that are not for it, whatever it was started with."""
    signal.pthread_sigmask(signal.SIG_SETMASK, NOT_FOR_THE_NURSERY)
    for number in NOT_FOR_THE_NURSERY:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


def with_epoch(environment: Mapping[str, str], epoch: str) -> dict[str, str]:
    """The environment of a runner, by which its descendants are known."""
    return {**environment, proc.EPOCH_VARIABLE: epoch}


def _end(code: int) -> NoReturn:
    """End without what a program does at its end: threads, exit handlers and finalizers were the nursery's."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        _exit(code & 0xFF)
