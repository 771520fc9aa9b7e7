"""The methods that give frames of settings, follow-ups and sources of runs; filters are those of `frame_methods`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .filters import Moment, Words
from .update_frame_methods import UpdateFrames

if TYPE_CHECKING:
    import pandas as pd


class SettingFrames(UpdateFrames):
    """Frames about what changes while runs go on, and what they are made from."""

    def settings(
        self,
        *,
        run: Any = None,
        workflow: Words | None = None,
        tag: str | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
        project: str | None = None,
        order: Words | None = None,
        limit: int | None = None,
        payloads: bool = False,
    ) -> pd.DataFrame:
        """One row a scope of settings, oldest first; index `scope_id`.

        From the tables workflow_settings and resources. A run has one scope, and one more for each included workflow
        with settings of its own, `mount_path` says which; `run_id` is the run that uses it now. `payloads` adds initial
        and current.
        """
        return self._frame(
            "settings",
            payloads=payloads,
            run=run,
            workflow=workflow,
            tag=tag,
            since=since,
            until=until,
            project=project,
            order=order,
            limit=limit,
        )

    def setting_changes(
        self,
        *,
        run: Any = None,
        workflow: Words | None = None,
        tag: str | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
        project: str | None = None,
        order: Words | None = None,
        limit: int | None = None,
        payloads: bool = False,
    ) -> pd.DataFrame:
        """One row for each accepted change of settings, oldest first; index `change_id`.

        From the tables workflow_setting_changes and workflow_settings. `since` and `until` compare `accepted_at`.
        `payloads` adds patch, before and after.
        """
        return self._frame(
            "setting_changes",
            payloads=payloads,
            run=run,
            workflow=workflow,
            tag=tag,
            since=since,
            until=until,
            project=project,
            order=order,
            limit=limit,
        )

    def follow_ups(
        self,
        *,
        status: Words | None = None,
        run: Any = None,
        workflow: Words | None = None,
        tag: str | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
        project: str | None = None,
        order: Words | None = None,
        limit: int | None = None,
        payloads: bool = False,
    ) -> pd.DataFrame:
        """One row for each prompt that is queued for after its run, in their order; index `follow_up_id`.

        From the table workflow_follow_ups. `payloads` adds prompt, and the reason why it was removed or cancelled.
        """
        return self._frame(
            "follow_ups",
            payloads=payloads,
            status=status,
            run=run,
            workflow=workflow,
            tag=tag,
            since=since,
            until=until,
            project=project,
            order=order,
            limit=limit,
        )

    def sources(
        self,
        *,
        run: Any = None,
        workflow: Words | None = None,
        tag: str | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
        project: str | None = None,
        order: Words | None = None,
        limit: int | None = None,
    ) -> pd.DataFrame:
        """One row for each source of a run; index (`run_id`, `mount_path`), its own one has the empty path.

        From the tables run_sources and runs. `source_ref` and `source_revision` are what the run executes, whatever
        became of the file or cell since.
        """
        return self._frame(
            "sources",
            run=run,
            workflow=workflow,
            tag=tag,
            since=since,
            until=until,
            project=project,
            order=order,
            limit=limit,
        )
