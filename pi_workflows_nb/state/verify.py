"""Whether a state file holds what it must: sound pages, true digests, and tables that tell one story."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

import msgspec

from ..wire import identities
from . import admission, blobs, record_invariants, resource_invariants, run_invariants
from .invariants import Rule

_FAULTS: Final = 100
"""How many faults of SQLite's own check are listed; one broken page can cause thousands."""

COPIED: Final = (
    "the pages of the file are sound",
    "references lead somewhere",
    "a blob holds the bytes of its digest",
)
"""The rules about what the file is made of, as against what it tells: a copy that breaks one is no copy."""

_GENERAL_IDS: Final = (
    "SELECT resource_id, resource_type, aggregate_key FROM resources WHERE resource_type <> 'controller'"
)
_MANAGED_IDS: Final = """
    SELECT c.controller_resource_id, c.resource_id, c.project_id, c.controller_name, c.resource_key, c.uid
    FROM controller_resources c
"""
_EFFECT_IDS: Final = """
    SELECT effect_id, source_resource_id, effect_type, idempotency_key, owner_scope FROM effects
    WHERE owner_scope IN ('run', 'controller')
"""
_LAUNCHES: Final = """
    SELECT r.run_id, b.content FROM runs r JOIN blobs b ON b.blob_hash = r.launch_options_hash
    WHERE b.media_type = 'application/json'
"""


@dataclass(frozen=True)
class Finding:
    """One place where a file breaks a rule. `warning` is a known way of another implementation, harmless here."""

    rule: str
    table: str
    id: str
    what_is: str
    what_should_be: str
    severity: Literal["error", "warning"] = "error"


def verify(connection: sqlite3.Connection) -> list[Finding]:
    """Check a whole file, as it stands at one moment, and list what is wrong; an empty list means that nothing is.

    Takes any connection to a state file, and writes nothing. A table that cannot be read becomes a finding too.
    """
    ours = not connection.in_transaction
    if ours:
        connection.execute("BEGIN")
    try:
        return list(_findings(connection))
    finally:
        if ours and connection.in_transaction:
            connection.execute("ROLLBACK")


def _findings(connection: sqlite3.Connection) -> Iterator[Finding]:
    yield from _guarded(COPIED[0], "sqlite_schema", _pages(connection))
    yield from _guarded(COPIED[1], "sqlite_schema", _references(connection))
    yield from _guarded(COPIED[2], "blobs", _blobs(connection))
    yield from _guarded("an id is that of its key", "resources", _ids(connection))
    yield from _guarded("the source of a run is stored", "runs", _sources(connection))
    here = _made_here(connection)
    for rule in (*run_invariants.RULES, *record_invariants.RULES, *resource_invariants.RULES):
        severity = "error" if here else rule.elsewhere
        if severity == "allowed":
            continue
        yield from _guarded(rule.name, rule.table, _broken(connection, rule, severity))


def _made_here(connection: sqlite3.Connection) -> bool:
    try:
        return admission.made_here(connection)
    except sqlite3.DatabaseError:
        return True  # unreadable: judge it strictly


def _broken(connection: sqlite3.Connection, rule: Rule, severity: Literal["error", "warning"]) -> Iterator[Finding]:
    for name, what_is, what_should_be in connection.execute(rule.sql):
        yield Finding(rule.name, rule.table, str(name), str(what_is), str(what_should_be), severity)


def _guarded(rule: str, table: str, findings: Iterator[Finding]) -> Iterator[Finding]:
    try:
        yield from findings
    except sqlite3.DatabaseError as error:
        yield Finding(rule, table, "", f"unreadable: {error}", "readable")


def _pages(connection: sqlite3.Connection) -> Iterator[Finding]:
    for (text,) in connection.execute(f"PRAGMA integrity_check({_FAULTS})"):
        if text != "ok":
            yield Finding(COPIED[0], "sqlite_schema", "", text, "ok")


def _references(connection: sqlite3.Connection) -> Iterator[Finding]:
    for table, rowid, parent, _ in connection.execute("PRAGMA foreign_key_check"):
        yield Finding(COPIED[1], table, f"row {rowid}", f"refers to no row of {parent}", "an existing row")


def _blobs(connection: sqlite3.Connection) -> Iterator[Finding]:
    rule = COPIED[2]
    for digest, media_type, length, content in connection.execute(
        "SELECT blob_hash, media_type, byte_length, content FROM blobs"
    ):
        if identities.sha256(content) != digest:
            yield Finding(rule, "blobs", digest.hex(), f"bytes of {identities.sha256_hex(content)}", "its own digest")
        if len(content) != length:
            yield Finding(rule, "blobs", digest.hex(), f"{len(content)} bytes, byte_length {length}", "the same")
        if media_type not in (blobs.JSON, blobs.TEXT):
            yield Finding(rule, "blobs", digest.hex(), f"media type {media_type!r}", f"{blobs.JSON} or {blobs.TEXT}")


def _ids(connection: sqlite3.Connection) -> Iterator[Finding]:
    rule = "an id is that of its key"
    for resource_id, kind, key in connection.execute(_GENERAL_IDS):
        wanted = identities.aggregate_id(kind, key)
        if resource_id != wanted:
            yield Finding(rule, "resources", resource_id, f"the id of {key!r}", wanted)
    for row_id, resource_id, project, manager, key, uid in connection.execute(_MANAGED_IDS):
        lives = [identities.managed_resource_key(project or "global", manager, key, life) for life in (None, uid)]
        wanted_ids = [identities.aggregate_id("controller", life) for life in lives]
        if resource_id not in wanted_ids:
            yield Finding(rule, "controller_resources", row_id, f"aggregate {resource_id}", " or ".join(wanted_ids))
    for effect_id, source, kind, key, scope in connection.execute(_EFFECT_IDS):
        wanted = (
            identities.effect_id_of_run(source, kind, key)
            if scope == "run"
            else identities.effect_id_of_resource(source, key)
        )
        if effect_id != wanted:
            yield Finding(rule, "effects", effect_id, f"the id of {kind!r}, {key!r}", wanted)


def _sources(connection: sqlite3.Connection) -> Iterator[Finding]:
    for run_id, content in connection.execute(_LAUNCHES):
        try:
            digest = msgspec.json.decode(content)["source"]["sha256"]
            stored = identities.digest_bytes(digest)
        except (msgspec.DecodeError, LookupError, TypeError):
            continue  # started by another implementation, which names no stored source
        found = connection.execute("SELECT 1 FROM blobs WHERE blob_hash = ?", (stored,)).fetchone()
        if found is None:
            yield Finding("the source of a run is stored", "runs", run_id, f"no blob {digest}", "the frozen source")
