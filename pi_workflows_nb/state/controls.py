"""What may be done with a run as it stands, and why a person must act: the same rules that the transitions hold to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from ..wire.errors import ConflictError

Control = Literal["answer", "cancel", "confirm", "pause", "restart", "resume", "retry"]
WaitsFor = Literal["checkpoint", "event", "request", "decision", "effect"]
TERMINAL: Final = ("completed", "failed", "timed_out", "cancelled")
STOPPED: Final = ("workflowSourceChanged", "runnerNoProgress")

_OF_A_WAIT: Final[dict[WaitsFor, list[Control]]] = {
    "checkpoint": ["answer", "cancel", "pause"],
    "event": ["answer", "cancel", "pause"],
    "request": ["cancel", "pause"],
    "decision": ["cancel", "pause"],
    "effect": ["cancel", "confirm", "pause", "retry"],
}


@dataclass(frozen=True)
class Standing:
    """Where a run stands: its two statuses, whether it is paused, the code of its queue row, what it waits for.

    `restartable` counts only for a run that is over.
    """

    status: str
    queue_status: str
    paused: bool = False
    error_code: str | None = None
    waits_for: WaitsFor | None = None
    restartable: bool = False


def allowed(run: Standing) -> list[Control]:
    """What the server accepts for a run, in alphabetical order."""
    if run.status in TERMINAL:
        return ["restart"] if run.restartable else []
    if run.queue_status == "done":
        return []
    if run.paused and run.waits_for == "effect":
        return ["cancel", "confirm", "resume", "retry"]
    if run.paused or run.error_code in STOPPED:
        return ["cancel", "resume"]
    if run.status == "waiting":
        return list(_OF_A_WAIT.get(run.waits_for or "request", []))
    return ["cancel", "pause"]


def require(run_id: str, run: Standing, control: Control) -> None:
    """`ConflictError`, which says how the run stands and what can be done instead, unless the control is allowed."""
    if control in allowed(run):
        return
    others = ", ".join(f"{one}()" for one in allowed(run))
    can = f"; possible are {others}" if others else ""
    raise ConflictError(f"run {run_id}: {control} is not possible, since {_how_it_stands(run)}{can}")


def _how_it_stands(run: Standing) -> str:
    if run.status in TERMINAL:
        return f"it is over ({run.status})"
    if run.queue_status == "done":
        return "it was answered, and its continuation goes on"
    if run.paused:
        return "it is paused"
    if run.error_code in STOPPED:
        return f"it is parked already ({run.error_code})"
    if run.status == "waiting":
        return f"it waits for {_WAITS[run.waits_for or 'request']}"
    return f"it is {run.status}"


_WAITS: Final[dict[WaitsFor, str]] = {
    "checkpoint": "an answer",
    "event": "an event",
    "request": "its session",
    "decision": "a person's decision",
    "effect": "a person's word on an effect that may have happened",
}
