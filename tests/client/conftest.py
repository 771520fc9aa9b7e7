"""A served file, and clients of it that are written byte by byte."""

from __future__ import annotations

import pytest

import pi_workflows_nb as pw
from pi_workflows_nb.wire.sockets import socket_path
from tests.client.raw import RawClient
from tests.hostile.surroundings import sound


@pytest.fixture(params=["thread", "process"])
def placement(request):
    return request.param


@pytest.fixture
def server(tmp_path, placement):
    with pw.start(database=tmp_path / "s.sqlite", project=tmp_path, server=placement) as served:
        yield served
    sound(tmp_path / "s.sqlite")


@pytest.fixture
def connect(server, state_folder):
    """Makes raw clients, which are closed at the end."""
    made = []

    def client(**how):
        made.append(RawClient(socket_path(server.database, state_folder), **how))
        return made[-1]

    yield client
    for one in made:
        one.close()


@pytest.fixture
def gated(tmp_path):
    """A workflow of two steps; the first waits until the file `gate` is there."""
    gate = tmp_path / "gate"
    wf = pw.Workflow("gated", start_at="first")

    @wf.compute
    def first(ctx):
        import time

        while not gate.exists():
            time.sleep(0.01)
        return 1

    @wf.compute
    def second(ctx):
        return 2

    wf.edge("first", "second")
    wf.gate = gate
    return wf
