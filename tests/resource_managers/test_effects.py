"""An effect of a resource is recorded before it is applied, and known by its key."""

from __future__ import annotations

import pytest

from pi_workflows_nb.wire.errors import EffectRequestConflictError, ManagedResourceError, NotFoundError

WISH = {"kind": "mail", "request_fingerprint": "aa", "generation": 1}


@pytest.fixture
def uid(store, claimed):
    return store.get_resource("manager", "key").uid


def effect_events(database):
    return database.connection.execute(
        "SELECT e.event_type, e.actor_type, e.actor_id, e.lease_generation, e.resource_revision FROM events e"
        " JOIN effects USING (resource_id) ORDER BY e.event_seq"
    ).fetchall()


def test_a_new_effect_is_pending(store, database, claimed, uid, clock):
    clock.now += 1
    effect, new = store.reserve_effect(uid, "e", claimed, **WISH)
    assert new
    assert (effect.key, effect.resource_uid, effect.generation, effect.kind) == ("e", uid, 1, "mail")
    assert (effect.state, effect.request_fingerprint) == ("pending", "aa")
    assert (effect.started_at, effect.completed_at) == (clock.now, None)
    assert (effect.external_ref, effect.error) == (None, None)
    assert store.get_resource("manager", "key").resource_version == 2
    assert effect_events(database) == [("effect.reserved", "controller", "owner", 1, 1)]


def test_the_same_wish_adopts_the_effect_however_it_stands(store, claimed, uid):
    store.reserve_effect(uid, "e", claimed, **WISH)
    for state in ("indeterminate", "applied"):
        known = store.update_effect(uid, "e", claimed, state, external_ref="r")
        assert store.reserve_effect(uid, "e", claimed, **WISH) == (known, False)


@pytest.mark.parametrize("other", [{"kind": "post"}, {"request_fingerprint": "bb"}, {"generation": 2}])
def test_another_wish_needs_another_key(store, claimed, uid, other):
    known, _ = store.reserve_effect(uid, "e", claimed, **WISH)
    with pytest.raises(EffectRequestConflictError, match="needs a key of its own"):
        store.reserve_effect(uid, "e", claimed, **{**WISH, **other})
    assert store.list_effects() == [known]


def test_a_spec_that_changed_meanwhile_is_a_conflict(store, claimed, uid):
    store.reserve_effect(uid, "e", claimed, **WISH)
    store.put_resource("manager", "key", {"size": 2})
    with pytest.raises(EffectRequestConflictError, match="another generation"):
        store.reserve_effect(uid, "e", claimed, **WISH)
    assert not store.reserve_effect(uid, "e", claimed, **{**WISH, "generation": 2})[1]
    assert store.list_effects()[0].generation == 2


def test_what_is_known_of_an_effect_replaces_what_was(store, database, claimed, uid, clock):
    store.reserve_effect(uid, "e", claimed, **WISH)
    told = []
    for state, known in (
        ("indeterminate", {"error": "lost \ud800"}),
        ("pending", {}),
        ("rejected", {"error": "no"}),
        ("applied", {"external_ref": "ref"}),
    ):
        clock.now += 1
        effect = store.update_effect(uid, "e", claimed, state, **known)
        told.append((effect.state, effect.error, effect.external_ref, effect.completed_at))
        assert [effect] == store.list_effects(uid) == store.list_effects()
    assert told == [
        ("indeterminate", "lost \ufffd", None, clock.now - 3),
        ("pending", None, None, None),
        ("rejected", "no", None, clock.now - 1),
        ("applied", None, "ref", clock.now),
    ]
    assert [event[0] for event in effect_events(database)] == [
        "effect.reserved", "effect.indeterminate", "effect.pending", "effect.rejected", "effect.applied",
    ]  # fmt: skip
    assert [event[-1] for event in effect_events(database)] == [1, 2, 3, 4, 5]
    assert database.connection.execute("SELECT count(*) FROM effect_attempts").fetchone() == (0,)


def test_only_a_reserved_effect_is_updated_and_to_a_state_that_there_is(store, claimed, uid):
    with pytest.raises(NotFoundError, match="reserve it before"):
        store.update_effect(uid, "e", claimed, "applied")
    store.reserve_effect(uid, "e", claimed, **WISH)
    for state in ("ambiguous", "applying", "cancelled", ""):
        with pytest.raises(ManagedResourceError, match="indeterminate"):
            store.update_effect(uid, "e", claimed, state)


def test_effects_are_listed_oldest_first(store, claimed, uid, clock):
    for key in ("z", "", "é😀"):
        clock.now += 1
        store.reserve_effect(uid, key, claimed, **WISH)
    assert [effect.key for effect in store.list_effects(uid)] == ["z", "", "é😀"]
    assert store.list_effects("nobody") == []
