"""What every change of an aggregate goes through: a live claim, the expected revision, an event that is kept.

An aggregate is a row of `resources` with one lease and a history of events. Its revision and its newest event always
agree, so each raise of the revision by one comes with one event. Nothing here begins or ends a transaction.
"""

from __future__ import annotations

import hmac
import sqlite3
from dataclasses import dataclass
from typing import Any, Final, Literal

from ..wire import identities
from ..wire.errors import NotFoundError, StaleClaimError, StaleResourceError
from . import blobs

OwnerType = Literal["session", "host", "controller", "channel", "system"]
ActorType = Literal["session", "host", "controller", "channel", "human", "policy", "control", "system"]

EVENT_INSERT: Final = (
    "INSERT INTO events(event_id, resource_id, resource_revision, event_type, actor_type, actor_id, lease_generation,"
    " payload_hash, recorded_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
"""For rows of `event_row`, one or many; the payload's blob must stand by then."""

RENEW_LEASE: Final = (
    "UPDATE leases SET heartbeat_at = ?, expires_at = ? WHERE resource_id = ? AND owner_type = ? AND owner_id = ?"
    " AND token_hash = ? AND generation = ? AND expires_at > ?"
)

_CLEAR: Final = (
    "UPDATE leases SET owner_type = NULL, owner_id = NULL, token_hash = NULL, acquired_at = NULL, heartbeat_at = NULL,"
    " expires_at = NULL WHERE resource_id = ?"
)


@dataclass(frozen=True)
class Claim:
    """A time-limited right to change one aggregate. Times in milliseconds; `expires_at` is the one at the claiming.

    Renewals move the expiry of the row alone, so a rolled back renewal leaves no wrong belief behind.
    """

    resource_id: str
    owner_type: OwnerType
    owner_id: str
    token: str
    generation: int
    expires_at: int
    lease_ms: int

    @property
    def token_hash(self) -> bytes:
        """What the lease row holds of the token."""
        return identities.token_hash(self.token)


def create_aggregate(
    connection: sqlite3.Connection, type: str, key: str, now: int, revision: int = 1, *, hashed: str | None = None
) -> str:
    """Make an aggregate and its free lease, and give its id, which derives from `hashed` where that is not the key.

    The caller records the events up to `revision`. `sqlite3.IntegrityError` when it exists.
    """
    resource_id = identities.aggregate_id(type, key if hashed is None else hashed)
    connection.execute(
        "INSERT INTO resources(resource_id, resource_type, aggregate_key, revision, created_at, updated_at)"
        " VALUES (?, ?, ?, ?, ?, ?)",
        (resource_id, type, key, revision, now, now),
    )
    connection.execute("INSERT INTO leases(resource_id) VALUES (?)", (resource_id,))
    return resource_id


def revision_of(connection: sqlite3.Connection, resource_id: str) -> int:
    """Give the present revision; `NotFoundError` without such an aggregate."""
    row = connection.execute("SELECT revision FROM resources WHERE resource_id = ?", (resource_id,)).fetchone()
    if row is None:
        raise NotFoundError(f"no aggregate {resource_id} in this state file")
    revision: int = row[0]
    return revision


def bump(connection: sqlite3.Connection, resource_id: str, expected: int, now: int, by: int = 1) -> int:
    """Raise the revision from `expected` by `by` and give the new one; `StaleResourceError` when it is another."""
    changed = connection.execute(
        "UPDATE resources SET revision = ?, updated_at = ? WHERE resource_id = ? AND revision = ?",
        (expected + by, now, resource_id, expected),
    ).rowcount
    if changed != 1:
        present = revision_of(connection, resource_id)
        raise StaleResourceError(
            f"{resource_id} is at revision {present}, not {expected}: it was changed meanwhile; read it again"
        )
    return expected + by


def event_row(
    resource_id: str,
    revision: int,
    event_type: str,
    actor_type: ActorType,
    actor_id: str | None,
    payload_hash: bytes | None,
    now: int,
    lease_generation: int | None = None,
) -> tuple[str, str, int, str, str, str | None, int | None, bytes | None, int]:
    """Give the row of a new event for `EVENT_INSERT`."""
    event_id = identities.new_event_id()
    return event_id, resource_id, revision, event_type, actor_type, actor_id, lease_generation, payload_hash, now


def record_event(
    connection: sqlite3.Connection,
    resource_id: str,
    revision: int,
    event_type: str,
    actor_type: ActorType,
    actor_id: str | None,
    payload: dict[str, Any] | None,
    now: int,
    lease_generation: int | None = None,
) -> str:
    """Keep the event of the change that led to `revision`, and give its id; None as payload keeps none."""
    payload_hash = None if payload is None else blobs.put_json(connection, payload, now)
    row = event_row(resource_id, revision, event_type, actor_type, actor_id, payload_hash, now, lease_generation)
    connection.execute(EVENT_INSERT, row)
    return row[0]


def claim_lease(
    connection: sqlite3.Connection,
    resource_id: str,
    owner_type: OwnerType,
    owner_id: str,
    lease_ms: int,
    now: int,
    *,
    take_over: bool = False,
) -> Claim | None:
    """Take the lease for a new generation with a new token; None while somebody holds it.

    `take_over` also takes it from the same owner, who has already stopped whatever worked under the older generation.
    The caller raises the revision and records `lease.claimed`. `NotFoundError` without such an aggregate.
    """
    token = identities.new_token()
    row = connection.execute(
        "UPDATE leases SET generation = generation + 1, owner_type = ?1, owner_id = ?2, token_hash = ?3,"
        " acquired_at = ?4, heartbeat_at = ?4, expires_at = ?5"
        " WHERE resource_id = ?6 AND (owner_type IS NULL OR expires_at <= ?4"
        " OR (?7 AND owner_type = ?1 AND owner_id = ?2)) RETURNING generation",
        (owner_type, owner_id, identities.token_hash(token), now, now + lease_ms, resource_id, take_over),
    ).fetchone()
    if row is None:
        revision_of(connection, resource_id)
        return None
    return Claim(resource_id, owner_type, owner_id, token, row[0], now + lease_ms, lease_ms)


def compare_lease(
    claim: Claim,
    owner_id: str | None,
    token_hash: bytes | None,
    generation: int,
    expires_at: int | None,
    now: int,
    *,
    expiry: bool = True,
) -> None:
    """Compare a claim with the columns of its lease row; `StaleClaimError` says in what it is not the live one.

    `expiry=False` lets an expired but unreplaced lease pass.
    """
    if owner_id is None or token_hash is None or expires_at is None:
        raise _stale(claim, "nobody holds it any more", "missingAuthority")
    if owner_id != claim.owner_id:
        raise _stale(claim, f"{owner_id} holds it now", "ownerChanged")
    if generation != claim.generation:
        raise _stale(claim, f"it is at generation {generation} now", "generationChanged")
    if not hmac.compare_digest(token_hash, claim.token_hash):
        raise _stale(claim, "its token is another", "tokenChanged")
    if expiry and expires_at <= now:
        raise _stale(claim, f"it expired {now - expires_at} ms ago", "expired")


def check_lease(connection: sqlite3.Connection, claim: Claim, now: int, *, expiry: bool = True) -> None:
    """`StaleClaimError` unless the claim is the live one; `expiry=False` lets an unreplaced expired one pass."""
    row = connection.execute(
        "SELECT owner_id, token_hash, generation, expires_at FROM leases WHERE resource_id = ?", (claim.resource_id,)
    ).fetchone()
    owner_id, token_hash, generation, expires_at = row or (None, None, 0, None)
    compare_lease(claim, owner_id, token_hash, generation, expires_at, now, expiry=expiry)


def renew_lease(connection: sqlite3.Connection, claim: Claim, now: int) -> int:
    """Prolong a live claim to its full length from now on, and give the new expiry; `StaleClaimError` otherwise."""
    expires_at = now + claim.lease_ms
    if connection.execute(RENEW_LEASE, _renewal(claim, now)).rowcount != 1:
        check_lease(connection, claim, now)
        raise _stale(claim, "its owner is of another type", "ownerChanged")
    return expires_at


def renew_when_due(connection: sqlite3.Connection, claim: Claim, now: int) -> bool:
    """Prolong a claim that was checked in this transaction once a third of it is gone; tells whether it was."""
    renewed = connection.execute(
        f"{RENEW_LEASE} AND expires_at <= ?", (*_renewal(claim, now), now + claim.lease_ms * 2 // 3)
    )
    return renewed.rowcount == 1


def clear_lease(connection: sqlite3.Connection, resource_id: str) -> None:
    """Free a lease, whoever holds it; the generation stays. The caller has checked its right to."""
    connection.execute(_CLEAR, (resource_id,))


def release_lease(connection: sqlite3.Connection, claim: Claim, now: int) -> None:
    """Free a lease that is still this claim's, expired or not; the generation stays. `StaleClaimError` otherwise.

    The caller raises the revision and records what the release means (`lease.released`, `run.queue_parked`, …).
    """
    check_lease(connection, claim, now, expiry=False)
    connection.execute(_CLEAR, (claim.resource_id,))


def _renewal(claim: Claim, now: int) -> tuple[int, int, str, str, str, bytes, int, int]:
    expires_at = now + claim.lease_ms
    owner = (claim.resource_id, claim.owner_type, claim.owner_id)
    return now, expires_at, *owner, claim.token_hash, claim.generation, now


def _stale(claim: Claim, what: str, reason: str) -> StaleClaimError:
    return StaleClaimError(f"the claim on {claim.resource_id} is no longer the live one: {what}", reason)
