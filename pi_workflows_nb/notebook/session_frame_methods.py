"""The methods that give frames of sessions and decisions; filters are those of `frame_methods`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .filters import Moment, Words
from .setting_frame_methods import SettingFrames

if TYPE_CHECKING:
    import pandas as pd


class SessionFrames(SettingFrames):
    """Frames about what sessions and people are asked, are shown and answer."""

    def requests(
        self,
        *,
        status: Words | None = None,
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
        """One row for each thing that a session is asked, oldest first; index `request_id`.

        From the tables interactive_requests and node_attempts. `payloads` adds the contract that an answer must keep.
        """
        return self._frame(
            "requests",
            payloads=payloads,
            status=status,
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

    def submissions(
        self,
        *,
        status: Words | None = None,
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
        """One row for each answer to a request, oldest first; index `submission_id`.

        From the tables interactive_submissions, interactive_requests and node_attempts; `status` compares the column
        `outcome`. `payloads` adds payload and receipt.
        """
        return self._frame(
            "submissions",
            payloads=payloads,
            status=status,
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

    def messages(
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
        """One row for each thing that a session is shown, in the order of each session; index `message_id`.

        From the table workflow_messages. `payloads` adds content.
        """
        return self._frame(
            "messages",
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

    def turns(
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
    ) -> pd.DataFrame:
        """One row for each try of a session's agent at a message, oldest first; index `turn_id`.

        From the table workflow_turns; `status` compares the column `state`.
        """
        return self._frame(
            "turns",
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

    def decisions(
        self,
        *,
        status: Words | None = None,
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
        """One row for each decision that people are asked for, oldest first; index `decision_id`.

        From the tables human_decisions, node_attempts, human_decision_resolutions and continuations. `payloads` adds
        subject, presentation, choices, default_response and response.
        """
        return self._frame(
            "decisions",
            payloads=payloads,
            status=status,
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

    def session_segments(
        self,
        *,
        status: Words | None = None,
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
        """One row for each recorded part of a conversation, oldest first; index `segment_id`.

        From the tables session_segments and node_attempts. `payloads` adds binding and failure.
        """
        return self._frame(
            "session_segments",
            payloads=payloads,
            status=status,
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

    def session_entries(
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
        """One row for each recorded entry of a conversation, in order; index (`segment_id`, `entry_seq`).

        From the table session_entries. `payloads` adds entry.
        """
        return self._frame(
            "session_entries",
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

    def session_events(
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
        """One row for each recorded event of a conversation, in order; index (`segment_id`, `event_seq`).

        From the table session_events. `payloads` adds payload.
        """
        return self._frame(
            "session_events",
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
