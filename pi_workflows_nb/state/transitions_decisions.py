"""A decision that only a person may take: asked, and taken once, by a person or by the default after its deadline.

running/running -> waiting/parked                  ask_person: due at the deadline, if there is one
waiting/parked  -> waiting/done + queued/queued    decide, before the deadline; expire_decision, from then on

The resolution, the end of the wait and the continuation are one transaction: whoever comes second finds it taken.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import Any, Final

from ..wire import canonical_json, decisions, identities
from ..wire.errors import ConflictError, NotFoundError
from ..wire.runner_messages import End
from . import blobs, mutation, places, runs, waits, workflow_messages
from .mutation import Claim
from .runs import RunRow
from .transitions_chain import go_on_as
from .transitions_waits import wait as park_waiting

HUMAN: Final = "human"
TIMEOUT: Final = "timeout_policy"

_DECISION: Final = """
    SELECT d.decision_id, d.resource_id, d.run_id, d.request_digest, d.deadline_at, d.choices_hash,
           d.default_response_hash, x.outcome, x.provenance, x.response_hash
    FROM human_decisions d LEFT JOIN human_decision_resolutions x USING (decision_id) WHERE
"""


@dataclass(frozen=True)
class Decision:
    """A decision, and how it was taken, if it was; `choices`, `default` and `response` are digests."""

    decision_id: str
    resource_id: str
    run_id: str
    digest: bytes
    deadline_at: int | None
    choices: bytes
    default: bytes | None
    outcome: str | None
    provenance: str | None
    response: bytes | None


def read(connection: sqlite3.Connection, decision_id: str) -> Decision:
    """A decision. `NotFoundError` where there is none of that id."""
    row = connection.execute(f"{_DECISION} d.decision_id = ?", (decision_id,)).fetchone()
    if row is None:
        raise NotFoundError(f"no decision {decision_id!r} in this state file; server.inbox() lists what is asked")
    return Decision(*row)


def ask_person(
    connection: sqlite3.Connection,
    run: RunRow,
    claim: Claim,
    attempt_id: str,
    node_id: str,
    asked: dict[str, Any],
    pause_ms: int | None,
    now: int,
) -> str:
    """Put the running attempt to a person, and park the run, two revisions higher; gives the id of the decision.

    `asked` has audience, choices, default, presentation, subject and title; all of it, with the run, the attempt and
    the deadline, is bound by one digest. `ConflictError` when the attempt does not run, or the run has no session.
    """
    active = connection.execute(
        "SELECT 1 FROM node_attempts WHERE attempt_id = ? AND run_id = ? AND status = 'running'"
        " AND node_type = 'checkpoint'",
        (attempt_id, run.run_id),
    ).fetchone()
    if active is None:
        raise ConflictError(f"attempt {attempt_id} of run {run.run_id} is no running attempt of a decision")
    if run.session_id.startswith(places.HEADLESS):
        raise ConflictError(f"run {run.run_id} has no session whose person could decide")
    deadline = None if pause_ms is None else now + pause_ms
    request = {
        **asked,
        "attemptId": attempt_id,
        "deadlineAt": deadline,
        "nodeId": node_id,
        "presentationRevision": 1,
        "runId": run.run_id,
    }
    digest = identities.fingerprint(request)
    decision_id = identities.decision_id(run.run_id, node_id, attempt_id, digest)
    resource_id = mutation.create_aggregate(connection, "decision", decision_id, now, revision=0)

    def put(value: Any) -> bytes:
        return blobs.put_json(connection, value, now)

    connection.execute(
        "INSERT INTO human_decisions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1, ?, ?, ?, ?)",
        (
            decision_id, resource_id, run.run_id, attempt_id, asked["audience"],
            identities.utf8(asked["title"]).decode(), put(asked["subject"]), put(asked["presentation"]),
            put(asked["choices"]), digest, deadline, None if asked["default"] is None else put(asked["default"]),
            put(request), now,
        ),
    )  # fmt: skip
    record = {"decisionId": decision_id, "requestDigest": identities.digest_text(digest), "runId": run.run_id}
    _event(connection, resource_id, "decision.requested", record, ("session", run.session_id), now)
    content = {
        "content": asked["presentation"]["summary"],
        "customType": "workflow-decision",
        "details": {"decisionId": decision_id, "nodeId": node_id, "runId": run.run_id},
        "display": True,
        "triggerTurn": False,
    }
    workflow_messages.create(connection, run, "decision", decision_id, "1:initial", content, now)
    park_waiting(connection, run, claim, End(node_id, deadline, None, None, None, "waiting"), now)
    return decision_id


def decide(
    connection: sqlite3.Connection, decision_id: str, response: object, actor: str, channel: str, key: str, now: int
) -> str:
    """A person decides; gives the run that goes on. The first valid answer before the deadline counts.

    `ConflictError` when it was taken already, its time is over, or the run is paused; `WorkflowInputError`, which says
    what to change, for what is no answer to it.
    """
    decision = read(connection, decision_id)
    if decision.outcome is not None:
        raise ConflictError(f"decision {decision_id} was taken already: {_how(connection, decision)}")
    run = runs.read(connection, decision.run_id)
    if run.paused or run.status != "waiting":
        raise ConflictError(f"run {run.run_id} takes no decision: it is {'paused' if run.paused else run.status}")
    if decision.deadline_at is not None and decision.deadline_at <= now:
        raise ConflictError(f"decision {decision_id} is taken no more: its time is over, and its default counts")
    choices = blobs.read_json(connection, decision.choices)
    checked = canonical_json.encode(decisions.check_response(choices, response))
    connection.execute(
        "INSERT INTO human_decision_submissions VALUES (?, ?, 'human', ?, ?, ?, 'won', NULL, ?)",
        (decision_id, key, actor, channel, blobs.put_json_bytes(connection, checked, now), now),
    )
    return _resolve(connection, decision, run, checked, HUMAN, actor, channel, now)


def decided_run(connection: sqlite3.Connection, decision_id: str) -> str:
    """The run that has asked."""
    return read(connection, decision_id).run_id


def expire_decision(connection: sqlite3.Connection, run: RunRow, now: int) -> str | None:
    """Nobody has decided in time: the default counts. Gives the run that goes on.

    The caller knows that nobody alive holds the run. None, and nothing changed, for a run that waits for anything
    else, or still has time.
    """
    row = connection.execute(f"{_DECISION} d.run_id = ? AND x.outcome IS NULL", (run.run_id,)).fetchone()
    decision = None if row is None else Decision(*row)
    if run.status != "waiting" or run.paused or decision is None or decision.default is None:
        return None
    if decision.deadline_at is None or decision.deadline_at > now:
        return None
    response = blobs.read_json_bytes(connection, decision.default)
    return _resolve(connection, decision, run, response, TIMEOUT, None, None, now)


def _resolve(
    connection: sqlite3.Connection,
    decision: Decision,
    run: RunRow,
    response: bytes,
    provenance: str,
    actor: str | None,
    channel: str | None,
    now: int,
) -> str:
    wait = waits.open_wait(connection, run)
    assert wait is not None
    heir = identities.new_run_id(runs.workflow_name(connection, run.run_id), now)
    connection.execute(
        "INSERT INTO human_decision_resolutions VALUES (?, 'accepted', ?, ?, NULL, ?, ?, ?, ?)",
        (
            decision.decision_id, provenance, blobs.put_json_bytes(connection, response, now), channel, actor,
            decision.digest, now,
        ),
    )  # fmt: skip
    record = {
        "decisionId": decision.decision_id,
        "outcome": "accepted",
        "provenance": provenance,
        "requestDigest": identities.digest_text(decision.digest),
        "resolvedAt": now,
        "response": canonical_json.decode(response),
    }
    by: tuple[Any, str | None] = ("human", actor) if provenance == HUMAN else ("policy", None)
    _event(connection, decision.resource_id, "decision.accepted", record, by, now)
    workflow_messages.cancel_of(connection, decision.decision_id, now)
    go_on_as(connection, run, wait, heir, response, now)
    connection.execute("INSERT INTO continuations VALUES (?, ?, ?, ?)", (decision.decision_id, run.run_id, heir, now))
    return heir


def _how(connection: sqlite3.Connection, decision: Decision) -> str:
    if decision.response is None:
        return "it was cancelled"
    chosen = blobs.read_json(connection, decision.response)["choice"]
    return f"{chosen!r}, by {'its default, in time' if decision.provenance == TIMEOUT else 'a person'}"


def _event(
    connection: sqlite3.Connection,
    resource_id: str,
    event_type: str,
    payload: dict[str, Any],
    actor: tuple[Any, str | None],
    now: int,
) -> None:
    revision = mutation.bump(connection, resource_id, mutation.revision_of(connection, resource_id), now)
    mutation.record_event(connection, resource_id, revision, event_type, actor[0], actor[1], payload, now)
