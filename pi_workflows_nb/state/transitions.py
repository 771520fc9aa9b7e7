"""The life of a run: each name is one transition of run, queue, lease, attempts, effects, messages and view.

All are called inside a transaction, check before they write, and leave a state that `verify` accepts. The states, what
they mean, and what leads out of them:

    run       queue     claim  meaning                               leads on
    queued    queued    -      ready                                 claim_for_execution, pause, cancel
    queued    parked    -      its session is busy, or paused        (its session's place, `places`), resume, cancel
    running   starting  held   launch recorded                       mark_running, park*, pause, cancel
    running   running   held   executing                             end, park*, pause, cancel
    running   parked    -      stopped at a durable boundary         claim_for_execution, pause, resume, cancel
    waiting   parked    (-)    a person, an event or a session       answer, decide, expire_event, expire_decision,
                               is needed; held while a submission    submit, accept, reject, end_turn,
                                                                     resume_after_effect,
                               to it is validated, or it is          claim_for_validation, hold_for_control,
                               controlled; who acts on it fences     begin_interaction_timeout, pause, resume, cancel
                               the holder, a claim waits for it
    waiting   done      -      answered: a continuation goes on      -
    completed done      -      over                                  restart
    failed    failed    -      over                                  restart
    timed_out failed    -      over                                  restart
    cancelled cancelled -      over                                  -

`controls` says which of these a person may ask for, `runs.create` makes a run.
"""

from __future__ import annotations

import sqlite3
from typing import Any

from ..wire import identities
from ..wire.errors import ConflictError
from . import blobs, mutation, runs
from .blobs import LargeValue
from .controls import require
from .mutation import Claim
from .transitions_chain import answer, restart, restart_refused
from .transitions_claims import (
    RUN_LEASE_MS,
    claim_for_control,
    claim_for_execution,
    claim_for_validation,
    claim_next,
    claimable,
    hold_for_control,
    make_due,
    mark_running,
    release,
)
from .transitions_control import cancel, pause, resume
from .transitions_decisions import ask_person, decide, decided_run, expire_decision
from .transitions_ends import end, finish
from .transitions_parking import (
    park,
    park_ambiguous,
    park_for_source_change,
    park_without_progress,
    resume_after_effect,
)
from .transitions_record import SYSTEM, event
from .transitions_sessions import accept, ask_session, end_turn, hold_for, lose_turns, reject, submit
from .transitions_waits import begin_interaction_timeout, expire_event

__all__ = [
    "RUN_LEASE_MS",
    "accept",
    "answer",
    "ask_person",
    "ask_session",
    "begin_interaction_timeout",
    "cancel",
    "cancel_interrupted",
    "claim_for_control",
    "claim_for_execution",
    "claim_for_validation",
    "claim_next",
    "claimable",
    "decide",
    "decided_run",
    "end",
    "end_turn",
    "expire_decision",
    "expire_event",
    "finish",
    "hold_for",
    "hold_for_control",
    "lose_turns",
    "make_due",
    "mark_running",
    "park",
    "park_ambiguous",
    "park_for_source_change",
    "park_without_progress",
    "pause",
    "record_engine_event",
    "record_update",
    "reject",
    "release",
    "require",
    "restart",
    "restart_refused",
    "resume",
    "resume_after_effect",
    "submit",
]


def record_engine_event(
    connection: sqlite3.Connection, run_id: str, claim: Claim, event_type: str, payload: dict[str, Any], now: int
) -> int:
    """An event of the engine that changes nothing else, as `run_initialized`. Gives the run's revision."""
    run = runs.read(connection, run_id)
    mutation.check_lease(connection, claim, now)
    event(connection, run, event_type, {"payload": payload, "scope": "run"}, now, actor=SYSTEM)
    return run.revision


def record_update(
    connection: sqlite3.Connection,
    run_id: str,
    claim: Claim,
    attempt_id: str,
    update_type: str,
    key: str,
    data: bytes | LargeValue,
    now: int,
) -> int:
    """One published update of the running attempt; `data` is canonical JSON. Gives the run's revision."""
    run = runs.read(connection, run_id)
    mutation.check_lease(connection, claim, now)
    active = connection.execute(
        "SELECT node_id FROM node_attempts WHERE attempt_id = ? AND run_id = ? AND status = 'running'",
        (attempt_id, run_id),
    ).fetchone()
    if active is None:
        raise ConflictError(f"attempt {attempt_id} of run {run_id} is not running")
    payload = {
        "attemptId": attempt_id,
        "nodeId": active[0],
        "payload": {"key": key, "type": update_type},
        "scope": "node",
    }
    event(connection, run, "update_published", payload, now, actor=SYSTEM)
    connection.execute(
        "INSERT INTO workflow_updates SELECT ?, ?, coalesce(max(update_seq), 0) + 1, ?, ?, ?, ?, ?"
        " FROM workflow_updates WHERE attempt_id = ?",
        (
            f"upd_{identities.new_id()}",
            attempt_id,
            run.revision,
            update_type,
            key,
            blobs.put_json_bytes(connection, data, now),
            now,
            attempt_id,
        ),
    )
    return run.revision


def cancel_interrupted(connection: sqlite3.Connection, run_id: str, now: int) -> None:
    """Attempts that a dead runner left open are over once the run's next attempt is about to start."""
    connection.execute(
        "UPDATE node_attempts SET status = 'cancelled', finished_at = coalesce(finished_at, ?), updated_at = ?"
        " WHERE run_id = ? AND status = 'interrupted'",
        (now, now, run_id),
    )
