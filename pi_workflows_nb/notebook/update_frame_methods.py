"""The methods that give frames of what running nodes publish, and what every method that gives a frame stands on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .filters import Filters, Moment, Words

if TYPE_CHECKING:
    import pandas as pd

    from .reader import Reader


class UpdateFrames:
    """Frames about updates; filters are those of `frame_methods`."""

    def _reader(self) -> Reader:
        raise NotImplementedError

    def _scoped(self, filters: Filters, _name: str) -> Filters:
        """The filters with those that this object stands for."""
        raise NotImplementedError

    def _frame(self, name: str, *, payloads: bool = False, **filters: Any) -> pd.DataFrame:
        from . import frames

        return frames.read(self._reader(), name, self._scoped(Filters(**filters), name), payloads=payloads)

    def updates(
        self,
        *,
        run: Any = None,
        node: Words | None = None,
        workflow: Words | None = None,
        tag: str | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
        project: str | None = None,
        order: Words | None = None,
        limit: int | None = None,
        payloads: bool = False,
    ) -> pd.DataFrame:
        """One row for each thing that a running node has published, oldest first; index `update_id`.

        From the tables workflow_updates and node_attempts. `current` marks the newest of each type and key in its run.
        `payloads` adds data.
        """
        return self._frame(
            "updates",
            payloads=payloads,
            run=run,
            node=node,
            workflow=workflow,
            tag=tag,
            since=since,
            until=until,
            project=project,
            order=order,
            limit=limit,
        )

    def progress(
        self,
        *,
        run: Any = None,
        node: Words | None = None,
        workflow: Words | None = None,
        tag: str | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
        project: str | None = None,
        now: Moment | None = None,
    ) -> pd.DataFrame:
        """How far everything is, and when it will be done; index (`run_id`, `type`, `key`), oldest track first.

        One row a track: a type and key whose newest update is progress. Besides what that says there are `rate` (units
        a second), `eta` with `eta_earliest` and `eta_latest`, `eta_confidence` (low, medium, high), `eta_source`
        (measured, or the source of the progress itself), and, where there is no estimate, `eta_unavailable` with the
        reason. Estimates are made for the moment `now`, the present one without it.
        """
        from . import progress_frame

        filters = Filters(run=run, node=node, workflow=workflow, tag=tag, since=since, until=until, project=project)
        return progress_frame.read(self._reader(), self._scoped(filters, "updates"), now)
