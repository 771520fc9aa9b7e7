"""What is changed of a run while it goes on: its settings, and the prompts for after it.

A request of a client comes from a person: whoever runs cells or the command line. The rights of a change are those of
the run's stored definition; what the workflow's own code says of it is asked in a child.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from ..state import blobs, follow_ups, runs, setting_scopes
from ..state.mutation import ActorType
from ..state.setting_scopes import Change, Scope
from ..wire import canonical_json
from ..wire.client_messages import Request
from ..wire.errors import ConflictError, NotFoundError, ProtocolError
from ..workflows import settings
from . import inspecting
from .commanding import Commands
from .committer import Transaction
from .receipts import Receipt

if TYPE_CHECKING:
    from .server import WorkflowServer

PERSON: Final[ActorType] = "human"
MOST_TRIES: Final = 5
_DEFINITION: Final = """
    SELECT b.content FROM runs r JOIN workflow_definitions d USING (definition_digest)
    JOIN blobs b ON b.blob_hash = d.definition_hash WHERE r.run_id = ?
"""


class LiveRequests:
    """The operations of one client about runs that go on."""

    def __init__(self, server: WorkflowServer, commands: Commands) -> None:
        self._server = server
        self._commands = commands
        self.operations: dict[str, Callable[[Request], Awaitable[Receipt]]] = {
            "run.changeSettings": self._change,
            "followUp.queue": self._queue,
            "followUp.remove": self._remove,
        }

    async def _change(self, request: Request) -> Receipt:
        run_id, payload = _run_id(request), request.payload
        patch, expected, mount = payload["patch"], payload.get("expected"), payload.get("mount") or ""
        actor = (PERSON, request.client_id)
        if self._commands.earlier(request):
            return await self._commands.commit(request, _answered_before)
        for attempt in range(MOST_TRIES):
            scope = self._scope(run_id, mount)
            if expected is not None and scope.change_number != expected:
                raise ConflictError(f"the settings are at change number {scope.change_number}, not {expected}")
            after = await self._after(run_id, scope, patch)
            change = Change(request.request_id, actor, "client", canonical_json.encode(patch), after)
            try:
                return await self._commands.commit(request, self._storing(run_id, scope, change))
            except ConflictError:
                if expected is not None or attempt == MOST_TRIES - 1 or self._scope(run_id, mount) == scope:
                    raise
        raise AssertionError("not reached")

    def _storing(self, run_id: str, scope: Scope, change: Change) -> Callable[[Transaction], Receipt]:
        def store(transaction: Transaction) -> Receipt:
            connection = transaction.sql()
            run = runs.read(connection, run_id)
            if run.status in runs.TERMINAL:
                raise ConflictError(f"run {run_id} is {run.status}: its settings stand")
            number = setting_scopes.change(connection, scope, change, transaction.now)
            return Receipt({"changeNumber": number, "scopeId": scope.scope_id}, run_id, run.revision)

        return store

    def _scope(self, run_id: str, mount: str) -> Scope:
        connection = self._server.database.connection
        runs.read(connection, run_id)
        scope = setting_scopes.find(connection, run_id, mount)
        if scope is None:
            what = f"the workflow mounted as {mount!r}, where it was entered" if mount else "its workflow"
            raise NotFoundError(f"run {run_id} has no settings to change: {what}, declares none")
        return scope

    async def _after(self, run_id: str, scope: Scope, patch: Any) -> bytes:
        """What the settings would be: the patch is checked, allowed, applied, and looked at by the workflow."""
        connection = self._server.database.connection
        (content,) = connection.execute(_DEFINITION, (run_id,)).fetchone()
        declared = _declared(canonical_json.decode(content), scope.mount_path)
        before = blobs.read_json(connection, scope.current)
        checked = settings.check_patch(patch)
        after = settings.patched(before, checked, settings.rights_of(declared["paths"], PERSON))
        if not declared["validated"]:
            return settings.check_size(canonical_json.encode(after))
        question = {
            "after": after,
            "before": before,
            "mountPath": scope.mount_path,
            "name": runs.workflow_name(connection, run_id),
            "op": "changeSettings",
            "source": canonical_json.decode(runs.frozen_source(connection, run_id)),
        }
        folder = connection.execute(
            "SELECT canonical_path FROM runs JOIN projects USING (project_id) WHERE run_id = ?", (run_id,)
        ).fetchone()
        environment = self._server.environments.of(run_id)
        result = await inspecting.ask(self._server, question, environment, folder[0] if folder else "/")
        return settings.check_size(canonical_json.encode(result["value"]))

    async def _queue(self, request: Request) -> Receipt:
        run_id, prompt = _run_id(request), request.payload["prompt"]
        if not isinstance(prompt, str):
            raise ProtocolError("a follow-up is a text")

        def queue(transaction: Transaction) -> Receipt:
            connection, actor = transaction.sql(), (PERSON, request.client_id)
            run = runs.read(connection, run_id)
            made = follow_ups.queue(connection, run, request.request_id, prompt, actor, "client", transaction.now)
            return Receipt({"followUpId": made}, run_id, run.revision)

        return await self._commands.commit(request, queue)

    async def _remove(self, request: Request) -> Receipt:
        run_id, follow_up_id = _run_id(request), str(request.payload["followUpId"])

        def remove(transaction: Transaction) -> Receipt:
            connection, actor = transaction.sql(), (PERSON, request.client_id)
            run = runs.read(connection, run_id)
            follow_ups.remove(connection, run, follow_up_id, actor, "client", transaction.now)
            return Receipt({"followUpId": follow_up_id}, run_id, run.revision)

        return await self._commands.commit(request, remove)


def _answered_before(_: Transaction) -> Receipt:
    raise ConflictError("the receipt of this request is gone")


def _declared(snapshot: dict[str, Any], mount: str) -> dict[str, Any]:
    scopes = snapshot.get("settingsScopes") or []
    found: dict[str, Any] | None = snapshot.get("settings")
    if mount:
        found = next((scope for scope in scopes if scope["path"] == mount), None)
    if found is None:
        raise NotFoundError(f"the definition of the run declares no settings of {mount or 'the run'!r}")
    return found


def _run_id(request: Request) -> str:
    if not request.run_id:
        raise ProtocolError(f"{request.operation} needs a run id")
    return request.run_id
