"""Answers and events that runs wait for: looked at by the node's own code first, in a child, then given at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..state import runs, transitions, waits
from ..wire import canonical_json, identities
from ..wire.errors import PiWorkflowsError, WorkflowInputError
from . import inspecting
from .committer import Transaction

if TYPE_CHECKING:
    from .server import WorkflowServer


async def accepted(server: WorkflowServer, run_id: str, value: bytes) -> bytes:
    """What the node that a run waits at makes of an answer; both canonical JSON.

    `ConflictError` when the run waits for none, `WorkflowInputError` when the node refuses it.
    """
    connection = server.database.connection
    run = runs.read(connection, run_id)
    transitions.require(run_id, waits.standing(connection, run), "answer")
    return await validated(server, run_id, waits.answered_node(connection, run), value)


async def events(server: WorkflowServer, project_id: str, name: str, value: bytes) -> dict[str, bytes]:
    """The runs of a project that wait for an event now, each with what its node makes of the value.

    Runs of the same source and node are asked once. Who refuses the value is left out; `WorkflowInputError` when all
    do.
    """
    connection = server.database.connection
    made: dict[tuple[bytes, str], bytes | PiWorkflowsError] = {}
    given: dict[str, bytes] = {}
    refused: PiWorkflowsError | None = None
    for wait in waits.for_event(connection, project_id, name, server.clock.now()):
        if not wait.validated:
            given[wait.run_id] = value
            continue
        key = identities.sha256(runs.frozen_source(connection, wait.run_id)), wait.node_id
        if key not in made:
            try:
                made[key] = await validated(server, wait.run_id, wait.node_id, value)
            except WorkflowInputError as error:
                made[key] = error
        answer = made[key]
        if isinstance(answer, PiWorkflowsError):
            refused = answer
        else:
            given[wait.run_id] = answer
    if refused is not None and not given:
        raise refused
    return given


def give(server: WorkflowServer, transaction: Transaction, run_id: str, value: bytes) -> str:
    """Answer a run; gives the id of its continuation, which sees the environment that the run saw."""
    connection, now = transaction.sql(), transaction.now
    continuation = identities.new_run_id(runs.workflow_name(connection, run_id), now)
    transitions.answer(connection, run_id, continuation, value, now)
    transaction.changed |= {run_id, continuation}
    server.environments.inherit(run_id, continuation)
    return continuation


async def validated(server: WorkflowServer, run_id: str, node_id: str, value: bytes) -> bytes:
    """What a node of a run makes of a value, both canonical JSON. `WorkflowInputError` when it refuses it."""
    connection = server.database.connection
    question = {
        "name": runs.workflow_name(connection, run_id),
        "nodeId": node_id,
        "op": "validate",
        "source": canonical_json.decode(runs.frozen_source(connection, run_id)),
        "value": canonical_json.decode(value),
    }
    (folder,) = connection.execute(
        "SELECT canonical_path FROM projects JOIN runs USING (project_id) WHERE run_id = ?", (run_id,)
    ).fetchone()
    result = await inspecting.ask(server, question, server.environments.of(run_id), folder)
    return canonical_json.encode(result["value"])
