"""Receipts of commands: an equal request under the same client and key adopts the first one's answer."""

from __future__ import annotations

import sqlite3
from typing import Any

from ..wire.errors import ConflictError
from . import blobs


def adopt(connection: sqlite3.Connection, client_id: str, key: str, fingerprint: bytes) -> dict[str, Any] | None:
    """The receipt of an earlier accepted request under the key, or None; `ConflictError` when that was another one."""
    row = connection.execute(
        "SELECT request_fingerprint, receipt_hash FROM host_commands WHERE client_id = ? AND idempotency_key = ?",
        (client_id, key),
    ).fetchone()
    if row is None:
        return None
    if row[0] != fingerprint:
        raise ConflictError(
            f"the key {key!r} was used before for another request; take another key,"
            " or give the same workflow name and input"
        )
    receipt: dict[str, Any] = blobs.read_json(connection, row[1])
    return receipt


def record(
    connection: sqlite3.Connection,
    *,
    request_id: str,
    client_id: str,
    operation: str,
    key: str,
    fingerprint: bytes,
    run_id: str | None,
    revision: int | None,
    receipt: dict[str, Any],
    server_epoch: int,
    now: int,
) -> None:
    """Keep the receipt of an accepted command, in the transaction of its effect."""
    connection.execute(
        "INSERT INTO host_commands(request_id, client_id, operation, idempotency_key, request_fingerprint, run_id,"
        " accepted_revision, outcome, receipt_hash, host_epoch, created_at, completed_at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, 'accepted', ?, ?, ?, ?)",
        (
            request_id,
            client_id,
            operation,
            key,
            fingerprint,
            run_id,
            revision,
            blobs.put_json(connection, receipt, now),
            server_epoch,
            now,
            now,
        ),
    )
