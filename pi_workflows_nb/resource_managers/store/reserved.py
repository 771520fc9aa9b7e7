"""What a managed resource has reserved before it happens: its effects and its child workflows."""

from __future__ import annotations

from ...state import child_workflows, resource_effects
from ...state.child_workflows import ChildState, ChildWorkflow
from ...state.managed_resources import ResourceClaim
from ...state.resource_effects import EffectState, ResourceEffect
from .base import StoreBase


class ReservedOperations(StoreBase):
    """Effects and child workflows of managed resources."""

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
