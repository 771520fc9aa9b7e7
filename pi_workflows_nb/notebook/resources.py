"""`server.resources`: called it is the frame, and it applies, finds and wakes managed resources."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from pi_workflows_nb.resource_managers.definition import ResourceManager
from pi_workflows_nb.state import managed_resources
from pi_workflows_nb.wire import canonical_json
from pi_workflows_nb.wire.errors import ManagedResourceError, ManagedResourceNotFoundError
from pi_workflows_nb.workflows import sources

from . import shipping
from .managed_resource import ManagedResource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    import pandas as pd

    from pi_workflows_nb.workflows.definition import Workflow

    from .filters import Moment, Words
    from .link import Link


class Resources:
    """The managed resources of a server's project."""

    def __init__(self, link: Link, project: Path, home: Path, frame: Callable[..., pd.DataFrame]) -> None:
        self._link = link
        self._project = project
        self._home = home
        self._frame = frame

    def __call__(
        self,
        *,
        resource_manager: Words | None = None,
        status: Words | None = None,
        text: str | None = None,
        aggregate: Words | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
        project: str | None = None,
        order: Words | None = None,
        limit: int | None = None,
        payloads: bool = False,
    ) -> pd.DataFrame:
        """One row a managed resource, by manager and key; index `uid`.

        From the tables controller_resources, resources, leases and controller_queue. `status` compares the column
        `state`: settled, queued or reconciling; `ready` is the condition of that name; `text` is searched in manager,
        key and uid. `payloads` adds spec, status (as stored) and error.
        """
        return self._frame(
            "resources",
            payloads=payloads,
            resource_manager=resource_manager,
            status=status,
            text=text,
            aggregate=aggregate,
            since=since,
            until=until,
            project=project,
            order=order,
            limit=limit,
        )

    def apply(
        self,
        resource_manager: ResourceManager | str,
        key: str,
        spec: Any = None,
        *,
        workflows: Iterable[Workflow] = (),
        idempotency_key: str | None = None,
    ) -> ManagedResource:
        """Say what is wanted of a resource, which is made if it is new, and give it; its manager is woken.

        `resource_manager` is a `ResourceManager`, or the name of one (a `%%resource_manager` cell of this kernel, or a
        file of the project), `key` a text that names the resource under it, `spec` JSON of at most 1 MiB. An equal
        spec changes nothing. `workflows` of this notebook may be started by the manager by their names. Passes see the
        environment variables of this moment.

        Errors: `ResourceManagerDefinitionError`, `ManagedResourceError`, `NotJsonError`, `SourceError` (it cannot be
        shipped or loaded), `NotFoundError` (no manager of that name), `ServerStoppedError`.
        """
        if not isinstance(resource_manager, ResourceManager | str):
            raise ManagedResourceError(f"{resource_manager!r} is neither a resource manager nor the name of one")
        if not isinstance(key, str):
            raise ManagedResourceError(f"key={key!r}: a text that names the resource")
        name = resource_manager if isinstance(resource_manager, str) else resource_manager.name
        value = self._link.value(spec)
        definition = shipping.definition_of(resource_manager, workflows, self._project, sources.signing_key(self._home))
        payload: dict[str, Any] = {
            "environment": dict(os.environ),
            "key": key,
            "project": str(self._project),
            "resourceManager": name,
            "spec": value,
        }
        if definition is not None and self._link.connection is not None:
            payload["definition"] = self._link.connection.value(canonical_json.encode(definition))
        given = self._link.ask("resourceManager.apply", payload, key=idempotency_key).receipt or {}
        return ManagedResource(self._link, str(self._project), given["uid"], name, key)

    def get(self, resource_manager: ResourceManager | str, key: str) -> ManagedResource:
        """The resource of that manager and key. `ManagedResourceNotFoundError` where there is none."""
        name = resource_manager.name if isinstance(resource_manager, ResourceManager) else resource_manager
        project_id = self._link.project_id
        assert project_id is not None
        with self._link.reader.snapshot() as connection:
            found = managed_resources.find_row(connection, project_id, name, key)
        if found is None:
            raise ManagedResourceNotFoundError(
                f"no managed resource {key!r} of {name!r} in this project; server.resources() lists what there is"
            )
        return ManagedResource(self._link, str(self._project), found.uid, name, key)

    def rebuild_queue(self) -> int:
        """Have every resource of the project looked at again, and say how many: the queue holds no truth of its own."""
        given = self._link.ask("resourceManager.rebuildQueue", {"project": str(self._project)}).receipt or {}
        return int(given["enqueued"])

    def __repr__(self) -> str:
        return "server.resources(): the frame; .apply(manager, key, spec), .get(manager, key), .rebuild_queue()"
