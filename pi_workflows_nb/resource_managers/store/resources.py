"""Managed resources, their queue and their history."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...state import managed_resources, resource_events, resource_queue, resource_values
from ...state.managed_resources import ManagedResource, ResourceClaim
from ...state.resource_events import LIMIT, ResourceEvent
from ...state.resource_queue import QueueEntry
from ...wire.resource_status import Status
from .base import StoreBase


class ResourceOperations(StoreBase):
    """What callers want, what managers observe, and whose turn it is."""

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
