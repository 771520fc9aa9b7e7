"""Whatever hangs on a run is closed in the transaction of its end."""

from __future__ import annotations

import pytest

from pi_workflows_nb.state import blobs, mutation, run_effects
from pi_workflows_nb.wire.runner_messages import EffectSettlement
from tests.state.files import NOW, Story
from tests.state.lives import Life, end, move


class Asked:
    """A run with an action under way, and rows of everything else that can hang on it."""

    def __init__(self, database):
        self.life = life = Life(database, session="notebook-1")
        self.story = story = Story(database.connection)
        life.take()
        self.effect = life.acts("manual")
        self.attempt = life.attempt
        with database.transaction() as c:
            content = blobs.put_json(c, {}, NOW)
            self._requests(story, content)
            for number, (kind, status) in enumerate(
                [("step", "pending"), ("decision", "pending"), ("notification", "pending"), ("terminal", "pending"),
                 ("followUp", "pending"), ("step", "sent")], 1,
            ):  # fmt: skip
                story.insert(
                    "workflow_messages", workflow_message_id=f"m-{number}", run_id=life.run_id, kind=kind,
                    target_session_id="notebook-1", source_id=f"s-{number}", content_hash=content,
                    order_number=number, status=status, pi_session_entry_id="e" if status == "sent" else None,
                    created_at=NOW, updated_at=NOW,
                )  # fmt: skip
            story.insert(
                "workflow_turns", workflow_turn_id="turn", workflow_message_id="m-6", run_id=life.run_id,
                target_session_id="notebook-1", state="started", started_at=NOW,
            )  # fmt: skip
            follow_up = mutation.create_aggregate(c, "follow_up", "f", NOW)
            mutation.record_event(c, follow_up, 1, "follow-up.queued", "session", "notebook-1", {}, NOW)
            story.insert(
                "workflow_follow_ups", follow_up_id="f", resource_id=follow_up, run_id=life.run_id, request_id="q",
                order_number=1, target_session_id="notebook-1", actor_type="session", source_type="session",
                prompt_hash=content, status="queued", created_at=NOW, updated_at=NOW,
            )  # fmt: skip

    def _requests(self, story, content):
        story.insert(
            "interactive_requests", request_id="r", run_id=self.life.run_id, attempt_id=self.attempt,
            target_session_id="notebook-1", kind="agent", contract_hash=content, status="pending", created_at=NOW,
            updated_at=NOW,
        )  # fmt: skip
        story.insert(
            "interactive_submissions", submission_id="sub", request_id="r", idempotency_key="k", request_revision=1,
            payload_hash=content, outcome="validating", submitted_at=NOW,
        )  # fmt: skip
        decision = mutation.create_aggregate(story.connection, "decision", "d", NOW)
        mutation.record_event(story.connection, decision, 1, "decision.requested", "system", None, {}, NOW)
        story.insert(
            "human_decisions", decision_id="d", resource_id=decision, run_id=self.life.run_id,
            attempt_id=self.attempt, audience="team", title="t", subject_hash=content, presentation_hash=content,
            choices_hash=content, request_digest=bytes(32), presentation_revision=1, request_hash=content,
            created_at=NOW,
        )  # fmt: skip

    def ends(self, status):
        if status == "cancelled":
            self.life.cancel()
            return
        effect = EffectSettlement(self.effect, None, "applied") if status == "completed" else None
        finished = self.life.finished("ok" if status == "completed" else status, effect=effect)
        self.life.step(move(finished=finished, end=end(status, error=None if status == "completed" else "boom")))

    def one(self, query):
        return self.life.ask(query)[0]


@pytest.fixture
def asked(database):
    return Asked(database)


UNHAPPY = pytest.mark.parametrize("status", ["failed", "timed_out", "cancelled"])
ANY = pytest.mark.parametrize("status", ["completed", "failed", "timed_out", "cancelled"])


@ANY
def test_the_file_tells_one_story(asked, status):
    asked.ends(status)
    asked.life.gone("cancelled" if status == "cancelled" else "exited")
    asked.life.sound()


def test_open_attempts_are_cancelled(asked):
    asked.ends("cancelled")
    assert asked.one("SELECT status, finished_at FROM node_attempts") == ("cancelled", NOW)


@UNHAPPY
def test_an_effect_under_way_is_ambiguous_and_its_try_interrupted(asked, status):
    asked.ends(status)
    assert asked.one("SELECT status, settled_at FROM effects") == ("ambiguous", NOW)
    assert asked.one("SELECT outcome FROM effect_attempts") == ("interrupted",)


@ANY
def test_an_effect_that_was_not_begun_is_cancelled(database, status):
    life = Life(database)
    life.take()
    effect = life.acts("idempotent")
    life.step(move(finished=life.finished("failed", effect=EffectSettlement(effect, None, "retry"), step=False)))
    assert run_effects.read(database.connection, effect).status == "pending"
    life.ends(status, None if status == "completed" else "boom")
    assert run_effects.read(database.connection, effect).status == "cancelled"
    life.sound()


@ANY
def test_decisions_are_resolved_as_cancelled(asked, status):
    asked.ends(status)
    assert asked.one("SELECT outcome, provenance, response_hash FROM human_decision_resolutions") == (
        "cancelled", "explicit_cancel", None,
    )  # fmt: skip
    assert asked.one("SELECT event_type FROM events ORDER BY resource_id LIKE 'decision-%' DESC, event_seq DESC") == (
        "decision.cancelled",
    )


@ANY
def test_what_is_validated_is_rejected_and_what_is_asked_is_withdrawn(asked, status):
    asked.ends(status)
    outcome, receipt = asked.one("SELECT outcome, receipt_hash FROM interactive_submissions")
    assert (outcome, blobs.read_json(asked.life.database.connection, receipt)["status"]) == ("rejected", "rejected")
    assert asked.one("SELECT status, revision FROM interactive_requests") == ("cancelled", 2)


@ANY
def test_an_open_turn_is_lost(asked, status):
    asked.ends(status)
    assert asked.one("SELECT state, stop_reason, ended_at FROM workflow_turns") == ("ended", "lost", NOW)


@ANY
def test_messages_that_were_not_shown_go_but_notifications_and_terminal_ones_stay(asked, status):
    asked.ends(status)
    found = dict(asked.life.ask("SELECT kind, status FROM workflow_messages WHERE status <> 'sent'"))
    assert (found["step"], found["decision"]) == ("cancelled", "cancelled")
    assert (found["notification"], found["terminal"]) == ("pending", "pending")


@ANY
def test_follow_ups_are_delivered_after_a_completed_run_alone(asked, status):
    asked.ends(status)
    left = "queued" if status == "completed" else "cancelled"
    assert asked.one("SELECT status, reason_hash IS NULL FROM workflow_follow_ups") == (left, status == "completed")
    messages = asked.one("SELECT status FROM workflow_messages WHERE kind = 'followUp'")
    assert messages == ("pending" if status == "completed" else "cancelled",)


def test_what_another_run_asks_stays(database, asked):
    other = Life(database, "other", session="notebook-2")
    other.take()
    other.step(move(started=other.started("n", "agent")))
    other.ends("failed", "boom")
    assert asked.one("SELECT status FROM interactive_requests") == ("pending",)
    assert asked.one("SELECT state FROM workflow_turns") == ("started",)
    assert asked.one("SELECT count(*) FROM workflow_messages WHERE status = 'pending'") == (5,)


def test_a_pause_withdraws_the_step_alone(asked):
    asked.life.pause()
    found = dict(asked.life.ask("SELECT kind, status FROM workflow_messages WHERE status <> 'sent'"))
    assert found == {
        "step": "cancelled", "decision": "pending", "notification": "pending", "terminal": "pending",
        "followUp": "pending",
    }  # fmt: skip
