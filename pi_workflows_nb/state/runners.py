"""Runner epochs: one row for each process that was given a run, and the receipts of what it said."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import Final, Literal

from . import blobs
from .mutation import Claim

RunnerOutcome = Literal["exited", "cancelled", "timedOut", "crashed", "claimLost", "orphaned"]
ACTIVE: Final = "status IN ('starting', 'ready', 'running')"
DIAGNOSTIC_BYTES: Final = 64 << 10


@dataclass(frozen=True)
class Leftover:
    """A runner that a server which is gone has left in the table."""

    runner_epoch: str
    run_id: str
    pid: int | None
    start_identity: str | None


def record_launch(
    connection: sqlite3.Connection,
    runner_epoch: str,
    run_id: str,
    claim: Claim,
    server_epoch: int,
    envelope: bytes,
    now: int,
) -> None:
    """A runner is about to be started."""
    digest = blobs.put_json_bytes(connection, envelope, now)
    connection.execute(
        "INSERT INTO run_workers(worker_epoch, run_id, generation, host_epoch, launch_envelope_hash, status,"
        " started_at) VALUES (?, ?, ?, ?, ?, 'starting', ?)",
        (runner_epoch, run_id, claim.generation, server_epoch, digest, now),
    )


def record_ready(connection: sqlite3.Connection, runner_epoch: str, pid: int, start_identity: str, now: int) -> None:
    """The runner has said that it is there."""
    connection.execute(
        "UPDATE run_workers SET pid = ?, process_start_identity = ?, status = 'running', ready_at = ?"
        " WHERE worker_epoch = ?",
        (pid, start_identity, now, runner_epoch),
    )


def record_exit(
    connection: sqlite3.Connection,
    runner_epoch: str,
    outcome: RunnerOutcome,
    status: int | None,
    signal_name: str | None,
    diagnostic: str | None,
    now: int,
) -> None:
    """The runner is gone. Its receipts go too: it is fenced and can never ask again."""
    digest = None if not diagnostic else blobs.put_text(connection, diagnostic, now)
    connection.execute(
        "UPDATE run_workers SET status = ?, finished_at = ?, exit_code = ?, signal = ?, diagnostic_hash = ?"
        f" WHERE worker_epoch = ? AND {ACTIVE}",
        (outcome, now, status, signal_name, digest, runner_epoch),
    )
    connection.execute("DELETE FROM worker_messages WHERE worker_epoch = ?", (runner_epoch,))


def receipt(
    connection: sqlite3.Connection, runner_epoch: str, message_id: str
) -> tuple[bytes, str, int | None, bytes | None] | None:
    """The stored answer to a message: fingerprint, outcome, revision, result digest."""
    row: tuple[bytes, str, int | None, bytes | None] | None = connection.execute(
        "SELECT request_fingerprint, outcome, accepted_revision, result_hash FROM worker_messages"
        " WHERE worker_epoch = ? AND message_id = ?",
        (runner_epoch, message_id),
    ).fetchone()
    return row


def record_receipt(
    connection: sqlite3.Connection,
    runner_epoch: str,
    message_id: str,
    fingerprint: bytes,
    revision: int | None,
    result: bytes | None,
    now: int,
) -> None:
    """Keep the answer to an accepted message; `result` is canonical JSON."""
    digest = None if result is None else blobs.put_json_bytes(connection, result, now)
    connection.execute(
        "INSERT INTO worker_messages VALUES (?, ?, ?, 'accepted', ?, ?, NULL, ?)",
        (runner_epoch, message_id, fingerprint, revision, digest, now),
    )


def leftovers(connection: sqlite3.Connection) -> list[Leftover]:
    """Runners that no live server knows."""
    return [
        Leftover(*row)
        for row in connection.execute(
            f"SELECT worker_epoch, run_id, pid, process_start_identity FROM run_workers WHERE {ACTIVE}"
        )
    ]
