"""Runs that managed resources ask for, one for each request, started on the server's own path.

The id of a run is reserved before it is started, so that a crash in between starts it once. That it ended, or waits, is
told its resource from what is committed, after each commit that touched it, and for all at the start of a server.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..resource_managers import passes
from ..state import blobs, child_workflows, managed_resources, places, runs
from ..state.child_workflows import ChildState, ChildWorkflow
from ..wire import canonical_json, identities
from ..wire.errors import SessionRequiredError, SourceError
from ..wire.resource_messages import ChildState as ChildStateMessage
from ..wire.resource_status import ChildRun
from ..wire.runner_messages import encode
from ..workflows import discovery, sources
from . import contents, inspecting
from .committer import Transaction

if TYPE_CHECKING:
    from sqlite3 import Connection

    from .resource_runner_supervisor import ResourceRunnerSupervisor
    from .server import WorkflowServer

log = logging.getLogger(__name__)

STATE_OF: Final[dict[str, ChildState]] = {
    "completed": "succeeded",
    "failed": "failed",
    "timed_out": "failed",
    "cancelled": "failed",
    "waiting": "waiting",
}
_OPEN: Final = """
    SELECT coalesce(w.run_id, w.reserved_run_id), c.project_id, w.request_id FROM controller_workflows w
    JOIN controller_resources c USING (controller_resource_id)
    WHERE w.status IN ('pending', 'running', 'waiting') AND coalesce(w.run_id, w.reserved_run_id) IS NOT NULL
      AND c.project_id IS NOT NULL
"""
_ROOT: Final = "SELECT root_run_id FROM runs WHERE run_id = ?"
_NEWEST: Final = """
    SELECT r.run_id, r.status, r.final_output_hash, e.content
    FROM runs r LEFT JOIN blobs e ON e.blob_hash = r.error_hash
    WHERE r.root_run_id = ? ORDER BY r.created_at DESC, r.rowid DESC LIMIT 1
"""


class ChildRuns:
    """The child workflows of a server's managed resources."""

    def __init__(self, server: WorkflowServer) -> None:
        self._server = server
        self._watched: dict[str, tuple[str, str]] = {}

    # -- their ends ---------------------------------------------------------------------------------------------------

    def load(self, connection: Connection) -> list[str]:
        """Watch all that are not over, and give the ids of their runs."""
        found = connection.execute(_OPEN).fetchall()
        self._watched = {run_id: (project_id, request_id) for run_id, project_id, request_id in found}
        return list(self._watched)

    def changed(self, run_ids: Iterable[str]) -> None:
        """Runs have changed: whoever waits for one of them that has ended hears of it."""
        if not self._watched:
            return
        connection = self._server.database.connection
        roots = {row[0] for run_id in run_ids if (row := connection.execute(_ROOT, (run_id,)).fetchone())}
        for root in roots & self._watched.keys():
            if _settled(connection, root) is not None:
                self._server.committer.submit_with(
                    lambda transaction, root=root: self.tell(transaction, root),  # type: ignore[misc]
                    lambda _, error, root=root: self._told(root, error),  # type: ignore[misc]
                )

    def _told(self, root: str, error: BaseException | None) -> None:
        if error is not None:
            log.warning("the end of a child workflow could not be told its resource: %s", error)
        elif (settled := _settled(self._server.database.connection, root)) and settled[0] == "succeeded":
            self._watched.pop(root, None)  # nothing more can become of it
        self._server.reconciling.wake()

    def tell(self, transaction: Transaction, root: str) -> None:
        """Tell a child's resource how its run has ended, or that it waits, unless that is known."""
        connection = transaction.sql()
        settled = _settled(connection, root)
        if settled is None or root not in self._watched:
            return
        project_id, request_id = self._watched[root]
        state, error = settled
        try:
            child = child_workflows.read(connection, project_id, request_id)
        except LookupError:
            return  # its resource is gone
        if child.state == state or child.run_id != root:
            return
        child_workflows.complete(
            connection, project_id, request_id, state=state, run_id=None, attempt=None, error=error, now=transaction.now
        )

    # -- their beginnings ---------------------------------------------------------------------------------------------

    async def ensure(self, supervisor: ResourceRunnerSupervisor, key: str, workflow: str, given: bytes) -> bytes:
        """The child of a request, started if it must be: the answer to the pass that asks for it."""
        commit, one = self._server.committer.submit, supervisor.one
        claim, project_id = one.claim, one.claim.project_id
        fingerprint = identities.sha256(given)

        def reserve(transaction: Transaction) -> tuple[ChildWorkflow, bool]:
            connection, now = transaction.sql(), transaction.now
            child, _ = child_workflows.reserve(
                connection,
                project_id,
                one.resource.uid,
                key,
                claim,
                workflow=workflow,
                input_fingerprint=fingerprint,
                now=now,
            )
            if child.state == "interrupted" or child.run_id is None:
                child = child_workflows.update(
                    connection,
                    project_id,
                    child.request_id,
                    claim,
                    state="pending",
                    run_id=identities.new_run_id(workflow, now),
                    attempt=child.attempt + 1,
                    error=None,
                    now=now,
                )
            return child, child.state == "pending" and runs.find(connection, child.run_id or "") is None

        child, missing = await commit(reserve)
        if missing:
            child = await self._start(supervisor, child, given)
        one.child = ChildRun(child.request_id, child.run_id, child.state, child.attempt)
        return self._answer(child)

    async def _start(self, supervisor: ResourceRunnerSupervisor, child: ChildWorkflow, given: bytes) -> ChildWorkflow:
        server, one, run_id = self._server, supervisor.one, child.run_id
        assert run_id is not None
        described = await self._describe(supervisor, child.workflow, given)
        frozen, snapshot = canonical_json.encode(described["frozen"]), canonical_json.encode(described["snapshot"])
        options = runs.LaunchOptions(identities.sha256_hex(frozen)).encode()
        self._watched[run_id] = one.claim.project_id, child.request_id

        def start(transaction: Transaction) -> tuple[ChildWorkflow, int]:
            connection, now = transaction.sql(), transaction.now
            row = managed_resources.require_row_by_uid(connection, one.claim.project_id, one.resource.uid)
            managed_resources.require_claim(row, one.claim, now)
            new = runs.NewRun(
                run_id=run_id,
                workflow_name=described["name"],
                project_id=one.claim.project_id,
                snapshot=snapshot,
                input=canonical_json.encode(described["input"]),
                launch_options=options,
                source=described["source"],
                frozen=frozen,
                session_id=f"{places.HEADLESS}{run_id}",
                title=described["title"],
            )
            runs.create(connection, new, now)
            started = child_workflows.update(
                connection,
                one.claim.project_id,
                child.request_id,
                one.claim,
                state="running",
                run_id=run_id,
                attempt=None,
                error=None,
                now=now,
            )
            told = {
                "attempt": started.attempt,
                "requestId": started.request_id,
                "requestKey": started.request_key,
                "runId": run_id,
                "state": started.state,
            }
            version = passes.note(connection, one, "workflow_requested", told, now)
            transaction.changed.add(run_id)
            server.environments.keep(run_id, supervisor.environment)
            return started, version

        started, one.version = await server.committer.submit(start)
        return started

    async def _describe(self, supervisor: ResourceRunnerSupervisor, name: str, given: bytes) -> dict[str, Any]:
        """What must be known of a workflow before a run of it: from the manager's own kernel, else as any other."""
        shipped = supervisor.source.workflows.get(name)
        if shipped is not None:
            frozen, identity = shipped["frozen"], shipped["source"]
            if not sources.verify_mac(frozen, self._server.signing_key):
                raise SourceError(f"the workflow {name!r} was not frozen by this user on this machine")
        else:
            found = discovery.find(name, Path(supervisor.folder))
            frozen = sources.sign(sources.freeze(None, text=found.text), self._server.signing_key)
            name, identity = found.name, found.identity
        question = {"input": canonical_json.decode(given), "name": name, "op": "describe", "source": frozen}
        result = await inspecting.ask(self._server, question, supervisor.environment, supervisor.folder)
        if result["mode"] == "interactive":
            raise SessionRequiredError(
                f"workflow {result['name']!r} has a node that needs the session of a notebook, which the child of a"
                " managed resource does not have"
            )
        return {**result, "frozen": frozen, "source": identity}

    def _answer(self, child: ChildWorkflow) -> bytes:
        connection, output = self._server.database.connection, None
        if child.state == "succeeded":
            row = connection.execute(_NEWEST, (child.run_id,)).fetchone()
            output = None if row is None or row[2] is None else blobs.read_json_bytes(connection, row[2])
        return encode(
            ChildStateMessage(
                attempt=child.attempt,
                error=child.error,
                output=None if output is None else contents.offered(output),
                request_id=child.request_id,
                run_id=child.run_id,
                state=child.state,
            )
        )


def _settled(connection: Connection, root: str) -> tuple[ChildState, str | None] | None:
    """How the newest run of a child's tree has ended, or that it waits, and its error; None while it goes on."""
    row = connection.execute(_NEWEST, (root,)).fetchone()
    state = None if row is None else STATE_OF.get(row[1])
    if state is None:
        return None
    error = "the run was cancelled" if row[1] == "cancelled" else None
    return state, row[3].decode("utf-8", "replace") if row[3] is not None else error
