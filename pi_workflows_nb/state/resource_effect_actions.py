"""What a person decides of an effect of a managed resource, and how a pass takes it up.

A person who wants another try makes the effect pending with a time for it; the pass that begins the try takes the time
away, so that one word of a person is one try.

Every function works in the caller's transaction. `now` and all times are in milliseconds since the epoch.
"""

from __future__ import annotations

import sqlite3
from typing import Any, Final, NamedTuple

from ..wire.errors import ConflictError, NotFoundError
from . import managed_resources, mutation
from .managed_resources import ResourceClaim
from .mutation import ActorType

_SELECT: Final = """
    SELECT e.effect_id, e.resource_id, e.status, e.next_attempt_at, c.controller_resource_id
    FROM effects e LEFT JOIN controller_resources c ON c.resource_id = e.source_resource_id
    WHERE e.owner_scope = 'controller' AND e.effect_id = ?
"""
_RETRIES: Final = "SELECT count(*) FROM events WHERE resource_id = ? AND event_type = 'effect.retry_started'"


class Effect(NamedTuple):
    """An effect of a managed resource; `row_id` is its resource's, None when that is gone."""

    effect_id: str
    resource_id: str
    status: str
    wanted_at: int | None
    row_id: str | None


def find(connection: sqlite3.Connection, effect_id: str) -> Effect | None:
    """The effect of a managed resource, None where there is none of that id."""
    row = connection.execute(_SELECT, (effect_id,)).fetchone()
    return None if row is None else Effect(*row)


def wanted(connection: sqlite3.Connection, effect_id: str) -> bool:
    """Whether a person has asked for a try that no pass has begun."""
    effect = find(connection, effect_id)
    return effect is not None and effect.status == "pending" and effect.wanted_at is not None


def begin(connection: sqlite3.Connection, effect_id: str, claim: ResourceClaim, now: int) -> None:
    """A pass applies a known effect now. The caller has checked the claim; `ConflictError` when it is settled."""
    effect = find(connection, effect_id)
    if effect is None:
        raise NotFoundError(f"no effect {effect_id!r} was reserved")
    if effect.status not in ("pending", "ambiguous"):
        raise ConflictError(f"effect {effect_id} is {effect.status}, and is not applied again")
    payload = {"attemptNumber": _next(connection, effect)}
    connection.execute(
        "UPDATE effects SET status = 'pending', next_attempt_at = NULL, settled_at = NULL, error_hash = NULL,"
        " updated_at = ? WHERE effect_id = ?",
        (now, effect_id),
    )
    _event(connection, effect, "effect.retry_started", payload, ("controller", claim.owner_id), now, claim.generation)


def confirm(connection: sqlite3.Connection, effect: Effect, external_ref: str | None, now: int) -> None:
    """A person's word: an ambiguous effect has happened. Its resource is woken. `ConflictError` when it is settled."""
    _require_ambiguous(effect)
    connection.execute(
        "UPDATE effects SET status = 'applied', external_ref = ?, error_hash = NULL, settled_at = ?, updated_at = ?"
        " WHERE effect_id = ?",
        (external_ref, now, now, effect.effect_id),
    )
    _event(connection, effect, "effect.applied", {"outcome": "applied"}, ("human", None), now)
    _wake(connection, effect, now)


def retry(connection: sqlite3.Connection, effect: Effect, now: int) -> None:
    """A person's word: an ambiguous effect may be applied again, though that may do it twice. Its resource is woken.

    `ConflictError` when it is settled, or its resource is gone.
    """
    _require_ambiguous(effect)
    if effect.row_id is None:
        raise ConflictError(
            f"effect {effect.effect_id} cannot be applied again: its managed resource is gone;"
            " confirm it if it happened"
        )
    connection.execute(
        "UPDATE effects SET status = 'pending', next_attempt_at = ?, settled_at = NULL, updated_at = ?"
        " WHERE effect_id = ?",
        (now, now, effect.effect_id),
    )
    payload = {"attemptNumber": _next(connection, effect)}
    _event(connection, effect, "effect.retry_ready", payload, ("human", None), now)
    _wake(connection, effect, now)


def _next(connection: sqlite3.Connection, effect: Effect) -> int:
    """The number of the next try, by its history: tries of a resource's effect have no rows."""
    return 2 + int(connection.execute(_RETRIES, (effect.resource_id,)).fetchone()[0])


def _require_ambiguous(effect: Effect) -> None:
    if effect.status != "ambiguous":
        raise ConflictError(f"effect {effect.effect_id} is {effect.status}, not ambiguous: there is nothing to decide")


def _wake(connection: sqlite3.Connection, effect: Effect, now: int) -> None:
    if effect.row_id is not None:
        managed_resources.enqueue_row(connection, effect.row_id, now, now)


def _event(
    connection: sqlite3.Connection,
    effect: Effect,
    event: str,
    payload: dict[str, Any],
    actor: tuple[ActorType, str | None],
    now: int,
    generation: int | None = None,
) -> None:
    revision = mutation.bump(connection, effect.resource_id, mutation.revision_of(connection, effect.resource_id), now)
    mutation.record_event(connection, effect.resource_id, revision, event, actor[0], actor[1], payload, now, generation)
