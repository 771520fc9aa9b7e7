"""A node that asks its session: the question, the turns at it, the answer.

running/running -> waiting/parked   ask_session: the attempt waits, the request and its message are there
waiting/parked  -> waiting/parked   submit: an answer is looked at, under a claim; reject: it will not do
waiting/parked  -> running/parked   accept: the attempt has ended well, and the run is due
waiting/parked  -> running/parked   end_turn, when the third turn has ended without an answer: it has failed
"""

from __future__ import annotations

import sqlite3
from typing import Final

from ..wire import identities
from ..wire.errors import ConflictError, StaleClaimError
from ..wire.runner_messages import End
from . import blobs, interactive_requests, mutation, places, runs, waits, workflow_messages
from .blobs import LargeValue
from .interactive_requests import Request
from .mutation import Claim
from .runs import TERMINAL, RunRow
from .transitions_claims import claim_for_validation, is_held
from .transitions_control import pause
from .transitions_record import event, set_queue, set_run
from .transitions_waits import close_wait
from .transitions_waits import wait as park_waiting

MOST_UNPRODUCTIVE: Final = 3
VALIDATION_LEASE_MS: Final = 120_000
REASONS: Final = ("completed", "aborted", "error", "lost")


def ask_session(
    connection: sqlite3.Connection, run: RunRow, claim: Claim, attempt_id: str, detail: str, contract: bytes, now: int
) -> str:
    """Put the running attempt to the session of its run, which parks, and give the id of the request.

    `contract` is canonical JSON. The run is two revisions higher. `ConflictError` when the attempt does not run, or
    the run has no session.
    """
    active = connection.execute(
        "SELECT 1 FROM node_attempts WHERE attempt_id = ? AND run_id = ? AND status = 'running'"
        " AND node_type = 'agent'",
        (attempt_id, run.run_id),
    ).fetchone()
    if active is None:
        raise ConflictError(f"attempt {attempt_id} of run {run.run_id} is no running attempt of an agent node")
    if run.session_id.startswith(places.HEADLESS):
        raise ConflictError(f"run {run.run_id} has no session that could be asked")
    request_id = identities.interactive_request_id(run.run_id, attempt_id)
    connection.execute(
        "INSERT INTO interactive_requests(request_id, run_id, attempt_id, target_session_id, kind, contract_hash,"
        " status, created_at, updated_at) VALUES (?, ?, ?, ?, 'agent', ?, 'pending', ?, ?)",
        (
            request_id, run.run_id, attempt_id, run.session_id,
            blobs.put_json_bytes(connection, contract, now), now, now,
        ),
    )  # fmt: skip
    interactive_requests.show(connection, run, interactive_requests.read(connection, request_id), "initial", now)
    park_waiting(connection, run, claim, End(detail, None, None, None, None, "waiting"), now)
    return request_id


def submit(
    connection: sqlite3.Connection,
    request_id: str,
    key: str,
    value: bytes | LargeValue,
    owner_id: str,
    now: int,
    turn_id: str | None = None,
) -> tuple[str, Claim]:
    """Store an answer, to be looked at under the claim that is given with its id.

    `value` is canonical JSON; `turn_id` the turn of an agent that answers. `ConflictError` when nothing is asked any
    more, the run is paused or held, or another answer is looked at; `StaleClaimError` when the turn is over.
    """
    request = interactive_requests.read(connection, request_id)
    if request.status != "pending":
        how = "answered" if request.status == "settled" else request.status
        raise ConflictError(f"request {request_id} is {how} already: nothing is asked any more")
    if turn_id is not None and workflow_messages.turn(connection, turn_id).state != "started":
        raise StaleClaimError(f"turn {turn_id} is over", "missingAuthority")
    if interactive_requests.validating(connection, request_id):
        raise ConflictError(f"another answer to request {request_id} is looked at just now; try again")
    run = runs.read(connection, request.run_id)
    if run.paused or run.status != "waiting":
        raise ConflictError(f"run {run.run_id} takes no answer: it is {'paused' if run.paused else run.status}")
    if is_held(run, now):
        raise ConflictError(f"run {run.run_id} is held by somebody else just now; try again")
    submission_id = f"submission-{identities.new_id()}"
    connection.execute(
        "INSERT INTO interactive_submissions(submission_id, request_id, idempotency_key, request_revision,"
        " payload_hash, outcome, submitted_at) VALUES (?, ?, ?, ?, ?, 'validating', ?)",
        (submission_id, request_id, key, request.revision, blobs.put_json_bytes(connection, value, now), now),
    )
    return submission_id, hold_for(connection, request, owner_id, now)


def hold_for(connection: sqlite3.Connection, request: Request, owner_id: str, now: int) -> Claim:
    """Hold the run of a request while a submission to it is looked at. `ConflictError` when somebody else does."""
    claim = claim_for_validation(connection, request.run_id, owner_id, now, lease_ms=VALIDATION_LEASE_MS)
    if claim is None:
        raise ConflictError(f"run {request.run_id} is held by somebody else just now; try again")
    return claim


def accept(
    connection: sqlite3.Connection, submission_id: str, output: bytes | LargeValue, claim: Claim, now: int
) -> bool:
    """The answer is what was asked for: it becomes the output of its node, and the run goes on.

    `output` is what the node made of it, canonical JSON. False, and nothing changed, for one that was refused while it
    was looked at. `StaleClaimError` when the claim is not the live one.
    """
    submission = interactive_requests.submission(connection, submission_id)
    if submission.outcome != "validating":
        return False
    request = interactive_requests.read(connection, submission.request_id)
    run = runs.read(connection, request.run_id)
    mutation.check_lease(connection, claim, now)
    interactive_requests.settle_submission(connection, submission_id, "accepted", {}, now)
    connection.execute(
        "UPDATE interactive_requests SET status = 'settled', accepted_submission_id = ?, settled_at = ?,"
        " consumed_at = ?, revision = revision + 1, updated_at = ? WHERE request_id = ?",
        (submission_id, now, now, now, request.request_id),
    )
    workflow_messages.cancel_of(connection, request.request_id, now)
    digest = blobs.put_json_bytes(connection, output, now)
    _go_on(connection, run, "completed", now, output=digest, generation=claim.generation)
    return True


def reject(connection: sqlite3.Connection, submission_id: str, error: str, claim: Claim | None, now: int) -> bool:
    """The answer will not do; the request stays for another try. False when it was refused already."""
    submission = interactive_requests.submission(connection, submission_id)
    if submission.outcome != "validating":
        return False
    request = interactive_requests.read(connection, submission.request_id)
    run = runs.read(connection, request.run_id)
    interactive_requests.settle_submission(connection, submission_id, "rejected", {"error": error}, now)
    if claim is not None and (run.owner_id, run.generation) == (claim.owner_id, claim.generation):
        mutation.clear_lease(connection, run.resource_id)
        actor = (claim.owner_type, claim.owner_id)
        event(connection, run, "lease.released", {}, now, actor=actor, generation=claim.generation)
    return True


def end_turn(connection: sqlite3.Connection, turn_id: str, reason: str, now: int) -> str:
    """A turn is over; gives its run. One that ends without an answer counts, and the third fails the step.

    An aborted one pauses the run. The same end again changes nothing, and neither does a late one of a run that is
    over; `ConflictError` for any other second end.
    """
    if reason not in REASONS:
        raise ConflictError(f"a turn ends {', '.join(REASONS[:-1])} or {REASONS[-1]}, not {reason!r}")
    turn = workflow_messages.turn(connection, turn_id)
    if turn.state == "ended":
        over = turn.stop_reason == "lost" and runs.read(connection, turn.run_id).status in TERMINAL
        if turn.stop_reason != reason and not over:
            raise ConflictError(f"turn {turn_id} has ended already, {turn.stop_reason}")
        return turn.run_id
    workflow_messages.close_turn(connection, turn_id, reason, now)
    if turn.kind == "step":
        _count(connection, interactive_requests.read(connection, turn.source_id), reason, now)
    return turn.run_id


def lose_turns(connection: sqlite3.Connection, session_id: str, kept: set[str], now: int) -> set[str]:
    """Whoever speaks for a session now works at the turns `kept` and knows of no other: those are lost. Gives runs."""
    lost = [turn_id for turn_id in workflow_messages.open_turns(connection, session_id) if turn_id not in kept]
    return {end_turn(connection, turn_id, "lost", now) for turn_id in lost}


def _count(connection: sqlite3.Connection, request: Request, reason: str, now: int) -> None:
    run = runs.read(connection, request.run_id)
    if request.status != "pending" or run.paused or interactive_requests.validating(connection, request.request_id):
        return
    if reason == "aborted":
        pause(connection, run.run_id, now, run.session_id)
        return
    ends = request.unproductive_turn_ends + 1
    connection.execute(
        "UPDATE interactive_requests SET unproductive_turn_ends = ?, updated_at = ? WHERE request_id = ?",
        (ends, now, request.request_id),
    )
    if ends < MOST_UNPRODUCTIVE:
        interactive_requests.ask_again(connection, request.request_id, "reminder", now)
        return
    connection.execute(
        "UPDATE interactive_requests SET status = 'cancelled', revision = revision + 1, updated_at = ?"
        " WHERE request_id = ?",
        (now, request.request_id),
    )
    workflow_messages.cancel_of(connection, request.request_id, now)
    said = f"node {request.node_id!r}: its session has ended {ends} turns without an answer that will do"
    _go_on(connection, run, "failed", now, error=blobs.put_text(connection, said, now))


def _go_on(
    connection: sqlite3.Connection,
    run: RunRow,
    status: str,
    now: int,
    *,
    output: bytes | None = None,
    error: bytes | None = None,
    generation: int | None = None,
) -> None:
    wait = waits.open_wait(connection, run)
    assert wait is not None
    close_wait(connection, run, wait, status, now, output=output, error=error)
    mutation.clear_lease(connection, run.resource_id)
    set_run(connection, run, "running", now)
    set_queue(connection, run, "parked", now, available_at=now)
    event(
        connection, run, "run.resumed", {"status": "parked"}, now,
        actor=("session", run.session_id), generation=generation,
    )  # fmt: skip
