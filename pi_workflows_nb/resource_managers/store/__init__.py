"""`SqliteResourceManagerStore`: managed resources and workflow runs of a state file, one transaction a call.

A store sees one project, or all of them for reading only. The server's committer calls the same operations as functions
(`state.managed_resources`, `resource_queue`, `resource_effects`, `child_workflows`, `resource_events`, `transitions`),
so that several share a transaction. All times are in milliseconds since the epoch, durations in milliseconds.
"""

from __future__ import annotations

from .reserved import ReservedOperations
from .resources import ResourceOperations
from .run_claims import RunClaimOperations
from .run_ends import RunEndOperations
from .runs import RunOperations

__all__ = ["SqliteResourceManagerStore"]


class SqliteResourceManagerStore(
    ResourceOperations, ReservedOperations, RunOperations, RunClaimOperations, RunEndOperations
):
    """The store of a project's managed resources and runs in a state file.

    Operations under a claim raise `StaleClaimError` when it is not the live one and `ClaimTargetError` when it is of
    another resource or run; renewing a claim, and ending a pass, give False instead. Wherever a resource is named and
    not found, `ManagedResourceNotFoundError`, for a run `NotFoundError`; what a name, value or list may not be,
    `ManagedResourceError`; what a run does not allow as it stands, `ConflictError`. A store that was opened for reading
    refuses every change with `ReadOnlyStoreError`, one of all projects with `ProjectNotRegisteredError`.
    """
