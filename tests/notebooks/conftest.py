from __future__ import annotations

import shutil

import pytest

from tests.notebooks.books import NOTEBOOKS


@pytest.fixture
def book(request, tmp_path):
    """The notebook that the test's module calls its `NAME`, in a folder of its own."""
    name = request.module.NAME
    shutil.copyfile(NOTEBOOKS / name, tmp_path / name)
    return tmp_path / name
