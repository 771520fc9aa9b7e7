"""What a server object and a state file opened to be read have in common."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pi_workflows_nb.wire.errors import NotFoundError, PiWorkflowsError

from . import wording
from .effect import Effect
from .frame_definitions import FRAMES
from .resource_frame_methods import ResourceFrames
from .run import Run

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd
    from sqlite_utils import Database

    from .filters import Filters
    from .link import Link
    from .reader import Reader


class FileAccess(ResourceFrames):
    """Frames, queries, runs and effects of one state file."""

    _link: Link

    def _reader(self) -> Reader:
        return self._link.reader

    def _scoped(self, filters: Filters, _name: str) -> Filters:
        # Naming a run or an aggregate says more than the project does.
        if filters.project is None and filters.run is None and filters.aggregate is None:
            return replace(filters, project=self._link.project_id)
        return filters

    def sql(self, query: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> pd.DataFrame:
        """The result of one SQL statement as a frame, read in one snapshot.

        `parameters` fill `?` (a sequence) or `:name` (a mapping). Beside the tables there are views with the columns of
        the frames: runs_v, steps_v, attempts_v, …, times in milliseconds. Numbers in columns named `…_at` become times,
        digests hex text. `QueryError` for what SQLite cannot answer or what would write.
        """
        from . import sql

        return sql.query(self._reader(), query, parameters)

    @property
    def db(self) -> Database:
        """A read-only `sqlite_utils.Database` on the same file, with the views runs_v, steps_v, …; rows are fetched at
        once. `db.close()` when done; a server closes it when it stops.
        """
        if self._database is None:
            from . import sql

            self._database = sql.database(self._reader())
        return self._database

    _database: Database | None = None

    def _close_database(self) -> None:
        database, self._database = self._database, None
        if database is not None:
            database.close()

    def verify(self) -> pd.DataFrame:
        """Check the whole file: one row a finding, none when all is well.

        Columns rule, table, id, what_is, what_should_be (text). Nothing is repaired. Takes seconds on a large file.
        """
        import pandas as pd

        from pi_workflows_nb.state.verify import verify

        from .arrays import TEXT

        with self._reader().snapshot() as connection:
            found = verify(connection)
        names = ("rule", "table", "id", "what_is", "what_should_be")
        return pd.DataFrame(
            {
                name: pd.array([None if (v := getattr(item, name)) is None else str(v) for item in found], dtype=TEXT)
                for name in names
            }
        )

    def get_run(self, run_id: str) -> Run:
        """The run of that id, also one that an earlier kernel started. `NotFoundError` when the file has none."""
        if self._reader().row("SELECT 1 FROM runs WHERE run_id = ?", (str(run_id),)) is None:
            raise NotFoundError(f"no run {run_id!r} in {self._reader().path}; .runs(project='*') lists what it holds")
        return Run(self._link, str(run_id))

    def get_effect(self, effect_id: str) -> Effect:
        """The effect of that id. `NotFoundError` when the file has none."""
        if self._reader().row("SELECT 1 FROM effects WHERE effect_id = ?", (str(effect_id),)) is None:
            raise NotFoundError(
                f"no effect {effect_id!r} in {self._reader().path}; .effects(project='*') lists what it holds"
            )
        return Effect(self._link, str(effect_id))

    def _counted_runs(self) -> str:
        try:
            return wording.counts(self._counts()) or "none yet"
        except PiWorkflowsError as error:
            return str(error)

    def _counts(self) -> dict[str, int]:
        column = FRAMES["runs"].column("status")
        assert column is not None
        # A run that was answered is one with its continuation.
        where, parameters = "(r.status <> 'waiting' OR q.status <> 'done')", []
        if self._link.project_id is not None:
            where, parameters = f"{where} AND r.project_id = ?", [self._link.project_id]
        found = dict(
            self._reader().rows(
                f"SELECT r.status, count(*) FROM runs r JOIN run_queue q USING (run_id) WHERE {where} GROUP BY 1",
                parameters,
            )
        )
        return {word: found[word] for word in column.words if word in found}
