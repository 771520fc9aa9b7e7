"""One JupyterLab for a file of tests, a window for each test. Without a Chromium there is nothing to look with."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.lab import Book, Lab, browser_page, chromium

REQUIRED = "PI_WORKFLOWS_NB_REQUIRE_BROWSER"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, homes: Path) -> Iterator[Lab]:
    if chromium() is None:
        if os.environ.get(REQUIRED):
            pytest.fail(f"no Chromium was found, and {REQUIRED} is set")
        pytest.skip("no Chromium was found")
    started = Lab(tmp_path_factory.mktemp("lab"), homes / "lab")
    yield started
    started.close()


@pytest.fixture
def book(lab: Lab, state_folder: Path) -> Iterator[Book]:
    with browser_page() as page:
        yield Book(page, lab)
    lab.end_kernels()
