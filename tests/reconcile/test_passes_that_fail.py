"""Passes that never end, take no notice, raise or answer nonsense: recorded, made again, hurting nobody else."""

from __future__ import annotations

import pytest

GOOD = """
    m = pw.ResourceManager("good")

    @m.reconcile
    def reconcile(ctx, resource):
        return ctx.settled(conditions=[pw.condition_true("Ready", "Yes")])
"""


def bad(body, timeout=60):
    return f"""
    import asyncio
    m = pw.ResourceManager("bad", timeout={timeout})

    @m.reconcile
    def reconcile(ctx, resource):
        if (here / "healed").exists():
            return ctx.settled(conditions=[pw.condition_true("Ready", "Yes")])
        with open(here / "passes", "a") as file:
            print(os.getpid(), file=file, flush=True)
        {body}
    """


NEVER = {
    "spins": "while True: pass",
    "sleeps": "time.sleep(1000)",
    "async": "return asyncio.sleep(1000)",
    "takes no notice": """
        while True:
            try:
                time.sleep(1000)
            except BaseException:
                pass""",
    "ignores SIGTERM": "signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(1000)",
    "stops itself": "os.kill(os.getpid(), signal.SIGSTOP)",
}


@pytest.mark.parametrize("how", NEVER)
def test_a_pass_that_never_ends_is_stopped_recorded_and_made_again(server, write, until, types, payloads, how):
    write("bad", bad(NEVER[how], timeout=0.4))
    write("good", GOOD)
    resource = server.resources.apply("bad", "one")
    failed = until(lambda: payloads(resource, "reconcile_failed"))
    assert set(failed[0]) == {"durationMs", "error", "reconcileId", "requeueAfterMs"}
    assert failed[0]["error"] == "the pass took longer than 0.4 s and was stopped"
    server.resources.apply("good", "one").wait_for("Ready", timeout=60)
    (server.project / "healed").touch()
    resource.wait_for("Ready", timeout=60)
    assert server.resource_queue().empty or server.resource_queue()["consecutive_errors"].max() == 0


def test_each_failure_in_a_row_doubles_the_rest(server, write, until, payloads):
    write("bad", bad("raise ValueError('no <b>luck</b>')"))
    resource = server.resources.apply("bad", "one")
    until(lambda: len(payloads(resource, "reconcile_failed")) >= 3)
    failed = payloads(resource, "reconcile_failed")
    for number, one in enumerate(failed):
        assert 0.8 * 1000 * 2**number <= one["requeueAfterMs"] <= 1.2 * 1000 * 2**number
        assert "ValueError: no <b>luck</b>" in one["error"]
        assert "bad.resource_manager.py" in one["error"], "with the line that raised"
    row = server.resource_queue(payloads=True).iloc[0]
    assert row["consecutive_errors"] == len(payloads(resource, "reconcile_failed"))
    assert "no <b>luck</b>" in row["error"]
    assert "ValueError" in repr(resource)
    (server.project / "healed").touch()
    resource.reconcile()
    resource.wait_for("Ready", timeout=60).wait_settled(60)
    assert server.resource_queue().empty, "the count of errors goes with the row"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("return None", "returns ctx.settled"),
        ("return {'phase': 'x'}", "returns ctx.settled"),
        ("return ctx.settled", "returns ctx.settled"),
        ("return ctx.settled(status={1, 2})", "JSON"),
        ("return ctx.settled(status=float('nan'))", "JSON"),
        ("return ctx.settled(status='x' * (1 << 20))", "is the most"),
        ("return ctx.settled(finalizers=['a', 'a'])", "finalizer"),
        ("return ctx.settled(finalizers=[3])", "finalizer"),
        ("return ctx.settled(conditions=['Ready'])", "conditions="),
        ("return ctx.requeue_after(-1)", "seconds"),
        ("return ctx.requeue_after(10 ** 30)", "seconds"),
        ("raise SystemExit(3)", "exit"),
        ("os._exit(0)", "exit code 0"),
        ("os._exit(7)", "exit code 7"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "SIGKILL"),
        ("os.kill(0, signal.SIGKILL)", "SIGKILL"),
        ("os.closerange(0, 100)", ""),
        ("return (x for x in ())", "returns ctx.settled"),
        ("raise type('E', (Exception,), {'__str__': lambda s: 1 / 0})()", ""),
        ("import ctypes; ctypes.string_at(0)", "SIGSEGV"),
    ],
)
def test_nonsense_is_an_error_with_words_and_hurts_nobody(server, write, until, payloads, body, said):
    write("bad", bad(body))
    write("good", GOOD)
    resource = server.resources.apply("bad", "one")
    failed = until(lambda: payloads(resource, "reconcile_failed"))
    assert said in failed[0]["error"]
    assert len(failed[0]["error"].encode("utf-16-le")) <= 2 * 8193
    server.resources.apply("good", "one").wait_for("Ready", timeout=60)
    (server.project / "healed").touch()
    resource.reconcile()
    resource.wait_for("Ready", timeout=60)


def test_what_a_pass_leaves_behind_is_gone_with_it(server, write, until):
    write(
        "box",
        """
        import subprocess
        m = pw.ResourceManager("box")

        @m.reconcile
        def reconcile(ctx, resource):
            child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
            return ctx.settled(status={"pid": child.pid}, conditions=[pw.condition_true("Ready", "Yes")])
        """,
    )
    from pathlib import Path

    resource = server.resources.apply("box", "one").wait_for("Ready", timeout=60)
    pid = resource.status.resource_manager_status["pid"]
    until(lambda: not Path(f"/proc/{pid}").exists())


def test_a_server_that_stops_hands_passes_back_without_an_error(server, write, until, again, types):
    write("bad", bad("time.sleep(1000)"))
    resource = server.resources.apply("bad", "one")
    until((server.project / "passes").exists)
    server.stop()
    (server.project / "healed").touch()
    served = again()
    found = served.resources.get("bad", "one")
    found.wait_for("Ready", timeout=60)
    assert "reconcile_failed" not in types(found)
    assert found.uid == resource.uid
    assert served.verify().empty


@pytest.mark.parametrize(
    "message", ["b'nonsense\\n'", "b'{\"a\":1}\\n'", "b'\\xff' * 100 + b'\\n'", "b'x' * (80 << 20)"]
)
def test_a_pass_that_writes_into_its_channel_is_stopped_alone(server, write, until, payloads, message):
    write(
        "bad",
        bad(f"""
        for path in pathlib.Path("/proc/self/fd").iterdir():
            try:
                if os.readlink(path).startswith("socket:"):
                    os.set_blocking(int(path.name), True); open(int(path.name), "wb", closefd=False).write({message})
            except OSError:
                pass
        time.sleep(1000)"""),
    )
    write("good", GOOD)
    resource = server.resources.apply("bad", "one")
    assert "protocol" in until(lambda: payloads(resource, "reconcile_failed"))[0]["error"]
    server.resources.apply("good", "one").wait_for("Ready", timeout=60)
