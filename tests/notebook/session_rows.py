"""Rows of a run that asks a session and people: settings, follow-ups, requests, decisions, what was recorded."""

from __future__ import annotations

from typing import Any

T0 = 1_767_225_600_000
SESSION = "notebook:one"


def fill_sessions(rows: Any) -> None:
    """One row of each kind for `run-done`, and a decision that waits beside one that was taken."""
    rows.insert(
        "run_sources",
        run_id="run-done",
        mount_path="",
        source_type="file",
        source_ref="triage.workflow.py",
        source_revision="sha256:00",
    )
    rows.insert(
        "workflow_settings",
        scope_id="scope-1",
        resource_id=rows.aggregate("settings", "scope-1"),
        origin_run_id="run-done",
        active_run_id="run-done",
        mount_path="",
        invocation=1,
        initial_hash=rows.json({"depth": 1}),
        current_hash=rows.json({"depth": 2}),
        created_at=T0,
        updated_at=T0 + 5,
    )
    rows.insert(
        "workflow_setting_changes",
        change_id="change-1",
        scope_id="scope-1",
        request_id="request-9",
        change_number=1,
        actor_type="host",
        source_type="command",
        patch_hash=rows.json([{"op": "replace", "path": "/depth", "value": 2}]),
        before_hash=rows.json({"depth": 1}),
        after_hash=rows.json({"depth": 2}),
        accepted_at=T0 + 5,
    )
    for number, status in ((1, "queued"), (2, "removed")):
        rows.insert(
            "workflow_follow_ups",
            follow_up_id=f"follow-up-{number}",
            resource_id=rows.aggregate("follow_up", f"follow-up-{number}"),
            run_id="run-done",
            request_id=f"request-{number}",
            order_number=number,
            target_session_id=SESSION,
            actor_type="human",
            source_type="command",
            prompt_hash=rows.text("and then?"),
            status=status,
            reason_hash=rows.text("done already") if status == "removed" else None,
            created_at=T0,
            updated_at=T0,
        )
    _asked(rows)
    _decisions(rows)
    _recorded(rows)
    rows.insert(
        "channels",
        channel_id="channel-1",
        resource_id=rows.aggregate("channel", "channel-1"),
        adapter_type="mail",
        profile_key="office",
        created_at=T0,
    )
    rows.insert(
        "channel_messages",
        message_id="mail-1",
        channel_id="channel-1",
        decision_id="decision-1",
        purpose="delivery",
        content_hash=rows.text("please"),
        status="ambiguous",
        created_at=T0,
        updated_at=T0,
    )


def _asked(rows: Any) -> None:
    rows.insert(
        "interactive_requests",
        request_id="ask-1",
        run_id="run-done",
        attempt_id="run-done-judge-2",
        target_session_id=SESSION,
        kind="agent",
        contract_hash=rows.json({"prompt": "judge"}),
        status="settled",
        accepted_submission_id="answer-2",
        created_at=T0,
        updated_at=T0,
        settled_at=T0 + 9,
    )
    for number, outcome in ((1, "rejected"), (2, "accepted")):
        rows.insert(
            "interactive_submissions",
            submission_id=f"answer-{number}",
            request_id="ask-1",
            idempotency_key=f"answer-{number}",
            request_revision=number,
            payload_hash=rows.json({"route": number}),
            outcome=outcome,
            receipt_hash=rows.json({"outcome": outcome}),
            submitted_at=T0 + number,
        )
    for number, kind in ((1, "step"), (2, "followUp")):
        rows.insert(
            "workflow_messages",
            workflow_message_id=f"message-{number}",
            run_id="run-done",
            target_session_id=SESSION,
            kind=kind,
            source_id="ask-1",
            content_hash=rows.json({"text": "judge"}) if number == 1 else rows.text("and then?"),
            order_number=number,
            status="sent" if number == 1 else "pending",
            pi_session_entry_id="entry-1" if number == 1 else None,
            created_at=T0,
            updated_at=T0,
        )
    rows.insert(
        "workflow_turns",
        workflow_turn_id="turn-1",
        workflow_message_id="message-1",
        run_id="run-done",
        target_session_id=SESSION,
        state="ended",
        stop_reason="completed",
        started_at=T0,
        ended_at=T0 + 250,
    )


def _decisions(rows: Any) -> None:
    for number, attempt, run in ((1, "run-asks-ask-1", "run-asks"), (2, "run-waits-ask-1", "run-waits")):
        rows.insert(
            "human_decisions",
            decision_id=f"decision-{number}",
            resource_id=rows.aggregate("decision", f"decision-{number}"),
            run_id=run,
            attempt_id=attempt,
            audience="owner",
            title="Ship it?",
            subject_hash=rows.json({"number": number}),
            presentation_hash=rows.json({"text": "Ship it?"}),
            choices_hash=rows.json(["yes", "no"]),
            request_digest=bytes([number]) * 32,
            presentation_revision=1,
            request_hash=rows.json({"request": number}),
            created_at=T0,
        )
    rows.insert(
        "human_decision_resolutions",
        decision_id="decision-1",
        outcome="accepted",
        provenance="human",
        response_hash=rows.json({"choice": "yes"}),
        request_digest=bytes([1]) * 32,
        resolved_at=T0 + 7,
    )
    rows.insert(
        "continuations",
        decision_id="decision-1",
        parent_run_id="run-asks",
        continuation_run_id="run-goes-on",
        created_at=T0 + 7,
    )


def _recorded(rows: Any) -> None:
    rows.insert(
        "session_segments",
        segment_id="segment-1",
        run_id="run-done",
        attempt_id="run-done-judge-2",
        session_id=SESSION,
        resource_id=rows.aggregate("session", "segment-1"),
        status="failed",
        entry_count=1,
        event_count=1,
        failure_hash=rows.text("the recording broke off"),
        created_at=T0,
        finished_at=T0 + 30,
    )
    rows.insert(
        "session_entries",
        segment_id="segment-1",
        run_id="run-done",
        entry_seq=1,
        run_seq=1,
        entry_id="entry-1",
        entry_hash=rows.json({"role": "assistant"}),
        recorded_at=T0,
    )
    rows.insert(
        "session_events",
        segment_id="segment-1",
        run_id="run-done",
        event_seq=1,
        run_seq=1,
        event_type="message_end",
        node_id="judge",
        payload_hash=rows.json({"tokens": 3}),
        recorded_at=T0,
    )
