"""The methods that give frames, shared by servers, state files and runs.

All take filters by keyword. `status`, `workflow`, `node` and `run` take one value or several; `since` and `until` a
datetime or date (UTC unless it names a zone), ISO text, milliseconds since the epoch, or a timedelta that counts back
from now, and compare the time at which the row began; `order` names columns, `-` before one turns it around; `limit`
cuts after ordering; `payloads=True` adds decoded values. A filter that cannot be is a `QueryError`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .filters import Filters, Moment, Words
from .session_frame_methods import SessionFrames

if TYPE_CHECKING:
    import pandas as pd


class RunFrames(SessionFrames):
    """Frames about runs and what belongs to them."""

    def runs(
        self,
        *,
        status: Words | None = None,
        workflow: Words | None = None,
        tag: str | None = None,
        text: str | None = None,
        run: Any = None,
        since: Moment | None = None,
        until: Moment | None = None,
        project: str | None = None,
        order: Words | None = None,
        limit: int | None = None,
        payloads: bool = False,
    ) -> pd.DataFrame:
        """One row a run, newest first; index `run_id`.

        From the tables runs, workflow_definitions, run_bindings and run_queue. `tag` is one the run was started with,
        `text` is searched in id, workflow and title. A run that waits for an answer has `waiting_since`, never
        `finished_at`; once answered it stays `waiting`, and `continued_by` names the run that goes on. `payloads` adds
        input, output, error and launch_options.
        """
        return self._frame(
            "runs",
            payloads=payloads,
            status=status,
            workflow=workflow,
            tag=tag,
            text=text,
            run=run,
            since=since,
            until=until,
            project=project,
            order=order,
            limit=limit,
        )

    def steps(
        self,
        *,
        status: Words | None = None,
        workflow: Words | None = None,
        run: Any = None,
        node: Words | None = None,
        tag: str | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
        project: str | None = None,
        order: Words | None = None,
        limit: int | None = None,
        payloads: bool = False,
    ) -> pd.DataFrame:
        """One row a finished step, in the order of its run; index (`run_id`, `step`), steps count from 0.

        From the tables run_steps and node_attempts; `status` compares the column `outcome`. A continuation starts with
        the steps of its parent, flagged `carried`. `payloads` adds output and error.
        """
        return self._frame(
            "steps",
            payloads=payloads,
            status=status,
            workflow=workflow,
            run=run,
            node=node,
            tag=tag,
            since=since,
            until=until,
            project=project,
            order=order,
            limit=limit,
        )

    def attempts(
        self,
        *,
        status: Words | None = None,
        workflow: Words | None = None,
        run: Any = None,
        node: Words | None = None,
        tag: str | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
        project: str | None = None,
        order: Words | None = None,
        limit: int | None = None,
        payloads: bool = False,
    ) -> pd.DataFrame:
        """One row for each execution of a node, oldest first; index `attempt_id`.

        From the table node_attempts: also tries that will be repeated, and the one that runs now. `payloads` adds
        prompt, output, receipt and error.
        """
        return self._frame(
            "attempts",
            payloads=payloads,
            status=status,
            workflow=workflow,
            run=run,
            node=node,
            tag=tag,
            since=since,
            until=until,
            project=project,
            order=order,
            limit=limit,
        )

    def events(
        self,
        *,
        run: Any = None,
        aggregate: Words | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
        project: str | None = None,
        order: Words | None = None,
        limit: int | None = None,
        payloads: bool = False,
    ) -> pd.DataFrame:
        """The immutable history, oldest first; index `event_id`.

        From the table events. Each event raised the `revision` of its aggregate; `run` gives those of the run itself,
        `aggregate` those of any aggregate by its id. `payloads` adds payload.
        """
        return self._frame(
            "events",
            payloads=payloads,
            run=run,
            aggregate=aggregate,
            since=since,
            until=until,
            project=project,
            order=order,
            limit=limit,
        )

    def effects(
        self,
        *,
        status: Words | None = None,
        workflow: Words | None = None,
        run: Any = None,
        since: Moment | None = None,
        until: Moment | None = None,
        project: str | None = None,
        order: Words | None = None,
        limit: int | None = None,
        payloads: bool = False,
    ) -> pd.DataFrame:
        """One row for each recorded external action, oldest first; index `effect_id`.

        From the table effects. An `ambiguous` one may or may not have happened: `server.get_effect(id)` settles it.
        `payloads` adds request (for a run's effect with its recovery), result and error.
        """
        return self._frame(
            "effects",
            payloads=payloads,
            status=status,
            workflow=workflow,
            run=run,
            since=since,
            until=until,
            project=project,
            order=order,
            limit=limit,
        )

    def effect_attempts(
        self,
        *,
        status: Words | None = None,
        run: Any = None,
        since: Moment | None = None,
        until: Moment | None = None,
        project: str | None = None,
        order: Words | None = None,
        limit: int | None = None,
        payloads: bool = False,
    ) -> pd.DataFrame:
        """One row for each try of an effect, oldest first; index (`effect_id`, `attempt_number`).

        From the tables effect_attempts and effects; `status` compares the column `outcome`. `payloads` adds result and
        error.
        """
        return self._frame(
            "effect_attempts",
            payloads=payloads,
            status=status,
            run=run,
            since=since,
            until=until,
            project=project,
            order=order,
            limit=limit,
        )

    def leases(
        self,
        *,
        run: Any = None,
        aggregate: Words | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
        project: str | None = None,
        order: Words | None = None,
        limit: int | None = None,
    ) -> pd.DataFrame:
        """Who may change each aggregate, and until when; index `aggregate_id`.

        From the tables leases and resources: one row an aggregate, `held` or not. `generation` grows with each owner.
        """
        return self._frame(
            "leases",
            run=run,
            aggregate=aggregate,
            since=since,
            until=until,
            project=project,
            order=order,
            limit=limit,
        )

    def runners(
        self,
        *,
        status: Words | None = None,
        workflow: Words | None = None,
        run: Any = None,
        since: Moment | None = None,
        until: Moment | None = None,
        project: str | None = None,
        order: Words | None = None,
        limit: int | None = None,
        payloads: bool = False,
    ) -> pd.DataFrame:
        """One row for each child process that executed a generation of a run, oldest first; index `runner_epoch`.

        From the table run_workers. `payloads` adds the launch envelope and what the process said last (diagnostic).
        """
        return self._frame(
            "runners",
            payloads=payloads,
            status=status,
            workflow=workflow,
            run=run,
            since=since,
            until=until,
            project=project,
            order=order,
            limit=limit,
        )

    def run_queue(
        self,
        *,
        status: Words | None = None,
        workflow: Words | None = None,
        run: Any = None,
        since: Moment | None = None,
        until: Moment | None = None,
        project: str | None = None,
        order: Words | None = None,
        limit: int | None = None,
        payloads: bool = False,
    ) -> pd.DataFrame:
        """When each run is due, and why it does not go on; index `run_id`, next due first.

        From the table run_queue. `payloads` adds error.
        """
        return self._frame(
            "run_queue",
            payloads=payloads,
            status=status,
            workflow=workflow,
            run=run,
            since=since,
            until=until,
            project=project,
            order=order,
            limit=limit,
        )

    def commands(
        self,
        *,
        status: Words | None = None,
        run: Any = None,
        since: Moment | None = None,
        until: Moment | None = None,
        project: str | None = None,
        order: Words | None = None,
        limit: int | None = None,
        payloads: bool = False,
    ) -> pd.DataFrame:
        """The receipts of commands, oldest first; index `request_id`.

        From the table host_commands; `status` compares the column `outcome`. `payloads` adds receipt and error.
        """
        return self._frame(
            "commands",
            payloads=payloads,
            status=status,
            run=run,
            since=since,
            until=until,
            project=project,
            order=order,
            limit=limit,
        )

    def logs(
        self,
        *,
        run: Any = None,
        node: Words | None = None,
        workflow: Words | None = None,
        attempt: Words | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
        project: str | None = None,
        limit: int | None = None,
    ) -> pd.DataFrame:
        """What nodes printed: one row a line, in the order of attempts.

        From the files beside the state file. Columns: run_id, node_id, attempt_id, attempt_number, line (from 1), text.
        `since` and `until` compare the start of the attempt; `limit` keeps the last lines.
        """
        filters = Filters(run=run, node=node, workflow=workflow, since=since, until=until, project=project)
        from . import frames, logs

        attempts = None if attempt is None else frames.listed(attempt)
        return logs.read(self._reader(), self._scoped(filters, "attempts"), attempts, limit)
