"""What a runner is started with, and what it has achieved so far."""

from __future__ import annotations

import sqlite3
from collections import deque
from dataclasses import dataclass, field

from ..runner.output import REMEMBERED
from ..state import runs
from ..state.mutation import Claim
from ..state.runners import DIAGNOSTIC_BYTES
from ..wire import identities
from ..wire.runner_messages import LAUNCH_SCHEMA, PROTOCOL_VERSION, Exiting, LaunchEnvelope, Started


@dataclass
class Launch:
    """What the claim of a run gave: enough to start its runner."""

    run_id: str
    claim: Claim
    runner_epoch: str
    envelope: LaunchEnvelope
    command: str
    parent_run_id: str | None
    source: bytes
    project_path: str


class Diagnostics:
    """What is noted of a child for whoever asks why it ended: the first 64 KiB of it."""

    def __init__(self) -> None:
        self._room = DIAGNOSTIC_BYTES
        self.notes: list[str] = []

    def add(self, note: str) -> None:
        """Note something; what does not fit any more is left out."""
        kept = note.encode(errors="replace")[: self._room]
        if kept:
            self._room -= len(kept)
            self.notes.append(kept.decode(errors="ignore"))

    def text(self, printed: str) -> str:
        """All of it, and the end of what the child printed last, in 64 KiB together."""
        rest = printed.encode(errors="replace")[-self._room :].decode(errors="ignore") if self._room else ""
        return "\n".join([*self.notes, rest]).strip()


@dataclass
class Progress:
    """What a runner has achieved so far, as committed.

    `refused_by` is the id of the proposal that was refused; everything after it is refused as well.
    """

    ready: bool = False
    begun: bool = False
    boundaries: int = 0
    ended: bool = False
    abandoned: bool = False
    active: Started | None = None
    active_until: float | None = None
    attempts: deque[str] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    exiting: Exiting | None = None
    cancel_interrupted: bool = False
    refused_by: str | None = None
    stopped: bool = False
    resend_from: str | None = None
    diagnostics: Diagnostics = field(default_factory=Diagnostics)


def of_run(connection: sqlite3.Connection, run_id: str, claim: Claim, frozen: bytes) -> Launch:
    """The launch of a claimed run whose frozen source is given, for a new runner epoch."""
    row = connection.execute(
        "SELECT r.definition_digest, r.input_hash, p.canonical_path, s.source_type, s.source_ref, s.source_revision,"
        " r.parent_run_id, r.lineage_kind, EXISTS (SELECT 1 FROM node_attempts n WHERE n.run_id = r.run_id)"
        " FROM runs r JOIN run_sources s ON s.run_id = r.run_id AND s.mount_path = ''"
        " LEFT JOIN projects p USING (project_id) WHERE r.run_id = ?",
        (run_id,),
    ).fetchone()
    digest, given, project, kind, ref, revision, parent, lineage, begun = row
    epoch = identities.new_id()
    envelope = LaunchEnvelope(
        definition_digest=identities.digest_text(digest),
        generation=claim.generation,
        input_hash=given.hex(),
        mounted_sources=runs.mounted_sources(connection, run_id),
        project_path=project or "/",
        protocol_version=PROTOCOL_VERSION,
        run_id=run_id,
        runner_epoch=epoch,
        schema=LAUNCH_SCHEMA,
        workflow_source={"ref": ref, "revision": revision, "type": kind},
    )
    command = "resume" if begun else {"continuation": "continue", "restart": "restart"}.get(lineage, "start")
    return Launch(run_id, claim, epoch, envelope, command, parent, frozen, project or "/")
