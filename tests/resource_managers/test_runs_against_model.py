"""Random operations on runs by several owners, while the clock jumps, give what the life of a run allows."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from pi_workflows_nb.state import run_effects, runs, transitions, transitions_recovery
from pi_workflows_nb.state.verify import verify
from pi_workflows_nb.wire.runner_messages import EffectSettlement, Finished, ReserveEffect, Started, Value
from tests.resource_managers.conftest import new_run
from tests.resource_managers.machines import (
    StoreMachine,
    picks,
    projects,
    slips,
    try_machine,
    with_and_without_reopening,
)
from tests.resource_managers.run_model import HOLDING, TERMINAL, RunModel
from tests.resource_managers.runs import life_of
from tests.state.files import Story
from tests.state.lives import end, move

ids = st.sampled_from(("a", "b", "c", "d", "e"))
sessions = st.sampled_from((None, "notebook", "notebook"))
owners = st.sampled_from(("host-x", "host-y", "notebook-z"))
leases = st.sampled_from((30_000, 30_000, 30_000, 1000, 1))
offsets = st.sampled_from((0, 0, -5000, 1, 500, 5000))
some_picks = st.none() | picks
seldom = st.sampled_from((True, *[False] * 5))
"""Whether a run is really to end: there would be no lives else."""


class Machine(StoreMachine):
    def __init__(self):
        super().__init__()
        self.model = RunModel()

    has_claims = precondition(lambda self: self.claims)
    has_runs = precondition(lambda self: self.model.runs)

    def session(self, project, session):
        return session and f"{session}-{project}"

    def any(self, pick):
        """Project and id of a run: the newest that lives for 0."""
        alive = sorted(self.model.runs, key=lambda run: not run.over and run.queue != "done")
        return alive[-1 - pick % len(alive)].name

    def claim(self, pick):
        """A claim: the newest that is held for 0."""
        self.claims.sort(key=lambda pair: pair[1].run.holder is pair[1])
        return super().claim(pick)

    def claims_same(self, real, wanted):
        claim, hold = self.same(real, wanted, claimed, expected_claim)
        if claim is not None:
            self.claims.append((claim, hold))

    def under(self, pick, stray):
        """A claim, and the project and id of its run, or of the newest run instead."""
        claim, hold = self.claim(pick)
        return claim, hold, *(self.any(0) if stray and self.model.runs else hold.run.name)

    def maybe_under(self, pick, which, stray):
        if pick is None or not self.claims:
            return None, None, *self.any(which)
        return self.under(pick, stray)

    @initialize(owner=owners)
    def beginning(self, owner):
        self.prepare(0, "a", "notebook", owner, 30_000)
        self.prepare(1, "b", None, owner, 30_000)
        self.reserve(0, "c", "notebook")

    # Making

    @rule(project=projects, run_id=ids, session=sessions)
    def reserve(self, project, run_id, session):
        session = self.session(project, session)
        self.same(
            lambda: self.stores[project].reserve_workflow_run(new_run(run_id, session)),
            lambda: self.model.reserve(project, run_id, session, self.now),
            record,
            expected_record,
        )

    @rule(project=projects, run_id=ids, session=sessions, owner=owners, lease=leases)
    def prepare(self, project, run_id, session, owner, lease):
        session = self.session(project, session)
        prepared, wanted = self.same(
            lambda: self.stores[project].prepare_or_adopt_workflow_run(new_run(run_id, session), owner, lease),
            lambda: self.model.prepare(project, run_id, session, owner, lease, self.now),
            lambda prepared: (prepared.adopted, claimed(prepared.claim)),
            lambda wanted: (wanted[0], expected_claim(wanted[1])),
        )
        if prepared is not None and prepared.claim is not None:
            self.claims.append((prepared.claim, wanted[1]))

    @rule(pick=picks, heir=ids)
    @has_runs
    def answer(self, pick, heir):
        project, run_id = self.any(pick)
        self.same(
            lambda: self.stores[project].continue_workflow_run(run_id, heir, "yes"),
            lambda: self.model.answer(project, run_id, heir, self.now),
            record,
            expected_record,
        )

    @rule(pick=picks)
    @has_runs
    def restart(self, pick):
        project, run_id = self.any(pick)

        def told(found):
            self.model.runs[-1].run_id = found.run_id
            return record(found)

        self.same(
            lambda: self.stores[project].restart_workflow_run(run_id),
            lambda: self.model.restart(project, run_id, self.now),
            told,
            expected_record,
        )

    @rule(really=seldom, pick=some_picks, which=picks, stray=slips)
    @has_runs
    def delete(self, really, pick, which, stray):
        if not really:
            return
        claim, hold, project, run_id = self.maybe_under(pick, which, stray)
        self.same(
            lambda: self.stores[project].delete_workflow_run(run_id, claim),
            lambda: self.model.delete(project, run_id, hold, self.now),
        )

    @rule(pick=picks, offset=offsets)
    @has_runs
    def enqueue(self, pick, offset):
        project, run_id = self.any(pick)
        at = self.now + offset
        self.same(
            lambda: self.stores[project].enqueue_workflow_run(run_id, at),
            lambda: self.model.enqueue(project, run_id, at, self.now),
        )

    # Claims

    @rule(pick=picks, owner=owners, lease=leases, stray=slips)
    @has_runs
    def claim_run(self, pick, owner, lease, stray):
        project, run_id = self.any(pick)
        project = 1 - project if stray else project
        self.claims_same(
            lambda: self.stores[project].claim_workflow_run(run_id, owner, lease),
            lambda: self.model.claim(project, run_id, owner, lease, self.now),
        )

    @rule(project=projects, owner=owners, lease=leases)
    def claim_next(self, project, owner, lease):
        claim, hold = self.same(
            lambda: self.stores[project].claim_next_workflow_run(owner, lease),
            lambda: self.model.claim_next(project, owner, lease, self.now),
            lambda found: found and (found[0], claimed(found[1])),
            lambda found: found and (found[0], expected_claim(found[1])),
        )
        if claim is not None:
            self.claims.append((claim[1], hold[1]))

    @rule(pick=picks, owner=owners, lease=leases, to=st.sampled_from(("control", "control", "validate")))
    @has_runs
    def hold(self, pick, owner, lease, to):
        project, run_id = self.any(pick)
        store = self.stores[project]
        control, validate = (
            store.claim_workflow_run_for_control,
            store.claim_workflow_run_for_interaction_validation,
        )
        self.claims_same(
            lambda: (control if to == "control" else validate)(run_id, owner, lease),
            lambda: getattr(self.model, to)(project, run_id, owner, lease, self.now),
        )

    @rule(pick=picks, stray=slips, what=st.sampled_from(("mark_running", "renew", "renew", "release", "verify")))
    @has_claims
    def keep(self, pick, stray, what):
        claim, hold, project, run_id = self.under(pick, stray)
        store, model = self.stores[project], self.model
        real = {
            "mark_running": store.mark_workflow_run_running, "renew": store.renew_workflow_run_claim,
            "release": store.release_workflow_run_claim, "verify": store.verify_workflow_run_claim,
        }[what]  # fmt: skip
        if what == "verify":
            self.same(
                lambda: real(run_id, claim), lambda: model.changing(project, run_id, hold, self.now), lambda _: 0,
                lambda _: 0,
            )  # fmt: skip
        else:
            self.same(
                lambda: real(run_id, claim),
                lambda: getattr(model, what)(project, run_id, hold, self.now),
            )

    # Executing

    def propose(self, pick, real, wanted):
        """What the runner of a claim does, in steps of its own."""
        claim, hold = self.claim(pick)
        project, run_id = hold.run.name
        life = life_of(self.stores[project], run_id, claim)
        return self.same(
            lambda: real(life),
            lambda: self.model.work(run_id, hold, self.now, wanted),
            lambda _: 0,
            lambda _: 0,
        )

    def start(self, life, node, kind, ends=None):
        numbers = life.ask("SELECT count(*) FROM node_attempts WHERE run_id = ? AND node_id = ?", life.run_id, node)
        number = numbers[0][0] + 1
        life.attempt = f"{life.run_id}-{node}-{number}"
        started = Started(life.attempt, None, node, kind, number, False, self.now)
        with life.database.transaction() as connection:
            transitions.cancel_interrupted(connection, life.run_id, self.now)
        life.step(move(started=started, end=ends))

    def finish(self, life, ends=None):
        found = life.ask(
            "SELECT a.attempt_id, e.effect_id FROM node_attempts a JOIN runs r USING (run_id) LEFT JOIN effects e"
            " ON e.source_resource_id = r.resource_id AND e.idempotency_key = a.node_id AND e.status = 'applying'"
            " WHERE a.run_id = ? AND a.status = 'running'",
            life.run_id,
        )
        attempt, effect = found[0] if found else ("none", None)
        settled = None if effect is None else EffectSettlement(effect, None, "applied")
        life.step(
            move(finished=Finished(attempt, settled, None, self.now, "n", "ok", Value(inline=b"1"), True), end=ends)
        )

    @rule(pick=picks, finish=st.booleans())
    @has_claims
    def node(self, pick, finish):
        if finish:
            self.propose(pick, self.finish, self.model.finish)
        else:
            self.propose(pick, lambda life: self.start(life, "n", "compute"), lambda run: self.model.begin(run, "n"))

    @rule(
        pick=picks,
        waits=st.sampled_from(("checkpoint", "event", "sleep", "request")),
        offset=st.sampled_from((None, 1, 500, 5000)),
    )
    @has_claims
    def stop(self, pick, waits, offset):
        until = self.now + (offset or 1) if waits == "sleep" or (offset and waits == "event") else None
        node = {"checkpoint": "ask", "event": "event", "sleep": "nap", "request": "agent"}[waits]

        def ask(life):
            self.start(life, "ask", "checkpoint")
            self.finish(life, end("waiting", detail="ask"))

        def rest(life):
            kind, status = ("compute", "sleeping") if waits == "sleep" else ("checkpoint", "waiting")
            self.start(life, node, kind, end(status, due_at=until, detail=node))

        def ask_session(life):
            self.start(life, "agent", "agent")
            run = self.model.find(life.run_id)
            story = Story(life.database.connection)
            with life.database.transaction():
                story.insert(
                    "interactive_requests", request_id=run.request, run_id=run.run_id, attempt_id=life.attempt,
                    kind="agent", target_session_id="s", contract_hash=story.json({}), status="pending",
                    created_at=self.now, updated_at=self.now,
                )  # fmt: skip
            life.step(move(end=end("waiting", detail="agent")))

        def wanted(run):
            self.model.stop(run, waits, node, until, self.now)
            run.asked += waits == "request"

        self.propose(pick, {"checkpoint": ask, "request": ask_session}.get(waits, rest), wanted)

    @rule(pick=picks, recovery=st.sampled_from(("manual", "idempotent")))
    @has_claims
    def act(self, pick, recovery):
        def real(life):
            self.start(life, recovery, "action")
            wish = ReserveEffect(life.attempt, "mail", recovery, recovery, Value())
            payload = run_effects.payload_of(recovery, b"{}")
            with life.database.transaction() as connection:
                run_effects.reserve(connection, life.row, life.claim, wish, payload, self.now)

        self.propose(pick, real, lambda run: self.model.act(run, recovery))

    # What others do about a run that waits

    @rule(pick=picks)
    @has_runs
    def submit(self, pick):
        project, run_id = self.any(pick)
        run = self.model.find(run_id)
        if run.waits != "request" or run.validating:
            return
        story = Story(self.stores[project]._connection)
        with self.stores[project]._transaction():
            story.insert(
                "interactive_submissions", submission_id=f"{run.request}-s", request_id=run.request,
                idempotency_key="k", request_revision=1, payload_hash=story.json({}), outcome="validating",
                submitted_at=self.now,
            )  # fmt: skip
        run.validating = True

    @rule(pick=picks, stray=slips, wrong=slips)
    @has_claims
    def late(self, pick, stray, wrong):
        claim, hold, project, run_id = self.under(pick, stray)
        run = self.model.find(run_id)
        request = "none" if wrong or run is None else run.request
        self.same(
            lambda: self.stores[project].begin_workflow_run_interaction_timeout(run_id, claim, request),
            lambda: self.model.late(project, run_id, hold, request, self.now),
        )

    @rule(pick=picks, action=st.sampled_from(("confirm", "retry")))
    @has_runs
    def word(self, pick, action):
        project, run_id = self.any(pick)
        run = self.model.find(run_id)
        doubted = [node for node, state in run.effects.items() if state == "ambiguous"]
        if not doubted:
            return

        def real():
            with self.stores[project]._transaction() as connection:
                row = runs.read(connection, run_id)
                (effect_id,) = connection.execute(
                    "SELECT effect_id FROM effects WHERE source_resource_id = ? AND idempotency_key = ?",
                    (row.resource_id, doubted[0]),
                ).fetchone()
                run_effects.recover(connection, run_effects.read(connection, effect_id), action, None, self.now)
                in_doubt = (row.error_code, row.status) == ("effectAmbiguous", "waiting")
                if in_doubt and not run_effects.ambiguous(connection, row):
                    transitions.resume_after_effect(connection, row, self.now)

        self.same(real, lambda: self.model.word(run, doubted[0], action, self.now))

    # Stopping

    @rule(
        pick=picks,
        stray=slips,
        offset=offsets,
        why=st.sampled_from((None, "source_change", "runner_no_progress", "ambiguous")),
    )
    @has_claims
    def park(self, pick, stray, offset, why):
        claim, hold, project, run_id = self.under(pick, stray)
        store, at = self.stores[project], self.now + offset
        if why is None:
            self.same(
                lambda: store.park_workflow_run(run_id, claim, at),
                lambda: self.model.park(self.model.executed(project, run_id, hold, self.now), at, self.now),
            )
        elif why == "ambiguous":
            self.same(
                lambda: store.park_workflow_run_for_ambiguous_effect(run_id, claim),
                lambda: self.model.park_ambiguous(project, run_id, hold, self.now),
            )
        else:
            event, code = {
                "source_change": ("run.source_changed", "workflowSourceChanged"),
                "runner_no_progress": ("run.worker_no_progress", "runnerNoProgress"),
            }[why]
            self.same(
                lambda: getattr(store, f"park_workflow_run_for_{why}")(run_id, claim, "why"),
                lambda: self.model.park(
                    self.model.executed(project, run_id, hold, self.now), self.now, self.now, event, code
                ),
            )

    @rule(pick=picks, what=st.sampled_from(("pause_parked", "resume_wait", "pause", "resume")))
    @has_runs
    def person(self, pick, what):
        project, run_id = self.any(pick)
        store, model = self.stores[project], self.model

        def control():
            with store._transaction() as connection:
                getattr(transitions, what)(connection, run_id, self.now, "me")

        if what == "pause_parked":
            self.same(
                lambda: store.pause_parked_workflow_run(run_id, "me"),
                lambda: model.pause_parked(project, run_id, self.now),
            )
        elif what == "resume_wait":
            self.same(
                lambda: store.resume_paused_interaction(run_id, "me"),
                lambda: model.resume_wait(project, run_id, self.now),
            )
        else:
            self.same(control, lambda: getattr(model, what)(model.find(run_id), self.now))

    @rule(really=seldom, pick=picks, stray=slips, output=st.integers(0, 1))
    @has_claims
    def complete(self, really, pick, stray, output):
        if not really:
            return
        claim, hold, project, run_id = self.under(pick, stray)
        self.same(
            lambda: self.stores[project].complete_workflow_run(run_id, claim, output),
            lambda: self.model.complete(project, run_id, hold, output, self.now),
        )

    @rule(really=seldom, pick=some_picks, which=picks, stray=slips, error=st.sampled_from(("bad", "worse")))
    @has_runs
    def fail(self, really, pick, which, stray, error):
        if not really:
            return
        claim, hold, project, run_id = self.maybe_under(pick, which, stray)
        self.same(
            lambda: self.stores[project].fail_workflow_run(run_id, error, claim=claim),
            lambda: self.model.fail(project, run_id, error, hold, self.now),
        )

    @rule(really=seldom, pick=some_picks, which=picks, stray=slips, stale=st.booleans())
    @has_runs
    def cancel(self, really, pick, which, stray, stale):
        if not really:
            return
        if stale:
            project, run_id = self.any(which)
            self.same(
                lambda: self.stores[project].cancel_stale_workflow_run(run_id, "tidy"),
                lambda: self.model.cancel_stale(project, run_id, self.now),
            )
            return
        claim, hold, project, run_id = self.maybe_under(pick, which, stray)
        self.same(
            lambda: self.stores[project].cancel_workflow_run(run_id, claim),
            lambda: self.model.cancel(project, run_id, hold, self.now),
        )

    @rule(pick=some_picks, which=picks, stray=slips)
    @has_runs
    def record_event(self, pick, which, stray):
        claim, hold, project, run_id = self.maybe_under(pick, which, stray)
        by = {"claim": claim} if claim else {"actor_id": "notebook-z"}
        self.same(
            lambda: self.stores[project].record_run_event(run_id, "noted", {"n": 1}, **by),
            lambda: self.model.record(project, run_id, hold, self.now),
        )

    @rule()
    def server_starts_anew(self):
        with self.stores[0]._transaction() as connection:
            transitions_recovery.recover(connection, self.now)
        self.model.recover(self.now)

    @rule(project=projects)
    def lists(self, project):
        runs = [run for run in self.model.runs if run.project == project]
        newest = sorted(runs, key=lambda run: (run.made, run.number), reverse=True)
        listed = self.stores[project].list_workflow_runs()
        assert [record(run) for run in listed] == [expected_record(run) for run in newest]

    def compare_rows(self, project, store):
        assert verify(store._connection) == []
        self.lists(project)
        session = self.session(project, "notebook")
        holders = [run.run_id for run in self.model.runs if run.session == session and run.queue in HOLDING]
        assert [store.session_reservation(session)] == (holders or [None])
        for run in self.model.runs:
            if run.project != project:
                continue
            assert [event_of(event) for event in store.list_run_events(run.run_id, limit=10_000)] == run.events
            effects = store._connection.execute(
                "SELECT e.idempotency_key, e.status FROM effects e JOIN runs r ON r.resource_id = e.source_resource_id"
                " WHERE r.run_id = ?",
                (run.run_id,),
            ).fetchall()
            assert dict(effects) == run.effects


def claimed(claim):
    return claim and (claim.owner_type, claim.owner_id, claim.generation, claim.expires_at)


def expected_claim(hold):
    return hold and (*hold.actor, hold.generation, hold.expires)


def record(run):
    return (
        run.run_id, run.status, run.queue_status, run.paused, run.error_code,
        run.error if run.status in TERMINAL else None, run.available_at, run.owner_id,
        run.generation, run.claim_expires_at, run.parent_run_id, run.root_run_id, run.lineage, run.session_id,
        run.revision, run.created_at,
    )  # fmt: skip


def expected_record(run):
    held = run.holder
    return (
        run.run_id, run.status, run.queue, run.paused, run.code, run.error, run.due, held and held.owner,
        run.generation, run.expires if held else None, run.parent and run.parent.run_id, run.chain[-1].run_id,
        run.lineage, run.session, len(run.events), run.made,
    )  # fmt: skip


def event_of(event):
    """What tells of a node, or of the engine, by its own words alone."""
    payload = event.payload
    if payload.get("scope") == "node":
        payload = {"node": payload["nodeId"]}
    elif payload.get("scope") == "run":
        payload = payload["payload"]
    payload.pop("attemptId", None)
    return event.type, event.actor_type, event.actor_id, event.lease_generation, payload


@pytest.mark.timeout(3600)
@with_and_without_reopening
def test_runs_live_as_the_rules_say(tmp_path, long_form, reopens):
    try_machine(Machine, tmp_path, reopens, long_form)
