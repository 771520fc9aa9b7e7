"""What clients ask of managed resources: list, get, apply, reconcile and delete, each change with its receipt."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ..resource_managers import passes
from ..state import (
    managed_resources,
    resource_effect_actions,
    resource_events,
    resource_recovery,
    resource_values,
    runs,
)
from ..state.managed_resources import ManagedResource
from ..wire import canonical_json, identities
from ..wire.client_messages import Request
from ..wire.errors import ConflictError, ManagedResourceError, SourceError
from ..wire.resource_status import Status
from . import contents, environments, resource_view
from .commanding import Commands
from .committer import Transaction
from .contents import Transfers
from .manager_sources import ManagerSource
from .receipts import Receipt

if TYPE_CHECKING:
    from .server import WorkflowServer

log = logging.getLogger(__name__)

MOST_LISTED: Final = 1000


class ResourceRequests:
    """Answers what one client asks about managed resources."""

    def __init__(self, server: WorkflowServer, transfers: Transfers, commands: Commands) -> None:
        self._server = server
        self._transfers = transfers
        self._commands = commands
        self.operations: dict[str, Callable[[Request], Any]] = {
            "resourceManager.list": self._list,
            "resourceManager.get": self._get,
            "resourceManager.apply": self._apply,
            "resourceManager.reconcile": self._reconcile,
            "resourceManager.rebuildQueue": self._rebuild_queue,
            "resourceManager.delete": self._delete,
        }

    # -- looking ------------------------------------------------------------------------------------------------------

    async def _list(self, request: Request) -> Receipt:
        payload, connection = request.payload, self._server.database.connection
        project_id = identities.project_id(payload["project"])
        manager, limit = payload.get("resourceManager"), min(int(payload.get("limit", 100)), MOST_LISTED)
        return Receipt({"resources": resource_view.listed(connection, project_id, manager, limit)})

    async def _get(self, request: Request) -> Receipt:
        payload, connection = request.payload, self._server.database.connection
        project_id, manager, key = _named(payload)
        found = resource_view.required(connection, project_id, manager, key)
        spec, status = canonical_json.encode(found.spec), canonical_json.encode(found.status.to_json())
        return Receipt({**resource_view.summary(found), "spec": _offered(spec), "status": _offered(status)})

    # -- changing -----------------------------------------------------------------------------------------------------

    async def _apply(self, request: Request) -> Receipt:
        server, payload = self._server, request.payload
        reconciling = server.reconciling
        sources = reconciling.sources
        folder = identities.canonical_path(payload["project"])
        project_id, manager, key = _named(payload)
        spec = self._transfers.bytes_of_payload(payload["spec"])
        resource_values.require_name(key, "a key")
        if len(spec) > resource_values.SPEC_BYTES:
            resource_values.encode_spec(canonical_json.decode(spec))  # says how large it is
        source: ManagerSource | None = None
        initial: tuple[bytes] | None = None
        if not self._commands.earlier(request):
            sources.keep_environment(project_id, manager, environments.checked(payload.get("environment")))
            source = sources.applied(manager, folder, self._shipped(payload))
            await sources.facts(source, project_id, folder)
            if managed_resources.find_row(server.database.connection, project_id, manager, key) is None:
                status = await sources.initial_status(source, project_id, folder, spec)
                initial = (resource_values.encode_status(Status(resource_manager_status=status)),)
            await self._keep(source, project_id)

        def apply(transaction: Transaction) -> Receipt:
            connection, now = transaction.sql(), transaction.now
            if source is None:
                raise ConflictError("the earlier receipt of this request is gone; apply again")
            if source.filename is not None and sources.applied(manager, folder, None).digest != source.digest:
                raise SourceError(f"{source.filename} was changed while the resource was applied; apply it again")
            before = managed_resources.find_row(connection, project_id, manager, key)
            if before is None and initial is None:
                raise ConflictError(f"{key!r} of {manager!r} was deleted while it was applied; apply it again")
            runs.register_project(connection, folder, now)
            found = managed_resources.put(
                connection, project_id, manager, key, spec, b"" if initial is None else initial[0], now
            )
            created = before is None
            if created or found.resource_version != before.revision:  # type: ignore[union-attr]
                event = "resource_applied" if created else "resource_updated"
                payload = resource_values.encode_payload({"generation": found.generation})
                noted = resource_events.record(connection, project_id, manager, key, event, payload, None, now)
                return _receipt(found, noted.resource_version, created=created)
            return _receipt(found, found.resource_version, created=False)

        given = await self._commands.commit(request, apply)
        for value in (payload["spec"], payload.get("definition")):
            if value is not None:
                self._transfers.drop(value)
        reconciling.applied(project_id, folder, manager)
        return given

    def _shipped(self, payload: dict[str, Any]) -> dict[str, Any] | None:
        """What the client sent of the manager: frozen, or None and the workflows of its kernel."""
        value = payload.get("definition")
        if value is None:
            return None
        shipped: dict[str, Any] = canonical_json.decode(self._transfers.bytes_of_payload(value))
        if set(shipped) != {"frozen", "identity", "workflows"} or not isinstance(shipped["workflows"], dict):
            raise SourceError("what was sent of the resource manager is no frozen source")
        return shipped

    async def _keep(self, source: ManagerSource, project_id: str) -> None:
        # A file that is synced takes a while on a slow disk.
        await asyncio.to_thread(self._server.reconciling.sources.keep, source, project_id)

    async def _reconcile(self, request: Request) -> Receipt:
        project_id, manager, key = _named(request.payload)

        def enqueue(transaction: Transaction) -> Receipt:
            connection, now = transaction.sql(), transaction.now
            row = managed_resources.require_row(connection, project_id, manager, key)
            managed_resources.enqueue_row(connection, row.row_id, now, now)
            found = managed_resources.get(connection, project_id, manager, key)
            assert found is not None
            return _receipt(found, found.resource_version, created=False)

        given = await self._commands.commit(request, enqueue)
        self._server.reconciling.wake()
        return given

    async def _rebuild_queue(self, request: Request) -> Receipt:
        project_id = identities.project_id(request.payload["project"])

        def rebuild(transaction: Transaction) -> Receipt:
            connection, now = transaction.sql(), transaction.now
            rows = connection.execute(
                "SELECT controller_resource_id FROM controller_resources WHERE project_id = ?", (project_id,)
            ).fetchall()
            for (row_id,) in rows:
                managed_resources.enqueue_row(connection, row_id, now, now)
            return Receipt({"enqueued": len(rows), "rebuilt": True})

        given = await self._commands.commit(request, rebuild)
        self._server.reconciling.wake()
        return given

    async def _delete(self, request: Request) -> Receipt:
        payload, server = request.payload, self._server
        project_id, manager, key = _named(payload)
        force = payload.get("force", False)
        if not isinstance(force, bool):
            raise ManagedResourceError(f"force={force!r}: it is true or false")
        ended: list[str] = []

        def delete(transaction: Transaction) -> Receipt:
            connection, now = transaction.sql(), transaction.now
            before = managed_resources.require_row(connection, project_id, manager, key)
            if force:
                ended.append(before.uid)
                dropped = resource_recovery.force_delete(
                    connection, project_id, manager, key, request.client_id, passes.LEASE_MS, now
                )
                log.warning("a managed resource was deleted by force, past %d finalizers", len(dropped))
                return Receipt({"deleted": True, "finalizers": list(dropped), "key": key, "uid": before.uid})
            found = managed_resources.request_deletion(connection, project_id, manager, key, now)
            version = found.resource_version
            if before.deletion_requested_at is None:
                event = resource_events.record(
                    connection, project_id, manager, key, "deletion_requested", resource_values.NO_PAYLOAD, None, now
                )
                version = event.resource_version
            return _receipt(found, version, created=False)

        given = await self._commands.commit(request, delete)
        for uid in ended:
            server.reconciling.end_passes(uid)
        server.reconciling.wake()
        return given


def recover_effect(transaction: Transaction, effect_id: str, action: str, external_ref: str | None) -> Receipt | None:
    """A person's word on an effect of a managed resource; None where it is none."""
    connection, now = transaction.sql(), transaction.now
    effect = resource_effect_actions.find(connection, effect_id)
    if effect is None:
        return None
    if action == "confirm":
        resource_effect_actions.confirm(connection, effect, external_ref, now)
    else:
        resource_effect_actions.retry(connection, effect, now)
    return Receipt({"effectId": effect_id, "runId": None})


def _named(payload: dict[str, Any]) -> tuple[str, str, str]:
    project_id = identities.project_id(payload["project"])
    manager = resource_values.require_name(payload["resourceManager"], "a manager")
    return project_id, manager, resource_values.require_name(payload["key"], "a key")


def _receipt(found: ManagedResource, version: int, *, created: bool) -> Receipt:
    return Receipt(
        {
            "created": created,
            "generation": found.generation,
            "key": found.key,
            "resourceManager": found.resource_manager,
            "resourceVersion": version,
            "uid": found.uid,
        },
        None,
        version,
    )


def _offered(content: bytes) -> dict[str, Any]:
    value = contents.offered(content)
    if value.inline is not msgspec.UNSET:
        return {"inline": canonical_json.decode(content)}
    return {"content": msgspec.to_builtins(value.content)}
