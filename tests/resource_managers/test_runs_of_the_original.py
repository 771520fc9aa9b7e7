"""The same operations on runs leave the rows that the other implementation left, and its files are gone on with."""

from __future__ import annotations

import json

import pytest

from pi_workflows_nb.resource_managers.store import SqliteResourceManagerStore
from pi_workflows_nb.state import transitions_recovery
from pi_workflows_nb.state.database import Database
from pi_workflows_nb.state.runs import NewRun
from pi_workflows_nb.state.verify import verify
from tests.resource_managers.runs import asking
from tests.resource_managers.test_rows_of_the_original import PATHS, TABLES, content, of
from tests.state.files import rebuild_original

# By an engine, not by operations of a store; or (a parent that never waited) by what is no answer here.
ELSEWHERE = {"run-cont-parent", "run-continuation"}
RUNS = [row for row in TABLES["runs"] if row["run_id"].startswith("run-") and row["run_id"] not in ELSEWHERE]


def new_of(row):
    run_id = row["run_id"]
    sources = {each["mount_path"]: each for each in of("run_sources", "run_id", run_id)}
    kept = [
        {"mountPath": path, "type": each["source_type"], "ref": each["source_ref"], "revision": each["source_revision"]}
        for path, each in sources.items()
    ]
    (binding,) = of("run_bindings", "run_id", run_id)
    (definition,) = of("workflow_definitions", "definition_digest", row["definition_digest"])
    return NewRun(
        run_id=run_id,
        workflow_name=definition["workflow_name"],
        project_id="",
        snapshot=content(definition["definition_hash"]).encode(),
        input=content(row["input_hash"]).encode(),
        launch_options=content(row["launch_options_hash"]).encode(),
        source=next(each for each in kept if not each["mountPath"]),
        frozen=b"{}",
        session_id=binding["origin_session_id"],
        mode=binding["execution_mode"],
        mounted=sorted((each for each in kept if each["mountPath"]), key=lambda each: each["mountPath"]),
    )


class Replay:
    """Does to a store what the events of a run tell, and gives the id that the run has here."""

    def __init__(self, store, clock, row):
        self.store, self.clock, self.row, self.claim = store, clock, row, None
        self.run_id = row["run_id"]

    def run(self):
        for event in of("events", "resource_id", self.row["resource_id"]):
            self.clock.now = event["recorded_at"]
            self.does(event, json.loads(content(event["payload_hash"])))
        return self.run_id

    def does(self, event, payload):
        store, run_id, kind = self.store, self.run_id, event["event_type"]
        by_holder = self.claim is not None and event["actor_id"] == self.claim.owner_id
        claim = self.claim if by_holder else None
        if kind == "run.queued" and self.row["lineage_kind"] == "restart":
            (parent,) = of("runs", "run_id", self.row["parent_run_id"])
            now, before = self.clock.now, Replay(store, self.clock, parent).run()
            self.clock.now = now
            self.run_id = store.restart_workflow_run(before).run_id
        elif kind == "run.queued":
            store.reserve_workflow_run(new_of(self.row))
        elif kind == "lease.claimed":
            self.claim = store.claim_workflow_run(run_id, event["actor_id"], payload["expiresAt"] - self.clock.now)
        elif kind == "run.queue_running":
            store.mark_workflow_run_running(run_id, self.claim)
        elif kind == "run.queue_parked":
            (queued,) = of("run_queue", "run_id", run_id)
            store.park_workflow_run(run_id, self.claim, queued["available_at"])
        elif kind == "run.source_changed":
            store.park_workflow_run_for_source_change(run_id, self.claim, self.row["status_detail"])
        elif kind == "run.worker_no_progress":
            store.park_workflow_run_for_runner_no_progress(run_id, self.claim, self.row["status_detail"])
        elif kind == "run.queue_done":
            store.complete_workflow_run(run_id, self.claim)
        elif kind == "run.queue_failed":
            assert store.fail_workflow_run(run_id, payload["error"], payload["code"], claim)
        elif kind == "run.queue_cancelled" and event["actor_type"] == "control":
            assert store.cancel_stale_workflow_run(run_id)
        elif kind == "run.queue_cancelled":
            assert store.cancel_workflow_run(run_id, claim)
        else:
            store.record_run_event(run_id, kind, payload, claim=claim, actor_id=event["actor_id"])


def events_there(row):
    return [
        (each["resource_revision"], each["event_type"], each["actor_type"], each["actor_id"], each["lease_generation"],
         json.loads(content(each["payload_hash"])), each["recorded_at"])
        for each in of("events", "resource_id", row["resource_id"])
    ]  # fmt: skip


def events_here(store, run_id):
    return [
        (each.revision, each.type, each.actor_type, each.actor_id, each.lease_generation, each.payload,
         each.recorded_at)
        for each in store.list_run_events(run_id, limit=1000)
    ]  # fmt: skip


def row_here(database, table, run_id):
    cursor = database.connection.execute(f"SELECT * FROM {table} WHERE run_id = ?", (run_id,))
    names = [column[0] for column in cursor.description]
    (row,) = [dict(zip(names, each, strict=True)) for each in cursor]
    for name in [name for name in names if name.endswith("_hash") and row[name] is not None]:
        (row[name],) = database.connection.execute(
            "SELECT CAST(content AS TEXT) FROM blobs WHERE blob_hash = ?", (row[name],)
        ).fetchone()
    return row


def row_there(table, run_id):
    (row,) = of(table, "run_id", run_id)
    return {name: content(value) if name.endswith("_hash") else value for name, value in row.items()}


@pytest.mark.parametrize("row", RUNS, ids=lambda row: row["run_id"])
def test_the_same_operations_leave_the_same_rows(database, clock, row):
    store = SqliteResourceManagerStore(database, PATHS[row["project_id"]], clock=clock)
    run_id = Replay(store, clock, row).run()
    here = events_here(store, run_id)
    if here[-1][5].get("staleControl"):
        # Here each generation of a claim has its event, also that of a control.
        assert here[-2][1:5] == ("lease.claimed", "system", "workflow-control", 2)
        here[-2:] = [(here[-1][0] - 1, *here[-1][1:])]
    assert here == events_there(row)

    queue, run = row_there("run_queue", row["run_id"]), row_there("runs", row["run_id"])
    queue["affinity_runner_id"] = None  # a run that names its server would be claimed by no other
    if queue["status"] in ("starting", "running", "parked"):
        run["status"] = "running"  # with its claim, not when its runner has begun
    elif queue["status"] == "done":
        run |= {"status": "completed", "finished_at": queue["finished_at"], "final_output_hash": "null"}
    if row["lineage_kind"] == "restart":
        ours = row_here(database, "runs", run_id)
        same = {"run_id", "resource_id", "parent_run_id", "root_run_id", "parent_terminal_fingerprint"}
        run |= {name: ours[name] for name in same}  # ids of restarts follow from how their parent ended
        queue["run_id"] = run_id
    run["workflow_ref"] = new_of(row).source["ref"]  # a caller there gave another one
    run["definition_digest"] = row_here(database, "runs", run_id)["definition_digest"]
    run["updated_at"] = row_here(database, "runs", run_id)["updated_at"]
    assert row_here(database, "run_queue", run_id) == queue
    assert row_here(database, "runs", run_id) == run
    if row["lineage_kind"] is None:
        assert row_here(database, "run_bindings", run_id) == row_there("run_bindings", run_id)
        assert (run["resource_id"],) == database.connection.execute(
            "SELECT resource_id FROM resources WHERE resource_id = ? AND aggregate_key = ?",
            (row["resource_id"], run_id),
        ).fetchone()
        mounted = "SELECT * FROM run_sources WHERE run_id = ? ORDER BY mount_path"
        wanted = [tuple(each.values()) for each in of("run_sources", "run_id", run_id)]
        assert database.connection.execute(mounted, (run_id,)).fetchall() == sorted(wanted)
    assert verify(database.connection) == []


def test_a_continuation_leaves_its_events(store):
    asking(store, "run-cont-parent")
    store.continue_workflow_run("run-cont-parent", "run-continuation", "yes")
    (there,) = [
        each
        for each in TABLES["events"]
        if each["event_type"] == "run.queue_done_for_continuation"
    ]  # fmt: skip
    here = events_here(store, "run-cont-parent")[-1]
    assert here[1:3] == (there["event_type"], there["actor_type"])
    assert here[3:6] == ("headless:run-cont-parent", None, json.loads(content(there["payload_hash"])))
    (queued,) = events_here(store, "run-continuation")
    assert queued[1:3] == ("run.queued", "session")


def test_the_runs_of_another_file_are_read_and_gone_on_with(state_file, clock):
    rebuild_original(state_file)
    clock.now = max(event["recorded_at"] for event in TABLES["events"]) + 10**12
    database = Database.open(state_file, clock.now, adopt=True)
    everything = SqliteResourceManagerStore(database, clock=clock)
    found = {run.run_id: run for run in everything.list_workflow_runs(1000)}
    assert found.keys() == {row["run_id"] for row in TABLES["runs"]}
    for row in TABLES["runs"]:
        here = found[row["run_id"]]
        assert (here.status, here.parent_run_id, here.restart_number) == (
            row["status"], row["parent_run_id"], row["restart_number"],
        )  # fmt: skip
        assert events_here(everything, row["run_id"]) == events_there(row)
    assert everything.list_run_effects() == []
    (path,) = {PATHS[row["project_id"]] for row in RUNS if row["run_id"] == "run-parked"}
    store = SqliteResourceManagerStore(database, path, clock=clock)
    with database.transaction() as connection:
        transitions_recovery.recover(connection, clock.now)
    taken = []
    while claimed := store.claim_next_workflow_run("host-new", 10**6):
        run_id, claim = claimed
        taken.append(run_id)
        store.mark_workflow_run_running(run_id, claim)
        store.complete_workflow_run(run_id, claim)
    due = [row["run_id"] for row in TABLES["runs"] if found[row["run_id"]].queue_status in ("queued", "starting")]
    assert {run_id for run_id in due if found[run_id].project_id == store.project_id} <= set(taken)
    assert "run-parked" in taken
    assert {"run-source-changed", "run-no-progress"}.isdisjoint(taken)
    assert all(store.get_workflow_run(run_id).status == "completed" for run_id in taken)
    database.close()
