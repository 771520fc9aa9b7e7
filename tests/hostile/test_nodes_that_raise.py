"""Nodes that raise what ends other programs, or where nobody expects it: they fail, with the lines of their cell."""

from __future__ import annotations

import pytest

from tests.hostile.nodes import hostile, printed


@pytest.mark.parametrize("define", ["def", "async def"])
@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ("raise SystemExit(7)", "SystemExit: 7"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("raise GeneratorExit", "GeneratorExit"),
        ("import sys; sys.exit('enough')", "SystemExit: enough"),
    ],
)
def test_what_ends_programs_fails_a_node(host, statement, named, define):
    run = host.ended(hostile(f"x = 1\n{statement}", define=define))
    assert run.output == ["failed", None]
    outcome, error = host.step(run)
    assert outcome == "failed"
    assert error.startswith(named)
    assert f"    {statement}" in error
    assert "in bad" in error
    assert "ipykernel_1" in error
    assert host.runners(run) == ["exited"]


def test_an_error_that_cannot_be_shown_fails_a_node(host):
    run = host.ended(
        hostile("""
        class Worst(Exception):
            def __str__(self):
                raise SystemExit(1)
            __repr__ = __str__
        raise Worst
        """)
    )
    assert run.output == ["failed", None]
    assert "Worst" in host.step(run)[1]


def test_errors_in_finalizers_threads_and_exit_handlers_are_printed_and_hurt_nothing(host):
    run = host.ended(
        hostile("""
        import atexit, threading, weakref

        class Leaves:
            def __del__(self):
                raise SystemExit("in a finalizer")

        def in_a_thread():
            raise SystemExit("in a thread, silently")

        def in_another_thread():
            raise RuntimeError("in a thread")

        @atexit.register
        def at_exit():
            raise RuntimeError("at exit")

        Leaves()
        for target in (in_a_thread, in_another_thread):
            thread = threading.Thread(target=target)
            thread.start()
            thread.join()
        # One that is still there at the end, and one that is collected by whoever comes next.
        threading.Thread(target=threading.Event().wait).start()
        cycle = Leaves()
        cycle.itself = cycle
        return "returned"
        """)
    )
    assert run.output == ["ok", "returned"]
    text = printed(run)
    assert "in a finalizer" in text
    assert "RuntimeError: in a thread" in text
    assert "at exit" not in text
    assert host.runners(run) == ["exited"]


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("{'a': [1, float('nan')]}", "$.a[1]"),
        ("float('-inf')", "-inf is not JSON"),
        ("{'made': object()}", "an object is not JSON"),
        ("[b'bytes']", "$[0]"),
        ("{1: 2}", "the key 1"),
        ("2**60", "use a string"),
        ("(lambda: 1)", "function is not JSON"),
    ],
)
def test_what_is_no_json_fails_a_node_and_says_where(host, value, told):
    run = host.ended(hostile(f"return {value}"))
    assert run.output == ["failed", None]
    error = host.step(run)[1]
    assert told in error
    assert "NotJsonError" in error


@pytest.mark.parametrize(
    "body",
    [
        "value = []\nfor _ in range(100_000):\n    value = [value]\nreturn value",
        "value = []\nvalue.append(value)\nreturn value",
        "class Sly(dict):\n    def items(self):\n        raise SystemExit('sly')\nreturn Sly()",
    ],
    ids=["deep", "circular", "a dict that raises"],
)
def test_values_made_to_hurt_end_a_node_at_most(host, body):
    run = host.ended(hostile(body))
    assert run.status == "completed"
    assert run.output[0] in ("failed", "ok")
