"""What the end of a runner means for its run: when it is due again, and whether it is at all."""

from __future__ import annotations

import signal
import sqlite3
from dataclasses import dataclass
from typing import Final

from ..state import runs, transitions
from ..state.runners import RunnerOutcome
from .launch import Progress

CRASHES: Final = 3
_MEANINGS: Final = {
    "SIGABRT": "native code gave up",
    "SIGBUS": "a fault in native code",
    "SIGFPE": "a fault in native code",
    "SIGILL": "a fault in native code",
    "SIGKILL": "killed from outside; the system does that to a process that uses too much memory",
    "SIGSEGV": "a fault in native code, or recursion that is too deep for it",
}


@dataclass(frozen=True)
class Cause:
    """Whose fault an exit is, and for a person `how` it came.

    `ours` counts for no run; `stopped` says that the process was stopped by a signal until its claim had run out.
    """

    ours: bool
    started: bool
    clean: bool
    stopped: bool
    how: str


def cause_of(status: int | None, spawned: bool, progress: Progress) -> Cause:
    """What a wait status says; None means that the nursery is gone, or never gave the process."""
    clean = status == 0 and progress.exiting is not None
    return Cause(
        ours=status is None, started=spawned, clean=clean, stopped=progress.stopped, how=_how(status, clean, progress)
    )


def _how(status: int | None, clean: bool, progress: Progress) -> str:
    node = f"while node {progress.active.node_id} ran" if progress.active is not None else "while no node ran"
    if progress.stopped:
        return f"its process was stopped by a signal {node}, for longer than its claim lasts"
    if progress.diagnostics.notes:
        return f"{progress.diagnostics.notes[0]}, {node}"
    if clean or status is None:
        why = progress.exiting.detail if progress.exiting is not None else None
        return f"it left by itself ({why or 'it does not say why'}) {node}"
    if status >= 0:
        return f"its process ended with exit code {status} {node}"
    name = signal.Signals(-status).name if -status in set(signal.Signals) else f"signal {-status}"
    meaning = f" ({_MEANINGS[name]})" if name in _MEANINGS else ""
    return f"its process was ended by {name}{meaning} {node}"


def park_after_exit(
    connection: sqlite3.Connection, run: runs.RunRow, progress: Progress, outcome: RunnerOutcome, cause: Cause, now: int
) -> None:
    """What a runner's exit means for a run that is still its own: when it is due again, and whether it is at all."""
    exiting = progress.exiting
    if exiting is not None and exiting.reason == "sourceChanged":
        transitions.park_for_source_change(connection, run, exiting.detail, now)
        return
    if not cause.started:
        transitions.park(connection, run, now, available_at=now + 1000)
        return
    if not cause.stopped and (cause.ours or progress.abandoned or outcome in ("cancelled", "timedOut", "claimLost")):
        transitions.park(connection, run, now, available_at=now)
        return
    errors = run.consecutive_errors + 1
    if errors >= CRASHES or (cause.clean and not progress.boundaries):
        why = (
            f"the runner ended {errors} time{'s' * (errors > 1)} without finishing a node; the last time {cause.how};"
            " run.logs() shows what it printed"
        )
        transitions.park_without_progress(connection, run, why, now, errors=errors)
        return
    transitions.park(connection, run, now, available_at=now if errors == 1 else now + 1000, errors=errors)
