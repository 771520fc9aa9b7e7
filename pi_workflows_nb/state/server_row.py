"""Row 1 of the host state: which server owns the file. Ownership is this row, read first in every transaction."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import Final

from ..wire import identities
from ..wire.errors import StaleClaimError

SERVER_LEASE_MS: Final = 30_000
_OWN: Final = "id = 1 AND epoch = ? AND host_id = ? AND token_hash = ?"


@dataclass(frozen=True)
class Owner:
    """What the row says of a server that owned, or owns, the file. Times in milliseconds."""

    epoch: int
    server_id: str
    pid: int
    start_identity: str
    expires_at: int


@dataclass(frozen=True)
class Ownership:
    """This server's own hold on the row."""

    epoch: int
    server_id: str
    token: str


def owner(connection: sqlite3.Connection) -> Owner | None:
    """The recorded owner, or None after a clean stop."""
    row = connection.execute(
        "SELECT epoch, host_id, pid, process_start_identity, expires_at FROM workflow_host_state WHERE id = 1"
    ).fetchone()
    return None if row is None or row[1] is None else Owner(*row)


def take(connection: sqlite3.Connection, pid: int, start_identity: str, now: int) -> Ownership:
    """Become the owner with the next epoch. The caller has made sure that no live server is."""
    server_id = f"host-{identities.new_id()}"
    token = identities.new_token()
    epoch = connection.execute(
        "UPDATE workflow_host_state SET epoch = epoch + 1, host_id = ?, token_hash = ?, pid = ?,"
        " process_start_identity = ?, started_at = ?, heartbeat_at = ?, expires_at = ? WHERE id = 1 RETURNING epoch",
        (server_id, identities.token_hash(token), pid, start_identity, now, now, now + SERVER_LEASE_MS),
    ).fetchone()[0]
    return Ownership(epoch, server_id, token)


def check(connection: sqlite3.Connection, own: Ownership) -> None:
    """`StaleClaimError` unless this server is still the owner."""
    row = connection.execute("SELECT epoch FROM workflow_host_state WHERE id = 1").fetchone()
    if row is None or row[0] != own.epoch:
        raise StaleClaimError("another server has taken the file over", "generationChanged")


def renew(connection: sqlite3.Connection, own: Ownership, now: int) -> None:
    """Prolong the hold."""
    changed = connection.execute(
        f"UPDATE workflow_host_state SET heartbeat_at = ?, expires_at = ? WHERE {_OWN}",
        (now, now + SERVER_LEASE_MS, own.epoch, own.server_id, identities.token_hash(own.token)),
    ).rowcount
    if changed != 1:
        raise StaleClaimError("another server has taken the file over", "ownerChanged")


def release(connection: sqlite3.Connection, own: Ownership) -> None:
    """Give the row back at a clean stop; the epoch stays."""
    connection.execute(
        "UPDATE workflow_host_state SET host_id = NULL, token_hash = NULL, pid = NULL, process_start_identity = NULL,"
        f" started_at = NULL, heartbeat_at = NULL, expires_at = NULL WHERE {_OWN}",
        (own.epoch, own.server_id, identities.token_hash(own.token)),
    )
