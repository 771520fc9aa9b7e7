from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pi_workflows_nb.resource_managers.store import SqliteResourceManagerStore
from pi_workflows_nb.state import runs
from pi_workflows_nb.state.database import Database
from pi_workflows_nb.wire import canonical_json, identities
from tests.state.files import NOW
from tests.state.lives import DEFINITION

LEASE = 30_000


def new_run(run_id, session=None, **given):
    """A run to be made; `session` makes it interactive."""
    frozen = canonical_json.encode({"mac": "", "pickle": None, "python": "3.11", "text": "x"})
    return runs.NewRun(
        **{
            "run_id": run_id, "workflow_name": "w", "project_id": "", "snapshot": canonical_json.encode(DEFINITION),
            "input": b'{"n":1}', "launch_options": runs.LaunchOptions(identities.sha256_hex(frozen)).encode(),
            "source": {"type": "file", "ref": "inline:w", "revision": "00"}, "frozen": frozen,
            "session_id": session or f"headless:{run_id}", "mode": "interactive" if session else "headless",
        }
        | given
    )  # fmt: skip


class HandClock:
    """A clock that moves when it is told to."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def database(state_file: Path) -> Iterator[Database]:
    opened = Database.open(state_file, NOW)
    yield opened
    opened.close()


@pytest.fixture
def store(database: Database, tmp_path: Path, clock: HandClock) -> SqliteResourceManagerStore:
    """The store of one project, over a new file."""
    return SqliteResourceManagerStore(database, tmp_path, clock=clock)


@pytest.fixture
def claimed(store):
    """A resource `key` of `manager`, claimed by `owner`."""
    store.put_resource("manager", "key", {"size": 1})
    return store.claim_next(["manager"], "owner", LEASE)
