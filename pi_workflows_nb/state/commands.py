"""Receipts of commands: an equal request under the same client and key adopts the first one's answer."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import Any

from ..wire.errors import ConflictError
from . import blobs


@dataclass(frozen=True)
class Earlier:
    """What an equal request was answered with."""

    receipt: dict[str, Any]
    run_id: str | None
    revision: int | None


def adopt(
    connection: sqlite3.Connection, request_id: str, client_id: str, key: str, fingerprint: bytes
) -> Earlier | None:
    """What an earlier accepted request under the key was answered, or None.

    `ConflictError` when that was another request, or when the request's id stands for another one.
    """
    row = connection.execute(
        "SELECT request_fingerprint, receipt_hash, run_id, accepted_revision FROM host_commands"
        " WHERE client_id = ? AND idempotency_key = ?",
        (client_id, key),
    ).fetchone()
    if row is None:
        if connection.execute("SELECT 1 FROM host_commands WHERE request_id = ?", (request_id,)).fetchone():
            raise ConflictError(f"the request id {request_id!r} was used before under another key; take a new one")
        return None
    if row[0] != fingerprint:
        raise ConflictError(
            f"the key {key!r} was used before for another request; take another key,"
            " or give the same workflow name and input"
        )
    receipt: dict[str, Any] = blobs.read_json(connection, row[1])
    return Earlier(receipt, row[2] or receipt.get("runId"), row[3])


def known(connection: sqlite3.Connection, client_id: str, key: str) -> bool:
    """Whether a request under the key was accepted."""
    row = connection.execute(
        "SELECT 1 FROM host_commands WHERE client_id = ? AND idempotency_key = ?", (client_id, key)
    ).fetchone()
    return row is not None


def of_run(connection: sqlite3.Connection, run_id: str, operation: str) -> Earlier | None:
    """What the first accepted command of an operation on a run was answered; None without one."""
    row = connection.execute(
        "SELECT receipt_hash, run_id, accepted_revision FROM host_commands WHERE run_id = ? AND operation = ?"
        " AND outcome = 'accepted' ORDER BY created_at, rowid LIMIT 1",
        (run_id, operation),
    ).fetchone()
    return None if row is None else Earlier(blobs.read_json(connection, row[0]), row[1], row[2])


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
