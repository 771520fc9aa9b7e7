"""Runner epochs: one row for each process that was given a run, and the receipts of what it said."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import Final, Literal

from ..wire import canonical_json
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


@dataclass(frozen=True)
class Receipt:
    """The stored answer to a message; `result` is the digest of a stored JSON value."""

    fingerprint: bytes
    outcome: str
    revision: int | None
    result: bytes | None
    error: str | None


def receipt(connection: sqlite3.Connection, runner_epoch: str, message_id: str) -> Receipt | None:
    """The answer that a message got before, or None."""
    row = connection.execute(
        "SELECT request_fingerprint, outcome, accepted_revision, result_hash, content FROM worker_messages"
        " LEFT JOIN blobs ON blob_hash = error_hash WHERE worker_epoch = ? AND message_id = ?",
        (runner_epoch, message_id),
    ).fetchone()
    if row is None:
        return None
    fingerprint, outcome, revision, result, error = row
    return Receipt(fingerprint, outcome, revision, result, None if error is None else error.decode())


def record_receipt(
    connection: sqlite3.Connection, runner_epoch: str, message_id: str, given: Receipt, now: int
) -> None:
    """Keep the answer to a message, so that the same message again gets it again."""
    error = None if given.error is None else blobs.put_text(connection, given.error, now)
    connection.execute(
        "INSERT INTO worker_messages VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (runner_epoch, message_id, given.fingerprint, given.outcome, given.revision, given.result, error, now),
    )


def keep_result(connection: sqlite3.Connection, result: bytes, now: int) -> bytes:
    """Store the result of an answer, canonical JSON, and give its digest."""
    return blobs.put_json_bytes(connection, result, now)


def kept_result(connection: sqlite3.Connection, digest: bytes) -> bytes:
    """The result of an answer that was kept."""
    return blobs.read_json_bytes(connection, digest)


REGISTERED: Final = b'{"registered":'
UNREGISTERED: Final = b'{"unregistered":'
_SMALL_RESULTS: Final = """
    SELECT content FROM worker_messages JOIN blobs ON blob_hash = result_hash
    WHERE worker_epoch = ? AND outcome = 'accepted' AND byte_length < 2000 ORDER BY worker_messages.rowid
"""


def registration(pid: int, start_identity: str, *, registered: bool) -> bytes:
    """The result of a registration, or of its end. Kept with its message's receipt, it is the record of the process."""
    word = "registered" if registered else "unregistered"
    return canonical_json.encode({word: {"pid": pid, "startIdentity": start_identity}})


def children(connection: sqlite3.Connection, runner_epoch: str) -> list[tuple[int, str]]:
    """The processes that a runner has registered and not unregistered: pid and start identity."""
    found: dict[tuple[int, str], None] = {}
    for (content,) in connection.execute(_SMALL_RESULTS, (runner_epoch,)):
        if content.startswith((REGISTERED, UNREGISTERED)):
            ((word, child),) = canonical_json.decode(content).items()
            key = child["pid"], child["startIdentity"]
            if word == "registered":
                found[key] = None
            else:
                found.pop(key, None)
    return list(found)


def leftovers(connection: sqlite3.Connection) -> list[Leftover]:
    """Runners that no live server knows."""
    return [
        Leftover(*row)
        for row in connection.execute(
            f"SELECT worker_epoch, run_id, pid, process_start_identity FROM run_workers WHERE {ACTIVE}"
        )
    ]
