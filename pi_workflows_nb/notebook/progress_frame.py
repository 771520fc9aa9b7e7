"""The frame of progress: one row a track, with the estimate that its history allows."""

from __future__ import annotations

from itertools import groupby
from time import time_ns
from typing import TYPE_CHECKING, Any, Final

import pandas as pd

from pi_workflows_nb.wire import canonical_json
from pi_workflows_nb.wire.errors import UpdateError
from pi_workflows_nb.workflows.eta import Eta, Sample, estimate
from pi_workflows_nb.workflows.progress import OVER, STATUS, check_progress, is_progress

from . import frames
from .arrays import TEXT, TIME
from .frame_definitions import FRAMES

if TYPE_CHECKING:
    from .filters import Filters, Moment
    from .reader import Reader

_COLUMNS: Final[dict[str, Any]] = {
    "run_id": TEXT,
    "type": TEXT,
    "key": TEXT,
    "node_id": TEXT,
    "label": TEXT,
    "status": pd.CategoricalDtype(list(STATUS), ordered=True),
    "phase": TEXT,
    "completed": pd.Float64Dtype(),
    "total": pd.Float64Dtype(),
    "unit": TEXT,
    "rate": pd.Float64Dtype(),
    "eta": TIME,
    "eta_earliest": TIME,
    "eta_latest": TIME,
    "eta_confidence": pd.CategoricalDtype(["low", "medium", "high"], ordered=True),
    "eta_source": pd.CategoricalDtype(["measured", "source"], ordered=True),
    "eta_unavailable": TEXT,
    "updated_at": TIME,
}
_INDEX: Final = ("run_id", "type", "key")
_ENDED_ATTEMPT: Final = ("completed", "failed", "timed_out", "cancelled", "interrupted")


def read(reader: Reader, filters: Filters, now: Moment | None) -> pd.DataFrame:
    """One row for each track of the chosen updates."""
    moment = time_ns() // 1_000_000 if now is None else frames.milliseconds(now)
    frame = FRAMES["updates"]
    conditions, parameters = frames.conditions(frame, filters)
    conditions.append("u.recorded_at <= ?")
    parameters.append(moment)
    sql = (
        "SELECT u.run_id, u.update_type, u.update_key, u.node_id, u.attempt_id, u.attempt_status, u.recorded_at,"
        f" b.content FROM {frame.source} JOIN blobs b ON b.blob_hash = u.data_hash WHERE {' AND '.join(conditions)}"
        " ORDER BY min(u.position) OVER (PARTITION BY u.run_id, u.update_type, u.update_key), u.position"
    )
    with reader.snapshot() as connection:
        found = connection.execute(sql, parameters)
        tracks = [_track(list(rows), moment) for _, rows in groupby(found, key=lambda row: tuple(row[:3]))]
    table = [track for track in tracks if track is not None]
    result = pd.DataFrame(
        {name: pd.array([row[name] for row in table], dtype=dtype) for name, dtype in _COLUMNS.items()}
    ).set_index(list(_INDEX))
    result.attrs["source"] = f"workflow_updates with node_attempts; one row a track\n{sql}"
    return result


def _track(rows: list[tuple[Any, ...]], now: int) -> dict[str, Any] | None:
    samples = []
    for row in rows:
        data = canonical_json.decode(row[7])
        if _is_sound(data):
            samples.append(Sample(row[6], data, row[4]))
        else:
            samples.clear()
    if not samples:
        return None
    newest, data = rows[-1], samples[-1].data
    eta = estimate(samples, now)
    if newest[5] in _ENDED_ATTEMPT and data["status"] not in OVER:
        eta = Eta(why="its node has ended", rate=eta.rate)
    return {
        "run_id": newest[0],
        "type": newest[1],
        "key": newest[2],
        "node_id": newest[3],
        **{name: data.get(name) for name in ("label", "status", "phase", "completed", "total", "unit")},
        "rate": eta.rate,
        "eta": _time(eta.finish_at),
        "eta_earliest": _time(eta.earliest),
        "eta_latest": _time(eta.latest),
        "eta_confidence": eta.confidence,
        "eta_source": eta.source,
        "eta_unavailable": eta.why,
        "updated_at": _time(newest[6]),
    }


def _is_sound(data: dict[str, Any]) -> bool:
    """Whether it is progress; a file that others wrote may hold something else under that name."""
    if not is_progress(data):
        return False
    try:
        check_progress(data)
    except UpdateError:
        return False
    return True


def _time(milliseconds: int | None) -> pd.Timestamp | None:
    return None if milliseconds is None else pd.Timestamp(milliseconds, unit="ms", tz="UTC")
