"""The same operations leave the rows that the other implementation left, and its files are gone on with."""

from __future__ import annotations

import json

import pytest

from pi_workflows_nb.resource_managers.store import SqliteResourceManagerStore
from pi_workflows_nb.state.database import Database
from pi_workflows_nb.state.verify import verify
from pi_workflows_nb.wire import canonical_json
from pi_workflows_nb.wire.resource_status import Status
from tests.state.files import ORIGINAL, Story, rebuild_original

TABLES = json.loads(ORIGINAL.read_text())["tables"]
ROOT = "/srv/pi-workflows-example/projects/"
PATHS = {row["project_id"]: row["canonical_path"] for row in TABLES["projects"]}
CONTENT = {json.dumps(row["blob_hash"]): row["content"]["utf8"] for row in TABLES["blobs"]}
RESOURCES = TABLES["controller_resources"]


def content(digest):
    return None if digest is None else CONTENT[json.dumps(digest)]


def of(table, column, value):
    return [row for row in TABLES[table] if row[column] == value]


class Replay:
    """Does to a store what the events of a resource and of its effects tell, and what rows tell that left no event."""

    def __init__(self, store, clock, row):
        self.store, self.clock, self.row = store, clock, row
        self.name = row["controller_name"], row["resource_key"]
        self.queue = of("controller_queue", "controller_resource_id", row["controller_resource_id"])
        self.finalizers = [
            each["finalizer"]
            for each in sorted(
                of("controller_finalizers", "controller_resource_id", row["controller_resource_id"]),
                key=lambda each: each["position"],
            )
        ]
        self.children = of("controller_workflows", "controller_resource_id", row["controller_resource_id"])
        self.requests = {}
        self.spec = json.loads(content(row["spec_hash"]))
        self.effects = {each["resource_id"]: each for each in of("effects", "source_resource_id", row["resource_id"])}
        mine = {row["resource_id"], *self.effects}
        self.events = [event for event in TABLES["events"] if event["resource_id"] in mine]
        self.kinds = [event["event_type"] for event in self.events]
        self.claim = None

    def run(self):
        for index, event in enumerate(self.events):
            self.clock.now = event["recorded_at"]
            effect = self.effects.get(event["resource_id"])
            if effect:
                self.effect(effect, event, event["event_type"].removeprefix("effect."))
            else:
                self.resource(event, self.kinds[index + 1 :])
        found = self.store.list_queue()
        if found and found[0].queue_version < self.queue[0]["queue_version"]:
            self.clock.now = self.queue[0]["updated_at"]
            self.store.enqueue(*self.name)

    def renamed(self, text):
        """Requests of children have ids of their own here."""
        for theirs, ours in self.requests.items():
            text = text.replace(theirs, ours)
        return json.loads(text)

    def ask(self):
        uid = self.store.get_resource(*self.name).uid
        for row in self.children:
            self.clock.now = row["created_at"]
            fingerprint = bytes.fromhex(row["input_fingerprint"]["hex"])
            child, _ = self.store.reserve_workflow(
                uid, row["request_key"], self.claim, workflow=row["workflow_name"], input_fingerprint=fingerprint
            )
            self.requests[row["request_id"]] = child.request_id
            if row["reserved_run_id"]:
                if row["run_id"]:
                    Story(self.store._connection).run(row["run_id"], "completed", "done")
                self.clock.now = row["updated_at"]
                self.store.update_workflow(
                    child.request_id, self.claim, "running", run_id=row["reserved_run_id"],
                    attempt=row["attempt_count"],
                )  # fmt: skip

    def effect(self, effect, event, what):
        wish = json.loads(content(effect["payload_hash"]))
        uid = self.store.get_resource(*self.name).uid
        if what == "reserved":
            self.store.reserve_effect(
                uid, wish["key"], self.claim, kind=wish["kind"], request_fingerprint=wish["requestFingerprint"],
                generation=wish["generation"],
            )  # fmt: skip
            return
        last = event["recorded_at"] == effect["updated_at"]
        known = {"external_ref": effect["external_ref"], "error": content(effect["error_hash"])} if last else {}
        self.store.update_effect(uid, wish["key"], self.claim, what, **known)

    def resource(self, event, later):
        if event["event_type"] == "workflow_requested":
            self.ask()
            self.clock.now = event["recorded_at"]
        kind, payload, store = event["event_type"], self.renamed(content(event["payload_hash"])), self.store
        status = self.renamed(content(self.row["status_hash"]))
        version = event["resource_revision"] - 1
        if kind == "resource.created":
            spec = "before" if "resource.spec_updated" in later else self.spec
            initial = None if "resource.status_updated" in later else status["resourceManagerStatus"]
            store.put_resource(*self.name, spec, initial)
        elif kind == "resource.spec_updated":
            store.put_resource(*self.name, self.spec)
        elif kind == "resource.status_updated":
            store.update_status(
                *self.name, self.claim, Status.from_json(status), expected_resource_version=version,
                finalizers=self.finalizers,
            )  # fmt: skip
        elif kind == "resource.finalizers_updated":
            store.update_finalizers(*self.name, self.finalizers, expected_resource_version=version)
        elif kind == "resource.deletion_requested":
            store.request_deletion(*self.name)
        elif kind == "lease.claimed":
            self.claim = store.claim_next([self.name[0]], event["actor_id"], payload["expiresAt"] - self.clock.now)
            if "workflow_state_changed" in later:
                self.ask()
        elif kind == "workflow_state_changed":
            (row,) = [each for each in self.children if self.requests[each["request_id"]] == payload["requestId"]]
            store.complete_workflow(
                payload["requestId"], payload["state"], run_id=payload["runId"], error=content(row["error_hash"])
            )
        elif kind == "lease.released":
            self.release(later)
        else:
            under = self.claim if event["actor_type"] == "controller" else None
            store.record_event(*self.name, kind, payload, under)

    def release(self, later):
        if "lease.claimed" in later:
            assert self.store.requeue_claim(self.claim, error="first failure")
        # Only what was requeued has the time of its release in its queue row.
        elif self.queue and self.queue[0]["updated_at"] == self.clock.now:
            (row,) = self.queue
            assert self.store.requeue_claim(self.claim, row["available_at"], content(row["last_error_hash"]))
        else:
            assert self.store.settle_claim(self.claim)


def rows_there(row):
    """The rows of a resource in the file of the other implementation."""
    resource, own = row["resource_id"], row["controller_resource_id"]
    effects = sorted(of("effects", "source_resource_id", resource), key=lambda each: each["effect_id"])
    aggregates = [resource, *(effect["resource_id"] for effect in effects)]
    return {
        "resources": [of("resources", "resource_id", each)[0] for each in aggregates],
        "leases": [of("leases", "resource_id", each)[0] for each in aggregates],
        "controller_resources": [row],
        "controller_queue": of("controller_queue", "controller_resource_id", own),
        "controller_finalizers": of("controller_finalizers", "controller_resource_id", own),
        "controller_workflows": sorted(
            of("controller_workflows", "controller_resource_id", own), key=lambda each: each["request_key"]
        ),
        "effects": effects,
        "events": [event for each in aggregates for event in of("events", "resource_id", each)],
    }


def rows_here(connection, row):
    """The same, in a file that this package has written."""

    def select(sql, *values):
        cursor = connection.execute(sql, values)
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, each, strict=True)) for each in cursor]

    resource = row["resource_id"]
    (own,) = select("SELECT * FROM controller_resources WHERE resource_id = ?", resource)
    effects = select("SELECT * FROM effects WHERE source_resource_id = ? ORDER BY effect_id", resource)
    aggregates = [resource, *(effect["resource_id"] for effect in effects)]
    mine = own["controller_resource_id"]
    return {
        **{
            table: [select(f"SELECT * FROM {table} WHERE resource_id = ?", each)[0] for each in aggregates]
            for table in ("resources", "leases")
        },
        "controller_resources": [own],
        "controller_queue": select("SELECT * FROM controller_queue WHERE controller_resource_id = ?", mine),
        "controller_finalizers": select(
            "SELECT * FROM controller_finalizers WHERE controller_resource_id = ? ORDER BY position", mine
        ),
        "controller_workflows": select(
            "SELECT * FROM controller_workflows WHERE controller_resource_id = ? ORDER BY request_key", mine
        ),
        "effects": effects,
        "events": [
            event
            for each in aggregates
            for event in select("SELECT * FROM events WHERE resource_id = ? ORDER BY event_seq", each)
        ],
    }


def comparable(tables, text_of):
    """Contents for digests; what is random, or numbered across the file, only as being there."""
    (own,) = tables["controller_resources"]
    names = {own["uid"]: "UID", own["controller_resource_id"]: "ROW"}
    names |= {row["request_id"]: f"REQUEST {row['request_key']}" for row in tables["controller_workflows"]}

    def value(column, given):
        if column in ("event_id", "event_seq", "token_hash"):
            return given is not None
        if column.endswith("_hash") and given is not None:
            given = text_of(given)
        if isinstance(given, dict | bytes):
            given = given if isinstance(given, bytes) else bytes.fromhex(given["hex"])
        if isinstance(given, str):
            for name, word in names.items():
                given = given.replace(name, word)
        return given

    return {
        table: [{column: value(column, given) for column, given in row.items()} for row in rows]
        for table, rows in tables.items()
    }


KNOWN = {
    "resource.created", "resource.spec_updated", "resource.status_updated", "resource.finalizers_updated",
    "resource.deletion_requested", "lease.claimed", "lease.released", "custom_event", "custom_claimed_event",
    "resource_applied", "reconcile_started", "reconcile_finished", "reconcile_failed", "effect_applied",
    "effect_indeterminate", "workflow_requested", "workflow_state_changed",
}  # fmt: skip
REPLAYED = [
    row
    for row in RESOURCES
    if {event["event_type"] for event in of("events", "resource_id", row["resource_id"])} <= KNOWN
]


@pytest.mark.parametrize("row", REPLAYED, ids=lambda row: repr(row["resource_key"])[:30])
def test_the_same_operations_leave_the_same_rows(database, clock, row):
    store = SqliteResourceManagerStore(database, PATHS[row["project_id"]], clock=clock)
    Replay(store, clock, row).run()

    def text_of(digest):
        (found,) = database.connection.execute(
            "SELECT CAST(content AS TEXT) FROM blobs WHERE blob_hash = ?", (digest,)
        ).fetchone()
        return found

    there = comparable(rows_there(row), content)
    status = json.loads(there["controller_resources"][0]["status_hash"])
    if "workflowRun" in status:  # the four facts that are kept of a child; a caller there gave more
        status["workflowRun"] = {
            name: status["workflowRun"][name] for name in ("attempt", "requestId", "runId", "state")
        }
        there["controller_resources"][0]["status_hash"] = canonical_json.encode(status).decode()
    for queued in there["controller_queue"]:
        if queued["last_error_hash"] is None:
            queued["consecutive_errors"] = 0  # a requeue without an error is none
        for event in there["events"]:
            if event["event_type"] == "workflow_state_changed":  # the end of a child wakes its resource
                queued["queue_version"] += 1
                queued["updated_at"] = event["recorded_at"]
    here = comparable(rows_here(database.connection, row), text_of)
    for table, rows in there.items():
        assert here[table] == rows, table
    assert verify(database.connection) == []


def test_the_whole_file_is_replayed():
    assert len(REPLAYED) == len(RESOURCES)


def test_a_file_of_the_other_implementation_is_gone_on_with(state_file, clock):
    rebuild_original(state_file)
    clock.now = max(event["recorded_at"] for event in TABLES["events"]) + 10**12
    database = Database.open(state_file, clock.now, adopt=True)
    everything = SqliteResourceManagerStore(database, clock=clock)
    assert {each.uid for each in everything.list_resources()} == {row["uid"] for row in RESOURCES}
    assert len(everything.list_effects()) == sum(row["owner_scope"] == "controller" for row in TABLES["effects"])
    assert len(everything.list_workflows()) == len(TABLES["controller_workflows"])
    events = everything.list_events(limit=1000)
    alive = {row["resource_id"] for row in RESOURCES}
    assert len(events) == sum(event["resource_id"] in alive for event in TABLES["events"])
    before = set(verify(database.connection))
    for path in PATHS.values():
        store = SqliteResourceManagerStore(database, path, clock=clock)
        managers = {each.resource_manager for each in store.list_resources()}
        queued = store.list_queue()
        passes = 0
        while claim := store.claim_next(managers, "owner", 1000):
            passes += 1
            name = claim.resource_manager, claim.key
            store.update_finalizers(*name, [], expected_resource_version=claim.resource_version)
            resource = store.request_deletion(*name)
            assert store.delete_resource(*name, claim, expected_resource_version=resource.resource_version)
        assert passes == len(queued)
        # What was deleted there, and could never be made again.
        for name in ("doomed", *(entry.key for entry in queued)):
            assert store.put_resource("deployment", name, 1).generation == 1
    assert set(verify(database.connection)) <= before
    database.close()
