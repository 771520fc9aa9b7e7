"""How long a managed resource rests after a failed pass."""

from __future__ import annotations

import random
from typing import Final

BASE_MS: Final = 1_000
CAP_MS: Final = 60_000
JITTER: Final = 0.2


def delay_ms(consecutive_errors: int, chance: float | None = None) -> int:
    """Milliseconds after the given number of errors in a row (1, 2, …): doubling up to a minute, ±20 %.

    `chance` from 0 to 1 decides within these; drawn when it is None.
    """
    drawn = random.random() if chance is None else chance
    whole = min(CAP_MS, BASE_MS * 2 ** min(consecutive_errors - 1, 30))
    return max(1, int(whole * (1 + (2 * drawn - 1) * JITTER) + 0.5))
