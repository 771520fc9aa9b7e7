"""A state file with one run of each kind, written row by row, so that frames and drawings have something to show."""

from __future__ import annotations

import hashlib
import itertools
from contextlib import closing
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from pi_workflows_nb.resource_managers.store import SqliteResourceManagerStore
from pi_workflows_nb.state.database import Database
from pi_workflows_nb.wire import canonical_json, identities
from pi_workflows_nb.wire.resource_status import Condition
from pi_workflows_nb.workflows.progress import PROGRESS
from tests.notebook.session_rows import fill_sessions

T0 = 1_767_225_600_000
SECOND = 1_000


class Rows:
    """Writes rows of a state file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.database = Database.open(path, T0)
        self.connection = self.database.connection

    def close(self) -> None:
        self.database.close()

    def insert(self, table: str, **values: Any) -> None:
        names = ", ".join(values)
        marks = ", ".join("?" * len(values))
        self.connection.execute(f"INSERT INTO {table}({names}) VALUES ({marks})", tuple(values.values()))

    def json(self, value: Any) -> bytes:
        return self._blob(canonical_json.encode(value), "application/json")

    def text(self, value: str) -> bytes:
        return self._blob(value.encode(), "text/plain")

    def _blob(self, content: bytes, media_type: str) -> bytes:
        digest = hashlib.sha256(content).digest()
        self.connection.execute(
            "INSERT OR IGNORE INTO blobs VALUES (?, ?, ?, ?, ?)", (digest, media_type, len(content), content, T0)
        )
        return digest

    def project(self, path: str) -> str:
        project_id = identities.project_id(path)
        self.connection.execute("INSERT OR IGNORE INTO projects VALUES (?, ?, ?)", (project_id, path, T0))
        return project_id

    def aggregate(self, kind: str, key: str) -> str:
        resource_id = identities.aggregate_id(kind, key)
        self.insert(
            "resources",
            resource_id=resource_id,
            resource_type=kind,
            aggregate_key=key,
            revision=1,
            created_at=T0,
            updated_at=T0,
        )
        self.insert("leases", resource_id=resource_id, generation=0)
        return resource_id

    def event(self, resource_id: str, revision: int, kind: str, at: int = T0, actor: str = "system") -> None:
        self.insert(
            "events",
            event_id=identities.new_event_id(),
            resource_id=resource_id,
            resource_revision=revision,
            event_type=kind,
            actor_type=actor,
            payload_hash=self.json({"kind": kind}),
            recorded_at=at,
        )

    def run(
        self,
        run_id: str,
        *,
        snapshot: dict[str, Any],
        status: str = "completed",
        queue: str = "done",
        project: str = "/srv/alpha",
        at: int = T0,
        finished: int | None = None,
        output: Any = ...,
        error: str | None = None,
        title: str | None = None,
        parent: str | None = None,
        root: str | None = None,
        tags: tuple[str, ...] = (),
        paused: int = 0,
    ) -> str:
        definition = self.json(snapshot)
        self.connection.execute(
            "INSERT OR IGNORE INTO workflow_definitions VALUES (?, ?, ?, ?)",
            (definition, snapshot["name"], definition, T0),
        )
        resource_id = self.aggregate("run", run_id)
        self.insert(
            "runs",
            run_id=run_id,
            resource_id=resource_id,
            project_id=self.project(project),
            parent_run_id=parent,
            root_run_id=root or run_id,
            lineage_kind="continuation" if parent else None,
            definition_digest=definition,
            workflow_ref=f"inline:{snapshot['name']}",
            launch_options_hash=self.json({"source": {"sha256": "00"}, "tags": list(tags)}),
            title=title,
            status=status,
            paused=paused,
            input_hash=self.json({"run": run_id}),
            final_output_hash=None if output is ... else self.json(output),
            error_hash=None if error is None else self.text(error),
            created_at=at,
            updated_at=finished or at,
            finished_at=finished,
        )
        self.insert(
            "run_bindings",
            run_id=run_id,
            origin_session_id=f"headless:{run_id}",
            execution_mode="headless",
            created_at=at,
        )
        self.insert(
            "run_queue",
            run_id=run_id,
            status=queue,
            available_at=at,
            origin_session_id=f"headless:{run_id}",
            created_at=at,
            updated_at=at,
            started_at=None if status == "queued" else at + 10,
            finished_at=finished,
        )
        self.event(resource_id, 1, "run.queued", at, "session")
        return resource_id

    def attempt(
        self,
        run_id: str,
        node: str,
        *,
        status: str = "completed",
        number: int = 1,
        kind: str = "compute",
        step: int | None = None,
        at: int = T0,
        seconds: float | None = 1.0,
        output: Any = ...,
        error: str | None = None,
    ) -> str:
        attempt_id = f"{run_id}-{node}-{number}"
        self.insert(
            "node_attempts",
            attempt_id=attempt_id,
            run_id=run_id,
            node_id=node,
            attempt_number=number,
            node_type=kind,
            status=status,
            output_hash=None if output is ... else self.json(output),
            error_hash=None if error is None else self.text(error),
            started_at=at,
            deadline_at=None,
            finished_at=None if seconds is None else at + int(seconds * 1000),
            created_at=at,
            updated_at=at,
        )
        if step is not None:
            self.step(run_id, step, attempt_id)
        return attempt_id

    def step(self, run_id: str, index: int, attempt_id: str, override: Any = ...) -> None:
        self.insert(
            "run_steps",
            run_id=run_id,
            step_index=index,
            attempt_id=attempt_id,
            output_override_hash=None if override is ... else self.json(override),
        )

    def update(self, attempt_id: str, kind: str, key: str, data: Any, *, number: int = 1, at: int = T0) -> None:
        self.insert(
            "workflow_updates",
            update_id=f"upd_{attempt_id}-{kind}-{key}-{number}",
            attempt_id=attempt_id,
            update_seq=number,
            run_revision=number,
            update_type=kind,
            update_key=key,
            data_hash=self.json(data),
            recorded_at=at,
        )

    def effect(self, run_id: str, kind: str, key: str, status: str, **outcome: Any) -> str:
        source = identities.aggregate_id("run", run_id)
        effect_id = identities.effect_id_of_run(source, kind, key)
        resource_id = self.aggregate("effect", effect_id)
        self.insert(
            "effects",
            effect_id=effect_id,
            resource_id=resource_id,
            source_resource_id=source,
            source_revision=1,
            effect_type=kind,
            idempotency_key=key,
            payload_hash=self.json({"recovery": "idempotent", "request": {"key": key}}),
            owner_scope="run",
            status=status,
            attempt_count=1,
            created_at=T0,
            updated_at=T0,
            settled_at=None if status in {"pending", "applying"} else T0 + 5,
            result_hash=self.json(outcome["result"]) if "result" in outcome else None,
        )
        self.insert(
            "effect_attempts",
            effect_id=effect_id,
            attempt_number=1,
            owner_id="host-1",
            lease_generation=1,
            started_at=T0,
            finished_at=T0 + 5,
            outcome=status if status in {"applied", "rejected", "ambiguous"} else None,
        )
        self.event(resource_id, 1, "effect.reserved", T0, "host")
        return effect_id

    def runner(self, run_id: str, epoch: str, *, status: str = "exited", finished: int | None = T0 + 900) -> None:
        self.insert(
            "run_workers",
            worker_epoch=epoch,
            run_id=run_id,
            generation=1,
            host_epoch=1,
            launch_envelope_hash=self.json({"runId": run_id}),
            pid=4711,
            process_start_identity="boot:1:4711:99",
            status=status,
            started_at=T0,
            ready_at=T0 + 3,
            finished_at=finished,
            exit_code=0 if finished else None,
        )

    def command(self, request_id: str, run_id: str | None, outcome: str = "accepted") -> None:
        self.insert(
            "host_commands",
            request_id=request_id,
            client_id="kernel:1",
            operation="run.start",
            idempotency_key=request_id,
            request_fingerprint=bytes(32),
            run_id=run_id,
            outcome=outcome,
            receipt_hash=self.json({"runId": run_id}),
            host_epoch=1,
            created_at=T0,
            completed_at=T0,
        )

    def log(self, name: str, content: bytes) -> None:
        folder = self.path.with_name(self.path.name + ".d") / "logs"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.log").write_bytes(content)


def definition(name: str, nodes: dict[str, str], edges: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    names = list(nodes)
    if edges is None:
        edges = [{"from": one, "to": other} for one, other in itertools.pairwise(names)]
    return {
        "schema": "pi-workflows.definition-snapshot.v1",
        "name": name,
        "startAt": names[0],
        "nodes": {node: {"nodeType": kind} for node, kind in nodes.items()},
        "edges": edges,
    }


def fill(rows: Rows) -> None:
    triage = definition(
        "triage",
        {"read": "action", "judge": "agent", "fix": "action", "ask": "checkpoint", "done": "compute"},
        [
            {"from": "read", "to": "judge"},
            {"from": "judge", "switch": {"on": "$.route", "cases": {"bug": "fix", "question": "ask"}}},
            {"from": "fix", "to": "done"},
            {"from": "ask", "to": "done"},
        ],
    )
    with rows.database.transaction():
        end = T0 + 4 * SECOND
        rows.run("run-done", snapshot=triage, finished=end, output={"n": 1}, title="First", tags=("weekly", "a, b"))
        rows.attempt("run-done", "read", step=0, output=[1], kind="action")
        rows.attempt("run-done", "judge", status="failed", at=T0 + SECOND, error="no", kind="agent")
        rows.attempt("run-done", "judge", number=2, step=1, at=T0 + 2 * SECOND, output={"route": "bug"}, kind="agent")
        rows.attempt("run-done", "fix", step=2, at=T0 + 3 * SECOND, output=None, kind="action", seconds=0.25)
        rows.effect("run-done", "ticket", "one", "applied", result={"id": 7})
        rows.runner("run-done", "epoch-1")
        rows.command("request-1", "run-done")
        rows.update("run-done-fix-1", "note", "fixer", {"text": "<b>x</b>"}, at=T0 + 3 * SECOND)
        for number, done in enumerate((0, 2, 4), start=1):
            data = {"schema": PROGRESS, "status": "running", "completed": done, "total": 10, "unit": "files"}
            rows.update("run-done-read-1", "progress", "files", data, number=number, at=T0 + number * 100)
        rows.log("run-done-read-1", b"hello\nworld\n")
        rows.log("run-done-fix-1", "caf\u00e9 \xff\n\nlast".encode("latin-1"))

        rows.run(
            "run-asks", snapshot=triage, status="waiting", queue="done", at=T0 + 10 * SECOND, finished=T0 + 12 * SECOND
        )
        rows.attempt("run-asks", "read", step=0, at=T0 + 10 * SECOND, output=[2], kind="action")
        gate = rows.attempt("run-asks", "ask", step=1, at=T0 + 11 * SECOND, output={"ask": "?"}, kind="checkpoint")
        rows.run(
            "run-goes-on",
            snapshot=triage,
            at=T0 + 20 * SECOND,
            finished=T0 + 22 * SECOND,
            output="fin",
            parent="run-asks",
            root="run-asks",
        )
        rows.step("run-goes-on", 0, "run-asks-read-1")
        rows.step("run-goes-on", 1, gate, override={"answer": 42})
        rows.attempt("run-goes-on", "done", step=2, at=T0 + 21 * SECOND, output="fin")

        rows.run(
            "run-failed",
            snapshot=definition("other", {"only": "compute"}),
            status="failed",
            queue="failed",
            at=T0 + 30 * SECOND,
            finished=T0 + 31 * SECOND,
            error="Traceback (most recent call last):\nValueError: <b>no</b>",
        )
        rows.attempt("run-failed", "only", status="failed", step=0, at=T0 + 30 * SECOND, error="ValueError: <b>no</b>")
        rows.effect("run-failed", "ticket", "two", "ambiguous")

        rows.run(
            "run-queued", snapshot=triage, status="queued", queue="queued", project="/srv/beta", at=T0 + 40 * SECOND
        )
        rows.run(
            "run-waits",
            snapshot=triage,
            status="waiting",
            queue="parked",
            at=T0 + 50 * SECOND,
            finished=T0 + 52 * SECOND,
        )
        rows.attempt("run-waits", "ask", step=0, at=T0 + 51 * SECOND, output={"ask": "?"}, kind="checkpoint")


def fill_resources(rows: Rows) -> None:
    """One that is settled, one that is worked on, one whose pass has failed, one that nobody has looked at."""
    store = SqliteResourceManagerStore(rows.database, "/srv/alpha", clock=lambda: T0)
    for key in ("settled", "worked on", "failed"):
        store.put_resource("folder", key, {"path": key}, initial_status={"phase": "new"})
        claim = store.claim_next(["folder"], "owner", 120_000)
        assert claim is not None
        if key == "failed":
            store.requeue_claim(claim, T0 + SECOND, "ValueError: <b>no</b>")
            continue
        resource = store.get_resource("folder", key)
        assert resource is not None
        store.reserve_workflow(resource.uid, "first", claim, workflow="triage", input_fingerprint=bytes(32))
        seen = resource.status.patched(
            generation=1,
            now=T0,
            conditions=[Condition("Ready", key == "settled", "Looked", "<b>at</b>")],
            resource_manager_status={"phase": "seen"},
        )
        store.update_status("folder", key, claim, seen, expected_resource_version=claim.resource_version)
        if key == "settled":
            store.settle_claim(claim)
    store.put_resource("ticket", "new", None)


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    path = tmp_path / "empty.sqlite"
    with closing(Rows(path)):
        pass
    return path


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    path = tmp_path / "filled.sqlite"
    with closing(Rows(path)) as rows:
        fill(rows)
    return path


@pytest.fixture
def everything(filled: Path) -> Path:
    """The filled file, with managed resources, sessions and decisions in it."""
    with closing(Rows(filled)) as rows:
        fill_resources(rows)
        with rows.database.transaction():
            fill_sessions(rows)
    return filled


TRIAGE = """
import pi_workflows_nb as pw
server = pw.start(database="state.sqlite", project=".")
wf = pw.Workflow("triage", start_at="shape")

@wf.compute
def shape(ctx):
    print("shaping", ctx.input)
    return {"n": ctx.input["n"] + 1}

wf.checkpoint("gate", summary="look")

@wf.compute
def done(ctx):
    return {"n": ctx.outputs["shape"]["n"], "said": ctx.outputs["gate"]}

wf.edge("shape", "gate")
wf.edge("gate", "done")
"""


@pytest.fixture
def notebook(tmp_path: Path) -> Any:
    """Executes cells in a real kernel, in a folder of its own, and gives the notebook."""

    def execute(*cells: str, allow_errors: bool = False) -> nbformat.NotebookNode:
        book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
        book.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
        client = NotebookClient(
            book,
            timeout=60,
            kernel_name="python3",
            allow_errors=allow_errors,
            resources={"metadata": {"path": tmp_path}},
        )
        return client.execute()

    return execute


def outputs(cell: Any) -> list[dict[str, Any]]:
    """The data of all displays and results of a cell."""
    return [dict(output["data"]) for output in cell["outputs"] if "data" in output]


def printed(cell: Any) -> str:
    """What a cell printed to its standard output."""
    return "".join(output["text"] for output in cell["outputs"] if output.get("name") == "stdout")
