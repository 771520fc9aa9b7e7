"""Random operations by several owners in several projects, while the clock jumps, give what the rules give."""

from __future__ import annotations

from itertools import pairwise, product

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from pi_workflows_nb.state import blobs, resource_queue_order
from pi_workflows_nb.state.verify import verify
from pi_workflows_nb.wire.resource_status import Condition, Status
from tests.resource_managers.machines import (
    StoreMachine,
    picks,
    projects,
    slips,
    try_machine,
    with_and_without_reopening,
)
from tests.resource_managers.model import Model
from tests.state.files import NOW

MANAGERS = ("a", "b")
KEYS = ("k", "é\n'\0😀")
managers, keys = st.sampled_from(MANAGERS), st.sampled_from(KEYS)
owners, leases = st.sampled_from(("x", "y")), st.sampled_from((30_000, 1000, 30_000, 1))
wanted = st.sampled_from((("a", "b"), ("b", "a"), ("a",), ("b", "c"), ()))
offsets = st.sampled_from((0, 0, -5000, -1, 1, 500, 5000))
finalizers = st.sampled_from(((), (), ("f",), ("", "f"), ("f", "f"), ("g", "f")))
errors = st.sampled_from((None, None, "bad", "worse \ud800"))
states = st.sampled_from(("pending", "running", "waiting", "succeeded", "failed", "interrupted"))
children = {"state": states, "run": st.sampled_from((None, "r1", "r2")), "attempt": st.sampled_from((None, 0, 3))}
STATUSES = (
    Status(),
    Status(3, (Condition("Ready", "unknown", "Why", "m", 2, NOW),), {"phase": "x"}),
)


class Machine(StoreMachine):
    def __init__(self):
        super().__init__()
        self.model = Model()
        self.requests = ["none"]

    def same_resource(self, real, wanted):
        resource, life = self.same(real, wanted, shown, lambda life: life.shown())
        if resource is not None and not life.uid:
            life.uid = resource.uid
        assert resource is None or resource.uid == life.uid

    def target(self, holding, project, manager, key, stray):
        return (project, manager, key) if stray else holding.life.name

    def version(self, name, slip):
        life = self.model.lives.get(name)
        return slip + (life.version if life else 1)

    has_claims = precondition(lambda self: self.claims)

    @initialize(owner=owners)
    def begin(self, owner):
        for manager, key in product(MANAGERS, KEYS):
            self.put(0, manager, key, 0, None)
        self.put(1, "a", "k", 0, None)
        self.claim_next(0, ["a"], owner, 30_000, [])
        self.claim_next(1, ["a"], owner, 30_000, [])

    @rule(
        project=projects, manager=managers, key=keys, spec=st.integers(0, 2), initial=st.sampled_from((None, {"p": 1}))
    )
    def put(self, project, manager, key, spec, initial):
        store = self.stores[project]
        self.same_resource(
            lambda: store.put_resource(manager, key, {"n": spec}, initial),
            lambda: self.model.put(project, manager, key, {"n": spec}, initial, self.now),
        )

    @rule(
        pick=picks,
        project=projects,
        manager=managers,
        key=keys,
        stray=slips,
        slip=slips,
        status=st.sampled_from(STATUSES),
        finalizers=st.none() | finalizers,
    )
    @has_claims
    def update_status(self, pick, project, manager, key, stray, slip, status, finalizers):
        claim, holding = self.claim(pick)
        name = project, manager, key = self.target(holding, project, manager, key, stray)
        expected = self.version(name, slip)
        self.same_resource(
            lambda: self.stores[project].update_status(
                manager, key, claim, status, expected_resource_version=expected, finalizers=finalizers
            ),
            lambda: self.model.update_status(*name, holding, status.to_json(), expected, finalizers, self.now),
        )

    @rule(project=projects, manager=managers, key=keys, finalizers=finalizers, slip=slips)
    def update_finalizers(self, project, manager, key, finalizers, slip):
        expected = self.version((project, manager, key), slip)
        self.same_resource(
            lambda: self.stores[project].update_finalizers(
                manager, key, finalizers, expected_resource_version=expected
            ),
            lambda: self.model.update_finalizers(project, manager, key, finalizers, expected),
        )

    @rule(project=projects, manager=managers, key=keys)
    def request_deletion(self, project, manager, key):
        self.same_resource(
            lambda: self.stores[project].request_deletion(manager, key),
            lambda: self.model.request_deletion(project, manager, key, self.now),
        )

    @rule(pick=picks, project=projects, manager=managers, key=keys, stray=slips, slip=slips)
    @has_claims
    def delete(self, pick, project, manager, key, stray, slip):
        claim, holding = self.claim(pick)
        name = project, manager, key = self.target(holding, project, manager, key, stray)
        expected = self.version(name, slip)
        self.same(
            lambda: self.stores[project].delete_resource(manager, key, claim, expected_resource_version=expected),
            lambda: self.model.delete(*name, holding, expected, self.now),
        )

    @rule(owner=owners, spec=st.integers(0, 2), pick=picks)
    @precondition(lambda self: len(self.model.history) > 12)
    def whole_life(self, owner, spec, pick):
        """A deletion as it should go, and the key made again: rare by chance alone."""
        lives = list(self.model.lives)
        if pick < 3 or not lives:
            return
        project, manager, key = lives[pick % len(lives)]
        self.request_deletion(project, manager, key)
        self.update_finalizers(project, manager, key, (), 0)
        self.claim_next(project, [manager], owner, 1000, [(manager, other) for other in KEYS if other != key])
        if self.claims:
            self.delete(0, project, manager, key, 0, 0)
        self.put(project, manager, key, spec, None)

    @rule(project=projects, manager=managers, key=keys, offset=offsets)
    def enqueue(self, project, manager, key, offset):
        at = self.now + offset
        self.same(
            lambda: self.stores[project].enqueue(manager, key, at),
            lambda: self.model.wake(self.model.find(project, manager, key), at),
        )

    @rule(
        project=projects,
        wanted=wanted,
        owner=owners,
        lease=leases,
        exclude=st.lists(st.tuples(managers, keys), max_size=2),
    )
    def claim_next(self, project, wanted, owner, lease, exclude):
        claim, holding = self.same(
            lambda: self.stores[project].claim_next(wanted, owner, lease, exclude),
            lambda: self.model.claim_next(project, wanted, owner, lease, exclude, self.now),
            lambda claim: (
                claim
                and (
                    claim.resource_manager,
                    claim.key,
                    claim.owner_id,
                    claim.generation,
                    claim.queue_version,
                    claim.consecutive_errors,
                    claim.resource_version,
                    claim.expires_at,
                )
            ),
            lambda held: (
                held
                and (
                    held.life.manager,
                    held.life.key,
                    held.owner,
                    held.generation,
                    held.life.queued.version,
                    held.life.queued.errors,
                    held.life.version,
                    held.life.expires,
                )
            ),
        )
        if claim is not None:
            self.claims.append((claim, holding))

    @rule(pick=picks, project=projects, stray=slips, lease=leases)
    @has_claims
    def renew(self, pick, project, stray, lease):
        claim, holding = self.claim(pick)
        project = project if stray else holding.life.project
        self.same(
            lambda: self.stores[project].renew_claim(claim, lease),
            lambda: self.model.renew(project, holding, lease, self.now),
        )

    @rule(pick=picks, project=projects, stray=slips)
    @has_claims
    def settle(self, pick, project, stray):
        claim, holding = self.claim(pick)
        project = project if stray else holding.life.project
        self.same(
            lambda: self.stores[project].settle_claim(claim), lambda: self.model.settle(project, holding, self.now)
        )

    @rule(pick=picks, project=projects, stray=slips, offset=offsets, error=errors)
    @has_claims
    def requeue(self, pick, project, stray, offset, error):
        claim, holding = self.claim(pick)
        project, at = project if stray else holding.life.project, self.now + offset
        self.same(
            lambda: self.stores[project].requeue_claim(claim, at, error),
            lambda: self.model.requeue(project, holding, at, error, self.now),
        )

    @rule(
        pick=picks,
        key=st.sampled_from(("", "e")),
        kind=st.sampled_from("uv"),
        request=st.sampled_from("12"),
        slip=slips,
    )
    @has_claims
    def reserve_effect(self, pick, key, kind, request, slip):
        claim, holding = self.claim(pick)
        life = holding.life
        generation = life.generation + slip
        self.same(
            lambda: self.stores[life.project].reserve_effect(
                life.uid, key, claim, kind=kind, request_fingerprint=request, generation=generation
            ),
            lambda: self.model.reserve_effect(
                life.project, life.uid, key, holding, kind, request, generation, self.now
            ),
            lambda result: result[1],
        )

    @rule(
        pick=picks,
        key=st.sampled_from(("", "e")),
        state=st.sampled_from(("pending", "applied", "rejected", "indeterminate")),
        ref=st.sampled_from((None, "ref")),
        error=errors,
    )
    @has_claims
    def update_effect(self, pick, key, state, ref, error):
        claim, holding = self.claim(pick)
        life = holding.life
        self.same(
            lambda: self.stores[life.project].update_effect(life.uid, key, claim, state, external_ref=ref, error=error),
            lambda: self.model.update_effect(life.project, life.uid, key, holding, state, ref, text(error), self.now),
            lambda effect: (effect.state, effect.external_ref, effect.error, effect.completed_at),
            lambda effect: (effect["state"], effect["ref"], effect["error"], effect["completed"]),
        )

    @rule(
        pick=picks,
        key=st.sampled_from(("", "c")),
        workflow=st.sampled_from("wx"),
        given=st.sampled_from((b"1" * 32, b"2" * 32)),
    )
    @has_claims
    def reserve_workflow(self, pick, key, workflow, given):
        claim, holding = self.claim(pick)
        life = holding.life
        reserved, _ = self.same(
            lambda: self.stores[life.project].reserve_workflow(
                life.uid, key, claim, workflow=workflow, input_fingerprint=given
            ),
            lambda: self.model.reserve_workflow(life.project, life.uid, key, holding, workflow, given, self.now),
            lambda result: result[1],
        )
        if reserved and reserved[1]:
            life.children[key]["id"] = reserved[0].request_id
            self.requests.append(reserved[0].request_id)

    @rule(pick=picks, which=picks, error=errors, **children)
    @has_claims
    def update_workflow(self, pick, which, state, run, attempt, error):
        claim, holding = self.claim(pick)
        project, request = holding.life.project, self.requests[-1 - which % len(self.requests)]
        self.same(
            lambda: self.stores[project].update_workflow(
                request, claim, state, run_id=run, attempt=attempt, error=error
            ),
            lambda: self.model.update_workflow(project, request, holding, state, run, attempt, text(error), self.now),
            child,
            expected_child,
        )

    @rule(which=picks, project=projects, error=errors, **children)
    def complete_workflow(self, which, project, state, run, attempt, error):
        request = self.requests[-1 - which % len(self.requests)]
        self.same(
            lambda: self.stores[project].complete_workflow(request, state, run_id=run, attempt=attempt, error=error),
            lambda: self.model.complete_workflow(project, request, state, run, attempt, text(error), self.now),
            child,
            expected_child,
        )

    @rule(pick=st.none() | picks, project=projects, manager=managers, key=keys, stray=slips)
    def record_event(self, pick, project, manager, key, stray):
        claim = holding = None
        if pick is not None and self.claims:
            claim, holding = self.claim(pick)
            project, manager, key = self.target(holding, project, manager, key, stray)
        self.same(
            lambda: self.stores[project].record_event(manager, key, "noted", {"n": 1}, claim),
            lambda: self.model.record(project, manager, key, "noted", {"n": 1}, holding, self.now),
            lambda event: event.resource_version,
        )

    @rule(project=projects, manager=st.none() | managers, key=st.none() | keys, limit=st.sampled_from((1, 3, 100)))
    def lists(self, project, manager, key, limit):
        store, lives = self.stores[project], sorted(self.model.lives)
        present = [self.model.lives[name] for name in lives if name[0] == project]
        listed = store.list_resources(manager)
        assert [shown(each) for each in listed] == [life.shown() for life in present if manager in (None, life.manager)]
        events = store.list_events(manager, key, limit)
        assert [(e.resource_manager, e.key, e.resource_version, e.type, e.payload) for e in events] == (
            self.model.newest(project, manager, key, limit)
        )
        for life in present:
            assert shown(store.get_resource(life.manager, life.key)) == life.shown()
            assert shown(store.get_resource_by_uid(life.uid)) == life.shown()
            assert self.stores[1 - project].get_resource_by_uid(life.uid) is None

    def compare_rows(self, project, store):
        connection = store._connection
        assert verify(connection) == []
        queue = [
            (e.resource_manager, e.key, e.available_at, e.queue_version, e.consecutive_errors, e.claim_expires_at)
            for e in store.list_queue()
        ]
        assert queue == [
            (
                life.manager,
                life.key,
                life.queued.at,
                life.queued.version,
                life.queued.errors,
                life.expires if life.holder else None,
            )
            for life in self.model.order(project)
        ]
        for life in (*self.model.lives.values(), *self.model.dead):
            if life.project != project:
                continue
            alive = self.model.lives.get(life.name) is life
            assert alive == (store.get_resource_by_uid(life.uid) is not None)
            effects = {e.key: e for e in store.list_effects(life.uid)}
            assert effects.keys() == (life.effects.keys() if alive else set())
            for key, effect in effects.items():
                kept = life.effects[key]
                assert (
                    effect.kind,
                    effect.request_fingerprint,
                    effect.state,
                    effect.external_ref,
                    effect.error,
                    effect.started_at,
                    effect.completed_at,
                ) == (
                    kept["kind"],
                    kept["request"],
                    kept["state"],
                    kept["ref"],
                    kept["error"],
                    kept["started"],
                    kept["completed"],
                )
                assert [e[0] for e in events_of(connection, "effect", effect.effect_id)] == kept["events"]
            assert {c.request_key: child(c) for c in store.list_workflows(life.uid)} == {
                key: expected_child(c) for key, c in life.children.items()
            }
            if alive:
                row_id = connection.execute(
                    "SELECT controller_resource_id FROM controller_resources WHERE uid = ?", (life.uid,)
                ).fetchone()[0]
                assert events_of(connection, "controller", row_id) == life.events
        for listed in (store.list_effects(), store.list_workflows()):
            times = [getattr(each, "started_at", 0) for each in listed]
            assert all(a <= b for a, b in pairwise(times))
        told = connection.execute("SELECT count(*) FROM resources WHERE resource_type = 'controller'").fetchone()[0]
        assert told == len(self.model.lives) + len(self.model.dead)
        with store._database.transaction():
            resource_queue_order.keep(connection)
            kept_order = connection.execute(
                "SELECT manager, key, available_at FROM temp.resource_queue_order WHERE project_id = ?"
                " ORDER BY available_at, manager, key",
                (store.project_id,),
            ).fetchall()
        assert kept_order == [entry[:3] for entry in queue]


def shown(resource):
    return (
        resource.resource_manager, resource.key, resource.resource_version, resource.generation,
        resource.deletion_timestamp, resource.finalizers, resource.spec, resource.status.to_json(),
    )  # fmt: skip


def text(error):
    return error and error.replace("\ud800", "\ufffd")


def child(found):
    return found.workflow, found.input_fingerprint, found.run_id, found.state, found.attempt, found.error


def expected_child(kept):
    return kept["workflow"], kept["input"], kept["run"], kept["state"], kept["attempt"], kept["error"]


def events_of(connection, kind, key):
    rows = connection.execute(
        "SELECT e.event_type, e.actor_type, e.actor_id, e.lease_generation, e.payload_hash FROM events e"
        " JOIN resources r USING (resource_id) WHERE r.resource_type = ? AND r.aggregate_key = ?"
        " ORDER BY e.resource_revision",
        (kind, key),
    ).fetchall()
    return [(*row, blobs.read_json(connection, digest)) for *row, digest in rows]


@pytest.mark.timeout(3600)
@with_and_without_reopening
def test_the_store_does_what_the_rules_say(tmp_path, long_form, reopens):
    try_machine(Machine, tmp_path, reopens, long_form)
