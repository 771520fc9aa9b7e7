from __future__ import annotations

import sqlite3
from dataclasses import replace

import pytest

from pi_workflows_nb.state import blobs, mutation
from pi_workflows_nb.wire import identities
from pi_workflows_nb.wire.errors import NotFoundError, StaleClaimError, StaleResourceError
from tests.state.files import NOW

LEASE = 30_000


@pytest.fixture
def run(database):
    resource_id = mutation.create_aggregate(database.connection, "run", "r", NOW)
    mutation.record_event(database.connection, resource_id, 1, "run.queued", "session", "s", {}, NOW)
    return resource_id


def lease(database):
    return database.connection.execute("SELECT * FROM leases").fetchone()


def claim(database, run, owner="host-1", now=NOW, **options):
    return mutation.claim_lease(database.connection, run, "host", owner, LEASE, now, **options)


def test_an_aggregate_begins_free_at_its_first_revision(database, run):
    assert run == identities.aggregate_id("run", "r")
    assert mutation.revision_of(database.connection, run) == 1
    assert lease(database) == (run, 0, None, None, None, None, None, None)
    with pytest.raises(sqlite3.IntegrityError):
        mutation.create_aggregate(database.connection, "run", "r", NOW)


def test_a_revision_moves_from_the_expected_one_alone(database, run):
    assert mutation.bump(database.connection, run, 1, NOW + 1) == 2
    assert mutation.bump(database.connection, run, 2, NOW + 1, by=3) == 5
    with pytest.raises(StaleResourceError, match="revision 5, not 2"):
        mutation.bump(database.connection, run, 2, NOW)
    assert mutation.revision_of(database.connection, run) == 5
    for action in (mutation.revision_of, lambda connection, name: mutation.bump(connection, name, 1, NOW)):
        with pytest.raises(NotFoundError):
            action(database.connection, "run-none")


def test_an_event_is_kept_with_its_payload(database, run):
    connection = database.connection
    event_id = mutation.record_event(connection, run, 2, "x", "host", "host-1", {"b": 1, "a": 2}, NOW, 7)
    row = connection.execute("SELECT * FROM events WHERE event_id = ?", (event_id,)).fetchone()
    assert row[2:8] == (run, 2, "x", "host", "host-1", 7)
    assert blobs.read_json(connection, row[8]) == {"a": 2, "b": 1}
    mutation.record_event(connection, run, 3, "y", "system", None, None, NOW)
    assert connection.execute("SELECT payload_hash FROM events WHERE resource_revision = 3").fetchone() == (None,)
    with pytest.raises(sqlite3.IntegrityError):
        mutation.record_event(connection, run, 3, "again", "system", None, {}, NOW)


def test_events_of_a_batch_are_the_same_rows(database, run):
    empty = blobs.put_json(database.connection, {}, NOW)
    rows = [mutation.event_row(run, revision, "x", "system", None, empty, NOW) for revision in range(2, 12)]
    database.connection.executemany(mutation.EVENT_INSERT, rows)
    found = database.connection.execute("SELECT resource_revision, event_id FROM events ORDER BY event_seq").fetchall()
    assert [revision for revision, _ in found] == list(range(1, 12))
    assert [name for _, name in found] == sorted(name for _, name in found)


def test_a_claim_is_exclusive_until_it_expires(database, run):
    first = claim(database, run)
    assert (first.generation, first.expires_at, first.owner_id) == (1, NOW + LEASE, "host-1")
    stored = lease(database)
    assert stored == (run, 1, "host", "host-1", identities.token_hash(first.token), NOW, NOW, NOW + LEASE)
    assert claim(database, run, "host-2", NOW + LEASE - 1) is None
    assert claim(database, run, "host-1", NOW + 1) is None
    assert lease(database) == stored
    second = claim(database, run, "host-2", NOW + LEASE)
    assert second.generation == 2
    assert second.token != first.token


def test_its_owner_may_take_it_over_from_its_own_older_generation(database, run):
    claim(database, run)
    assert claim(database, run, "host-2", NOW + 1, take_over=True) is None
    assert claim(database, run, "host-1", NOW + 1, take_over=True).generation == 2


def test_claiming_what_does_not_exist_is_an_error(database):
    with pytest.raises(NotFoundError):
        claim(database, "run-none")


def test_every_way_of_losing_a_claim_has_its_reason(database, run):
    connection = database.connection
    mine = claim(database, run)
    mutation.check_lease(connection, mine, NOW + LEASE - 1)

    def reason(given=mine, now=NOW + 1, **options):
        with pytest.raises(StaleClaimError) as caught:
            mutation.check_lease(connection, given, now, **options)
        return caught.value.reason

    assert reason(now=NOW + LEASE) == "expired"
    mutation.check_lease(connection, mine, NOW + LEASE, expiry=False)
    assert reason(replace(mine, token="x" * 43)) == "tokenChanged"
    assert reason(replace(mine, generation=2)) == "generationChanged"
    assert reason(replace(mine, owner_id="host-9")) == "ownerChanged"
    mutation.release_lease(connection, mine, NOW)
    assert reason() == "missingAuthority"
    again = claim(database, run, now=NOW + 2)
    assert again.generation == 2
    assert reason() == "generationChanged"
    assert reason(replace(mine, resource_id="run-none")) == "missingAuthority"


def test_renewing_moves_the_expiry_and_nothing_else(database, run):
    mine = claim(database, run)
    assert mutation.renew_lease(database.connection, mine, NOW + 20_000) == NOW + 20_000 + LEASE
    assert lease(database)[1] == 1
    assert lease(database)[5:] == (NOW, NOW + 20_000, NOW + 20_000 + LEASE)
    assert mutation.revision_of(database.connection, run) == 1


def test_an_expired_claim_cannot_renew_itself(database, run):
    mine = claim(database, run)
    for given, now, reason in (
        (mine, NOW + LEASE, "expired"),
        (replace(mine, token="other"), NOW + 1, "tokenChanged"),
        (replace(mine, generation=9), NOW + 1, "generationChanged"),
        (replace(mine, owner_type="session"), NOW + 1, "ownerChanged"),
    ):
        with pytest.raises(StaleClaimError) as caught:
            mutation.renew_lease(database.connection, given, now)
        assert caught.value.reason == reason
        assert not mutation.renew_when_due(database.connection, given, now)
    assert lease(database)[7] == NOW + LEASE


def test_a_protected_write_renews_once_a_third_is_gone(database, run):
    mine = claim(database, run)
    assert not mutation.renew_when_due(database.connection, mine, NOW + LEASE // 3 - 1)
    assert mutation.renew_when_due(database.connection, mine, NOW + LEASE // 3)
    assert not mutation.renew_when_due(database.connection, mine, NOW + LEASE // 3 + 1)
    assert lease(database)[7] == NOW + LEASE // 3 + LEASE


def test_a_rolled_back_renewal_is_due_again(database, run):
    mine = claim(database, run)
    connection = database.connection
    connection.execute("BEGIN")
    assert mutation.renew_when_due(connection, mine, NOW + 15_000)
    connection.execute("ROLLBACK")
    assert mutation.renew_when_due(database.connection, mine, NOW + 15_001)


def test_releasing_keeps_the_generation_and_works_after_expiry(database, run):
    mine = claim(database, run)
    mutation.release_lease(database.connection, mine, NOW + 2 * LEASE)
    assert lease(database) == (run, 1, None, None, None, None, None, None)
    with pytest.raises(StaleClaimError):
        mutation.release_lease(database.connection, mine, NOW)
    other = claim(database, run, "host-2")
    with pytest.raises(StaleClaimError):
        mutation.release_lease(database.connection, mine, NOW)
    assert lease(database)[3] == "host-2"
    mutation.clear_lease(database.connection, run)
    assert lease(database)[1] == other.generation
