"""The methods that give frames of managed resources; filters are those of `frame_methods`, and `resource_manager`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .file_frame_methods import FileFrames
from .filters import Moment, Words

if TYPE_CHECKING:
    import pandas as pd


class ResourceFrames(FileFrames):
    """Frames about managed resources."""

    def conditions(
        self,
        *,
        resource_manager: Words | None = None,
        status: Words | None = None,
        aggregate: Words | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
        project: str | None = None,
        order: Words | None = None,
        limit: int | None = None,
    ) -> pd.DataFrame:
        """Every condition of every managed resource; index (`uid`, `type`), `status` true, false or unknown.

        From the status of the rows in controller_resources. `since` and `until` compare `last_transition_time`.
        """
        return self._frame(
            "conditions",
            resource_manager=resource_manager,
            status=status,
            aggregate=aggregate,
            since=since,
            until=until,
            project=project,
            order=order,
            limit=limit,
        )

    def resource_queue(
        self,
        *,
        resource_manager: Words | None = None,
        aggregate: Words | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
        project: str | None = None,
        order: Words | None = None,
        limit: int | None = None,
        payloads: bool = False,
    ) -> pd.DataFrame:
        """When each managed resource is looked at next, and who looks at it now, the next one first; index `uid`.

        From the tables controller_queue, controller_resources and leases; a settled resource has no row. `since` and
        `until` compare `available_at`. `payloads` adds error.
        """
        return self._frame(
            "resource_queue",
            payloads=payloads,
            resource_manager=resource_manager,
            aggregate=aggregate,
            since=since,
            until=until,
            project=project,
            order=order,
            limit=limit,
        )

    def child_workflows(
        self,
        *,
        resource_manager: Words | None = None,
        status: Words | None = None,
        workflow: Words | None = None,
        run: Any = None,
        aggregate: Words | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
        project: str | None = None,
        order: Words | None = None,
        limit: int | None = None,
        payloads: bool = False,
    ) -> pd.DataFrame:
        """The runs that managed resources have asked for, oldest first; index `request_id`.

        From the tables controller_workflows and controller_resources. `run_id` is there before the run is. `payloads`
        adds error.
        """
        return self._frame(
            "child_workflows",
            payloads=payloads,
            resource_manager=resource_manager,
            status=status,
            workflow=workflow,
            run=run,
            aggregate=aggregate,
            since=since,
            until=until,
            project=project,
            order=order,
            limit=limit,
        )
