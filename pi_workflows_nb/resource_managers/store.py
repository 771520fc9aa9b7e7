"""`SqliteResourceManagerStore`: managed resources, their queue, effects and child workflows, one transaction a call.

A store sees one project, or all of them for reading only. The server's committer calls the same operations as functions
(`state.managed_resources`, `resource_queue`, `resource_effects`, `child_workflows`, `resource_events`), so that several
share a transaction. All times are in milliseconds since the epoch, durations in milliseconds.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

from ..state import (
    child_workflows,
    managed_resources,
    resource_effects,
    resource_events,
    resource_queue,
    resource_values,
    runs,
)
from ..state.child_workflows import ChildState, ChildWorkflow
from ..state.database import Database, open_read_only
from ..state.managed_resources import ManagedResource, ResourceClaim
from ..state.resource_effects import EffectState, ResourceEffect
from ..state.resource_events import LIMIT, ResourceEvent
from ..state.resource_queue import QueueEntry
from ..wire import identities
from ..wire.errors import ProjectNotRegisteredError, ReadOnlyStoreError
from ..wire.resource_status import Status


def _wall_clock() -> int:
    return time.time_ns() // 1_000_000


class SqliteResourceManagerStore:
    """The store of a project's managed resources in a state file.

    Operations under a claim raise `StaleClaimError` when it is not the live one and `ClaimTargetError` when it is
    another resource's; renewing and ending a pass give False instead. Wherever a resource is named and not found,
    `ManagedResourceNotFoundError`; what a name, value or list may not be, `ManagedResourceError`. A store that was
    opened for reading refuses every change with `ReadOnlyStoreError`, one of all projects with
    `ProjectNotRegisteredError`.
    """

    def __init__(
        self,
        database: Database | sqlite3.Connection,
        project: str | os.PathLike[str] | None = None,
        *,
        clock: Callable[[], int] = _wall_clock,
    ) -> None:
        """Share an open file: to write, or (a connection of `open_read_only`) to read.

        `project` is a folder, which a store that writes registers; None stands for all projects.
        """
        self._database = database if isinstance(database, Database) else None
        self._connection = database.connection if isinstance(database, Database) else database
        self._owned = False
        self._clock = clock
        self.project_id: str | None = None
        if project is not None:
            path = identities.canonical_path(project)
            self.project_id = identities.project_id(path)
            if self._database is not None:
                with self._transaction() as connection:
                    runs.register_project(connection, path, clock())

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        project: str | os.PathLike[str] | None = None,
        *,
        read_only: bool = False,
        clock: Callable[[], int] = _wall_clock,
    ) -> Self:
        """Open a state file, which is made where there is none unless it is to be read only; `close` closes it.

        `StateFileError` says why a file is refused.
        """
        database = open_read_only(path) if read_only else Database.open(path, clock())
        try:
            store = cls(database, project, clock=clock)
        except BaseException:
            database.close()
            raise
        store._owned = True
        return store

    def close(self) -> None:
        """Close the file, if this store opened it."""
        if self._owned:
            (self._database or self._connection).close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # Resources ---------------------------------------------------------------------------------------------------

    def put_resource(self, resource_manager: str, key: str, spec: Any, initial_status: Any = None) -> ManagedResource:
        """Create a resource, or give one that stands another spec; both enqueue it, an equal spec changes nothing.

        The spec is any JSON value; the initial status is the manager's part of the status of a new resource.
        """
        project = self._writing()
        content = resource_values.encode_spec(spec)
        status = resource_values.encode_status(Status(resource_manager_status=initial_status))
        with self._transaction() as connection:
            return managed_resources.put(connection, project, resource_manager, key, content, status, self._clock())

    def get_resource(self, resource_manager: str, key: str) -> ManagedResource | None:
        """A resource of this project, None where there is none; a store of all projects finds none by name."""
        if self.project_id is None:
            return None
        with self._reading() as connection:
            return managed_resources.get(connection, self.project_id, resource_manager, key)

    def get_resource_by_uid(self, uid: str) -> ManagedResource | None:
        """A resource by what is never used again, None where there is none, or no longer."""
        with self._reading() as connection:
            return managed_resources.get_by_uid(connection, self.project_id, uid)

    def list_resources(self, resource_manager: str | None = None) -> list[ManagedResource]:
        """All resources, or those of one manager, by manager and key."""
        with self._reading() as connection:
            return managed_resources.list_all(connection, self.project_id, resource_manager)

    def update_status(
        self,
        resource_manager: str,
        key: str,
        claim: ResourceClaim,
        status: Status,
        *,
        expected_resource_version: int,
        finalizers: Iterable[str] | None = None,
    ) -> ManagedResource:
        """Report what was observed, and perhaps other finalizers; raises the claim's version along.

        `ManagedResourceConflictError` when the resource is at another version.
        """
        project = self._writing()
        content = resource_values.encode_status(status)
        listed = None if finalizers is None else resource_values.require_finalizers(finalizers)
        with self._transaction() as connection:
            resource = managed_resources.update_status(
                connection,
                project,
                resource_manager,
                key,
                claim,
                content,
                expected_resource_version,
                listed,
                self._clock(),
            )
        claim.resource_version = resource.resource_version
        return resource

    def request_deletion(self, resource_manager: str, key: str) -> ManagedResource:
        """Mark a resource for deletion and enqueue it; asked again, nothing changes."""
        project = self._writing()
        with self._transaction() as connection:
            return managed_resources.request_deletion(connection, project, resource_manager, key, self._clock())

    def update_finalizers(
        self, resource_manager: str, key: str, finalizers: Iterable[str], *, expected_resource_version: int
    ) -> ManagedResource:
        """Replace the finalizers of a resource, without a claim; errors as `update_status`."""
        project = self._writing()
        listed = resource_values.require_finalizers(finalizers)
        with self._transaction() as connection:
            return managed_resources.update_finalizers(
                connection, project, resource_manager, key, listed, expected_resource_version, self._clock()
            )

    def delete_resource(
        self, resource_manager: str, key: str, claim: ResourceClaim, *, expected_resource_version: int
    ) -> bool:
        """End the life of a resource, and the claim; False while its deletion is not requested or a finalizer remains.

        `ManagedResourceConflictError` as `update_status`.
        """
        project = self._writing()
        with self._transaction() as connection:
            return managed_resources.delete(
                connection, project, resource_manager, key, claim, expected_resource_version, self._clock()
            )

    # The queue ---------------------------------------------------------------------------------------------------

    def enqueue(self, resource_manager: str, key: str, available_at: int | None = None) -> None:
        """Have a resource looked at from a time on, at once by default; enqueued already, the earlier time wins."""
        project = self._writing()
        with self._transaction() as connection:
            now = self._clock()
            at = now if available_at is None else available_at
            resource_queue.enqueue(connection, project, resource_manager, key, at, now)

    def claim_next(
        self,
        resource_managers: Iterable[str],
        owner_id: str,
        lease_ms: int,
        exclude: Iterable[tuple[str, str]] = (),
    ) -> ResourceClaim | None:
        """Claim what has been ready longest among the resources of these managers, then by manager and key.

        `exclude` are pairs of manager and key. None when nothing is ready, or no manager is named.
        """
        project = self._writing()
        managers = list(resource_managers)
        if not managers:
            return None
        with self._transaction() as connection:
            return resource_queue.claim_next(connection, project, managers, owner_id, lease_ms, exclude, self._clock())

    def renew_claim(self, claim: ResourceClaim, lease_ms: int) -> bool:
        """Prolong a live claim by `lease_ms` from now on; False when it is stale."""
        project = self._writing()
        with self._transaction() as connection:
            expires_at = resource_queue.renew(connection, project, claim, lease_ms, self._clock())
        if expires_at is None:
            return False
        claim.expires_at = expires_at
        return True

    def settle_claim(self, claim: ResourceClaim) -> bool:
        """End a pass: nothing more is to do, unless the resource was enqueued meanwhile. False when it is stale."""
        project = self._writing()
        with self._transaction() as connection:
            return resource_queue.settle(connection, project, claim, self._clock())

    def requeue_claim(self, claim: ResourceClaim, available_at: int | None = None, error: str | None = None) -> bool:
        """End a pass: there is to be another at a time, at once by default; earlier if it was enqueued meanwhile.

        An error counts, a pass without one begins the count anew. False when the claim is stale.
        """
        project = self._writing()
        with self._transaction() as connection:
            now = self._clock()
            at = now if available_at is None else available_at
            return resource_queue.requeue(connection, project, claim, at, error, now)

    def list_queue(self) -> list[QueueEntry]:
        """The queue of this project, in the order in which it is worked off."""
        project = self._project()
        with self._reading() as connection:
            return resource_queue.list_all(connection, project)

    # Effects -----------------------------------------------------------------------------------------------------

    def reserve_effect(
        self,
        resource_uid: str,
        key: str,
        claim: ResourceClaim,
        *,
        kind: str,
        request_fingerprint: str,
        generation: int,
    ) -> tuple[ResourceEffect, bool]:
        """Record an effect before it is applied, or adopt the one of that key; tells whether it is new.

        `EffectRequestConflictError` unless kind, fingerprint and the resource's present generation all agree.
        """
        project = self._writing()
        with self._transaction() as connection:
            return resource_effects.reserve(
                connection,
                project,
                resource_uid,
                key,
                claim,
                kind=kind,
                request_fingerprint=request_fingerprint,
                generation=generation,
                now=self._clock(),
            )

    def update_effect(
        self,
        resource_uid: str,
        key: str,
        claim: ResourceClaim,
        state: EffectState,
        *,
        external_ref: str | None = None,
        error: str | None = None,
    ) -> ResourceEffect:
        """Say what is known of an effect now; `NotFoundError` when none was reserved under the key."""
        project = self._writing()
        with self._transaction() as connection:
            return resource_effects.update(
                connection,
                project,
                resource_uid,
                key,
                claim,
                state=state,
                external_ref=external_ref,
                error=error,
                now=self._clock(),
            )

    def list_effects(self, resource_uid: str | None = None) -> list[ResourceEffect]:
        """The effects of all resources, or of one, oldest first."""
        with self._reading() as connection:
            return resource_effects.list_all(connection, self.project_id, resource_uid)

    # Child workflows ---------------------------------------------------------------------------------------------

    def reserve_workflow(
        self, resource_uid: str, request_key: str, claim: ResourceClaim, *, workflow: str, input_fingerprint: bytes
    ) -> tuple[ChildWorkflow, bool]:
        """Record a child workflow, or adopt the one of that key; tells whether it is new.

        `WorkflowRequestConflictError` when the key stands for another workflow or input.
        """
        project = self._writing()
        with self._transaction() as connection:
            return child_workflows.reserve(
                connection,
                project,
                resource_uid,
                request_key,
                claim,
                workflow=workflow,
                input_fingerprint=input_fingerprint,
                now=self._clock(),
            )

    def update_workflow(
        self,
        request_id: str,
        claim: ResourceClaim,
        state: ChildState,
        *,
        run_id: str | None = None,
        attempt: int | None = None,
        error: str | None = None,
    ) -> ChildWorkflow:
        """Say how a child stands; None leaves its run and attempt. `NotFoundError` for a request that is not there."""
        project = self._writing()
        with self._transaction() as connection:
            return child_workflows.update(
                connection,
                project,
                request_id,
                claim,
                state=state,
                run_id=run_id,
                attempt=attempt,
                error=error,
                now=self._clock(),
            )

    def complete_workflow(
        self,
        request_id: str,
        state: ChildState,
        *,
        run_id: str | None = None,
        attempt: int | None = None,
        error: str | None = None,
    ) -> ChildWorkflow:
        """The run of a child has ended, or waits: wakes the resource. Needs no claim.

        `ConflictError` for a child that is pending or running, and for a run that is not the child's.
        """
        project = self._writing()
        with self._transaction() as connection:
            return child_workflows.complete(
                connection,
                project,
                request_id,
                state=state,
                run_id=run_id,
                attempt=attempt,
                error=error,
                now=self._clock(),
            )

    def list_workflows(self, resource_uid: str | None = None) -> list[ChildWorkflow]:
        """The child workflows of all resources, or of one, oldest first."""
        with self._reading() as connection:
            return child_workflows.list_all(connection, self.project_id, resource_uid)

    # Events ------------------------------------------------------------------------------------------------------

    def record_event(
        self,
        resource_manager: str,
        key: str,
        type: str,
        payload: dict[str, Any] | None = None,
        claim: ResourceClaim | None = None,
    ) -> ResourceEvent:
        """Note something in the history of a resource, under a claim or without; raises the claim's version along."""
        project = self._writing()
        content = resource_values.encode_payload(payload)
        with self._transaction() as connection:
            event = resource_events.record(
                connection, project, resource_manager, key, type, content, claim, self._clock()
            )
        if claim is not None:
            claim.resource_version = event.resource_version
        return event

    def list_events(
        self, resource_manager: str | None = None, key: str | None = None, limit: int = LIMIT
    ) -> list[ResourceEvent]:
        """Events of resources that exist, newest first."""
        with self._reading() as connection:
            return resource_events.list_newest(connection, self.project_id, resource_manager, key, limit)

    # What every call goes through ----------------------------------------------------------------------------------

    def _project(self) -> str:
        if self.project_id is None:
            raise ProjectNotRegisteredError(
                "project not registered: this store is of all projects, and only lists; open one with a project"
            )
        return self.project_id

    def _writing(self) -> str:
        if self._database is None:
            raise ReadOnlyStoreError("this store was opened for reading; nothing was changed")
        return self._project()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        assert self._database is not None
        self._database.require_in_place()
        with self._database.transaction() as connection:
            yield connection
        self._database.secure()

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        self._connection.execute("BEGIN")
        try:
            yield self._connection
        finally:
            self._connection.execute("ROLLBACK")
