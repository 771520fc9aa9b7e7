"""What a running node may publish about itself, and how often."""

from __future__ import annotations

import re
from collections.abc import Iterable
from time import monotonic
from typing import Any, Final

from pi_workflows_nb.wire import canonical_json
from pi_workflows_nb.wire.errors import UpdateError
from pi_workflows_nb.workflows.history import to_canonical
from pi_workflows_nb.workflows.progress import check_progress, is_progress

TYPE: Final = re.compile(r"[a-z][a-z0-9.-]{0,63}")
KEY: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}")
MAX_BYTES: Final = 64 << 10
MAX_PAIRS: Final = 1024
BURST: Final = 100.0
PER_SECOND: Final = 20.0


def checked_update(update_type: Any, key: Any, data: Any) -> bytes:
    """Give the canonical JSON of an update's data, or raise `UpdateError` or `NotJsonError`."""
    if not isinstance(update_type, str) or not TYPE.fullmatch(update_type):
        raise UpdateError(
            f"publish_update: {update_type!r} cannot be a type; use lower-case letters, digits, `.`, `-`, as 'progress'"
        )
    if not isinstance(key, str) or not KEY.fullmatch(key):
        raise UpdateError(
            f"publish_update: {key!r} cannot be a key; use letters, digits and `._:/-`, at most 128, as 'overall'"
        )
    if not isinstance(data, dict):
        raise UpdateError(f"publish_update: the data must be a dict, not {type(data).__name__}")
    encoded = to_canonical(data)
    if is_progress(data):
        check_progress(canonical_json.decode(encoded))
    if len(encoded) > MAX_BYTES:
        raise UpdateError(
            f"publish_update: the data of {update_type}/{key} has {len(encoded):,} bytes of JSON, and {MAX_BYTES:,} is "
            "the most. Return large values from the node instead"
        )
    return encoded


class UpdateLimits:
    """The allowance of one run: a token bucket, and so many different (type, key) pairs.

    `pairs` are those that the run has already, and `recent` is how many updates it published in the last five seconds,
    the time in which an empty bucket fills: what is left in it now is at least what they have not taken.
    """

    def __init__(self, pairs: Iterable[tuple[str, str]] = (), recent: int = 0) -> None:
        self._tokens = max(0.0, BURST - recent)
        self._at = monotonic()
        self._pairs = set(pairs)

    def take(self, update_type: str, key: str) -> None:
        """Count one update, or raise `UpdateError`; an update that is refused costs nothing."""
        now = monotonic()
        self._tokens = min(BURST, self._tokens + (now - self._at) * PER_SECOND)
        self._at = now
        if self._tokens < 1:
            raise UpdateError(
                f"publish_update: too many updates; a run may publish {PER_SECOND:.0f} a second and {BURST:.0f} at "
                "once. Publish every so often, not for every item"
            )
        if (update_type, key) not in self._pairs:
            if len(self._pairs) >= MAX_PAIRS:
                raise UpdateError(
                    f"publish_update: {update_type}/{key} would be one pair of type and key too many; a run has at "
                    f"most {MAX_PAIRS:,}. Use a key again: its newest data is what is shown"
                )
            self._pairs.add((update_type, key))
        self._tokens -= 1
