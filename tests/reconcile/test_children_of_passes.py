"""Child workflows: one run for each request, whatever dies; their resource is woken when they end or wait."""

from __future__ import annotations

import os
import signal

import pytest

import pi_workflows_nb as pw

CHILD = """
    wf = pw.Workflow("child", start_at="one")

    @wf.compute
    def one(ctx):
        with open(here / "ran", "a") as file:
            print(ctx.input, file=file)
        if ctx.input == "fail":
            raise ValueError("no luck")
        while ctx.input == "gate" and not (here / "gate").exists():
            time.sleep(0.01)
        return {"got": ctx.input}
"""
PARENT = """
    m = pw.ResourceManager("box")

    @m.reconcile
    async def reconcile(ctx, resource):
        child = await ctx.workflows.ensure(request_key="only", workflow="child", input=resource.spec)
        status = {"state": child.state, "output": child.output, "error": child.error, "attempt": child.attempt,
                  "run": child.run_id}
        if child.state in ("succeeded", "failed", "waiting"):
            return ctx.settled(status=status, conditions=[pw.condition_true("Ready", "Yes")])
        return ctx.requeue_after(1000, status=status)
"""


@pytest.fixture
def family(write):
    write("child", CHILD, "workflow")
    write("box", PARENT)


def ran(server):
    path = server.project / "ran"
    return path.read_text().splitlines() if path.exists() else []


def test_a_child_runs_once_and_its_end_wakes_the_resource(server, family, types, payloads):
    resource = server.resources.apply("box", "one", {"n": 1}).wait_for("Ready", timeout=60)
    status = resource.status.resource_manager_status
    assert (status["state"], status["output"], status["attempt"]) == ("succeeded", {"got": {"n": 1}}, 1)
    assert ran(server) == ["{'n': 1}"]
    child = server.child_workflows().iloc[0]
    assert (child["status"], child["workflow"], child["request_key"]) == ("succeeded", "child", "only")
    assert child["run_id"] == status["run"] == server.runs().index[0]
    assert server.get_run(status["run"]).output == {"got": {"n": 1}}
    assert server.runs()["mode"].iloc[0] == "headless"
    assert resource.status.workflow_run.run_id == status["run"]
    assert resource.status.workflow_run.state == "succeeded"
    (requested,), (changed,) = payloads(resource, "workflow_requested"), payloads(resource, "workflow_state_changed")
    assert set(requested) == {"attempt", "requestId", "requestKey", "runId", "state"}
    assert changed["state"] == "succeeded"
    assert len(payloads(resource, "reconcile_finished")) == 2, "woken long before the thousand seconds are over"
    for _ in range(2):
        resource.reconcile()
        resource.wait_settled(60)
    assert len(ran(server)) == 1


def test_the_completion_stands_in_the_transaction_that_tells_it(server, family, rows):
    server.resources.apply("box", "one", 1).wait_for("Ready", timeout=60)
    ((changed, queued),) = rows(
        "SELECT e.recorded_at, w.updated_at FROM controller_workflows w JOIN controller_resources c"
        " USING (controller_resource_id) JOIN events e ON e.resource_id = c.resource_id"
        " WHERE e.event_type = 'workflow_state_changed'"
    )
    assert changed == queued


@pytest.mark.parametrize(("action", "error"), [("fail", "no luck"), ("cancel", "cancelled")])
def test_a_child_that_fails_or_is_cancelled_says_why(server, family, until, action, error):
    spec = "fail" if action == "fail" else "gate"
    resource = server.resources.apply("box", "one", spec)
    if action == "cancel":
        until(lambda: ran(server))
        server.get_run(server.runs().index[0]).cancel()
    status = resource.wait_for("Ready", timeout=60).status.resource_manager_status
    assert status["state"] == "failed"
    assert error in status["error"]
    assert status["output"] is None
    assert len(ran(server)) == 1, "a failed child is not started again"


def test_a_child_that_waits_wakes_the_resource_and_goes_on_when_answered(server, write, until):
    write("box", PARENT)
    write(
        "child",
        """
        wf = pw.Workflow("child", start_at="ask")
        wf.checkpoint("ask", summary="look")

        @wf.compute
        def done(ctx):
            return ctx.outputs["ask"]

        wf.edge("ask", "done")
        """,
        "workflow",
    )
    resource = server.resources.apply("box", "one").wait_for("Ready", timeout=60)
    status = resource.status.resource_manager_status
    assert status["state"] == "waiting"
    server.get_run(status["run"]).answer({"ok": True})
    until(lambda: resource.status.resource_manager_status["state"] == "succeeded")
    assert resource.status.resource_manager_status["output"] == {"ok": True}
    assert list(server.child_workflows()["status"]) == ["succeeded"]


def test_a_key_stands_for_one_workflow_and_input(server, write, family, payloads, until):
    write("other", CHILD.replace('"child"', '"other"'), "workflow")
    write(
        "box",
        """
        m = pw.ResourceManager("box")

        @m.reconcile
        def reconcile(ctx, resource):
            said = []
            for workflow, given in [("child", 1), ("child", 1), ("child", 2), ("other", 1), ("nothing", 1)]:
                key = "k" if workflow != "nothing" else "n"
                try:
                    said.append(ctx.workflows.ensure(key, workflow, given).run_id)
                except pw.PiWorkflowsError as error:
                    said.append(type(error).__name__)
            return ctx.settled(status={"said": said}, conditions=[pw.condition_true("Ready", "Yes")])
        """,
    )
    resource = server.resources.apply("box", "one").wait_for("Ready", timeout=60)
    first, second, *refused = resource.status.resource_manager_status["said"]
    assert first == second == server.runs().index[0]
    assert refused == ["WorkflowRequestConflictError", "WorkflowRequestConflictError", "NotFoundError"]


def test_children_may_be_workflows_of_the_notebook(server):
    def make(name):
        wf = pw.Workflow(name, start_at="one")

        @wf.compute
        def one(ctx):
            return [name, ctx.input]

        return wf

    own, sent = make("own"), make("sent")
    manager = pw.ResourceManager("box", workflows=[own])

    @manager.reconcile
    async def reconcile(ctx, resource):
        first = await ctx.workflows.ensure("first", "own", 1)
        second = await ctx.workflows.ensure("second", "sent", 2)
        if first.output is None or second.output is None:
            return ctx.requeue_after(1000)
        return ctx.settled(
            status={"got": [first.output, second.output]}, conditions=[pw.condition_true("Ready", "Yes")]
        )

    resource = server.apply(manager, "one", workflows=[sent]).wait_for("Ready", timeout=60)
    assert resource.status.resource_manager_status == {"got": [["own", 1], ["sent", 2]]}


def test_a_pass_that_dies_around_its_request_leaves_one_run(server, write, family):
    """Killed before the request is sent, and after it was answered."""
    for point in ("before", "after"):
        write(
            "box",
            f"""
            from pi_workflows_nb.runner import reconcile_context
            real = reconcile_context.Server.ask

            def ask(self, operation, payload):
                mark = here / "died-{point}"
                if operation == "resource.reserveWorkflow" and not mark.exists():
                    mark.touch()
                    if {point!r} == "after":
                        real(self, operation, payload)
                    os.kill(os.getpid(), signal.SIGKILL)
                return real(self, operation, payload)

            reconcile_context.Server.ask = ask
            """
            + PARENT.replace("\n    ", "\n            "),
        )
        server.resources.apply("box", point, point).wait_for("Ready", timeout=60)
    assert sorted(ran(server)) == ["after", "before"]
    assert len(server.runs()) == len(server.child_workflows()) == 2


def test_a_child_whose_process_dies_is_the_same_run(server, family, rows, until):
    resource = server.resources.apply("box", "one", "gate")
    until(lambda: ran(server))
    ((pid,),) = rows("SELECT pid FROM run_workers WHERE status = 'running' AND pid IS NOT NULL")
    os.kill(pid, signal.SIGKILL)
    until(lambda: len(ran(server)) == 2)
    (server.project / "gate").touch()
    status = resource.wait_for("Ready", timeout=60).status.resource_manager_status
    assert (status["state"], status["attempt"]) == ("succeeded", 1)
    assert len(server.runs()) == 1


def test_what_ended_while_nobody_looked_is_told_at_the_next_start(server, family, again, until, rows_of):
    resource = server.resources.apply("box", "one", "gate")
    until(lambda: ran(server))
    server.stop()
    (server.project / "gate").touch()
    served = again()
    found = served.resources.get("box", "one").wait_for("Ready", timeout=60)
    assert found.uid == resource.uid
    assert found.status.resource_manager_status["state"] == "succeeded"
    assert len(served.runs()) == 1
    assert served.verify().empty


def test_a_child_that_was_interrupted_gets_another_run(server, family, until, rows, tmp_path, again):
    """As a file of the original may say; this server itself goes on with the same run."""
    from contextlib import closing

    from pi_workflows_nb.state.database import Database

    resource = server.resources.apply("box", "one", "first").wait_for("Ready", timeout=60)
    first = resource.status.resource_manager_status["run"]
    server.stop()
    with closing(Database.open(server.database, 1_900_000_000_000)) as database, database.transaction():
        database.connection.execute("UPDATE controller_workflows SET status = 'interrupted'")
    served = again()
    found = served.resources.get("box", "one")
    found.reconcile()
    until(lambda: found.status.resource_manager_status["attempt"] == 2)
    until(lambda: found.status.resource_manager_status["state"] == "succeeded")
    assert found.status.resource_manager_status["run"] != first
    assert len(served.runs()) == 2
    assert served.verify().empty
