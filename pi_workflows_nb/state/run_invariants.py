"""What holds of every aggregate's history, of the life of runs, and of their attempts and steps."""

from __future__ import annotations

from typing import Final

from .invariants import TERMINAL, Rule

_OPEN_ATTEMPT: Final = "('pending', 'running', 'waiting', 'interrupted')"
_ACTIVE_ATTEMPT: Final = "('pending', 'running', 'waiting')"
_ACTIVE_RUNNER: Final = "('starting', 'ready', 'running')"

_HISTORY: Final = (
    Rule(
        "a revision is the number of events",
        "resources",
        """
        SELECT r.resource_id, 'revision ' || r.revision || ', ' || count(e.event_seq) || ' events up to '
               || coalesce(max(e.resource_revision), 0), 'as many events, numbered from 1, as the revision says'
        FROM resources r LEFT JOIN events e USING (resource_id)
        GROUP BY r.resource_id
        HAVING coalesce(max(e.resource_revision), 0) <> count(e.event_seq)
            OR r.revision - count(e.event_seq) NOT BETWEEN 0 AND (r.resource_type = 'channel')
        """,
    ),
    Rule(
        "events are numbered in the order of their revisions",
        "events",
        """
        SELECT event_id, 'revision ' || resource_revision || ' was recorded before the one before it', 'after it'
        FROM (SELECT event_id, event_seq, resource_revision, lag(event_seq) OVER (
                PARTITION BY resource_id ORDER BY resource_revision) AS before FROM events)
        WHERE before > event_seq
        """,
    ),
    Rule(
        "an aggregate has a lease",
        "leases",
        """
        SELECT resource_id, 'no lease row', 'one, free or held' FROM resources
        WHERE resource_id NOT IN (SELECT resource_id FROM leases)
        """,
    ),
    Rule(
        "no event is of a later claim than the lease knows",
        "leases",
        """
        SELECT r.resource_id, 'generation ' || l.generation, 'at least ' || max(e.lease_generation)
        FROM resources r JOIN leases l USING (resource_id) JOIN events e USING (resource_id)
        WHERE r.resource_type IN ('run', 'controller')
        GROUP BY r.resource_id HAVING max(e.lease_generation) > l.generation
        """,
    ),
)

_LIFE: Final = (
    Rule(
        "a run has a queue row",
        "runs",
        """
        SELECT run_id, 'no row in run_queue', 'one' FROM runs WHERE run_id NOT IN (SELECT run_id FROM run_queue)
        """,
        elsewhere="allowed",
    ),
    Rule(
        "a claimed run is running",
        "runs",
        """
        SELECT r.run_id, 'queued, its queue row is ' || q.status, 'running' FROM runs r JOIN run_queue q USING (run_id)
        WHERE r.status = 'queued' AND q.status IN ('starting', 'running')
        """,
        elsewhere="warning",
    ),
    Rule(
        "run and queue tell one story",
        "run_queue",
        f"""
        SELECT r.run_id, 'the run is ' || r.status || ', its queue row ' || q.status, CASE r.status
               WHEN 'queued' THEN 'queued or parked' WHEN 'running' THEN 'starting, running or parked'
               WHEN 'waiting' THEN 'parked or done' WHEN 'completed' THEN 'done' WHEN 'cancelled' THEN 'cancelled'
               ELSE 'failed' END
        FROM runs r JOIN run_queue q USING (run_id)
        WHERE NOT CASE r.status
          WHEN 'queued' THEN q.status IN ('queued', 'parked', 'starting', 'running')
          WHEN 'running' THEN q.status IN ('starting', 'running', 'parked')
          WHEN 'waiting' THEN q.status IN ('parked', 'done')
          WHEN 'completed' THEN q.status = 'done'
          WHEN 'cancelled' THEN q.status = 'cancelled'
          ELSE q.status = 'failed' END
        UNION ALL
        SELECT run_id, 'queue row ' || status || iif(finished_at IS NULL, ' without', ' with') || ' an end',
               'the contrary'
        FROM run_queue WHERE (finished_at IS NOT NULL) <> (status IN ('done', 'failed', 'cancelled'))
        UNION ALL
        SELECT run_id, 'paused and ' || status, 'not paused' FROM runs WHERE paused AND status IN {TERMINAL}
        """,
        elsewhere="warning",
    ),
    Rule(
        "a run is claimed while it executes",
        "leases",
        """
        SELECT r.run_id, 'nobody holds the claim, the queue row is ' || q.status, 'held'
        FROM runs r JOIN run_queue q USING (run_id) JOIN leases l USING (resource_id)
        WHERE q.status IN ('starting', 'running') AND l.owner_type IS NULL
        UNION ALL
        SELECT r.run_id, l.owner_id || ' holds the claim, the queue row is ' || q.status, 'free'
        FROM runs r JOIN run_queue q USING (run_id) JOIN leases l USING (resource_id)
        WHERE q.status IN ('queued', 'parked') AND l.owner_type IS NOT NULL
          AND NOT (r.status = 'waiting' AND q.status = 'parked')
        """,
    ),
    Rule(
        "nobody holds a run that is over",
        "leases",
        f"""
        SELECT r.run_id, l.owner_id || ' holds the claim of a run that is ' || r.status, 'free'
        FROM runs r JOIN leases l USING (resource_id) LEFT JOIN run_queue q USING (run_id)
        WHERE (r.status IN {TERMINAL} OR q.status IN ('done', 'failed', 'cancelled')) AND l.owner_type IS NOT NULL
        """,
        elsewhere="warning",
    ),
    Rule(
        "a runner has a run to execute",
        "run_workers",
        f"""
        SELECT w.worker_epoch, w.status || ' at generation ' || w.generation || ', the run is ' || r.status || ', '
               || q.status || ' at generation ' || l.generation, 'ended'
        FROM run_workers w JOIN runs r USING (run_id) JOIN run_queue q USING (run_id) JOIN leases l USING (resource_id)
        WHERE w.status IN {_ACTIVE_RUNNER}
          AND (q.status NOT IN ('starting', 'running') OR w.generation < l.generation)
          -- a live server may still be ending what it has fenced already
          AND NOT EXISTS (SELECT 1 FROM workflow_host_state h WHERE h.host_id IS NOT NULL AND h.epoch = w.host_epoch)
        UNION ALL
        SELECT w.worker_epoch, 'generation ' || w.generation, 'at most ' || l.generation
        FROM run_workers w JOIN runs r USING (run_id) JOIN leases l USING (resource_id)
        WHERE w.generation > l.generation
        UNION ALL
        SELECT worker_epoch, status || iif(finished_at IS NULL, ' without', ' with') || ' an end', 'the contrary'
        FROM run_workers WHERE (status IN {_ACTIVE_RUNNER}) <> (finished_at IS NULL)
        """,
    ),
    Rule(
        "one active runner a run",
        "run_workers",
        f"""
        SELECT run_id, count(*) || ' active runners', 'at most one' FROM run_workers
        WHERE status IN {_ACTIVE_RUNNER} GROUP BY run_id HAVING count(*) > 1
        """,
    ),
    Rule(
        "a waiting run has something to wait for",
        "runs",
        """
        SELECT r.run_id, 'waiting, but for no checkpoint, request, decision or effect', 'something to answer'
        FROM runs r WHERE r.status = 'waiting'
          AND NOT EXISTS (
            SELECT 1 FROM run_steps s JOIN node_attempts a USING (attempt_id) WHERE s.run_id = r.run_id
              AND a.node_type = 'checkpoint' AND s.step_index = (
                SELECT max(step_index) FROM run_steps WHERE run_id = r.run_id))
          AND NOT EXISTS (
            SELECT 1 FROM node_attempts a WHERE a.run_id = r.run_id AND a.status = 'waiting'
              AND a.node_type = 'checkpoint')
          AND NOT EXISTS (
            SELECT 1 FROM interactive_requests i WHERE i.run_id = r.run_id AND i.status = 'pending')
          AND NOT EXISTS (
            SELECT 1 FROM human_decisions d LEFT JOIN human_decision_resolutions x USING (decision_id)
            LEFT JOIN continuations c USING (decision_id)
            WHERE d.run_id = r.run_id AND (x.decision_id IS NULL OR c.decision_id IS NOT NULL))
          AND NOT EXISTS (
            SELECT 1 FROM effects e WHERE e.source_resource_id = r.resource_id AND e.status = 'ambiguous')
        """,
        elsewhere="warning",
    ),
    Rule(
        "an attempt waits in a run that is parked",
        "node_attempts",
        """
        SELECT a.attempt_id, 'waiting, the run is ' || r.status || ', its queue row ' || q.status, 'a parked run'
        FROM node_attempts a JOIN runs r USING (run_id) JOIN run_queue q USING (run_id)
        WHERE a.status = 'waiting' AND NOT (q.status = 'parked' AND r.status IN ('running', 'waiting'))
        """,
        elsewhere="allowed",
    ),
    Rule(
        "who sleeps is due when its sleep is over",
        "run_queue",
        """
        SELECT r.run_id, 'due at ' || q.available_at, coalesce('at ' || a.deadline_at, 'an end of the sleep')
        FROM node_attempts a JOIN runs r USING (run_id) JOIN run_queue q USING (run_id)
        WHERE a.status = 'waiting' AND q.status = 'parked' AND CASE r.status
          WHEN 'running' THEN q.available_at IS NOT a.deadline_at
          ELSE a.node_type = 'checkpoint' AND a.deadline_at <> q.available_at END
        """,
        elsewhere="allowed",
    ),
    Rule(
        "a session has one run under way, and a line only behind it",
        "run_queue",
        """
        SELECT q.run_id, 'parked before its start, its session is free', 'queued' FROM run_queue q
        JOIN runs r USING (run_id)
        WHERE q.status = 'parked' AND r.status = 'queued' AND r.paused = 0 AND NOT EXISTS (
            SELECT 1 FROM run_queue o JOIN runs n USING (run_id) WHERE o.origin_session_id = q.origin_session_id
              AND (o.status IN ('queued', 'starting', 'running')
                OR o.status = 'parked' AND n.status = 'running' AND n.paused = 0 AND o.error_code IS NULL))
        UNION ALL
        SELECT r.run_id, 'the detail sessionBusy, the run is ' || r.status || ', its queue row ' || q.status,
               'only of a run that is parked before its start'
        FROM runs r JOIN run_queue q USING (run_id)
        WHERE r.status_detail = 'sessionBusy' AND NOT (r.status = 'queued' AND q.status = 'parked' AND r.paused = 0)
        """,
        elsewhere="allowed",
    ),
    Rule(
        "a run is restarted at most three times",
        "runs",
        """
        SELECT run_id, 'restart ' || restart_number, 'at most 3' FROM runs
        WHERE lineage_kind = 'restart' AND restart_number > 3
        UNION ALL
        SELECT c.run_id, 'a restart of a run that was cancelled', 'of one that ended otherwise' FROM runs c
        JOIN runs p ON p.run_id = c.parent_run_id WHERE c.lineage_kind = 'restart' AND p.status = 'cancelled'
        """,
        elsewhere="warning",
    ),
    Rule(
        "a chain of runs points both ways",
        "runs",
        f"""
        SELECT c.run_id, 'its parent is ' || p.status || coalesce(', ' || q.status, '') || ', its root '
               || iif(c.root_run_id = p.root_run_id, 'the same', 'another'), CASE c.lineage_kind
               WHEN 'restart' THEN 'a parent that is over, the same root' ELSE 'waiting, done, the same root' END
        FROM runs c JOIN runs p ON p.run_id = c.parent_run_id LEFT JOIN run_queue q ON q.run_id = p.run_id
        WHERE c.root_run_id <> p.root_run_id OR iif(c.lineage_kind = 'restart', p.status NOT IN {TERMINAL},
          p.status <> 'waiting' OR coalesce(q.status, 'done') <> 'done')
        UNION ALL
        SELECT run_id, 'no parent, but the root ' || root_run_id, 'its own root' FROM runs
        WHERE parent_run_id IS NULL AND root_run_id <> run_id
        UNION ALL
        SELECT r.run_id, 'answered, with ' || count(c.run_id) || ' continuations', 'one' FROM runs r
        JOIN run_queue q USING (run_id)
        LEFT JOIN runs c ON c.parent_run_id = r.run_id AND c.lineage_kind = 'continuation'
        WHERE r.status = 'waiting' AND q.status = 'done' GROUP BY r.run_id HAVING count(c.run_id) <> 1
        UNION ALL
        SELECT c.decision_id, 'its continuation has the parent ' || coalesce(r.parent_run_id, 'nobody'), c.parent_run_id
        FROM continuations c JOIN runs r ON r.run_id = c.continuation_run_id
        WHERE r.parent_run_id IS NOT c.parent_run_id OR r.lineage_kind IS NOT 'continuation'
        """,
        elsewhere="warning",
    ),
)

_ATTEMPTS: Final = (
    Rule(
        "one active attempt a run",
        "node_attempts",
        f"""
        SELECT run_id, count(*) || ' active attempts', 'at most one' FROM node_attempts
        WHERE status IN {_ACTIVE_ATTEMPT} GROUP BY run_id HAVING count(*) > 1
        """,
    ),
    Rule(
        "a run that is over has no open attempt",
        "node_attempts",
        f"""
        SELECT a.attempt_id, a.status || ', the run is ' || r.status, 'cancelled, or how it ended'
        FROM node_attempts a JOIN runs r USING (run_id)
        WHERE a.status IN {_OPEN_ATTEMPT} AND r.status IN {TERMINAL}
        """,
        elsewhere="warning",
    ),
    Rule(
        "an attempt has ended when it has an end",
        "node_attempts",
        f"""
        SELECT attempt_id, status || iif(finished_at IS NULL, ' without', ' with') || ' an end', 'the contrary'
        FROM node_attempts WHERE status <> 'interrupted' AND (status IN {_ACTIVE_ATTEMPT}) <> (finished_at IS NULL)
        """,
    ),
    Rule(
        "attempts of a node are numbered from 1",
        "node_attempts",
        """
        SELECT run_id || ' ' || node_id, count(*) || ' attempts, the last has number ' || max(attempt_number), 'no gap'
        FROM node_attempts GROUP BY run_id, node_id HAVING max(attempt_number) <> count(*)
        """,
    ),
    Rule(
        "steps are numbered from 0 without a gap",
        "run_steps",
        """
        SELECT run_id, count(*) || ' steps, the last has index ' || max(step_index), 'index ' || (count(*) - 1)
        FROM run_steps GROUP BY run_id HAVING max(step_index) <> count(*) - 1
        """,
    ),
    Rule(
        "a step is an attempt that ended",
        "run_steps",
        """
        SELECT s.run_id || ' ' || s.step_index, 'its attempt is ' || a.status,
               'completed, failed, timed_out or cancelled'
        FROM run_steps s JOIN node_attempts a USING (attempt_id)
        WHERE a.status NOT IN ('completed', 'failed', 'timed_out', 'cancelled')
        UNION ALL
        SELECT s.run_id || ' ' || s.step_index, 'its attempt belongs to ' || a.run_id, 'to this run or one before it'
        FROM run_steps s JOIN node_attempts a USING (attempt_id)
        JOIN runs r ON r.run_id = s.run_id JOIN runs o ON o.run_id = a.run_id
        WHERE s.run_id <> a.run_id AND (r.root_run_id <> o.root_run_id OR r.parent_run_id IS NULL)
        """,
    ),
    Rule(
        "a completed attempt is a step",
        "node_attempts",
        """
        SELECT a.attempt_id, 'completed, but no step of its run', 'a step' FROM node_attempts a
        WHERE a.status = 'completed'
          AND NOT EXISTS (SELECT 1 FROM run_steps s WHERE s.attempt_id = a.attempt_id AND s.run_id = a.run_id)
        """,
    ),
)

RULES: Final = (*_HISTORY, *_LIFE, *_ATTEMPTS)
