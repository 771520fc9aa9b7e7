"""What a command gives to whoever asked for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass
class Receipt:
    """What a command gave: its receipt, and the run and revision it is about."""

    receipt: dict[str, Any]
    run_id: str | None = None
    revision: int | None = None
    adopted: bool = False
