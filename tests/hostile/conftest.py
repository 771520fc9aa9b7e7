"""What the tests of hostile surroundings share."""

from __future__ import annotations

import pytest

from tests.hostile.nodes import Host


@pytest.fixture(params=["thread", "process"])
def placement(request):
    return request.param


@pytest.fixture(scope="module", params=["thread", "process"])
def lasting_host(request, tmp_path_factory, homes):
    """One server for all tests of a file: what one node does must not even be noticed by the next one's run."""
    host = Host(tmp_path_factory.mktemp("nodes"), homes / "nodes", request.param)
    yield host
    host.close()


@pytest.fixture
def host(lasting_host):
    """The server and its neighbour, looked after."""
    since = len(lasting_host.ticks())
    yield lasting_host
    lasting_host.check_unnoticed(since)


@pytest.fixture
def short_lease(tmp_path, state_folder, placement):
    """A server whose claims last 2 s."""
    host = Host(tmp_path / "host", state_folder, placement, runLeaseMs=2000)
    yield host
    host.check_unnoticed(0)
    host.close()
