"""Managed resources: desired state, which callers put, and observed state, which their manager reports.

A resource's version is the revision of its aggregate: it grows by one with every change, and each leaves one event. Its
generation grows when the content of its spec changes. When a resource is gone, its aggregate stays, with events and
effects; the same key made again is a new life with an aggregate of its own.

Every function works in the caller's transaction. `now` and all times are in milliseconds since the epoch.
"""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from ..wire import identities
from ..wire.errors import ClaimTargetError, ManagedResourceConflictError, ManagedResourceNotFoundError
from ..wire.resource_status import Status
from . import blobs, mutation
from .mutation import ActorType
from .resource_values import NO_PAYLOAD, require_name, require_text

_SELECT: Final = """
    SELECT c.controller_resource_id, c.resource_id, c.project_id, r.revision, c.controller_name, c.resource_key, c.uid,
           c.generation, c.spec_hash, c.status_hash, c.deletion_requested_at,
           l.owner_id, l.token_hash, l.generation, l.expires_at
    FROM controller_resources c JOIN resources r USING (resource_id) JOIN leases l USING (resource_id)
"""
_BY_KEY: Final = f"{_SELECT} WHERE c.project_id = ? AND c.controller_name = ? AND c.resource_key = ?"
_BY_UID: Final = f"{_SELECT} WHERE c.uid = ?1 AND (?2 IS NULL OR c.project_id = ?2)"
_OF_PROJECT: Final = f"""{_SELECT} WHERE c.project_id = ?1 AND (?2 IS NULL OR c.controller_name = ?2)
    ORDER BY c.controller_name, c.resource_key"""
_OF_ALL: Final = f"""{_SELECT} WHERE ?1 IS NULL OR c.controller_name = ?1
    ORDER BY c.controller_name, c.resource_key, c.project_id"""
_FINALIZERS: Final = "SELECT finalizer FROM controller_finalizers WHERE controller_resource_id = ? ORDER BY position"
_INSERT: Final = """
    INSERT INTO controller_resources(controller_resource_id, resource_id, project_id, controller_name, resource_key,
      uid, generation, spec_hash, status_hash, created_at, updated_at) VALUES (?, ?, ?, ?, ?, ?, 1, ?, ?, ?, ?)
"""
_SET_SPEC: Final = (
    "UPDATE controller_resources SET spec_hash = ?, generation = generation + 1, updated_at = ?"
    " WHERE controller_resource_id = ?"
)
_SET_STATUS: Final = "UPDATE controller_resources SET status_hash = ?, updated_at = ? WHERE controller_resource_id = ?"
_TOUCH: Final = "UPDATE controller_resources SET updated_at = ? WHERE controller_resource_id = ?"
_SET_DELETION: Final = (
    "UPDATE controller_resources SET deletion_requested_at = ?, updated_at = ? WHERE controller_resource_id = ?"
)
_ENQUEUE: Final = """
    INSERT INTO controller_queue(controller_resource_id, available_at, queue_version, consecutive_errors, created_at,
      updated_at) VALUES (?1, ?2, 1, 0, ?3, ?3)
    ON CONFLICT(controller_resource_id) DO UPDATE SET available_at = min(available_at, excluded.available_at),
      queue_version = queue_version + 1, updated_at = excluded.updated_at
"""


@dataclass(frozen=True)
class ManagedResource:
    """A managed resource as it stands: whose it is, what is wanted (`spec`), and what was observed (`status`)."""

    uid: str
    resource_manager: str
    key: str
    resource_version: int
    generation: int
    deletion_timestamp: int | None
    finalizers: tuple[str, ...]
    spec: Any
    status: Status


@dataclass
class ResourceClaim:
    """The right to work on one managed resource until `expires_at`, and what its queue row said when it was claimed.

    The store moves `resource_version` and `expires_at` along with changes that were committed under the claim.
    """

    project_id: str
    resource_manager: str
    key: str
    lease: mutation.Claim = field(repr=False)
    queue_version: int
    consecutive_errors: int
    resource_version: int
    expires_at: int

    @property
    def owner_id(self) -> str:
        """Who holds it."""
        return self.lease.owner_id

    @property
    def generation(self) -> int:
        """The generation of the lease, which fences every older owner."""
        return self.lease.generation


class ResourceRow(NamedTuple):
    """A row of `controller_resources` with the revision and the lease of its aggregate."""

    row_id: str
    resource_id: str
    project_id: str
    revision: int
    manager: str
    key: str
    uid: str
    generation: int
    spec_hash: bytes
    status_hash: bytes
    deletion_requested_at: int | None
    owner_id: str | None
    token_hash: bytes | None
    lease_generation: int
    expires_at: int | None


def find_row(connection: sqlite3.Connection, project_id: str, manager: str, key: str) -> ResourceRow | None:
    """The row of a resource, None where there is none."""
    row = connection.execute(_BY_KEY, (project_id, manager, key)).fetchone()
    return None if row is None else ResourceRow(*row)


def require_row(connection: sqlite3.Connection, project_id: str, manager: str, key: str) -> ResourceRow:
    """The row of a resource; `ManagedResourceNotFoundError` where there is none."""
    row = find_row(connection, project_id, require_name(manager, "a manager"), require_name(key, "a key"))
    if row is None:
        raise ManagedResourceNotFoundError(f"no managed resource {key!r} of {manager!r} in this project")
    return row


def require_row_by_uid(connection: sqlite3.Connection, project_id: str, uid: str) -> ResourceRow:
    """The row of a resource of a project; `ManagedResourceNotFoundError` where there is none, or no longer."""
    row = connection.execute(_BY_UID, (require_text(uid, "a uid"), project_id)).fetchone()
    if row is None:
        raise ManagedResourceNotFoundError(f"no managed resource with uid {uid!r} in this project")
    return ResourceRow(*row)


def require_claim(row: ResourceRow, claim: ResourceClaim, now: int, *, expiry: bool = True) -> None:
    """`ClaimTargetError` when the claim names another resource, `StaleClaimError` when it is not the live one."""
    if (claim.project_id, claim.resource_manager, claim.key) != (row.project_id, row.manager, row.key):
        raise ClaimTargetError(
            f"a claim on {claim.key!r} of {claim.resource_manager!r} does not reach {row.key!r} of {row.manager!r}"
        )
    mutation.compare_lease(
        claim.lease, row.owner_id, row.token_hash, row.lease_generation, row.expires_at, now, expiry=expiry
    )


def require_version(row: ResourceRow, expected: int) -> None:
    """`ManagedResourceConflictError` unless the resource is at the expected version."""
    if row.revision != expected:
        raise ManagedResourceConflictError(
            f"{row.key!r} of {row.manager!r} is at resource version {row.revision}, not {expected}: it was changed"
            " meanwhile; read it again"
        )


def note_change(
    connection: sqlite3.Connection,
    row: ResourceRow,
    event_type: str,
    payload: bytes,
    now: int,
    *,
    claim: ResourceClaim | None = None,
    actor: ActorType = "control",
) -> int:
    """Raise the version by one with its event, by the claim's owner or else by `actor`; gives the event's number."""
    event = mutation.event_row(
        row.resource_id,
        row.revision + 1,
        event_type,
        actor if claim is None else "controller",
        None if claim is None else claim.owner_id,
        blobs.put_json_bytes(connection, payload, now),
        now,
        None if claim is None else claim.generation,
    )
    mutation.bump(connection, row.resource_id, row.revision, now)
    number = connection.execute(mutation.EVENT_INSERT, event).lastrowid
    assert number is not None
    return number


def enqueue_row(connection: sqlite3.Connection, row_id: str, available_at: int, now: int) -> None:
    """Have a resource worked on at a time, or at the earlier one at which it will be anyway."""
    connection.execute(_ENQUEUE, (row_id, available_at, now))


def put(
    connection: sqlite3.Connection,
    project_id: str,
    manager: str,
    key: str,
    spec: bytes,
    initial_status: bytes,
    now: int,
) -> ManagedResource:
    """Create a resource, or give one that stands another spec; both enqueue it.

    The bytes are those of `resource_values.encode_spec` and `encode_status`; a status is for a new resource alone, and
    an equal spec changes nothing. `ManagedResourceError` for a manager or a key that cannot be called so.
    """
    row = find_row(connection, project_id, require_name(manager, "a manager"), require_name(key, "a key"))
    if row is None:
        _create(connection, project_id, manager, key, spec, initial_status, now)
    elif identities.sha256(spec) != row.spec_hash:
        connection.execute(_SET_SPEC, (blobs.put_json_bytes(connection, spec, now), now, row.row_id))
        enqueue_row(connection, row.row_id, now, now)
        note_change(connection, row, "resource.spec_updated", _generation(row.generation + 1), now)
    return _present(connection, require_row(connection, project_id, manager, key))


def _create(
    connection: sqlite3.Connection,
    project_id: str,
    manager: str,
    key: str,
    spec: bytes,
    initial_status: bytes,
    now: int,
) -> None:
    row_id, uid = f"controller-resource-{uuid.uuid4()}", str(uuid.uuid4())
    hashed = identities.managed_resource_key(project_id, manager, key)
    if connection.execute(
        "SELECT 1 FROM resources WHERE resource_id = ?", (identities.aggregate_id("controller", hashed),)
    ).fetchone():
        # An earlier life of the key, or a neighbour whose name and key make the same text with their colon.
        hashed = identities.managed_resource_key(project_id, manager, key, uid)
    digests = blobs.put_json_bytes(connection, spec, now), blobs.put_json_bytes(connection, initial_status, now)
    resource_id = mutation.create_aggregate(connection, "controller", row_id, now, revision=0, hashed=hashed)
    connection.execute(_INSERT, (row_id, resource_id, project_id, manager, key, uid, *digests, now, now))
    enqueue_row(connection, row_id, now, now)
    note_change(connection, require_row(connection, project_id, manager, key), "resource.created", _generation(1), now)


def _generation(generation: int) -> bytes:
    return b'{"generation":%d}' % generation


def get(connection: sqlite3.Connection, project_id: str, manager: str, key: str) -> ManagedResource | None:
    """A resource of a project, None where there is none."""
    row = find_row(connection, project_id, require_name(manager, "a manager"), require_name(key, "a key"))
    return None if row is None else _present(connection, row)


def get_by_uid(connection: sqlite3.Connection, project_id: str | None, uid: str) -> ManagedResource | None:
    """A resource of a project, or of any, by what is never used again; None where there is none, or no longer."""
    row = connection.execute(_BY_UID, (require_text(uid, "a uid"), project_id)).fetchone()
    return None if row is None else _present(connection, ResourceRow(*row))


def list_all(connection: sqlite3.Connection, project_id: str | None, manager: str | None) -> list[ManagedResource]:
    """The resources of a project, or of all, by manager and key."""
    query = (_OF_ALL, (manager,)) if project_id is None else (_OF_PROJECT, (project_id, manager))
    return [_present(connection, ResourceRow(*row)) for row in connection.execute(*query).fetchall()]


def _present(connection: sqlite3.Connection, row: ResourceRow) -> ManagedResource:
    return ManagedResource(
        row.uid,
        row.manager,
        row.key,
        row.revision,
        row.generation,
        row.deletion_requested_at,
        _finalizers(connection, row),
        blobs.read_json(connection, row.spec_hash),
        Status.from_json(blobs.read_json(connection, row.status_hash)),
    )


def _finalizers(connection: sqlite3.Connection, row: ResourceRow) -> tuple[str, ...]:
    return tuple(finalizer for (finalizer,) in connection.execute(_FINALIZERS, (row.row_id,)))


def update_status(
    connection: sqlite3.Connection,
    project_id: str,
    manager: str,
    key: str,
    claim: ResourceClaim,
    status: bytes,
    expected_version: int,
    finalizers: Sequence[str] | None,
    now: int,
) -> ManagedResource:
    """Report what was observed (the bytes of `encode_status`), under the live claim and from the expected version.

    `finalizers` (from `require_finalizers`) replaces them; None leaves them.
    """
    row = require_row(connection, project_id, manager, key)
    require_claim(row, claim, now)
    require_version(row, expected_version)
    connection.execute(_SET_STATUS, (blobs.put_json_bytes(connection, status, now), now, row.row_id))
    if finalizers is not None:
        _replace_finalizers(connection, row, finalizers)
    note_change(connection, row, "resource.status_updated", NO_PAYLOAD, now, claim=claim)
    return _present(connection, require_row(connection, project_id, manager, key))


def update_finalizers(
    connection: sqlite3.Connection,
    project_id: str,
    manager: str,
    key: str,
    finalizers: Sequence[str],
    expected_version: int,
    now: int,
) -> ManagedResource:
    """Replace the finalizers (from `require_finalizers`), from the expected version."""
    row = require_row(connection, project_id, manager, key)
    require_version(row, expected_version)
    _replace_finalizers(connection, row, finalizers)
    connection.execute(_TOUCH, (now, row.row_id))
    note_change(connection, row, "resource.finalizers_updated", NO_PAYLOAD, now)
    return _present(connection, require_row(connection, project_id, manager, key))


def _replace_finalizers(connection: sqlite3.Connection, row: ResourceRow, finalizers: Sequence[str]) -> None:
    connection.execute("DELETE FROM controller_finalizers WHERE controller_resource_id = ?", (row.row_id,))
    connection.executemany(
        "INSERT INTO controller_finalizers VALUES (?, ?, ?)",
        [(row.row_id, finalizer, position) for position, finalizer in enumerate(finalizers)],
    )


def request_deletion(
    connection: sqlite3.Connection, project_id: str, manager: str, key: str, now: int
) -> ManagedResource:
    """Mark a resource for deletion and enqueue it; asked again, nothing changes."""
    row = require_row(connection, project_id, manager, key)
    if row.deletion_requested_at is None:
        connection.execute(_SET_DELETION, (now, now, row.row_id))
        enqueue_row(connection, row.row_id, now, now)
        note_change(connection, row, "resource.deletion_requested", NO_PAYLOAD, now)
    return _present(connection, require_row(connection, project_id, manager, key))


def delete(
    connection: sqlite3.Connection,
    project_id: str,
    manager: str,
    key: str,
    claim: ResourceClaim,
    expected_version: int,
    now: int,
) -> bool:
    """End the life of a resource under the live claim, which ends too.

    False while its deletion was not requested, or a finalizer remains. Events, effects and the aggregate stay.
    """
    row = require_row(connection, project_id, manager, key)
    require_claim(row, claim, now)
    require_version(row, expected_version)
    if row.deletion_requested_at is None or _finalizers(connection, row):
        return False
    note_change(connection, row, "resource.deleted", NO_PAYLOAD, now, claim=claim)
    mutation.clear_lease(connection, row.resource_id)
    # The queue row first, while it can still be told whose it was; the rest goes with the resource.
    connection.execute("DELETE FROM controller_queue WHERE controller_resource_id = ?", (row.row_id,))
    connection.execute("DELETE FROM controller_resources WHERE controller_resource_id = ?", (row.row_id,))
    return True
