"""Effects of a run's actions: recorded before they touch the world, settled after it answered.

An effect that is `applying` when its runner is gone is uncertain. An idempotent one may be applied again under the same
key; a manual one becomes ambiguous and waits for a person, who confirms it or has it tried again.
"""

from __future__ import annotations

import hashlib
import itertools
import sqlite3
from dataclasses import dataclass
from typing import Any, Literal

from ..wire import identities
from ..wire.errors import ConflictError, EffectRequestConflictError, NotFoundError
from ..wire.runner_messages import EffectSettlement, ReserveEffect
from . import blobs, mutation
from .blobs import LargeValue
from .mutation import ActorType, Claim
from .runs import TERMINAL, RunRow


@dataclass(frozen=True)
class Reservation:
    """What a runner may do with its effect: `apply` it, adopt the stored `result`, or stop (`ambiguous`)."""

    effect_id: str
    state: Literal["apply", "applied", "ambiguous"]
    result: bytes | None
    attempt_number: int


def payload_of(recovery: str, request: bytes | LargeValue) -> bytes | LargeValue:
    """What is stored of a request: `{"recovery": …, "request": …}`, from the request's canonical JSON."""
    before, after = f'{{"recovery":"{recovery}","request":'.encode(), b"}"
    if isinstance(request, bytes):
        return before + request + after
    digest = hashlib.sha256(before)
    for part in request.parts():
        digest.update(part)
    digest.update(after)
    return LargeValue(
        digest.digest(),
        len(before) + request.size + len(after),
        lambda: itertools.chain((before,), request.parts(), (after,)),
    )


def _recovery_of(connection: sqlite3.Connection, payload: bytes) -> str:
    """How an effect recovers, from the start of its payload, which may be large."""
    begins = blobs.read_part(connection, payload, 0, 32)
    return "idempotent" if begins.startswith(b'{"recovery":"idempotent"') else "manual"


def reserve(
    connection: sqlite3.Connection,
    run: RunRow,
    claim: Claim,
    wish: ReserveEffect,
    payload: bytes | LargeValue,
    now: int,
) -> Reservation:
    """Record an effect, or adopt the one that stands under the key already; `payload` is of `payload_of`.

    The result of the reservation is the digest of a stored value. `EffectRequestConflictError` when the key was used
    with another request.
    """
    mutation.check_lease(connection, claim, now)
    effect_id = identities.effect_id_of_run(run.resource_id, wish.effect_type, wish.idempotency_key)
    row = connection.execute(
        "SELECT status, attempt_count, payload_hash, result_hash, resource_id FROM effects WHERE effect_id = ?",
        (effect_id,),
    ).fetchone()
    if row is None:
        _insert(connection, run, claim, wish, effect_id, payload, now)
        return Reservation(effect_id, "apply", None, 1)
    status, attempts, stored, result, resource_id = row
    if stored != blobs.digest_of(payload):
        raise EffectRequestConflictError(
            f"the effect {wish.effect_type!r} was recorded under its key with another request;"
            " the request of an action must depend on the run's input and outputs alone"
        )
    if status == "applied":
        return Reservation(effect_id, "applied", result, attempts)
    if status != "pending" and not (status == "ambiguous" and wish.recovery == "idempotent"):
        return Reservation(effect_id, "ambiguous", None, attempts)
    connection.execute(
        "UPDATE effects SET status = 'applying', attempt_count = ?, settled_at = NULL, error_hash = NULL,"
        " updated_at = ? WHERE effect_id = ?",
        (attempts + 1, now, effect_id),
    )
    _open_attempt(connection, effect_id, attempts + 1, claim, now)
    _event(connection, resource_id, "effect.retry_started", {"attemptNumber": attempts + 1, "runId": run.run_id}, now)
    return Reservation(effect_id, "apply", None, attempts + 1)


def _insert(
    connection: sqlite3.Connection,
    run: RunRow,
    claim: Claim,
    wish: ReserveEffect,
    effect_id: str,
    payload: bytes | LargeValue,
    now: int,
) -> None:
    digest = blobs.put_json_bytes(connection, payload, now)
    resource_id = mutation.create_aggregate(connection, "effect", effect_id, now, revision=1)
    connection.execute(
        "INSERT INTO effects(effect_id, resource_id, source_resource_id, source_revision, effect_type, idempotency_key,"
        " payload_hash, owner_scope, status, attempt_count, created_at, updated_at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, 'run', 'applying', 1, ?, ?)",
        (
            effect_id,
            resource_id,
            run.resource_id,
            run.revision,
            wish.effect_type,
            wish.idempotency_key,
            digest,
            now,
            now,
        ),
    )
    _open_attempt(connection, effect_id, 1, claim, now)
    mutation.record_event(
        connection,
        resource_id,
        1,
        "effect.reserved",
        claim.owner_type,
        claim.owner_id,
        {"attemptId": wish.attempt_id, "runId": run.run_id},
        now,
        claim.generation,
    )


def _open_attempt(connection: sqlite3.Connection, effect_id: str, number: int, claim: Claim, now: int) -> None:
    connection.execute(
        "INSERT INTO effect_attempts(effect_id, attempt_number, owner_id, lease_generation, started_at)"
        " VALUES (?, ?, ?, ?, ?)",
        (effect_id, number, claim.owner_id, claim.generation, now),
    )


def _close_attempt(
    connection: sqlite3.Connection, effect_id: str, outcome: str, now: int, result: bytes | None, error: bytes | None
) -> None:
    connection.execute(
        "UPDATE effect_attempts SET finished_at = ?, outcome = ?, result_hash = ?, error_hash = ?"
        " WHERE effect_id = ? AND finished_at IS NULL",
        (now, outcome, result, error, effect_id),
    )


def _event(connection: sqlite3.Connection, resource_id: str, event: str, payload: dict[str, Any], now: int) -> None:
    _event_by(connection, resource_id, event, payload, now, ("system", None))


def _event_by(
    connection: sqlite3.Connection,
    resource_id: str,
    event: str,
    payload: dict[str, Any],
    now: int,
    actor: tuple[ActorType, str | None],
) -> None:
    revision = mutation.revision_of(connection, resource_id)
    mutation.bump(connection, resource_id, revision, now)
    mutation.record_event(connection, resource_id, revision + 1, event, actor[0], actor[1], payload, now)


def settle(
    connection: sqlite3.Connection,
    run_id: str,
    given: EffectSettlement,
    result: bytes | None,
    error: str | None,
    now: int,
) -> None:
    """The end of an apply, as its runner tells it with the node's outcome. `result` is the digest of the output's blob.

    `ConflictError` unless the effect is being applied.
    """
    row = connection.execute(
        "SELECT resource_id, status, payload_hash FROM effects WHERE effect_id = ?", (given.effect_id,)
    ).fetchone()
    if row is None or row[1] != "applying":
        raise ConflictError(f"effect {given.effect_id} is not being applied")
    status = {"applied": "applied", "rejected": "rejected", "ambiguous": "ambiguous", "retry": "pending"}[given.outcome]
    error_hash = None if error is None else blobs.put_text(connection, error, now)
    outcome = "interrupted" if given.outcome == "retry" else given.outcome
    if status == "applied" and result is None:
        # It happened, though what the node made of it was no value.
        result = blobs.put_json(connection, None, now)
    _close_attempt(connection, given.effect_id, outcome, now, result, error_hash)
    connection.execute(
        "UPDATE effects SET status = ?, result_hash = ?, external_ref = ?, error_hash = ?, settled_at = ?,"
        " updated_at = ? WHERE effect_id = ?",
        (
            status,
            result if status == "applied" else None,
            given.external_ref,
            error_hash,
            None if status == "pending" else now,
            now,
            given.effect_id,
        ),
    )
    if status == "pending":
        _event(
            connection,
            row[0],
            "effect.retry_ready",
            {"recovery": _recovery_of(connection, row[2]), "runId": run_id},
            now,
        )
    else:
        _event(connection, row[0], f"effect.{status}", {"outcome": given.outcome, "runId": run_id}, now)


def give_up(connection: sqlite3.Connection, run: RunRow, *, again: bool, error: str, now: int) -> None:
    """The node that applies an effect of the run was given up: nobody knows whether it happened.

    With `again` the node will be tried once more under the same key, which only an idempotent effect allows.
    """
    for effect_id, _, recovery in _applying(connection, run.resource_id):
        outcome: Literal["retry", "ambiguous"] = "retry" if again and recovery == "idempotent" else "ambiguous"
        settle(connection, run.run_id, EffectSettlement(effect_id, None, outcome), None, error, now)


def _applying(connection: sqlite3.Connection, resource_id: str) -> list[tuple[str, str, str]]:
    return [
        (effect_id, aggregate, _recovery_of(connection, payload))
        for effect_id, aggregate, payload in connection.execute(
            "SELECT effect_id, resource_id, payload_hash FROM effects"
            " WHERE source_resource_id = ? AND status = 'applying'",
            (resource_id,),
        ).fetchall()
    ]


def settle_uncertain(connection: sqlite3.Connection, run: RunRow, now: int) -> bool:
    """Settle what a gone runner left `applying`. True when a manual effect has become ambiguous."""
    ambiguous = False
    for effect_id, resource_id, recovery in _applying(connection, run.resource_id):
        manual = recovery != "idempotent"
        ambiguous |= manual
        _close_attempt(connection, effect_id, "ambiguous" if manual else "interrupted", now, None, None)
        connection.execute(
            "UPDATE effects SET status = ?, settled_at = ?, updated_at = ? WHERE effect_id = ?",
            ("ambiguous" if manual else "pending", now if manual else None, now, effect_id),
        )
        event = "effect.ambiguous" if manual else "effect.retry_ready"
        _event(connection, resource_id, event, {"recovery": recovery, "runId": run.run_id}, now)
    return ambiguous


def close_all(connection: sqlite3.Connection, run: RunRow, now: int, actor: str) -> None:
    """A run that did not complete: what was not begun is cancelled, what was under way is ambiguous."""
    rows = connection.execute(
        "SELECT effect_id, resource_id, status FROM effects WHERE source_resource_id = ?"
        " AND status IN ('pending', 'applying')",
        (run.resource_id,),
    ).fetchall()
    for effect_id, resource_id, status in rows:
        now_is = "cancelled" if status == "pending" else "ambiguous"
        _close_attempt(connection, effect_id, "interrupted", now, None, None)
        connection.execute(
            "UPDATE effects SET status = ?, settled_at = ?, next_attempt_at = NULL, updated_at = ? WHERE effect_id = ?",
            (now_is, now, now, effect_id),
        )
        payload = {"reason": "workflowCancelled", "runId": run.run_id}
        _event_by(connection, resource_id, f"effect.{now_is}", payload, now, ("control", actor))


@dataclass(frozen=True)
class Effect:
    """An effect as a person settles it."""

    effect_id: str
    resource_id: str
    status: str
    attempts: int
    run_id: str
    run_status: str


def read(connection: sqlite3.Connection, effect_id: str) -> Effect:
    """The effect of a run; `NotFoundError` where there is none of that id."""
    row = connection.execute(
        "SELECT e.effect_id, e.resource_id, e.status, e.attempt_count, r.run_id, r.status FROM effects e"
        " JOIN runs r ON r.resource_id = e.source_resource_id WHERE e.effect_id = ?",
        (effect_id,),
    ).fetchone()
    if row is None:
        raise NotFoundError(f"no effect {effect_id!r} of a run in this state file; server.effects() lists them")
    return Effect(*row)


def recover(connection: sqlite3.Connection, effect: Effect, action: str, external_ref: str | None, now: int) -> None:
    """A person's word on an ambiguous effect: `confirm` (it happened) or `retry` (apply it again, maybe twice).

    `ConflictError` when the effect is not ambiguous, or there is no run any more that would apply it again.
    """
    if effect.status != "ambiguous":
        raise ConflictError(f"effect {effect.effect_id} is {effect.status}, not ambiguous: there is nothing to decide")
    if action == "retry" and effect.run_status in TERMINAL:
        raise ConflictError(
            f"effect {effect.effect_id} cannot be applied again: its run is over ({effect.run_status});"
            " confirm it if it happened, or start another run"
        )
    if action == "confirm":
        result = blobs.put_json(connection, None, now)
        connection.execute(
            "UPDATE effects SET status = 'applied', result_hash = ?, external_ref = ?, settled_at = ?, updated_at = ?"
            " WHERE effect_id = ?",
            (result, external_ref, now, now, effect.effect_id),
        )
        event, payload = "effect.applied", {"outcome": "applied", "runId": effect.run_id}
    else:
        connection.execute(
            "UPDATE effects SET status = 'pending', settled_at = NULL, error_hash = NULL, updated_at = ?"
            " WHERE effect_id = ?",
            (now, effect.effect_id),
        )
        event, payload = "effect.retry_ready", {"recovery": "manual", "runId": effect.run_id}
    _event_by(connection, effect.resource_id, event, payload, now, ("human", None))


def ambiguous(connection: sqlite3.Connection, run: RunRow) -> bool:
    """Whether an effect of the run still waits for a person."""
    return (
        connection.execute(
            "SELECT 1 FROM effects WHERE source_resource_id = ? AND status = 'ambiguous' LIMIT 1", (run.resource_id,)
        ).fetchone()
        is not None
    )


def require_applying(connection: sqlite3.Connection, resource_id: str, effect_id: str) -> None:
    """`ConflictError` unless the effect is of the run with this resource id, and is being applied."""
    row = connection.execute(
        "SELECT status FROM effects WHERE effect_id = ? AND source_resource_id = ?", (effect_id, resource_id)
    ).fetchone()
    if row is None or row[0] != "applying":
        raise ConflictError(f"effect {effect_id} is not being applied")
