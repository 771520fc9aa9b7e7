"""Runs of five nodes, queued all at once or for a time, and what came of them."""

from __future__ import annotations

import statistics
import time
import uuid
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pi_workflows_nb as pw
from pi_workflows_nb.state.database import open_read_only
from pi_workflows_nb.state.verify import verify
from tests.trials.family import MARK, Family
from tests.trials.trial import environment

from .gauge import Gauge, Sample

NODES = 5
FLAT_BYTES = 4 << 20
CACHE_BYTES = 64_000 << 10
"""SQLite keeps so much of a file in memory at most: a server may grow by what its file grew up to this, and by
`FLAT_BYTES`."""


@dataclass
class Soak:
    """What a load came to: waits in seconds from submission to start, the curves, and what was wrong."""

    runs: int = 0
    seconds: float = 0.0
    waits: list[float] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    @property
    def longest_to_median(self) -> float:
        """The longest wait as a multiple of the median one."""
        return max(self.waits) / statistics.median(self.waits)


def workflow() -> Any:
    """Five nodes, each of which counts what it was given."""
    wf = pw.Workflow("soak", start_at="n0")
    for number in range(NODES):
        wf.compute(lambda ctx: {"n": len(ctx.outputs)}, name=f"n{number}")
        if number:
            wf.edge(f"n{number - 1}", f"n{number}")
    return wf


def _holding(gate: str) -> Any:
    """One node that holds a runner until the gate is there, so that all others are queued meanwhile."""
    wf = pw.Workflow("holder", start_at="hold")

    @wf.compute
    def hold(ctx):
        import os
        import time

        while not os.path.exists(gate):
            time.sleep(0.01)

    return wf


def soak(
    folder: Path, *, runs: int, minutes: float | None = None, runners: int = 8, placement: str = "process"
) -> Soak:
    """Queue `runs` runs at once and wait until all have ended; with `minutes`, queue as many again until then."""
    came, mark = Soak(), uuid.uuid4().hex
    family = Family(mark)
    (folder / "project").mkdir(parents=True)
    with environment(**{MARK: mark, "PI_WORKFLOWS_HOME": str(folder / "home")}):
        server = pw.start(
            database=folder / "s.sqlite",
            project=folder / "project",
            server=placement,  # type: ignore[arg-type]
            max_runners=runners,
        )
        begun, ended = time.monotonic(), []
        gauge = Gauge(server._link.connection.server_pid, server.database, ended)
        try:
            wf, gate = workflow(), folder / "gate"
            holders = [server.run(_holding(str(gate)), key=f"holder {number}") for number in range(runners)]
            while not came.runs or (minutes is not None and time.monotonic() - begun < minutes * 60):
                batch = [server.run(wf, {"number": came.runs + number}) for number in range(runs)]
                came.runs += runs
                gate.touch()
                for run in batch:
                    run.wait(timeout=600)
                    ended.append(run.id)
            for run in holders:
                run.wait()
        finally:
            came.seconds = time.monotonic() - begun
            gauge.close()
            server.stop()
        came.samples = gauge.samples
        # The process that started the server carries no mark.
        came.faults += family.left(5)
    _read(came, server.database)
    came.faults += growth(came.samples)
    return came


def _read(came: Soak, database: Path) -> None:
    with closing(open_read_only(database)) as connection:
        came.faults += [str(finding) for finding in verify(connection) if finding.severity == "error"]
        rows = connection.execute(
            "SELECT r.status, r.created_at, q.started_at, (SELECT count(*) FROM run_steps s WHERE s.run_id = r.run_id)"
            " FROM runs r JOIN run_queue q USING (run_id) JOIN workflow_definitions d USING (definition_digest)"
            " WHERE d.workflow_name = 'soak'"
        ).fetchall()
    came.faults += [
        f"a run is {row[0]} with {row[3]} steps" for row in rows if row[0] != "completed" or row[3] != NODES
    ]
    if len(rows) != came.runs:
        came.faults.append(f"{came.runs} runs were started, {len(rows)} are there")
    came.waits = [(row[2] - row[1]) / 1000 for row in rows]


def growth(samples: Sequence[Sample]) -> list[str]:
    """What grew from the second third of a load to its end."""
    if len(samples) < 12:
        return []
    third = len(samples) // 3
    parts = samples[third : 2 * third], samples[2 * third :]

    def medians(name: str) -> list[float]:
        return [statistics.median(getattr(one, name) for one in part) for part in parts]

    cached = [min(size, CACHE_BYTES) for size in medians("file_bytes")]
    allowed = {
        "server_bytes": FLAT_BYTES + cached[1] - cached[0],
        "nursery_bytes": FLAT_BYTES,
        "descriptors": 8,
        "threads": 2,
    }
    return [
        f"{name} grew from {before:,.0f} to {after:,.0f}"
        for name, most in allowed.items()
        for before, after in [medians(name)]
        if after > before + most
    ]
