"""Claims of runs: to execute one, to validate what was submitted to it, to control it."""

from __future__ import annotations

from collections.abc import Callable

from ...state import mutation, resource_values, transitions
from ...state.mutation import Claim
from ...wire.errors import ConflictError, StaleClaimError
from .run_scope import RunScope


class RunClaimOperations(RunScope):
    """Who may change a run, for how long. A claim gives a new generation, which fences every older owner.

    An owner is a server when its id begins with `host-`, else a session.
    """

    def claim_workflow_run(self, run_id: str, owner_id: str, lease_ms: int) -> Claim | None:
        """Claim a run to execute it, from now on `running`; None when it is not to be had.

        Whoever slept has slept, and what its last runner left uncertain is settled first.
        """
        return self._claim(transitions.claim_for_execution, run_id, owner_id, lease_ms)

    def claim_next_workflow_run(self, owner_id: str, lease_ms: int) -> tuple[str, Claim] | None:
        """Claim the run of this project that has been due longest, then the oldest: its id and the claim."""
        project = self._writing()
        resource_values.require_text(owner_id, "an owner")
        with self._transaction() as connection:
            return transitions.claim_next(connection, project, owner_id, self._clock(), lease_ms=lease_ms)

    def claim_workflow_run_for_interaction_validation(self, run_id: str, owner_id: str, lease_ms: int) -> Claim | None:
        """Hold a waiting run while a submission to it is validated; it stays waiting. None while somebody holds it."""
        return self._claim(transitions.claim_for_validation, run_id, owner_id, lease_ms)

    def claim_workflow_run_for_control(self, run_id: str, owner_id: str, lease_ms: int) -> Claim | None:
        """Hold a run that waits, or whose holder has let its claim expire; its queue row stays as it is.

        None while somebody holds it. `ConflictError` for a run that is controlled without a claim.
        """
        return self._claim(transitions.hold_for_control, run_id, owner_id, lease_ms)

    def mark_workflow_run_running(self, run_id: str, claim: Claim) -> None:
        """The runner of a claimed run is live."""
        with self._changing(run_id, claim) as (connection, run, now):
            transitions.mark_running(connection, run.run_id, claim, now)

    def verify_workflow_run_claim(self, run_id: str, claim: Claim) -> None:
        """`StaleClaimError` unless the claim is the live one of the run, `ClaimTargetError` when it is of another."""
        with self._reading() as connection:
            self._require_claim(connection, self._run(connection, run_id), claim, self._clock())

    def renew_workflow_run_claim(self, run_id: str, claim: Claim) -> int | None:
        """Prolong a live claim to its full length from now on: when it ends then, None when it is stale."""
        try:
            with self._changing(run_id, claim) as (connection, _, now):
                return mutation.renew_lease(connection, claim, now)
        except StaleClaimError:
            return None

    def release_workflow_run_claim(self, run_id: str, claim: Claim) -> None:
        """Give a claim of a waiting run back that changed nothing, expired or not; an executed one is parked."""
        with self._changing(run_id, claim, expiry=False) as (connection, run, now):
            if run.queue_status != "parked":
                raise ConflictError(f"run {run_id} is {run.status}, {run.queue_status}: park it, or end it")
            transitions.release(connection, run.run_id, claim, now)

    def _claim(self, claim: Callable[..., Claim | None], run_id: str, owner_id: str, lease_ms: int) -> Claim | None:
        resource_values.require_text(owner_id, "an owner")
        with self._changing(run_id) as (connection, run, now):
            return claim(connection, run.run_id, owner_id, now, lease_ms=lease_ms)
