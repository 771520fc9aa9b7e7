"""Whether a run that stands is the one that somebody wants to prepare: a start that is repeated adopts it."""

from __future__ import annotations

import sqlite3
from typing import Final

from ..wire import identities
from . import blobs, runs
from .runs import NewRun

_STORED: Final = """
    SELECT r.project_id, d.workflow_name, r.definition_digest, r.input_hash, r.launch_options_hash, s.source_type,
           s.source_ref, s.source_revision, n.origin_session_id, n.execution_mode, r.parent_run_id
    FROM runs r JOIN workflow_definitions d USING (definition_digest)
    LEFT JOIN run_sources s ON s.run_id = r.run_id AND s.mount_path = ''
    LEFT JOIN run_bindings n ON n.run_id = r.run_id
    WHERE r.run_id = ?
"""
_NAMES: Final = (
    "project", "workflow", "definition", "input", "launch options", "kind of source", "source", "source revision",
    "session", "mode", "parent",
)  # fmt: skip


def differences(connection: sqlite3.Connection, new: NewRun) -> list[str]:
    """In what the stored run of that id is not the new one, in words; the run must exist."""
    stored = connection.execute(_STORED, (new.run_id,)).fetchone()
    wanted = (
        new.project_id, new.workflow_name, identities.sha256(new.snapshot), blobs.digest_of(new.input),
        identities.sha256(new.launch_options), new.source["type"], new.source["ref"], new.source["revision"],
        new.session_id, new.mode, None,
    )  # fmt: skip
    found = [name for name, one, other in zip(_NAMES, stored, wanted, strict=True) if one != other]
    if runs.mounted_sources(connection, new.run_id) != sorted(new.mounted, key=lambda one: one["mountPath"]):
        found.append("mounted sources")
    return found
