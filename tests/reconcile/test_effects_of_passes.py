"""Effects of reconcilers: recorded before they happen, observed before they are applied again, left to a person."""

from __future__ import annotations

import pytest

import pi_workflows_nb as pw
from pi_workflows_nb.wire.errors import ConflictError

WORLD = """
    m = pw.ResourceManager("box")
    world = here / "world"

    def seen():
        return pw.applied("found") if world.exists() else pw.not_applied()

    def apply(call):
        with open(world, "a") as file:
            print(call.key, file=file, flush=True)
        return pw.applied("made")
"""
KILLED = """
    from pi_workflows_nb.runner import reconcile_context

    real = reconcile_context.Server.ask

    def die():
        mark = here / "died"
        if not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    def ask(self, operation, payload):
        if "before " + operation == {point!r}:
            die()
        answer = real(self, operation, payload)
        if "after " + operation == {point!r}:
            die()
        return answer

    reconcile_context.Server.ask = ask

    def doing(call):
        if {point!r} == "before the world":
            die()
        apply(call)
        if {point!r} == "after the world":
            die()
        return pw.applied("made")

    @m.reconcile
    def reconcile(ctx, resource):
        effect = ctx.effects.ensure("k", "touch", {{"n": 1}}, observe={observe}, apply=doing)
        ready = pw.condition_true if effect.state == "applied" else pw.condition_false
        return ctx.settled(status={{"state": effect.state}}, conditions=[ready("Ready", "Looked")])
"""
POINTS = [
    "before resource.reserveEffect",
    "after resource.reserveEffect",
    "before the world",
    "after the world",
    "before resource.updateEffect",
    "after resource.updateEffect",
    "before resource.finishPass",
    "after resource.finishPass",
]
CERTAIN = {"before resource.reserveEffect", *POINTS[5:]}
"""Where the file says how the effect stands whenever the process dies."""


def world(server):
    path = server.project / "world"
    return path.read_text().splitlines() if path.exists() else []


def only(server):
    return server.get_effect(server.effects().index[0])


def box(function, **arguments):
    manager = pw.ResourceManager("box", **arguments)
    manager.reconcile(function)
    return manager


# -- dying between reserving and settling ----------------------------------------------------------------------------


@pytest.mark.parametrize("point", POINTS)
def test_an_effect_that_can_be_observed_happens_once_wherever_its_pass_dies(server, write, types, point):
    write("box", WORLD + KILLED.format(point=point, observe="seen"))
    resource = server.resources.apply("box", "one").wait_for("Ready", timeout=60)
    resource.wait_settled(60)
    assert (server.project / "died").exists()
    assert world(server) == ["k"]
    assert list(server.effects()["status"]) == ["applied"]
    reference = "found" if point in {"after the world", "before resource.updateEffect"} else "made"
    assert only(server).external_ref == reference
    assert types(resource).count("effect_recovered") == (1 if reference == "found" else 0)
    assert types(resource).count("effect_applied") == (0 if reference == "found" else 1)
    assert server.verify().empty


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("decision", ["confirm", "retry"])
def test_one_that_nobody_can_observe_waits_for_a_person(server, write, until, types, point, decision):
    write("box", WORLD + KILLED.format(point=point, observe="None"))
    resource = server.resources.apply("box", "one")
    if point in CERTAIN:
        resource.wait_for("Ready", timeout=60)
        assert world(server) == ["k"]
        return
    until(lambda: list(server.effects()["status"]) == ["ambiguous"])
    resource.wait_settled(60)
    done = world(server)
    assert done == (["k"] if point in {"after the world", "before resource.updateEffect"} else [])
    assert resource.status.resource_manager_status == {"state": "indeterminate"}
    assert types(resource).count("effect_indeterminate") == 1
    for _ in range(3):
        resource.reconcile()
        resource.wait_settled(60)
    assert world(server) == done, "it is never applied again by itself"
    effect = only(server)
    assert effect.status == "ambiguous"
    if decision == "confirm":
        effect.confirm(external_ref="by hand")
        resource.wait_for("Ready", timeout=60)
        assert world(server) == done
        assert effect.external_ref == "by hand"
    else:
        effect.retry()
        resource.wait_for("Ready", timeout=60)
        assert world(server) == [*done, "k"], "once more, and once"
        assert effect.external_ref == "made"
    resource.reconcile()
    resource.wait_settled(60)
    assert effect.status == "applied"
    assert len(world(server)) == len(done) + (decision == "retry")
    with pytest.raises(ConflictError, match="not ambiguous"):
        effect.retry()
    assert server.verify().empty


def test_a_retry_that_dies_is_in_doubt_again_and_one_word_is_one_try(server, write, until):
    write(
        "box",
        WORLD
        + """
    def doing(call):
        apply(call)
        if not (here / "calm").exists():
            os.kill(os.getpid(), signal.SIGKILL)

    @m.reconcile
    def reconcile(ctx, resource):
        effect = ctx.effects.ensure("k", "touch", apply=doing)
        return ctx.settled(status={"state": effect.state})
    """,
    )
    resource = server.resources.apply("box", "one")
    until(lambda: list(server.effects()["status"]) == ["ambiguous"])
    effect = only(server)
    for tries in (2, 3):
        effect.retry()
        until(lambda tries=tries: len(world(server)) == tries and effect.status == "ambiguous")
        resource.wait_settled(60)
    (server.project / "calm").touch()
    resource.reconcile()
    resource.wait_settled(60)
    assert len(world(server)) == 3
    effect.retry()
    until(lambda: effect.status == "applied")
    assert len(world(server)) == 4
    history = server.events(aggregate=server.effects()["aggregate_id"].iloc[0], payloads=True)
    assert [one["attemptNumber"] for one in history.query("event_type == 'effect.retry_started'")["payload"]] == [
        2,
        3,
        4,
    ]


# -- what apply and observe may say ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "state", "reference"),
    [
        ("None", "applied", None),
        ("{'any': 'thing'}", "applied", None),
        ("pw.applied()", "applied", None),
        ("pw.applied('ref')", "applied", "ref"),
        ("pw.rejected('too late')", "rejected", None),
        ("1 / 0", "indeterminate", None),
    ],
)
@pytest.mark.parametrize("kind", ["def", "async def"])
def test_what_apply_gives_settles_it(server, write, types, said, state, reference, kind):
    wait = "await " if kind == "async def" else ""
    write(
        "box",
        f"""
        m = pw.ResourceManager("box")

        {kind} apply():
            return {said}

        @m.reconcile
        {kind} reconcile(ctx, resource):
            got = {wait}ctx.effects.ensure("k", "touch", {{"n": 1}}, observe=pw.cannot_tell, apply=apply)
            shown = [got.key, got.state, got.external_ref, got.error]
            return ctx.settled(status={{"got": shown}}, conditions=[pw.condition_true("Ready", "Yes")])
        """,
    )
    resource = server.resources.apply("box", "one").wait_for("Ready", timeout=60)
    key, found, ref, error = resource.status.resource_manager_status["got"]
    assert (key, found, ref) == ("k", state, reference)
    if state == "rejected":
        assert error == "too late"
    if state == "indeterminate":
        assert "ZeroDivisionError" in error
        assert "effect_indeterminate" in types(resource)
    effect = only(server)
    assert effect.status == ("ambiguous" if state == "indeterminate" else state)
    assert effect.external_ref == reference
    assert effect.run_id is None
    assert repr(effect)
    resource.reconcile()
    resource.wait_settled(60)
    assert types(resource).count(f"effect_{state}") == (2 if state == "indeterminate" else 1)
    history = server.events(aggregate=server.effects()["aggregate_id"].iloc[0])
    assert "effect.retry_started" not in set(history["event_type"]), "what is settled or unknown is left alone"


def test_one_in_doubt_is_observed_before_it_is_applied(server, write, types, until):
    write(
        "box",
        WORLD
        + """
    calls = here / "calls"

    def note(word):
        with open(calls, "a") as file:
            print(word, file=file, flush=True)

    def look():
        note("observe")
        said = (here / "says").read_text()
        if said == "raise":
            raise ValueError("cannot look")
        if said == "nonsense":
            return True
        return {"applied": pw.applied, "not": pw.not_applied, "unsure": lambda: pw.cannot_tell("foggy")}[said]()

    def doing():
        note("apply")
        if not (here / "calm").exists():
            raise ValueError("broken off")

    @m.reconcile
    def reconcile(ctx, resource):
        effect = ctx.effects.ensure("k", "touch", observe=look, apply=doing)
        return ctx.settled(status={"state": effect.state, "error": effect.error})
    """,
    )
    says, calls = server.project / "says", server.project / "calls"
    resource = server.resources.apply("box", "one").wait_settled(60)

    def look(said):
        says.write_text(said)
        calls.write_text("")
        resource.reconcile()
        resource.wait_settled(60)
        return calls.read_text().split(), resource.status.resource_manager_status

    assert calls.read_text().split() == ["apply"], "a new one is not observed"
    assert look("unsure") == (["observe"], {"state": "indeterminate", "error": "foggy"})
    done, status = look("not")
    assert done == ["observe", "apply"]
    assert status["state"] == "indeterminate"
    for said in ("raise", "nonsense"):
        says.write_text(said)
        resource.reconcile()
        until(lambda: server.resource_queue()["consecutive_errors"].sum() > 0)
        says.write_text("unsure")
        resource.reconcile()
        resource.wait_settled(60)
    assert types(resource).count("effect_observe_failed") >= 1
    (server.project / "calm").touch()
    assert look("not")[0] == ["observe", "apply"]
    assert only(server).status == "applied"
    assert look("raise") == ([], {"state": "applied", "error": None}), "a settled one is asked no more"


# -- identity and number ---------------------------------------------------------------------------------------------


def test_a_pass_applies_one_effect(server, payloads, until):
    def reconcile(ctx, resource):
        first = ctx.effects.ensure("first", "touch", observe=pw.cannot_tell, apply=lambda: None)
        try:
            ctx.effects.ensure("second", "touch", observe=pw.cannot_tell, apply=lambda: None)
        except pw.ConflictError as error:
            ctx.record_event("refused", {"error": str(error)})
            return ctx.requeue()
        third = ctx.effects.ensure("first", "touch", observe=pw.cannot_tell, apply=lambda: 1 / 0)
        return ctx.settled(
            status={"states": [first.state, third.state]}, conditions=[pw.condition_true("Ready", "Yes")]
        )

    resource = server.apply(box(reconcile), "one").wait_for("Ready", timeout=60)
    assert resource.status.resource_manager_status == {"states": ["applied", "applied"]}
    assert "return ctx.requeue()" in payloads(resource, "refused")[0]["error"]
    assert list(server.effects()["status"]) == ["applied", "applied"]
    assert len(payloads(resource, "reconcile_finished")) == 2


def test_a_known_key_stands_for_one_kind_and_request(server, until):
    def reconcile(ctx, resource):
        kind, request = resource.spec
        try:
            effect = ctx.effects.ensure("k", kind, request, observe=pw.cannot_tell, apply=lambda: None)
        except pw.PiWorkflowsError as error:
            said = type(error).__name__
        else:
            said = effect.state
        return ctx.settled(status={"said": said}, conditions=[pw.condition_true("Ready", str(resource.generation))])

    manager = box(reconcile)
    for spec, said in [
        (["touch", {"n": 1}], "applied"),
        (["touch", {"n": 2}], "EffectRequestConflictError"),
        (["other", {"n": 1}], "EffectRequestConflictError"),
        (["touch", {"n": 1}], "applied"),
    ]:
        resource = server.apply(manager, "one", spec).wait_for("Ready", timeout=60)
        assert resource.status.resource_manager_status == {"said": said}
    assert len(server.effects()) == 1
    assert len(server.apply(manager, "two", ["touch", {"n": 1}]).wait_for("Ready", timeout=60).effects()) == 1
    assert len(server.effects()) == 2, "a key belongs to its resource"


@pytest.mark.parametrize(
    "call",
    [
        "ctx.effects.ensure('', 'touch', apply=print)",
        "ctx.effects.ensure('k', '', apply=print)",
        "ctx.effects.ensure(3, 'touch', apply=print)",
        "ctx.effects.ensure('k', 'touch')",
        "ctx.effects.ensure('k', 'touch', {1, 2}, apply=print)",
    ],
)
def test_an_effect_that_cannot_be_is_told(server, write, payloads, until, call):
    write("box", f"m = pw.ResourceManager('box')\n@m.reconcile\ndef reconcile(ctx, resource):\n    {call}\n")
    resource = server.resources.apply("box", "one")
    error = until(lambda: payloads(resource, "reconcile_failed"))[0]["error"]
    assert "SIGKILL" not in error
    assert "Error" in error
    assert server.effects().empty


def test_one_of_a_resource_that_is_gone_can_be_confirmed_but_not_tried_again(server, write, until):
    write("box", WORLD + KILLED.format(point="after the world", observe="None"))
    resource = server.resources.apply("box", "one")
    until(lambda: list(server.effects()["status"]) == ["ambiguous"])
    effect = only(server)
    resource.delete(force=True)
    with pytest.raises(ConflictError, match="gone"):
        effect.retry()
    effect.confirm()
    assert effect.status == "applied"
    assert server.verify().empty


def test_an_effect_belongs_to_the_generation_that_the_pass_sees(server, write, until, payloads):
    write(
        "box",
        WORLD
        + """
    @m.reconcile
    def reconcile(ctx, resource):
        (here / "begun").touch()
        while not (here / "gate").exists():
            time.sleep(0.01)
        ctx.effects.ensure("k", "touch", observe=seen, apply=apply)
        return ctx.settled(conditions=[pw.condition_true("Ready", "Yes")])
    """,
    )
    resource = server.resources.apply("box", "one", 1)
    until((server.project / "begun").exists)
    server.resources.apply("box", "one", 2)
    (server.project / "gate").touch()
    resource.wait_for("Ready", timeout=60)
    assert len(world(server)) == 1
    assert resource.generation == 2
