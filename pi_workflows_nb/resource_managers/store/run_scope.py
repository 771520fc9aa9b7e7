"""What every change of a run goes through: the run is of this project, and who changes it may."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from ...state import mutation, resource_values, runs
from ...state.mutation import Claim
from ...state.runs import RunRow
from ...wire.errors import ClaimTargetError, ConflictError, NotFoundError
from .base import StoreBase

Changing = tuple[sqlite3.Connection, RunRow, int]


class RunScope(StoreBase):
    """The runs of a project, one at a time."""

    @contextmanager
    def _changing(self, run_id: str, claim: Claim | None = None, *, expiry: bool = True) -> Iterator[Changing]:
        """A transaction, the run, and its moment; under a claim, if one is given, that must be the live one."""
        self._writing()
        with self._transaction() as connection:
            run, now = self._run(connection, run_id), self._clock()
            if claim is not None:
                self._require_claim(connection, run, claim, now, expiry=expiry)
            yield connection, run, now

    @contextmanager
    def _executed(self, run_id: str, claim: Claim) -> Iterator[Changing]:
        """The same, for a run that is held to be executed."""
        with self._changing(run_id, claim) as (connection, run, now):
            if run.queue_status not in ("starting", "running"):
                raise ConflictError(f"run {run_id} is {run.status}, {run.queue_status}: it is not being executed")
            yield connection, run, now

    def _run(self, connection: sqlite3.Connection, run_id: str) -> RunRow:
        run = runs.read(connection, resource_values.require_text(run_id, "the id of a run"))
        if self.project_id is not None and run.project_id != self.project_id:
            raise NotFoundError(f"no run {run_id!r} in this project")
        return run

    def _require_claim(
        self, connection: sqlite3.Connection, run: RunRow, claim: Claim, now: int, *, expiry: bool = True
    ) -> None:
        if claim.resource_id != run.resource_id:
            raise ClaimTargetError(f"the claim is not of run {run.run_id}")
        mutation.check_lease(connection, claim, now, expiry=expiry)
