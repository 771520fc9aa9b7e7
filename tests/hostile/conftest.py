"""What the tests of hostile surroundings share."""

from __future__ import annotations

import pytest


@pytest.fixture(params=["thread", "process"])
def placement(request):
    return request.param
