"""Actions: recorded before they are called, settled with their outcome, adopted when they happened before."""

from __future__ import annotations

import hashlib
import sys

import pytest

from pi_workflows_nb.wire.canonical_json import decode
from pi_workflows_nb.wire.errors import StoppedByServer
from pi_workflows_nb.workflows.context import rejected
from pi_workflows_nb.workflows.definition import Workflow
from pi_workflows_nb.workflows.effects import idempotent_effect, manual_effect
from pi_workflows_nb.workflows.engine import WorkflowEngine
from pi_workflows_nb.workflows.local_store import LocalStore


class Watched(LocalStore):
    """Keeps the order in which the engine speaks."""

    def __init__(self):
        super().__init__()
        self.log = []

    def propose(self, transition):
        self.log.append("propose")
        super().propose(transition)

    def settle(self):
        self.log.append("settle")

    def reserve_effect(self, *given):
        self.log.append("reserve")
        return super().reserve_effect(*given)


def acting(function, effect, **given):
    wf = Workflow("act", start_at="node")
    wf.action(name="node", effect=effect, **given)(function)
    return wf


def test_nothing_is_called_before_everything_is_durable_and_the_effect_on_record():
    store = Watched()

    def node(ctx):
        store.log.append("called")
        return ctx.effect.attempt_number

    WorkflowEngine(store=store).run(acting(node, idempotent_effect("ledger.add")))
    assert store.log[:4] == ["propose", "settle", "reserve", "called"]
    end = store.transitions[-1]
    assert (end.finished.effect.outcome, end.end.status) == ("applied", "completed")


def test_the_key_names_run_type_node_and_visit():
    keys = []
    wf = Workflow("act", start_at="node")

    @wf.action(effect=idempotent_effect("ledger.add"))
    def node(ctx):
        keys.append(ctx.effect.idempotency_key)
        return {"again": len(keys) < 2}

    wf.compute(name="end")(lambda ctx: None)
    wf.switch("node", "$.again", {"true": "node", "false": "end"})
    run_id = WorkflowEngine().run(wf).run_id
    assert keys == [f"{run_id}:ledger.add:node:1", f"{run_id}:ledger.add:node:2"]


def test_a_long_key_is_its_digest():
    wf = Workflow("act", start_at="n" * 300)
    store = LocalStore()
    wf.action(name="n" * 300, effect=idempotent_effect("x"))(lambda ctx: ctx.effect.idempotency_key)
    result = WorkflowEngine(store=store).run(wf)
    assert result.output == hashlib.sha256(f"{result.run_id}:x:{'n' * 300}:1".encode()).hexdigest()


def test_the_request_is_what_the_node_sees_or_what_it_says():
    store = LocalStore()
    WorkflowEngine(store=store).run(acting(lambda ctx: 1, manual_effect("x")), {"n": 1})
    assert [decode(effect.request) for effect in store.effects.values()] == [{"input": {"n": 1}, "outputs": {}}]
    for request in ({"to": "a"}, lambda ctx: {"to": ctx.input}):
        store = LocalStore()
        WorkflowEngine(store=store).run(acting(lambda ctx: 1, manual_effect("x", request=request)), "a")
        assert [decode(effect.request) for effect in store.effects.values()] == [{"to": "a"}]


def crash_inside(workflow, store):
    """Run until the store stops it right after the effect was reserved and the code ran."""

    class Stops(LocalStore):
        pass

    original = store.propose

    def propose(transition):
        if transition.finished is not None and transition.finished.node_id == "node":
            raise StoppedByServer("gone")
        original(transition)

    store.propose = propose
    with pytest.raises(StoppedByServer):
        WorkflowEngine(store=store).run(workflow)
    del store.propose


def test_an_idempotent_action_is_called_again_under_its_key_after_a_crash():
    seen = []

    def node(ctx):
        seen.append((ctx.effect.idempotency_key, ctx.effect.attempt_number))
        return len(seen)

    wf, store = acting(node, idempotent_effect("x")), LocalStore()
    crash_inside(wf, store)
    assert WorkflowEngine(store=store).run(wf, resume=True).output == 2
    assert seen[0][0] == seen[1][0]
    assert [number for _, number in seen] == [1, 2]


def test_a_manual_action_is_never_called_again_after_a_crash():
    calls = []
    wf, store = acting(lambda ctx: calls.append(1), manual_effect("x")), LocalStore()
    crash_inside(wf, store)
    with pytest.raises(StoppedByServer, match="may have happened"):
        WorkflowEngine(store=store).run(wf, resume=True)
    assert calls == [1]


def test_an_effect_that_happened_is_adopted():
    calls = []
    wf, store = acting(lambda ctx: calls.append(1), manual_effect("x")), LocalStore()
    crash_inside(wf, store)
    store.prepare_resume()
    for effect in store.effects.values():
        effect.status, effect.result = "applied", {"ticket": 7}
    result = WorkflowEngine(store=store).run(wf, resume=True)
    assert (result.status, result.output, calls) == ("completed", {"ticket": 7}, [1])
    assert store.transitions[-1].finished.effect is None


def test_a_rejection_is_recorded_and_fails_the_node():
    store = LocalStore()
    result = WorkflowEngine(store=store).run(acting(lambda ctx: rejected("card declined"), manual_effect("pay")))
    assert (result.status, result.error) == ("failed", "rejected: card declined")
    assert store.transitions[-1].finished.effect.outcome == "rejected"


def test_an_effect_that_happened_with_an_output_that_is_not_json_counts_as_applied():
    store = LocalStore()
    result = WorkflowEngine(store=store).run(acting(lambda ctx: object(), manual_effect("pay")))
    assert result.status == "failed"
    assert store.transitions[-1].finished.effect.outcome == "applied"


def test_the_outside_reference_is_kept():
    def node(ctx):
        ctx.effect.external_ref = "PR-12"

    store = LocalStore()
    WorkflowEngine(store=store).run(acting(node, manual_effect("open")))
    assert [effect.external_ref for effect in store.effects.values()] == ["PR-12"]


def test_another_request_under_the_same_key_fails_the_node_without_a_call():
    import itertools

    counter, calls = itertools.count(), []
    effect = idempotent_effect("x", request=lambda ctx: next(counter))
    wf, store = acting(lambda ctx: calls.append(1), effect), LocalStore()
    crash_inside(wf, store)
    result = WorkflowEngine(store=store).run(wf, resume=True)
    assert result.status == "failed"
    assert result.error.startswith("EffectRequestConflictError")
    assert calls == [1]


def test_there_is_no_effect_to_see_elsewhere():
    wf = Workflow("plain", start_at="node")
    wf.compute(name="node")(lambda ctx: ctx.effect.idempotency_key)
    assert "ctx.effect exists in actions" in WorkflowEngine().run(wf).error


def shelling(code, **given):
    wf = Workflow("sh", start_at="node")
    given.setdefault("effect", idempotent_effect("sh"))
    wf.shell({"command": sys.executable, "args": ["-c", code]}, name="node", **given)
    return wf


def test_a_shell_node_is_an_action():
    store = LocalStore()
    result = WorkflowEngine(store=store).run(shelling("print(6*7)", parse=lambda said: int(said["stdout"])))
    assert (result.status, result.output) == ("completed", 42)
    assert store.transitions[-1].finished.effect.outcome == "applied"
    store = LocalStore()
    result = WorkflowEngine(store=store).run(shelling("print(1)"))
    assert (result.output["stdout"], result.output["exitCode"]) == ("1\n", 0)


def test_a_command_that_fails_leaves_its_effect_open():
    store = LocalStore()
    result = WorkflowEngine(store=store).run(shelling("import sys; sys.exit('oh no')"))
    assert result.status == "failed"
    assert "oh no" in result.error
    assert store.transitions[-1].finished.effect.outcome == "ambiguous"


def test_a_command_that_never_started_did_nothing():
    wf = Workflow("sh", start_at="node")
    wf.shell({"command": "no-such-program-here"}, name="node", effect=manual_effect("sh"))
    store = LocalStore()
    assert WorkflowEngine(store=store).run(wf).status == "failed"
    assert store.transitions[-1].finished.effect.outcome == "rejected"


def test_a_command_out_of_time_is_ended():
    store = LocalStore()
    result = WorkflowEngine(store=store).run(shelling("import time; time.sleep(30)", timeout=0.3))
    assert result.status == "timed_out"
    assert not store.transitions[-1].abandoned
