"""The hot path: transitions of running runs, collected and written together.

A proposal is checked against the run as it will stand after the proposals before it, and adds its rows to lists;
`flush` writes the lists with one statement per table. An attempt that starts and ends within one batch becomes one row
at once. Everything is checked before anything is added, so a refused proposal leaves no trace in the batch.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from msgspec import UNSET

from ..wire import identities
from ..wire.errors import ConflictError, ProtocolError, StaleClaimError, StaleResourceError
from ..wire.runner_messages import Finished, Snapshot, Started
from . import blobs, many_rows, mutation, setting_scopes, viewer
from .mutation import Claim

NODE_ID: Final = re.compile(r"[A-Za-z0-9_./-]{1,512}").fullmatch
STATUS_OF: Final = {"ok": "completed", "failed": "failed", "timed_out": "timed_out", "cancelled": "cancelled"}
EVENT_OF: Final = {
    "ok": "node_finished",
    "failed": "node_failed",
    "timed_out": "node_timed_out",
    "cancelled": "node_cancelled",
}

_CURSOR: Final = """
    SELECT a.revision, l.owner_id, l.token_hash, l.generation, l.expires_at, v.presentation_revision,
           v.retained_from_revision, n.attempt_id, n.node_id, n.node_type,
           coalesce((SELECT max(step_index) FROM run_steps WHERE run_id = ?1), -1) + 1, q.consecutive_errors, r.status
    FROM runs r JOIN resources a USING (resource_id) JOIN leases l USING (resource_id) JOIN run_queue q USING (run_id)
    JOIN viewer_runs v USING (run_id)
    LEFT JOIN node_attempts n ON n.run_id = r.run_id AND n.status IN ('pending', 'running', 'waiting')
    WHERE r.run_id = ?1
"""
_ATTEMPT_INSERT: Final = (
    "INSERT INTO node_attempts(attempt_id, run_id, node_id, attempt_number, node_type, status, output_hash, error_hash,"
    " started_at, deadline_at, finished_at, created_at, updated_at, settings_scope_id, settings_change_number,"
    " settings_hash) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_ATTEMPT_FINISH: Final = (
    "UPDATE node_attempts SET status = ?, output_hash = ?, error_hash = ?, finished_at = ?, updated_at = ?"
    " WHERE attempt_id = ?"
)
_STEP_INSERT: Final = "INSERT INTO run_steps(run_id, step_index, attempt_id) VALUES (?, ?, ?)"
_RECEIPT_INSERT: Final = (
    "INSERT INTO worker_messages(worker_epoch, message_id, request_fingerprint, outcome, accepted_revision,"
    " completed_at) VALUES (?, ?, ?, ?, ?, ?)"
)
_STATUS, _OUTPUT, _ERROR, _FINISHED, _UPDATED = 5, 6, 7, 10, 12


@dataclass(slots=True)
class Receipt:
    """The key under which the answer to a message is kept: the same message again gets the same answer."""

    runner_epoch: str
    message_id: str
    fingerprint: bytes


@dataclass(slots=True)
class Cursor:
    """Where a run stands, within the batch."""

    revision: int
    owner_id: str | None
    token_hash: bytes | None
    generation: int
    expires_at: int | None
    presentation: int
    retained_from: int
    attempt_id: str | None
    node_id: str | None
    node_type: str | None
    steps: int
    errors: int
    status: str
    stored_revision: int = 0
    stored_presentation: int = 0
    progressed: bool = False
    payload: tuple[bytes, bytes] = field(default=(b"", b""))


class StepBatch:
    """Collects the transitions of one transaction. `now` in milliseconds since the epoch."""

    def __init__(self, connection: sqlite3.Connection, now: int) -> None:
        self._connection = connection
        self._now = now
        self._cursors: dict[str, tuple[Claim, Cursor]] = {}
        self._blobs: list[tuple[Any, ...]] = []
        self._attempts: dict[str, list[Any]] = {}
        self._finishes: list[tuple[Any, ...]] = []
        self._steps: list[tuple[Any, ...]] = []
        self._events: list[tuple[Any, ...]] = []
        self._deltas: list[tuple[Any, ...]] = []
        self._receipts: list[tuple[Any, ...]] = []

    def cursor(self, run_id: str, claim: Claim) -> Cursor:
        """The run as it stands within the batch; `StaleClaimError` unless the claim is the live one."""
        known = self._cursors.get(run_id)
        if known is not None and known[0] is claim:
            return known[1]
        if known is not None:
            self.flush()
        row = self._connection.execute(_CURSOR, (run_id,)).fetchone()
        if row is None:
            raise StaleClaimError(f"run {run_id} is gone", "missingAuthority")
        cursor = Cursor(*row)
        mutation.compare_lease(
            claim, cursor.owner_id, cursor.token_hash, cursor.generation, cursor.expires_at, self._now
        )
        cursor.stored_revision = cursor.revision
        cursor.stored_presentation = cursor.presentation
        if cursor.attempt_id is not None:
            cursor.payload = _payload(cursor.attempt_id, cursor.node_id or "", cursor.node_type or "")
        self._cursors[run_id] = (claim, cursor)
        return cursor

    def check(self, run_id: str, claim: Claim, expected_revision: int, snapshot: Snapshot) -> None:
        """The errors that `apply` would raise, before anything is written for the transition."""
        _check(self.cursor(run_id, claim), expected_revision, snapshot.finished, snapshot.started)

    def apply(
        self,
        run_id: str,
        claim: Claim,
        expected_revision: int,
        snapshot: Snapshot,
        output: tuple[bytes, bytes] | bytes | None,
        receipt: Receipt | None,
        passages: Sequence[tuple[str, str, bytes, bytes | None]] = (),
    ) -> Cursor:
        """Add one transition without an end. Gives the run as it will stand.

        `output` is the finished node's output as (digest, canonical bytes), or the digest alone where the blob is
        already stored.
        `passages` are event, mount, canonical value and settings of each mount on the way.
        Errors: `StaleResourceError` for another revision, `ConflictError` for a transition that does
        not fit the run, `ProtocolError` for a node id that is none.
        """
        cursor = self.cursor(run_id, claim)
        finished, started = snapshot.finished, snapshot.started
        _check(cursor, expected_revision, finished, started)
        now = self._now
        if finished is not None:
            digest = None
            if isinstance(output, tuple):
                digest = output[0]
                self._blobs.append((digest, blobs.JSON, len(output[1]), output[1], now))
            elif output is not None:
                digest = output
            self._finish(cursor, claim, run_id, finished, digest)
        for event, mount, value, settings in passages:
            self._pass(cursor, claim, event, mount, value)
            if settings is not None:
                setting_scopes.begin(self._connection, run_id, mount, settings, now)
        if started is not None:
            self._start(cursor, claim, run_id, started)
        cursor.presentation += 1
        self._deltas.append((run_id, cursor.presentation, 0, "timeline", viewer.PATCH_HASH, now))
        if receipt is not None:
            self._receipts.append(
                (receipt.runner_epoch, receipt.message_id, receipt.fingerprint, "accepted", cursor.revision, now)
            )
        return cursor

    def _finish(self, cursor: Cursor, claim: Claim, run_id: str, finished: Finished, output: bytes | None) -> None:
        now = self._now
        error = None
        if finished.error is not None:
            error = blobs.put_text(self._connection, finished.error, now)
        attempt = self._attempts.get(finished.attempt_id)
        status = STATUS_OF[finished.outcome]
        if attempt is not None:
            attempt[_STATUS], attempt[_OUTPUT], attempt[_ERROR] = status, output, error
            attempt[_FINISHED], attempt[_UPDATED] = finished.finished_at, now
        else:
            self._finishes.append((status, output, error, finished.finished_at, now, finished.attempt_id))
        if finished.step:
            self._steps.append((run_id, cursor.steps, finished.attempt_id))
            cursor.steps += 1
            cursor.progressed = True
        self._event(cursor, claim, EVENT_OF[finished.outcome])
        cursor.attempt_id = cursor.node_id = cursor.node_type = None

    def _start(self, cursor: Cursor, claim: Claim, run_id: str, started: Started) -> None:
        now = self._now
        self._attempts[started.attempt_id] = [
            started.attempt_id,
            run_id,
            started.node_id,
            started.number,
            started.node_type,
            "running",
            None,
            None,
            started.started_at,
            started.deadline_at,
            None,
            now,
            now,
            *self._settings_of(run_id, started),
        ]
        cursor.attempt_id, cursor.node_id, cursor.node_type = started.attempt_id, started.node_id, started.node_type
        cursor.payload = _payload(started.attempt_id, started.node_id, started.node_type)
        self._blobs.append((cursor.payload[0], blobs.JSON, len(cursor.payload[1]), cursor.payload[1], now))
        self._event(cursor, claim, "node_started")

    def _settings_of(self, run_id: str, started: Started) -> tuple[str | None, int | None, bytes | None]:
        seen = started.under_settings
        if seen is UNSET:
            return None, None, None
        scope_id, digest = setting_scopes.at_change(self._connection, run_id, seen.mount_path, seen.change_number)
        return scope_id, seen.change_number, digest

    def _pass(self, cursor: Cursor, claim: Claim, event: str, mount: str, value: bytes) -> None:
        if not NODE_ID(mount):
            raise ProtocolError("the path of a mount holds a character that none may hold")
        content = (
            f'{{"nodeId":"{mount}","payload":{{"mountPath":"{mount}","steps":{cursor.steps},"value":'.encode()
            + value
            + b'},"scope":"node"}'
        )
        cursor.payload = (identities.sha256(content), content)
        self._blobs.append((cursor.payload[0], blobs.JSON, len(content), content, self._now))
        self._event(cursor, claim, event)

    def _event(self, cursor: Cursor, claim: Claim, event_type: str) -> None:
        cursor.revision += 1
        self._events.append(
            (
                identities.new_event_id(),
                claim.resource_id,
                cursor.revision,
                event_type,
                "system",
                None,
                None,
                cursor.payload[0],
                self._now,
            )
        )

    def flush(self) -> None:
        """Write what was collected, and forget where the runs stood: other statements may follow."""
        if not self._cursors:
            return
        connection, now = self._connection, self._now
        if self._events:
            self._blobs.append(blobs.blob_row(viewer.PATCH, blobs.JSON, now))
            many_rows.insert(connection, blobs.INSERT_BLOBS, self._blobs)
            connection.executemany(_ATTEMPT_FINISH, self._finishes)
            many_rows.insert(connection, _ATTEMPT_INSERT, self._attempts.values())
            many_rows.insert(connection, _STEP_INSERT, self._steps)
            many_rows.insert(connection, mutation.EVENT_INSERT, self._events)
            many_rows.insert(connection, viewer.DELTA_INSERT, self._deltas)
            many_rows.insert(connection, _RECEIPT_INSERT, self._receipts)
        for run_id, (claim, cursor) in self._cursors.items():
            if cursor.revision == cursor.stored_revision:
                continue
            mutation.bump(
                connection, claim.resource_id, cursor.stored_revision, now, by=cursor.revision - cursor.stored_revision
            )
            viewer.move(connection, run_id, cursor.presentation, cursor.retained_from, now)
            mutation.renew_when_due(connection, claim, now)
            if cursor.progressed and cursor.errors:
                connection.execute("UPDATE run_queue SET consecutive_errors = 0 WHERE run_id = ?", (run_id,))
        self._cursors.clear()
        self._attempts.clear()
        for rows in (self._blobs, self._finishes, self._steps, self._events, self._deltas, self._receipts):
            rows.clear()


def _payload(attempt_id: str, node_id: str, node_type: str) -> tuple[bytes, bytes]:
    """One payload for the start and the end of an attempt: the event's type tells them apart."""
    content = (
        f'{{"attemptId":"{attempt_id}","nodeId":"{node_id}","payload":{{"nodeType":"{node_type}"}},"scope":"node"}}'
    ).encode()
    return identities.sha256(content), content


def _check(cursor: Cursor, expected: int, finished: Finished | None, started: Started | None) -> None:
    if cursor.revision != expected:
        raise StaleResourceError(f"the run is at revision {cursor.revision}, not {expected}")
    if cursor.status != "running":
        raise ConflictError(f"the run is {cursor.status}, not running")
    if finished is not None and finished.attempt_id != cursor.attempt_id:
        raise ConflictError(f"attempt {finished.attempt_id} is not the active one")
    if started is None:
        return
    if cursor.attempt_id is not None and finished is None:
        raise ConflictError(f"attempt {cursor.attempt_id} is still active")
    if not (NODE_ID(started.node_id) and NODE_ID(started.node_type) and NODE_ID(started.attempt_id)):
        raise ProtocolError("a node or attempt id holds a character that none may hold")
