"""The methods that give frames of a whole file; filters are those of `frame_methods`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .filters import Moment, Words
from .frame_methods import RunFrames

if TYPE_CHECKING:
    import pandas as pd


class FileFrames(RunFrames):
    """Frames about a whole state file."""

    def blobs(
        self,
        *,
        since: Moment | None = None,
        until: Moment | None = None,
        order: Words | None = None,
        limit: int | None = None,
        payloads: bool = False,
    ) -> pd.DataFrame:
        """Every stored value, oldest first; index `digest` (hex), `byte_length` in bytes.

        From the table blobs, of all projects. `payloads` adds content: decoded JSON, or text.
        """
        return self._frame("blobs", payloads=payloads, since=since, until=until, order=order, limit=limit)

    def definitions(
        self,
        *,
        workflow: Words | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
        project: str | None = None,
        order: Words | None = None,
        limit: int | None = None,
        payloads: bool = False,
    ) -> pd.DataFrame:
        """Every graph that a run was started with, oldest first; index `definition_digest` (hex).

        From the table workflow_definitions. `payloads` adds snapshot.
        """
        return self._frame(
            "definitions",
            payloads=payloads,
            workflow=workflow,
            since=since,
            until=until,
            project=project,
            order=order,
            limit=limit,
        )

    def projects(self, *, order: Words | None = None, limit: int | None = None) -> pd.DataFrame:
        """Every folder that runs or managed resources of the file belong to; index `project_id`.

        From the table projects, with the number of runs.
        """
        return self._frame("projects", order=order, limit=limit)

    def channels(
        self,
        *,
        since: Moment | None = None,
        until: Moment | None = None,
        order: Words | None = None,
        limit: int | None = None,
    ) -> pd.DataFrame:
        """One row for each way out of the machine by which decisions are asked, oldest first; index `channel_id`.

        From the tables channels and channel_messages, of all projects.
        """
        return self._frame(
            "channels",
            since=since,
            until=until,
            order=order,
            limit=limit,
        )
