"""The environment variables that runs see: as they were in the submitting kernel, in memory only, never in the file.

Runs that were given the same variables share them; a run that has ended needs none any more.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from typing import Any, Final
from weakref import WeakValueDictionary

from ..state import runs
from ..wire import identities
from ..wire.errors import WorkflowInputError

_ENDED: Final = (
    f"SELECT 1 FROM runs LEFT JOIN run_queue q USING (run_id) WHERE run_id = ? AND (runs.status IN {runs.TERMINAL}"
    " OR q.status = 'done')"
)


def checked(given: Any) -> dict[str, str] | None:
    """The variables that a client sent, None for none; `WorkflowInputError` for what are no variables."""
    if given is None:
        return None
    if not isinstance(given, dict) or not all(isinstance(value, str) for value in given.values()):
        raise WorkflowInputError("environment is an object of texts: the variables by their names")
    return given


class _Variables(dict[str, str]):
    __slots__ = ("__weakref__",)


class Environments:
    """The variables of each run that has not ended, where its kernel has sent some."""

    def __init__(self) -> None:
        self._of_run: dict[str, _Variables] = {}
        self._shared: WeakValueDictionary[bytes, _Variables] = WeakValueDictionary()

    def keep(self, run_id: str, variables: Mapping[str, str] | None) -> None:
        """Let a run see these; None changes nothing."""
        if variables is None:
            return
        fingerprint = identities.fingerprint(dict(variables))
        self._of_run[run_id] = self._shared.setdefault(fingerprint, _Variables(variables))

    def of(self, run_id: str) -> Mapping[str, str] | None:
        """What a run sees; None where nobody has sent any: the server's own then."""
        return self._of_run.get(run_id)

    def inherit(self, run_id: str, heir: str) -> None:
        """Let a continuation see what the run saw that it goes on from."""
        variables = self._of_run.get(run_id)
        if variables is not None:
            self._of_run[heir] = variables

    def forget_ended(self, connection: sqlite3.Connection, run_ids: Iterable[str]) -> None:
        """Let go of the variables of those runs that have ended, or are continued by another."""
        for run_id in run_ids:
            if run_id in self._of_run and connection.execute(_ENDED, (run_id,)).fetchone():
                del self._of_run[run_id]

    def __len__(self) -> int:
        return len(self._of_run)
