"""What every test gets: a state folder of its own, and a check that it leaves nothing behind."""

from __future__ import annotations

import hashlib
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from jupyter_core.utils import ensure_event_loop

from tests.leaks import Snapshot, kept_alive, living, mark_session


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="run randomized tests in their long form")


def pytest_configure() -> None:
    mark_session()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # As in everything that a shell has started in the background; a kernel can be interrupted.
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def long_form(pytestconfig: pytest.Config) -> bool:
    """Whether counts of trials are those of the long form."""
    return bool(pytestconfig.getoption("--long"))


@pytest.fixture(scope="session")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("homes")


@pytest.fixture(scope="session", autouse=True)
def jupyter_loop() -> Iterator[None]:
    """Jupyter keeps one event loop from its first blocking call on; made before any test, it is nobody's leak."""
    loop = ensure_event_loop()
    yield
    loop.close()


@pytest.fixture(scope="module", autouse=True)
def keeps_nothing_alive() -> Iterator[None]:
    """Once for a file of tests: to look at every object takes a while."""
    before = living()
    yield
    if kept := kept_alive(before):
        pytest.fail("kept alive by this file of tests:\n  " + "\n  ".join(kept), pytrace=False)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Let go of what a test was given before it is asked what is kept: pytest itself does so afterwards."""
    if isinstance(item, pytest.Function):
        item.funcargs.clear()


@pytest.fixture(autouse=True)
def leaves_nothing_behind() -> Iterator[None]:
    before = Snapshot.take()
    yield
    if left := before.left():
        before.end_processes()
        pytest.fail("left behind by this test:\n  " + "\n  ".join(left), pytrace=False)


@pytest.fixture(autouse=True)
def state_folder(
    leaves_nothing_behind: None, homes: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """The default state folder of this test, not made yet. The name is short because sockets lie in it."""
    folder = homes / hashlib.sha256(request.node.nodeid.encode()).hexdigest()[:8]
    monkeypatch.setenv("PI_WORKFLOWS_HOME", str(folder))
    return folder


@pytest.fixture
def state_file(tmp_path: Path) -> Path:
    """Where a state file may be made; nothing is there yet."""
    return tmp_path / "state.sqlite"
