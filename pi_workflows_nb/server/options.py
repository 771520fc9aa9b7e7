"""How a server is to be run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ..state.transitions import RUN_LEASE_MS
from ..wire.runner_messages import RUN_AHEAD_STEPS
from ..workflows.nodes import DEFAULT_TIMEOUT

OVERDUE_SECONDS: Final = 5.0
LOADING_SECONDS: Final = DEFAULT_TIMEOUT
MAX_PASSES: Final = 4
"""Passes over managed resources at once."""


RETENTION_MS: Final = 30 * 24 * 3600 * 1000


@dataclass(frozen=True)
class Options:
    """What may differ from server to server.

    `run_ahead` is the number of unanswered compute steps a runner may be ahead; `run_lease_ms` how long a claim on a
    run lasts without renewal; `overdue_seconds` how long after a node's deadline a silent runner is given up;
    `loading_seconds` how long a runner may take to load its source, as long as a node by default;
    `max_passes` how many managed resources are looked at at once; `retention_ms` after what time trees of runs that
    ended leave the file, None for never.
    """

    max_runners: int
    preload: tuple[str, ...] = ()
    run_ahead: int = RUN_AHEAD_STEPS
    in_kernel: bool = False
    run_lease_ms: int = RUN_LEASE_MS
    max_passes: int = MAX_PASSES
    overdue_seconds: float = OVERDUE_SECONDS
    loading_seconds: float = LOADING_SECONDS
    retention_ms: int | None = RETENTION_MS

    @classmethod
    def of_json(cls, given: Mapping[str, Any], *, in_kernel: bool) -> Options:
        """From what a kernel passes to a server: `maxRunners`, `preload`, `runAhead`; lease and patience if given."""
        return cls(
            max_runners=given["maxRunners"],
            preload=tuple(given["preload"]),
            run_ahead=given["runAhead"],
            in_kernel=in_kernel,
            max_passes=given.get("maxPasses", MAX_PASSES),
            run_lease_ms=given.get("runLeaseMs", RUN_LEASE_MS),
            overdue_seconds=given.get("overdueSeconds", OVERDUE_SECONDS),
            loading_seconds=given.get("loadingSeconds", LOADING_SECONDS),
            retention_ms=given.get("retentionMs", RETENTION_MS),
        )
