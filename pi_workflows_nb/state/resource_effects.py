"""Effects of managed resources: recorded under their key before they touch the world, settled after it answered.

What is in the world is for the reconciler to observe; here is only what was intended and what is known of it. An effect
of a resource has no rows of attempts. In the file `indeterminate` is called `ambiguous`.

Every function works in the caller's transaction. Times are in milliseconds since the epoch.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from ..wire import canonical_json, identities
from ..wire.errors import EffectRequestConflictError, ManagedResourceError, NotFoundError
from . import blobs, managed_resources, mutation
from .managed_resources import ResourceClaim, ResourceRow
from .resource_values import require_text

EffectState = Literal["pending", "applied", "rejected", "indeterminate"]

_SELECT: Final = """
    SELECT e.effect_id, e.idempotency_key, c.uid, c.generation, e.effect_type, e.status, p.content, e.created_at,
           e.settled_at, e.external_ref, x.content, e.resource_id
    FROM effects e JOIN controller_resources c ON c.resource_id = e.source_resource_id
    JOIN blobs p ON p.blob_hash = e.payload_hash LEFT JOIN blobs x ON x.blob_hash = e.error_hash
"""
_BY_ID: Final = f"{_SELECT} WHERE e.effect_id = ?"
_LIST: Final = f"""{_SELECT}
    WHERE e.owner_scope = 'controller' AND (?1 IS NULL OR c.project_id = ?1) AND (?2 IS NULL OR c.uid = ?2)
    ORDER BY e.created_at, e.effect_id
"""
_INSERT: Final = """
    INSERT INTO effects(effect_id, resource_id, source_resource_id, source_revision, effect_type, idempotency_key,
      payload_hash, owner_scope, status, attempt_count, created_at, updated_at)
    VALUES (?, ?, ?, ?, ?, ?, ?, 'controller', 'pending', 0, ?, ?)
"""
_UPDATE: Final = """
    UPDATE effects SET status = ?, external_ref = ?, error_hash = ?, settled_at = ?, updated_at = ? WHERE effect_id = ?
"""


@dataclass(frozen=True)
class ResourceEffect:
    """One intended effect of a resource and what is known of it.

    `generation` is the resource's present one. `completed_at` is None while the effect is pending; `state` may be
    `cancelled` or `applying` in files of other implementations.
    """

    effect_id: str
    key: str
    resource_uid: str
    generation: int
    kind: str
    state: str
    request_fingerprint: str
    started_at: int
    completed_at: int | None
    external_ref: str | None
    error: str | None


def reserve(
    connection: sqlite3.Connection,
    project_id: str,
    resource_uid: str,
    key: str,
    claim: ResourceClaim,
    *,
    kind: str,
    request_fingerprint: str,
    generation: int,
    now: int,
) -> tuple[ResourceEffect, bool]:
    """Record an effect that is about to be applied, or adopt the one of that key; tells whether it is new.

    `generation` is the resource's that the caller works on. `EffectRequestConflictError` when the key stands for
    another kind or request, or the resource is at another generation by now.
    """
    source = managed_resources.require_row_by_uid(connection, project_id, resource_uid)
    managed_resources.require_claim(source, claim, now)
    effect_id = identities.effect_id_of_resource(source.resource_id, require_text(key, "the key of an effect"))
    known = _find(connection, effect_id)
    if known is None:
        _insert(connection, source, claim, effect_id, key, kind, request_fingerprint, generation, now)
        return _require(connection, effect_id, key)[0], True
    asked = {"kind": kind, "request": request_fingerprint, "generation": generation}
    stands = {"kind": known[0].kind, "request": known[0].request_fingerprint, "generation": source.generation}
    if asked != stands:
        word = next(word for word in asked if asked[word] != stands[word])
        raise EffectRequestConflictError(
            f"the effect {key!r} of {source.key!r} stands for another {word} ({stands[word]}, not {asked[word]}):"
            " an effect of its own needs a key of its own"
        )
    return known[0], False


def _insert(
    connection: sqlite3.Connection,
    source: ResourceRow,
    claim: ResourceClaim,
    effect_id: str,
    key: str,
    kind: str,
    request_fingerprint: str,
    generation: int,
    now: int,
) -> None:
    payload: dict[str, Any] = {
        "generation": generation,
        "key": key,
        "kind": require_text(kind, "the kind of an effect"),
        "requestFingerprint": require_text(request_fingerprint, "a fingerprint"),
        "resourceUid": source.uid,
    }
    payload_hash = blobs.put_json(connection, payload, now)
    resource_id = mutation.create_aggregate(connection, "effect", effect_id, now, revision=1)
    row = (effect_id, resource_id, source.resource_id, source.revision, kind, key, payload_hash, now, now)
    connection.execute(_INSERT, row)
    mutation.record_event(
        connection, resource_id, 1, "effect.reserved", "controller", claim.owner_id, {}, now, claim.generation
    )


def update(
    connection: sqlite3.Connection,
    project_id: str,
    resource_uid: str,
    key: str,
    claim: ResourceClaim,
    *,
    state: EffectState,
    external_ref: str | None,
    error: str | None,
    now: int,
) -> ResourceEffect:
    """Say what is known of an effect now; the reference and the error replace those before, None takes them away.

    `NotFoundError` when no effect was reserved under the key.
    """
    if state not in get_args(EffectState):
        raise ManagedResourceError(f"an effect is {', '.join(get_args(EffectState))}, not {state!r}")
    source = managed_resources.require_row_by_uid(connection, project_id, resource_uid)
    managed_resources.require_claim(source, claim, now)
    effect_id = identities.effect_id_of_resource(source.resource_id, require_text(key, "the key of an effect"))
    _, resource_id = _require(connection, effect_id, key)
    reference = None if external_ref is None else require_text(external_ref, "an external reference")
    error_hash = None if error is None else blobs.put_text(connection, identities.cap_units(error), now)
    status = "ambiguous" if state == "indeterminate" else state
    settled_at = None if state == "pending" else now
    connection.execute(_UPDATE, (status, reference, error_hash, settled_at, now, effect_id))
    revision = mutation.bump(connection, resource_id, mutation.revision_of(connection, resource_id), now)
    mutation.record_event(
        connection, resource_id, revision, f"effect.{state}", "controller", claim.owner_id, {}, now, claim.generation
    )
    return _require(connection, effect_id, key)[0]


def list_all(connection: sqlite3.Connection, project_id: str | None, resource_uid: str | None) -> list[ResourceEffect]:
    """The effects of the resources of a project, or of all, or of one resource, oldest first."""
    return [_effect(row) for row in connection.execute(_LIST, (project_id, resource_uid)).fetchall()]


def _find(connection: sqlite3.Connection, effect_id: str) -> tuple[ResourceEffect, str] | None:
    row = connection.execute(_BY_ID, (effect_id,)).fetchone()
    return None if row is None else (_effect(row), row[-1])


def _require(connection: sqlite3.Connection, effect_id: str, key: str) -> tuple[ResourceEffect, str]:
    found = _find(connection, effect_id)
    if found is None:
        raise NotFoundError(f"no effect was reserved under {key!r}: reserve it before it is applied")
    return found


def _effect(row: tuple[Any, ...]) -> ResourceEffect:
    effect_id, key, uid, generation, kind, status, payload, started, settled, reference, error, _ = row
    return ResourceEffect(
        effect_id,
        key,
        uid,
        generation,
        kind,
        "indeterminate" if status == "ambiguous" else status,
        canonical_json.decode(payload)["requestFingerprint"],
        started,
        settled,
        reference,
        None if error is None else error.decode("utf-8", "replace"),
    )
