"""Scopes of settings: what a run, or an entry into a workflow mounted in it, works under, and every change of it.

A scope is an aggregate that begins at revision 0; its revision is the number of its changes. It belongs to the run in
which it began, and goes on with whichever run of the chain is active.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import Final
from uuid import uuid4

from ..wire import identities
from ..wire.errors import ConflictError, NotFoundError
from . import blobs, mutation
from .mutation import ActorType

ROOT: Final = ""
_SELECT: Final = """
    SELECT s.scope_id, s.resource_id, s.active_run_id, s.mount_path, a.revision, s.current_hash, s.initial_hash
    FROM workflow_settings s JOIN resources a USING (resource_id)
"""


@dataclass(frozen=True)
class Scope:
    """A scope of settings as it stands; values by their digests."""

    scope_id: str
    resource_id: str
    run_id: str
    mount_path: str
    change_number: int
    current: bytes
    initial: bytes


@dataclass(frozen=True)
class Change:
    """A change that was checked: who made it, in which request, as canonical JSON."""

    request_id: str
    actor: tuple[ActorType, str | None]
    source_type: str
    patch: bytes
    after: bytes


def begin(connection: sqlite3.Connection, run_id: str, mount_path: str, initial: bytes, now: int) -> str:
    """Open a scope for an entry, and give its id; `initial` is canonical JSON."""
    digest = blobs.put_json_bytes(connection, initial, now)
    origin, invocation = run_id, 1
    before = connection.execute(
        "SELECT origin_run_id, invocation FROM workflow_settings WHERE active_run_id = ? AND mount_path = ?"
        " ORDER BY created_at DESC, invocation DESC LIMIT 1",
        (run_id, mount_path),
    ).fetchone()
    if before is not None:
        origin, invocation = before[0], before[1] + 1
    scope_id = identities.settings_scope_id(origin, mount_path, invocation)
    resource_id = mutation.create_aggregate(connection, "settings", scope_id, now, revision=0)
    connection.execute(
        "INSERT INTO workflow_settings VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (scope_id, resource_id, origin, run_id, mount_path, invocation, digest, digest, now, now),
    )
    return scope_id


def find(connection: sqlite3.Connection, run_id: str, mount_path: str) -> Scope | None:
    """The newest scope of a mount in an active run, None where its workflow declares no settings."""
    row = connection.execute(
        f"{_SELECT} WHERE s.active_run_id = ? AND s.mount_path = ? ORDER BY s.invocation DESC LIMIT 1",
        (run_id, mount_path),
    ).fetchone()
    return None if row is None else Scope(*row)


def at_change(connection: sqlite3.Connection, run_id: str, mount_path: str, number: int) -> tuple[str, bytes]:
    """The id of a mount's newest scope, and the digest of its value after so many changes; `NotFoundError` else."""
    scope = find(connection, run_id, mount_path)
    if scope is not None and number == scope.change_number:
        return scope.scope_id, scope.current
    row = None
    if scope is not None:
        row = connection.execute(
            "SELECT CASE WHEN ?2 = 0 THEN ?3 ELSE (SELECT after_hash FROM workflow_setting_changes"
            " WHERE scope_id = ?1 AND change_number = ?2) END",
            (scope.scope_id, number, scope.initial),
        ).fetchone()
    if scope is None or row is None or row[0] is None:
        raise NotFoundError(f"there are no settings of {mount_path or 'the run'!r} with change number {number}")
    return scope.scope_id, row[0]


def change(connection: sqlite3.Connection, scope: Scope, given: Change, now: int) -> int:
    """Change settings that stand as the scope says, and give the new change number; `ConflictError` otherwise."""
    present = mutation.revision_of(connection, scope.resource_id)
    if present != scope.change_number:
        raise ConflictError(f"the settings were changed meanwhile: the change number is {present}")
    number = mutation.bump(connection, scope.resource_id, present, now)
    after = blobs.put_json_bytes(connection, given.after, now)
    patch = blobs.put_json_bytes(connection, given.patch, now)
    connection.execute(
        "INSERT INTO workflow_setting_changes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            f"setting-change-{uuid4()}", scope.scope_id, given.request_id, number, *given.actor, given.source_type,
            patch, scope.current, after, now,
        ),
    )  # fmt: skip
    connection.execute(
        "UPDATE workflow_settings SET current_hash = ?, updated_at = ? WHERE scope_id = ?", (after, now, scope.scope_id)
    )
    payload = {
        "afterHash": after.hex(),
        "beforeHash": scope.current.hex(),
        "requestId": given.request_id,
        "scopeId": scope.scope_id,
        "source": given.source_type,
    }
    mutation.record_event(connection, scope.resource_id, number, "settings.changed", *given.actor, payload, now)
    return number


def carry_on(connection: sqlite3.Connection, run_id: str, next_id: str, now: int) -> None:
    """Let a continuation go on with all scopes of the run before it."""
    connection.execute(
        "UPDATE workflow_settings SET active_run_id = ?, updated_at = ? WHERE active_run_id = ?", (next_id, now, run_id)
    )


def initial_of(connection: sqlite3.Connection, run_id: str) -> bytes | None:
    """What the settings of a run began as, canonical JSON; None for a run without any."""
    row = connection.execute(
        "WITH RECURSIVE up(run_id, parent, kind) AS (SELECT run_id, parent_run_id, lineage_kind FROM runs"
        " WHERE run_id = ? UNION ALL SELECT r.run_id, r.parent_run_id, r.lineage_kind FROM runs r"
        " JOIN up ON up.kind = 'continuation' AND r.run_id = up.parent)"
        " SELECT s.initial_hash FROM up JOIN workflow_settings s ON s.origin_run_id = up.run_id"
        " WHERE s.mount_path = '' LIMIT 1",
        (run_id,),
    ).fetchone()
    return None if row is None else blobs.read_json_bytes(connection, row[0])
