from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pi_workflows_nb.state.database import Database
from tests.state.files import NOW


@pytest.fixture
def database(state_file: Path) -> Iterator[Database]:
    """An open, empty state file."""
    opened = Database.open(state_file, NOW)
    yield opened
    opened.close()
