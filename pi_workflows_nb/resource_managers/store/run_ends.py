"""How runs stop: at a boundary from which they go on, for a person, or for good."""

from __future__ import annotations

from typing import Any, Final

from ...state import blobs, resource_values, run_effects, transitions, waits
from ...state.controls import TERMINAL
from ...state.mutation import Claim
from ...state.transitions_claims import CONTROL_OWNER, is_held
from ...state.transitions_record import SYSTEM
from ...wire import canonical_json
from ...wire.errors import ConflictError
from .run_scope import RunScope

CANCELLED: Final = "Workflow run cancelled"


class RunEndOperations(RunScope):
    """Parking, pausing and ending runs. What hangs on a run that ends is closed with it."""

    def park_workflow_run(self, run_id: str, claim: Claim, available_at: int | None = None) -> None:
        """Give an executed run back at its last boundary; it is due again at a time, at once by default."""
        with self._executed(run_id, claim) as (connection, run, now):
            transitions.park(connection, run, now, available_at=now if available_at is None else available_at)

    def park_workflow_run_for_source_change(self, run_id: str, claim: Claim, detail: str) -> None:
        """Its source is not what it was started with: it waits for a resume. The detail is cut to 8,192 units."""
        with self._executed(run_id, claim) as (connection, run, now):
            transitions.park_for_source_change(connection, run, detail, now)

    def park_workflow_run_for_runner_no_progress(self, run_id: str, claim: Claim, detail: str) -> None:
        """Its runners end without finishing a node: it waits for a resume. The detail is cut to 8,192 units."""
        with self._executed(run_id, claim) as (connection, run, now):
            errors = run.consecutive_errors
            transitions.park_without_progress(connection, run, detail, now, errors=errors)

    def park_workflow_run_for_ambiguous_effect(self, run_id: str, claim: Claim) -> None:
        """A manual effect under way may have happened: the run waits until a person has confirmed or retried it.

        `ConflictError` when no effect of the run is in doubt.
        """
        with self._executed(run_id, claim) as (connection, run, now):
            if not run_effects.settle_uncertain(connection, run, now) and not run_effects.ambiguous(connection, run):
                raise ConflictError(f"run {run_id} has no effect that may have happened")
            transitions.park_ambiguous(connection, run, now)

    def begin_workflow_run_interaction_timeout(self, run_id: str, claim: Claim, request_id: str) -> bool:
        """The session of a run that waits has not answered in time: the run is executed, from its timed out node on.

        The claim is one for control, and goes on as one to execute the run. False, and nothing changed, while another
        run has the session's place.
        """
        resource_values.require_text(request_id, "a request")
        with self._changing(run_id, claim) as (connection, run, now):
            return transitions.begin_interaction_timeout(connection, run, claim, request_id, now)

    def pause_parked_workflow_run(self, run_id: str, actor: str = CONTROL_OWNER) -> None:
        """Keep a parked run where it is until it is resumed; `ConflictError` for one that is not parked."""
        resource_values.require_text(actor, "an actor")
        with self._changing(run_id) as (connection, run, now):
            if run.queue_status != "parked":
                raise ConflictError(f"run {run_id} is {run.status}, {run.queue_status}: it is not parked")
            transitions.pause(connection, run.run_id, now, actor)

    def resume_paused_interaction(self, run_id: str, actor: str = CONTROL_OWNER) -> None:
        """Have a run that waits, and was paused, wait again; `ConflictError` for any other."""
        resource_values.require_text(actor, "an actor")
        with self._changing(run_id) as (connection, run, now):
            if run.status != "waiting" or not run.paused:
                raise ConflictError(f"run {run_id} is {run.status}: it is not a paused wait")
            transitions.resume(connection, run.run_id, now, actor)

    def complete_workflow_run(self, run_id: str, claim: Claim, output: Any = None) -> None:
        """End an executed run well; the output is any JSON value."""
        content = canonical_json.encode(output)
        with self._executed(run_id, claim) as (connection, run, now):
            digest = blobs.put_json_bytes(connection, content, now)
            actor = (claim.owner_type, claim.owner_id)
            transitions.finish(connection, run, "completed", digest, None, now, actor, claim.generation)

    def fail_workflow_run(self, run_id: str, error: str, code: str = "failed", claim: Claim | None = None) -> bool:
        """End a run as failed, under its claim, or one that nobody holds; False when it is over already."""
        resource_values.require_text(code, "the code of an error")
        return self._end(run_id, "failed", error, code, claim)

    def cancel_workflow_run(self, run_id: str, claim: Claim | None = None) -> bool:
        """End a run as cancelled, under its claim or, whoever holds it, without; False when it is over already."""
        return self._end(run_id, "cancelled", CANCELLED, "cancelled", claim)

    def cancel_stale_workflow_run(self, run_id: str, control_id: str = CONTROL_OWNER) -> bool:
        """End a run as cancelled that nobody alive holds; False when somebody does, or it is over already."""
        resource_values.require_text(control_id, "whoever controls")
        with self._changing(run_id) as (connection, run, now):
            if run.status in TERMINAL or is_held(run, now):
                return False
            transitions.cancel(connection, run_id, now, control_id, CANCELLED, claimed=True)
            return True

    def _end(self, run_id: str, status: str, error: str, code: str, claim: Claim | None) -> bool:
        with self._changing(run_id, claim) as (connection, run, now):
            actor, generation = SYSTEM, None
            if run.status in TERMINAL:
                return False
            if claim is not None:
                actor, generation = (claim.owner_type, claim.owner_id), claim.generation
            elif run.owner_id is None:
                transitions.require(run_id, waits.standing(connection, run), "cancel")
            elif status == "cancelled":
                transitions.cancel(connection, run_id, now, CONTROL_OWNER, CANCELLED)
                return True
            else:
                raise ConflictError(f"run {run_id} is held by {run.owner_id}: end it under its claim")
            transitions.finish(connection, run, status, None, error, now, actor, generation, code=code)
            return True
