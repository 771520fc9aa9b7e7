"""What can be seen of a trial from outside: the state file through a read-only connection, and what the nodes told."""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from pi_workflows_nb.state.database import open_read_only
from pi_workflows_nb.state.verify import Finding, verify
from pi_workflows_nb.wire.errors import PiWorkflowsError


class Line(NamedTuple):
    """What a node told: `begin` or `done`."""

    what: str
    node: str
    number: int
    attempt: str
    pid: int
    run: str
    at: float


class Step(NamedTuple):
    """A committed step."""

    index: int
    node: str
    attempt: str
    number: int
    output: str


class Event(NamedTuple):
    """A recorded event; `server` is the one that recorded it, where the event says so."""

    seq: int
    id: str
    resource: str
    revision: int
    type: str
    server: str | None
    generation: int | None


class Runner(NamedTuple):
    """A row of the runners."""

    epoch: str
    generation: int
    server_epoch: int
    status: str
    pid: int | None


class Effect(NamedTuple):
    """A recorded effect, and the number of its tries that ended applied."""

    key: str
    type: str
    status: str
    result: str
    applied: int


@dataclass(frozen=True)
class Glance:
    """Where the run stands, cheap enough to be asked thousands of times a second."""

    server_epoch: int = 0
    server_pid: int | None = None
    run: str | None = None
    status: str | None = None
    queue: str | None = None
    generation: int = 0
    active_runners: int = 0
    attempts: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Record:
    """Everything that was said up to one moment.

    The ledger and the first `early` lines were read before the rows, all lines after them.
    """

    lines: tuple[Line, ...] = ()
    early: int = 0
    ledger: tuple[str, ...] = ()
    runs: tuple[tuple[str, str, str], ...] = ()
    server_id: str | None = None
    steps: tuple[Step, ...] = ()
    events: tuple[Event, ...] = ()
    runners: tuple[Runner, ...] = ()
    effects: tuple[Effect, ...] = ()
    findings: tuple[Finding, ...] = ()


_GLANCE: Final = """
    SELECT h.epoch, h.pid, r.run_id, r.status, q.status, coalesce(l.generation, 0),
           (SELECT count(*) FROM run_workers WHERE status IN ('starting', 'ready', 'running'))
    FROM workflow_host_state h LEFT JOIN runs r LEFT JOIN run_queue q USING (run_id)
    LEFT JOIN leases l USING (resource_id)
"""
_RUNS: Final = "SELECT run_id, r.status, q.status FROM runs r JOIN run_queue q USING (run_id)"
_STEPS: Final = """
    SELECT s.step_index, a.node_id, a.attempt_id, a.attempt_number, coalesce(hex(a.output_hash), '')
    FROM run_steps s JOIN node_attempts a USING (attempt_id) ORDER BY s.run_id, s.step_index
"""
_EVENTS: Final = """
    SELECT event_seq, event_id, resource_id, resource_revision, event_type,
           iif(actor_type = 'host', actor_id, NULL), lease_generation
    FROM events ORDER BY event_seq
"""
_RUNNERS: Final = "SELECT worker_epoch, generation, host_epoch, status, pid FROM run_workers ORDER BY rowid"
_EFFECTS: Final = """
    SELECT e.idempotency_key, e.effect_type, e.status, coalesce(hex(e.result_hash), ''),
           (SELECT count(*) FROM effect_attempts t WHERE t.effect_id = e.effect_id AND t.outcome = 'applied')
    FROM effects e ORDER BY e.rowid
"""
_OUTPUTS: Final = """
    SELECT b.content FROM run_steps s JOIN node_attempts a USING (attempt_id)
    LEFT JOIN blobs b ON b.blob_hash = a.output_hash ORDER BY s.run_id, s.step_index
"""
_UNREADABLE: Final = (sqlite3.Error, PiWorkflowsError, OSError)


class Watch:
    """Looks at one trial again and again, through one connection as long as that works."""

    def __init__(self, database: Path, executions: Path, ledger: Path) -> None:
        self._database = database
        self._executions = executions
        self._ledger = ledger
        self._connection: sqlite3.Connection | None = None
        self._version = -1
        self._glance = Glance()
        self._lines: list[Line] = []
        self._read_to = 0
        self._rest = b""

    def close(self) -> None:
        """Leave the file; the next look comes back to it."""
        if self._connection is not None:
            self._connection.close()
        self._connection, self._version = None, -1

    def lines(self) -> list[Line]:
        """What the nodes have told so far."""
        try:
            if os.stat(self._executions).st_size > self._read_to:
                with open(self._executions, "rb") as file:
                    file.seek(self._read_to)
                    data = file.read()
                self._read_to += len(data)
                *whole, self._rest = (self._rest + data).split(b"\n")
                self._lines += [Line(*json.loads(line)) for line in whole]
        except FileNotFoundError:
            pass
        return self._lines

    def glance(self) -> Glance:
        """Where the run stands, as far as the file says."""
        connection = self._open()
        if connection is None:
            return self._glance
        try:
            version = connection.execute("PRAGMA data_version").fetchone()[0]
            if version != self._version:
                connection.execute("BEGIN")
                row = connection.execute(_GLANCE).fetchone()
                attempts = frozenset(attempt for (attempt,) in connection.execute("SELECT attempt_id FROM run_steps"))
                connection.execute("COMMIT")
                self._glance, self._version = Glance(*row, attempts), version
        except sqlite3.Error:
            self.close()
        return self._glance

    def record(self, *, verified: bool, live: bool | None = True) -> Record:
        """Everything there is, read at one moment through a new connection; `live=None` for a file at rest."""
        early = len(self.lines())
        ledger = tuple(self._ledger.read_text().split()) if self._ledger.exists() else ()
        if not self._database.exists():
            return Record(tuple(self.lines()), early, ledger)
        with closing(open_read_only(self._database, live=live)) as connection:
            connection.execute("BEGIN")
            runs = tuple(connection.execute(_RUNS))
            (server_id,) = connection.execute("SELECT host_id FROM workflow_host_state").fetchone()
            steps = tuple(Step(*row) for row in connection.execute(_STEPS))
            events = tuple(Event(*row) for row in connection.execute(_EVENTS))
            runners = tuple(Runner(*row) for row in connection.execute(_RUNNERS))
            effects = tuple(Effect(*row) for row in connection.execute(_EFFECTS))
            found = verify(connection) if verified else []
            connection.execute("COMMIT")
        findings = tuple(finding for finding in found if finding.severity == "error")
        lines = tuple(self.lines())
        return Record(lines, early, ledger, runs, server_id, steps, events, runners, effects, findings)

    def outputs(self) -> list[Any]:
        """The output of each step, decoded, in order; of a file at rest."""
        with closing(open_read_only(self._database)) as connection:
            rows = connection.execute(_OUTPUTS).fetchall()
        return [None if content is None else json.loads(content) for (content,) in rows]

    def _open(self) -> sqlite3.Connection | None:
        if self._connection is None and self._database.exists():
            try:
                self._connection = open_read_only(self._database, live=True)
            except _UNREADABLE:
                return None
        return self._connection
