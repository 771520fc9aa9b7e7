"""What holds of effects, of what sessions were asked, and of what viewers are shown."""

from __future__ import annotations

from typing import Final

from .invariants import TERMINAL, Rule

# Bookkeeping that older sources keep in the table of effects: no attempts, no results.
_INTERNAL: Final = "('run.park_queue', 'run.settle_queue')"

_EFFECTS: Final = (
    Rule(
        "an effect is settled when it has a time of settling",
        "effects",
        """
        SELECT effect_id, status || iif(settled_at IS NULL, ' without', ' with') || ' settled_at', 'the contrary'
        FROM effects WHERE (status IN ('pending', 'applying')) <> (settled_at IS NULL)
        """,
    ),
    Rule(
        "each try of a run's effect is recorded",
        "effects",
        f"""
        SELECT e.effect_id, 'attempt_count ' || e.attempt_count || ', ' || count(t.attempt_number)
               || ' rows up to number ' || coalesce(max(t.attempt_number), 0), 'the same'
        FROM effects e LEFT JOIN effect_attempts t USING (effect_id)
        WHERE e.owner_scope = 'run' AND e.effect_type NOT IN {_INTERNAL}
        GROUP BY e.effect_id
        HAVING e.attempt_count <> count(t.attempt_number)
            OR coalesce(max(t.attempt_number), 0) <> count(t.attempt_number)
        """,
    ),
    Rule(
        "an effect is applying while one try is open",
        "effects",
        f"""
        SELECT e.effect_id, e.status || ', ' || count(t.attempt_number) || ' open tries',
               iif(e.status = 'applying', 'one', 'none')
        FROM effects e LEFT JOIN effect_attempts t ON t.effect_id = e.effect_id AND t.finished_at IS NULL
        WHERE e.owner_scope = 'run' AND e.effect_type NOT IN {_INTERNAL}
        GROUP BY e.effect_id HAVING count(t.attempt_number) <> (e.status = 'applying')
        UNION ALL
        SELECT effect_id || ' ' || attempt_number, iif(outcome IS NULL, 'no outcome', outcome) ||
               iif(finished_at IS NULL, ', not finished', ', finished'), 'both or neither'
        FROM effect_attempts WHERE (outcome IS NULL) <> (finished_at IS NULL)
        """,
    ),
    Rule(
        "an applied effect of a run has a result",
        "effects",
        f"""
        SELECT effect_id, 'applied without a result', 'a result, if only null' FROM effects
        WHERE owner_scope = 'run' AND status = 'applied' AND result_hash IS NULL AND effect_type NOT IN {_INTERNAL}
        """,
    ),
    Rule(
        "a run that is over leaves no effect open",
        "effects",
        f"""
        SELECT e.effect_id, e.status || ', the run is ' || r.status, 'applied, rejected, ambiguous or cancelled'
        FROM effects e JOIN runs r ON r.resource_id = e.source_resource_id
        WHERE e.owner_scope = 'run' AND e.status IN ('pending', 'applying') AND r.status IN {TERMINAL}
        """,
        elsewhere="warning",
    ),
    Rule(
        "an effect of a run has a run",
        "effects",
        """
        SELECT effect_id, 'its source is ' || source_resource_id, 'the aggregate of a run' FROM effects
        WHERE owner_scope = 'run' AND source_resource_id NOT IN (SELECT resource_id FROM runs)
        """,
    ),
)

_SESSIONS: Final = (
    Rule(
        "a settled request has its accepted submission",
        "interactive_requests",
        """
        SELECT i.request_id, coalesce('the submission is ' || s.outcome, 'no such submission of it'), 'accepted'
        FROM interactive_requests i
        LEFT JOIN interactive_submissions s
          ON s.submission_id = i.accepted_submission_id AND s.request_id = i.request_id
        WHERE i.accepted_submission_id IS NOT NULL AND s.outcome IS NOT 'accepted'
        """,
    ),
    Rule(
        "one submission of a request is validated at a time",
        "interactive_submissions",
        """
        SELECT request_id, count(*) || ' are validating', 'at most one' FROM interactive_submissions
        WHERE outcome = 'validating' GROUP BY request_id HAVING count(*) > 1
        """,
    ),
    Rule(
        "what a session was asked belongs to one run",
        "interactive_requests",
        """
        SELECT i.request_id, 'of run ' || i.run_id || ', its attempt of ' || a.run_id, 'of the same run'
        FROM interactive_requests i JOIN node_attempts a USING (attempt_id) WHERE i.run_id <> a.run_id
        UNION ALL
        SELECT t.workflow_turn_id, 'of run ' || t.run_id || ', its message of ' || m.run_id, 'of the same run'
        FROM workflow_turns t JOIN workflow_messages m USING (workflow_message_id)
        WHERE t.run_id <> m.run_id OR t.target_session_id <> m.target_session_id
        """,
    ),
    Rule(
        "a turn is of a message that was sent",
        "workflow_turns",
        """
        SELECT t.workflow_turn_id, 'its message is ' || m.status, 'sent'
        FROM workflow_turns t JOIN workflow_messages m USING (workflow_message_id) WHERE m.status <> 'sent'
        """,
    ),
    Rule(
        "one open turn a message",
        "workflow_turns",
        """
        SELECT workflow_message_id, count(*) || ' open turns', 'at most one' FROM workflow_turns
        WHERE state = 'started' GROUP BY workflow_message_id HAVING count(*) > 1
        """,
    ),
    Rule(
        "a run that is over asks nothing more",
        "interactive_requests",
        f"""
        SELECT i.request_id, 'a pending request, the run is ' || r.status, 'settled or cancelled'
        FROM interactive_requests i JOIN runs r USING (run_id) WHERE i.status = 'pending' AND r.status IN {TERMINAL}
        UNION ALL
        SELECT s.submission_id, 'a validating submission, the run is ' || r.status, 'accepted or rejected'
        FROM interactive_submissions s JOIN interactive_requests i USING (request_id) JOIN runs r USING (run_id)
        WHERE s.outcome = 'validating' AND r.status IN {TERMINAL}
        UNION ALL
        SELECT t.workflow_turn_id, 'an open turn, the run is ' || r.status, 'ended'
        FROM workflow_turns t JOIN runs r USING (run_id) JOIN workflow_messages m USING (workflow_message_id)
        WHERE t.state = 'started' AND m.kind IN ('step', 'decision') AND r.status IN {TERMINAL}
        UNION ALL
        SELECT m.workflow_message_id, 'a pending ' || m.kind || ' message, the run is ' || r.status, 'sent or cancelled'
        FROM workflow_messages m JOIN runs r USING (run_id)
        WHERE m.status = 'pending' AND m.kind IN ('step', 'decision') AND r.status IN {TERMINAL}
        UNION ALL
        SELECT d.decision_id, 'an unresolved decision, the run is ' || r.status, 'resolved'
        FROM human_decisions d JOIN runs r USING (run_id) LEFT JOIN human_decision_resolutions x USING (decision_id)
        WHERE x.decision_id IS NULL AND r.status IN {TERMINAL}
        """,
        elsewhere="warning",
    ),
    Rule(
        "a decision has one answer, to its own request",
        "human_decision_resolutions",
        """
        SELECT x.decision_id, 'resolved for another request digest', 'for the digest of the decision'
        FROM human_decision_resolutions x JOIN human_decisions d USING (decision_id)
        WHERE x.request_digest <> d.request_digest
        UNION ALL
        SELECT decision_id, count(*) || ' submissions won', 'at most one' FROM human_decision_submissions
        WHERE outcome = 'won' GROUP BY decision_id HAVING count(*) > 1
        UNION ALL
        SELECT c.decision_id, 'it has a continuation, but is ' || coalesce(x.outcome, 'unresolved'), 'accepted'
        FROM continuations c LEFT JOIN human_decision_resolutions x USING (decision_id)
        WHERE x.outcome IS NOT 'accepted'
        """,
    ),
)

_VIEWS: Final = (
    Rule(
        "a run can be viewed",
        "viewer_runs",
        """
        SELECT run_id, 'no presentation revision', 'one' FROM runs
        WHERE run_id NOT IN (SELECT run_id FROM viewer_runs)
        """,
    ),
    Rule(
        "kept deltas lie in the kept window",
        "viewer_deltas",
        """
        SELECT d.run_id || ' ' || d.presentation_revision, 'revision ' || d.presentation_revision,
               'from ' || v.retained_from_revision || ' to ' || v.presentation_revision
        FROM viewer_deltas d JOIN viewer_runs v USING (run_id)
        WHERE d.presentation_revision NOT BETWEEN v.retained_from_revision AND v.presentation_revision
        GROUP BY d.run_id, d.presentation_revision
        """,
    ),
    Rule(
        "no presentation revision in the window lacks its delta",
        "viewer_deltas",
        """
        SELECT v.run_id, count(DISTINCT d.presentation_revision) || ' revisions with deltas',
               v.presentation_revision - max(v.retained_from_revision, 2) + 1 || ' of them'
        FROM viewer_runs v LEFT JOIN viewer_deltas d ON d.run_id = v.run_id
          AND d.presentation_revision BETWEEN max(v.retained_from_revision, 2) AND v.presentation_revision
        GROUP BY v.run_id
        HAVING count(DISTINCT d.presentation_revision)
          <> max(0, v.presentation_revision - max(v.retained_from_revision, 2) + 1)
        """,
    ),
)

RULES: Final = (*_EFFECTS, *_SESSIONS, *_VIEWS)
