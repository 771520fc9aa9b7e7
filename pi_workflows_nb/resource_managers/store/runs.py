"""Workflow runs: preparing them, deleting them, and reading them and their histories."""

from __future__ import annotations

import dataclasses
import sqlite3
from dataclasses import dataclass
from typing import Any

from ...state import (
    internal_effects,
    places,
    resource_values,
    run_deletion,
    run_preparation,
    run_records,
    runs,
    transitions,
    transitions_record,
)
from ...state.internal_effects import InternalEffect
from ...state.mutation import Claim
from ...state.resource_events import LIMIT
from ...state.run_records import RunEvent, RunRecord
from ...state.runs import NewRun
from ...wire import canonical_json, identities
from ...wire.errors import ConflictError, ManagedResourceError
from .run_scope import RunScope


@dataclass(frozen=True)
class PreparedRun:
    """A run that was made, or found as it was made before, and the claim to execute it.

    A run that was adopted, or whose session has another run under way, comes without a claim.
    """

    run: RunRecord
    adopted: bool
    claim: Claim | None


class RunOperations(RunScope):
    """Runs of a project as rows; what their owners do with them is in the other parts."""

    def reserve_workflow_run(self, new: NewRun) -> RunRecord:
        """Make a run, due now, or parked where the place of its session is taken. Its project is that of the store.

        Runs that follow others are made by `continue_workflow_run` and `restart_workflow_run`. `ConflictError` when
        the id is taken, `ManagedResourceError` for what is no id.
        """
        new = self._own(new)
        with self._transaction() as connection:
            runs.create(connection, new, self._clock())
            return self._record(connection, new.run_id)

    def prepare_or_adopt_workflow_run(self, new: NewRun, owner_id: str, lease_ms: int) -> PreparedRun:
        """Make a run and claim it, as one change; or adopt the run of that id when it was made in just this way.

        `ConflictError` says in what the stored run is another one. Otherwise as `reserve_workflow_run`.
        """
        new = self._own(new)
        resource_values.require_text(owner_id, "an owner")
        with self._transaction() as connection:
            now, adopted, claim = self._clock(), runs.find(connection, new.run_id) is not None, None
            if adopted:
                found = run_preparation.differences(connection, new)
                if found:
                    raise ConflictError(
                        f"run {new.run_id} was prepared otherwise (another {', '.join(found)}): take another id"
                    )
            else:
                runs.create(connection, new, now)
                claim = transitions.claim_for_execution(connection, new.run_id, owner_id, now, lease_ms=lease_ms)
            return PreparedRun(self._record(connection, new.run_id), adopted, claim)

    def continue_workflow_run(self, run_id: str, continuation_id: str, value: Any) -> RunRecord:
        """Answer a run that waits: a new run goes on with its steps, and the value as output of the node that asked."""
        content = canonical_json.encode(value)
        self._require_run_id(continuation_id)
        with self._changing(run_id) as (connection, run, now):
            if runs.find(connection, continuation_id) is not None:
                raise ConflictError(f"a run {continuation_id!r} exists already")
            transitions.answer(connection, run.run_id, continuation_id, content, now)
            return self._record(connection, continuation_id)

    def restart_workflow_run(self, run_id: str) -> RunRecord:
        """Start a run that is over once more, with its input and source; `ConflictError` says why it may not be."""
        with self._changing(run_id) as (connection, run, now):
            return self._record(connection, transitions.restart(connection, run.run_id, now))

    def enqueue_workflow_run(self, run_id: str, available_at: int | None = None) -> bool:
        """Have a run that can be claimed looked at from a time on, at once by default; the earlier time wins.

        False for a run that is held, or that no time starts: it sleeps, waits, is paused, stopped or over.
        """
        with self._changing(run_id) as (connection, run, now):
            return transitions.make_due(connection, run, now if available_at is None else available_at, now)

    def delete_workflow_run(self, run_id: str, claim: Claim | None = None) -> None:
        """Delete a run that led to nothing, with its history: under its claim, or while nobody holds it.

        `ConflictError` when other runs hang on it, an effect of it is not settled, or its runner lives.
        """
        with self._changing(run_id, claim) as (connection, run, now):
            if claim is None and run.owner_id is not None:
                raise ConflictError(f"run {run_id} is held by {run.owner_id}: delete it under its claim")
            run_deletion.delete(connection, run, now)

    def get_workflow_run(self, run_id: str) -> RunRecord | None:
        """A run of this project, or, for a store of all projects, of any; None where there is none of that id."""
        resource_values.require_text(run_id, "the id of a run")
        with self._reading() as connection:
            return run_records.find(connection, run_id, self.project_id)

    def list_workflow_runs(self, limit: int = LIMIT) -> list[RunRecord]:
        """The newest runs, newest first."""
        with self._reading() as connection:
            return run_records.list_newest(connection, self.project_id, limit)

    def workflow_run_list_revision(self) -> str:
        """A text that is another one after any change of a run of the list."""
        with self._reading() as connection:
            return run_records.list_revision(connection, self.project_id)

    def session_reservation(self, session_id: str) -> str | None:
        """The run that has a session's place (it is queued, starting or running), None when the place is free."""
        resource_values.require_text(session_id, "a session")
        with self._reading() as connection:
            return places.holder(connection, session_id)

    def record_run_event(
        self,
        run_id: str,
        type: str,
        payload: dict[str, Any] | None = None,
        *,
        claim: Claim | None = None,
        actor_id: str | None = None,
    ) -> int:
        """Note something in the history of a run, as the holder of its claim, or as a server or session by its id.

        Gives the run's revision.
        """
        resource_values.encode_payload(payload)
        resource_values.require_text(type, "the type of an event")
        owner = claim.owner_id if claim is not None else actor_id
        resource_values.require_text(owner or "", "an actor")
        with self._changing(run_id, claim) as (connection, run, now):
            actor = (transitions_record.owner_type_of(owner or ""), owner)
            generation = run.generation or None
            transitions_record.event(connection, run, type, payload or {}, now, actor=actor, generation=generation)
            return run.revision

    def list_run_events(self, run_id: str, after: int = 0, limit: int = LIMIT) -> list[RunEvent]:
        """Events of a run that are newer than the one with number `after` (0: all), oldest first."""
        resource_values.require_text(run_id, "the id of a run")
        with self._reading() as connection:
            return run_records.events_after(connection, run_id, self.project_id, after, limit)

    def list_run_effects(self) -> list[tuple[str, InternalEffect]]:
        """The runs with bookkeeping left to do, and what it is, oldest first. Only other implementations leave any."""
        with self._reading() as connection:
            return internal_effects.pending(connection, self.project_id)

    def settle_run_effect(self, run_id: str, effect_type: InternalEffect) -> bool:
        """What was left to do of a kind is done; False when nothing was."""
        with self._changing(run_id) as (connection, run, now):
            return internal_effects.settle(connection, run, effect_type, now)

    def _own(self, new: NewRun) -> NewRun:
        project = self._writing()
        self._require_run_id(new.run_id)
        resource_values.require_text(new.session_id, "a session")
        resource_values.require_text(new.title or "", "a title")
        if new.mode not in ("interactive", "headless"):
            raise ManagedResourceError(f"a run is interactive or headless, not {new.mode!r}")
        return dataclasses.replace(new, project_id=project)

    def _require_run_id(self, run_id: str) -> None:
        if not identities.RUN_ID.match(resource_values.require_text(run_id, "the id of a run")):
            raise ManagedResourceError(
                f"{run_id!r} is no id of a run: it begins with a letter or digit, and has up to 200 of those and . _ -"
            )

    def _record(self, connection: sqlite3.Connection, run_id: str) -> RunRecord:
        found = run_records.find(connection, run_id, self.project_id)
        assert found is not None
        return found
