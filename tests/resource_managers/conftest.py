from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pi_workflows_nb.resource_managers.store import SqliteResourceManagerStore
from pi_workflows_nb.state.database import Database
from tests.state.files import NOW

LEASE = 30_000


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
