"""What the end of a runner means for its run: when it is due again, and whether it is at all."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import Final

from ..state import runs, transitions
from ..state.runners import RunnerOutcome
from .launch import Progress

CRASHES: Final = 3


@dataclass(frozen=True)
class Cause:
    """Whose fault an exit is: `ours` counts for no run."""

    ours: bool
    started: bool
    clean: bool


def cause_of(status: int | None, spawned: bool, progress: Progress) -> Cause:
    """What a wait status says; None means that the nursery is gone, or never gave the process."""
    return Cause(ours=status is None, started=spawned, clean=status == 0 and progress.exiting is not None)


def park_after_exit(
    connection: sqlite3.Connection, run: runs.RunRow, progress: Progress, outcome: RunnerOutcome, cause: Cause, now: int
) -> None:
    """What a runner's exit means for a run that is still its own: when it is due again, and whether it is at all."""
    exiting = progress.exiting
    if exiting is not None and exiting.reason == "sourceChanged":
        transitions.park(
            connection, run, now, code="workflowSourceChanged", detail=exiting.detail, event="run.source_changed"
        )
        return
    if not cause.started:
        transitions.park(connection, run, now, available_at=now + 1000)
        return
    if cause.ours or progress.abandoned or outcome in ("cancelled", "timedOut", "claimLost"):
        transitions.park(connection, run, now, available_at=now)
        return
    errors = (0 if progress.boundaries else run.consecutive_errors) + 1
    if errors >= CRASHES or (cause.clean and not progress.boundaries):
        last = progress.diagnostics[-1] if progress.diagnostics else outcome
        transitions.park(
            connection,
            run,
            now,
            code="runnerNoProgress",
            detail=f"the runner ended {errors} time(s) without finishing a node; the last reason: {last}",
            errors=errors,
            event="run.worker_no_progress",
        )
        return
    transitions.park(connection, run, now, available_at=now if errors == 1 else now + 1000, errors=errors)
