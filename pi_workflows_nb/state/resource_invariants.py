"""What holds of managed resources, their queue, effects and child workflows."""

from __future__ import annotations

from typing import Final

from .invariants import Rule

_RESOURCES: Final = (
    Rule(
        "a managed resource is its own aggregate",
        "controller_resources",
        """
        SELECT c.controller_resource_id, 'the aggregate of ' || r.resource_type || ' ' || r.aggregate_key,
               'of controller ' || c.controller_resource_id
        FROM controller_resources c JOIN resources r USING (resource_id)
        WHERE r.resource_type <> 'controller' OR r.aggregate_key <> c.controller_resource_id
        """,
    ),
    Rule(
        "finalizers are numbered from 0 without a gap",
        "controller_finalizers",
        """
        SELECT controller_resource_id, count(*) || ' finalizers, the last at ' || max(position),
               'position ' || (count(*) - 1)
        FROM controller_finalizers GROUP BY controller_resource_id HAVING max(position) <> count(*) - 1
        """,
    ),
    Rule(
        "a resource that is gone says so last",
        "events",
        """
        SELECT r.resource_id, 'no such resource, its last event is ' || coalesce(e.event_type, 'none'),
               'resource.deleted'
        FROM resources r LEFT JOIN events e ON e.resource_id = r.resource_id AND e.resource_revision = r.revision
        WHERE r.resource_type = 'controller' AND e.event_type IS NOT 'resource.deleted'
          AND r.resource_id NOT IN (SELECT resource_id FROM controller_resources)
        """,
        elsewhere="allowed",
    ),
    Rule(
        "nobody holds a resource that is gone",
        "leases",
        """
        SELECT r.resource_id, l.owner_id || ' holds the claim of a resource that is gone', 'free'
        FROM resources r JOIN leases l USING (resource_id)
        WHERE r.resource_type = 'controller' AND l.owner_type IS NOT NULL
          AND r.resource_id NOT IN (SELECT resource_id FROM controller_resources)
        """,
        elsewhere="allowed",
    ),
    Rule(
        "only managers claim resources",
        "leases",
        """
        SELECT r.resource_id, 'claimed by ' || l.owner_type || ' ' || l.owner_id, 'by a controller'
        FROM resources r JOIN leases l USING (resource_id)
        WHERE r.resource_type = 'controller' AND l.owner_type <> 'controller'
        """,
    ),
)

_QUEUE: Final = (
    Rule(
        "a resource that is worked on stands in the queue",
        "controller_queue",
        """
        SELECT c.controller_resource_id, 'no queue row, ' || l.owner_id || ' holds the claim', 'one until it is settled'
        FROM controller_resources c JOIN leases l USING (resource_id)
        WHERE l.owner_type IS NOT NULL
          AND c.controller_resource_id NOT IN (SELECT controller_resource_id FROM controller_queue)
        """,
    ),
    Rule(
        "errors are counted while there is a last one",
        "controller_queue",
        """
        SELECT controller_resource_id, consecutive_errors || ' errors' ||
               iif(last_error_hash IS NULL, ', no last one', ', and a last one'), 'none and none, or some and the last'
        FROM controller_queue WHERE (consecutive_errors > 0) <> (last_error_hash IS NOT NULL)
        """,
        elsewhere="allowed",
    ),
)

_EFFECTS: Final = (
    Rule(
        "an effect of a managed resource has one",
        "effects",
        """
        SELECT e.effect_id, 'its source is ' || e.source_resource_id || ' at revision ' || r.revision,
               'the aggregate of a managed resource, at revision ' || e.source_revision || ' or later'
        FROM effects e JOIN resources r ON r.resource_id = e.source_resource_id
        WHERE e.owner_scope = 'controller'
          AND (r.resource_type <> 'controller' OR e.source_revision > r.revision)
        """,
    ),
    Rule(
        "an effect of a managed resource is observed, not tried",
        "effects",
        """
        SELECT e.effect_id, e.status || ', ' || e.attempt_count || ' tries',
               'pending, applied, rejected or ambiguous, without tries'
        FROM effects e WHERE e.owner_scope = 'controller'
          AND (e.status IN ('applying', 'cancelled') OR e.attempt_count > 0
            OR EXISTS (SELECT 1 FROM effect_attempts t WHERE t.effect_id = e.effect_id))
        """,
    ),
)

_CHILDREN: Final = (
    Rule(
        "a child's run is the one reserved for it",
        "controller_workflows",
        """
        SELECT request_id, 'run ' || run_id || ', reserved ' || reserved_run_id, 'the same'
        FROM controller_workflows WHERE run_id <> reserved_run_id
        """,
        elsewhere="allowed",
    ),
)

RULES: Final = (*_RESOURCES, *_QUEUE, *_EFFECTS, *_CHILDREN)
