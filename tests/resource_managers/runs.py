"""Runs that a store has made, brought to where a test wants them."""

from __future__ import annotations

from pi_workflows_nb.state import run_effects
from pi_workflows_nb.wire.runner_messages import ReserveEffect, Value
from tests.resource_managers.conftest import LEASE, new_run
from tests.state.files import Story
from tests.state.lives import Life, end, move

HOST = "host-a"


def life_of(store, run_id, claim=None):
    """The run as its server drives it, over the same file."""
    life = Life(store._database, run_id, store._clock(), made=True)
    life.claim = claim
    return life


def running(store, run_id="run-1", session=None):
    """A run that executes node `n`, and its claim."""
    store.reserve_workflow_run(new_run(run_id, session))
    claim = store.claim_workflow_run(run_id, HOST, LEASE)
    store.mark_workflow_run_running(run_id, claim)
    life = life_of(store, run_id, claim)
    life.step(move(started=life.started()))
    return claim


def asking(store, run_id="run-1"):
    """A run that waits at a checkpoint."""
    store.reserve_workflow_run(new_run(run_id))
    life = life_of(store, run_id, store.claim_workflow_run(run_id, HOST, LEASE))
    life.step(move(started=life.started("ask", "checkpoint")))
    life.step(move(finished=life.finished(), end=end("waiting", detail="ask")))


def asking_its_session(store, run_id="run-1", session="s", validating=False):
    """A run that waits for its session to answer request `r`, perhaps with an answer that is being validated."""
    life = life_of(store, run_id, running(store, run_id, session))
    life.attempt = f"{run_id}-n-1"
    story = Story(store._connection)
    with store._transaction():
        content, now = story.json({}), store._clock()
        story.insert(
            "interactive_requests", request_id="r", run_id=run_id, attempt_id=life.attempt, kind="agent",
            target_session_id=session, contract_hash=content, status="pending", created_at=now, updated_at=now,
        )  # fmt: skip
        if validating:
            story.insert(
                "interactive_submissions", submission_id="sub", request_id="r", idempotency_key="k",
                request_revision=1, payload_hash=content, outcome="validating", submitted_at=now,
            )  # fmt: skip
    life.step(move(end=end("waiting", detail="n")))


def acting(store, run_id, claim, recovery="manual"):
    """Reserve an effect of the node that a run executes."""
    with store._transaction() as connection:
        wish = ReserveEffect(f"{run_id}-n-1", "mail", "k", recovery, Value())
        payload = run_effects.payload_of(recovery, b"{}")
        run = life_of(store, run_id).row
        run_effects.reserve(connection, run, claim, wish, payload, store._clock())
