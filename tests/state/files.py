"""State files for tests: one that tells a whole story by hand, one rebuilt from another implementation's rows."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

from pi_workflows_nb.state import admission, blobs, database, mutation
from pi_workflows_nb.wire import identities

NOW = 1_800_000_000_000
ORIGINAL = Path(__file__).parent.parent / "vectors" / "original-rows.json"
SOURCE = {"mac": "", "pickle": None, "python": "3.11", "text": "wf = 1"}


class Story:
    """Writes rows as a server would: `state` and `queue` of the life of a run are given, everything else follows."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.count = 0

    def insert(self, table: str, **row: Any) -> None:
        self.connection.execute(
            f"INSERT INTO {table} ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})", list(row.values())
        )

    def json(self, value: Any) -> bytes:
        return blobs.put_json(self.connection, value, NOW)

    def event(self, resource_id: str, kind: str, generation: int | None = None) -> None:
        revision = mutation.revision_of(self.connection, resource_id)
        mutation.bump(self.connection, resource_id, revision, NOW)
        mutation.record_event(
            self.connection, resource_id, revision + 1, kind, "system", None, {}, NOW, lease_generation=generation
        )

    def run(
        self, run_id: str, state: str, queue: str, *, parent: str | None = None, held: bool = False,
        session: str | None = None, detail: str | None = None,
    ) -> str:  # fmt: skip
        definition = self.json({"name": "story"})
        options = self.json({"source": {"sha256": self.json(SOURCE).hex()}, "tags": []})
        self.connection.execute(
            "INSERT OR IGNORE INTO workflow_definitions VALUES (?, 'story', ?, ?)", (definition, definition, NOW)
        )
        resource_id = mutation.create_aggregate(self.connection, "run", run_id, NOW)
        mutation.record_event(self.connection, resource_id, 1, "run.queued", "session", "s", {}, NOW)
        self.insert(
            "runs", run_id=run_id, resource_id=resource_id, parent_run_id=parent,
            root_run_id=parent or run_id, lineage_kind="continuation" if parent else None,
            definition_digest=definition, workflow_ref="cell", launch_options_hash=options, status=state,
            status_detail=detail, input_hash=self.json(None), created_at=NOW, updated_at=NOW,
            finished_at=None if state in ("queued", "running") else NOW,
        )  # fmt: skip
        self.insert(
            "run_queue", run_id=run_id, status=queue, available_at=NOW,
            origin_session_id=session or f"headless:{run_id}", created_at=NOW, updated_at=NOW,
            finished_at=NOW if queue in ("done", "failed", "cancelled") else None,
        )  # fmt: skip
        self.insert("viewer_runs", run_id=run_id, presentation_revision=2, retained_from_revision=1, updated_at=NOW)
        self.insert(
            "viewer_deltas", run_id=run_id, presentation_revision=2, delta_index=0, target_type="summary",
            target_key="", patch_hash=self.json([]), recorded_at=NOW,
        )  # fmt: skip
        if held:
            claim = mutation.claim_lease(self.connection, resource_id, "host", "host-1", 30_000, NOW)
            assert claim is not None
            self.event(resource_id, "lease.claimed", claim.generation)
        return resource_id

    def attempt(self, run_id: str, node: str, status: str = "completed", kind: str = "compute", number: int = 1) -> str:
        self.count += 1
        attempt_id = f"attempt-{self.count}"
        self.insert(
            "node_attempts", attempt_id=attempt_id, run_id=run_id, node_id=node, attempt_number=number, node_type=kind,
            status=status, output_hash=self.json(self.count), started_at=NOW, created_at=NOW, updated_at=NOW,
            finished_at=None if status in ("running", "waiting", "interrupted") else NOW,
        )  # fmt: skip
        return attempt_id

    def step(self, run_id: str, index: int, attempt_id: str) -> None:
        self.insert("run_steps", run_id=run_id, step_index=index, attempt_id=attempt_id)

    def effect(self, source: str, key: str, status: str, tries: tuple[str | None, ...], kind: str = "mail") -> str:
        effect_id = identities.effect_id_of_run(source, kind, key)
        resource_id = mutation.create_aggregate(self.connection, "effect", effect_id, NOW)
        mutation.record_event(self.connection, resource_id, 1, "effect.reserved", "system", None, {}, NOW)
        self.insert(
            "effects", effect_id=effect_id, resource_id=resource_id, source_resource_id=source, source_revision=1,
            effect_type=kind, idempotency_key=key, payload_hash=self.json({"recovery": "manual", "request": 1}),
            owner_scope="run", status=status, attempt_count=len(tries), created_at=NOW, updated_at=NOW,
            result_hash=self.json(None) if status == "applied" else None,
            settled_at=None if status in ("pending", "applying") else NOW,
        )  # fmt: skip
        for number, outcome in enumerate(tries, 1):
            self.insert(
                "effect_attempts", effect_id=effect_id, attempt_number=number, owner_id="host-1", lease_generation=1,
                started_at=NOW, outcome=outcome, finished_at=None if outcome is None else NOW,
            )  # fmt: skip
        return effect_id

    def runner(self, run_id: str, status: str, generation: int = 1, server: int = 1) -> None:
        self.count += 1
        self.insert(
            "run_workers", worker_epoch=f"epoch-{self.count}", run_id=run_id, generation=generation, host_epoch=server,
            launch_envelope_hash=self.json({}), status=status, started_at=NOW,
            finished_at=None if status in ("starting", "ready", "running") else NOW,
        )  # fmt: skip


def tell(connection: sqlite3.Connection) -> None:
    """Runs in every state that a server leaves, with all that hangs on them."""
    story = Story(connection)
    story.run("ready", "queued", "queued", session="notebook-1")
    story.run("busy", "queued", "parked", session="notebook-1", detail="sessionBusy")
    done = story.run("done", "completed", "done")
    for index, node in enumerate("abc"):
        story.step("done", index, story.attempt("done", node))
    story.effect(done, "k", "applied", ("interrupted", "applied"))
    story.runner("done", "exited", generation=0 + 1)
    mutation.claim_lease(connection, done, "host", "host-1", 1, NOW)
    mutation.clear_lease(connection, done)
    live = story.run("live", "running", "running", held=True)
    story.runner("live", "running")
    story.attempt("live", "a", "interrupted")
    story.attempt("live", "a", "running", number=2)
    story.effect(live, "k", "applying", (None,))
    story.run("parked", "running", "parked")
    story.attempt("parked", "a", "interrupted")
    story.run("asks", "waiting", "parked")
    story.step("asks", 0, story.attempt("asks", "gate", kind="checkpoint"))
    story.run("asleep", "running", "parked")
    connection.execute(
        "UPDATE node_attempts SET deadline_at = ? WHERE attempt_id = ?",
        (NOW, story.attempt("asleep", "nap", "waiting")),
    )
    story.run("awaits", "waiting", "parked")
    story.attempt("awaits", "event", "waiting", kind="checkpoint")
    story.run("answered", "waiting", "done")
    carried = story.attempt("answered", "gate", kind="checkpoint")
    story.step("answered", 0, carried)
    story.run("next", "completed", "done", parent="answered")
    story.step("next", 0, carried)
    story.step("next", 1, story.attempt("next", "b"))
    unsure = story.run("unsure", "waiting", "parked")
    story.attempt("unsure", "a", "waiting")
    story.effect(unsure, "k", "ambiguous", ("ambiguous",))
    failed = story.run("failed", "failed", "failed")
    story.step("failed", 0, story.attempt("failed", "a", "failed"))
    story.effect(failed, "k", "cancelled", ())
    story.run("late", "timed_out", "failed")
    story.run("cancelled", "cancelled", "cancelled")


def rebuild_original(path: Path) -> None:
    """Write the rows of the other implementation's file into a file of our DDL; its `schema_meta` row stays its own."""
    rows = json.loads(ORIGINAL.read_text())["tables"]
    connection = sqlite3.connect(path, isolation_level=None)
    connection.executescript(
        f"PRAGMA journal_mode = WAL;BEGIN;{database.schema_text()};DELETE FROM workflow_host_state;"
    )
    for table, its in rows.items():
        for row in its:
            values = [_bytes(value) if isinstance(value, dict) else value for value in row.values()]
            connection.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})", values)
    connection.execute(f"PRAGMA application_id = {admission.APPLICATION_ID}")
    connection.execute("PRAGMA user_version = 1")
    connection.execute("COMMIT")
    connection.close()


def _bytes(value: dict[str, str]) -> bytes:
    return bytes.fromhex(value["hex"]) if "hex" in value else value["utf8"].encode()
