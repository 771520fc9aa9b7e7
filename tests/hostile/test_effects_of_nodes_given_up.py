"""The effect of a node that holds its runner until it is given up: nobody knows whether it happened."""

from __future__ import annotations

from contextlib import closing

import pytest

from pi_workflows_nb.state.database import open_read_only
from pi_workflows_nb.state.verify import verify
from tests.hostile.nodes import hostile

HOLDS = "import ctypes\nctypes.PyDLL(None).pause()"


@pytest.mark.parametrize("recovery", ["idempotent", "manual"])
def test_it_is_ambiguous_and_the_run_goes_on(host, recovery):
    kind = f'action(effect=pw.{recovery}_effect("t.create"), timeout=0.3)'
    run = host.ended(hostile(HOLDS, kind=kind))
    assert run.output == ["timed_out", None]
    assert list(run.effects().status) == ["ambiguous"]
    assert host.runners(run) == ["timedOut", "exited"]
    with closing(open_read_only(host.server.database, live=True)) as connection:
        assert [finding for finding in verify(connection) if run.id in str(finding)] == []


def test_another_try_applies_an_idempotent_one_under_the_same_key(host, tmp_path):
    mark = tmp_path / "mark"
    first = (
        f"import os\nif os.path.exists({str(mark)!r}):\n    return ctx.effect.attempt_number\n"
        f"open({str(mark)!r}, 'w').close()\n"
    )
    kind = (
        'action(effect=pw.idempotent_effect("t.create"), timeout=0.3,'
        " retries=pw.retry(times=2, backoff=(0.01, 1, 1), on=TimeoutError))"
    )
    run = host.ended(hostile(first + HOLDS, kind=kind))
    assert run.output == ["ok", 2]
    assert list(run.effects().status) == ["applied"]
    assert list(run.effects().attempt_count) == [2]
