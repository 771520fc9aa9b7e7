"""When something will be done, as far as its progress tells: pure functions, times in milliseconds since the epoch.

A rate is measured over intervals in which `completed` grew. What lies between two kinds of work (another phase, unit or
total, a count that starts again, a track that lives again) is no such interval, and neither is a time in which the
track was not running.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Any, Final, Literal

from pi_workflows_nb.workflows.progress import OVER, moment

INTERVALS: Final = 8
FRESH_MS: Final = 5 * 60_000
"""For how long an estimate that somebody else made counts."""

Confidence = Literal["low", "medium", "high"]


@dataclass(frozen=True, slots=True)
class Sample:
    """One published progress: `at` when it was recorded, `attempt_id` which attempt of its node said so."""

    at: int
    data: Mapping[str, Any]
    attempt_id: str = ""

    @property
    def measured_at(self) -> int:
        """When it was so, by the source's own clock where that says."""
        said = moment(self.data.get("sourceUpdatedAt"))
        return self.at if said is None else said


@dataclass(frozen=True, slots=True)
class Eta:
    """An estimate. Without one `finish_at` is None and `why` says the reason.

    `source` tells whether it was `measured` or the `source` of the progress said so. A measured one has a rate (units a
    second), a range from `earliest` to `latest`, and a confidence.
    """

    finish_at: int | None = None
    source: Literal["measured", "source"] | None = None
    rate: float | None = None
    earliest: int | None = None
    latest: int | None = None
    confidence: Confidence | None = None
    why: str | None = None

    def __str__(self) -> str:
        return f"ETA unavailable: {self.why}" if self.finish_at is None else f"ETA {self.finish_at} ({self.source})"


def estimate(samples: Iterable[Sample], now: int) -> Eta:
    """The estimate that all samples of one track allow, oldest first."""
    rates: list[float] = []
    before: Sample | None = None
    anchor: Sample | None = None
    known: float = 0
    for sample in samples:
        done = sample.data.get("completed", known)
        if before is not None and (done < known or _another_epoch(before.data, sample.data)):
            rates, anchor = [], None
        known = done
        if sample.data["status"] != "running" or "completed" not in sample.data:
            anchor = None
        elif anchor is None or anchor.attempt_id != sample.attempt_id:
            anchor = sample
        elif (gained := sample.data["completed"] - anchor.data["completed"]) > 0:
            milliseconds = sample.measured_at - anchor.measured_at
            if milliseconds > 0:
                rates.append(1000 * gained / milliseconds)
                anchor = sample
        before = sample
    if before is None:
        return Eta(why="nothing was published")
    return _from_source(before, now) or _measured(before, rates[-INTERVALS:], now)


def _another_epoch(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    if any(before.get(field) != after.get(field) for field in ("phase", "unit", "total")):
        return True
    return before["status"] in OVER and after["status"] not in OVER


def _from_source(newest: Sample, now: int) -> Eta | None:
    finish_at = moment(newest.data.get("sourceEstimatedFinishAt"))
    if finish_at is None or newest.data["status"] in OVER:
        return None
    if finish_at < now or now - newest.measured_at > FRESH_MS:
        return None
    return Eta(finish_at, "source")


def _measured(newest: Sample, rates: list[float], now: int) -> Eta:
    status, total, done = newest.data["status"], newest.data.get("total"), newest.data.get("completed")
    rate = median(rates) if rates else None
    if status != "running":
        return Eta(why=f"it is {status}", rate=rate)
    if total is None or done is None:
        return Eta(why="its total is not known" if total is None else "nothing says how much is done", rate=rate)
    if done > total:
        return Eta(why="more is done than its total", rate=rate)
    if rate is None:
        return Eta(why="no interval has been measured yet")
    slow, fast = (rate, rate) if len(rates) == 1 else _quartiles(rates)
    left, start = total - done, newest.measured_at
    finish_at, earliest, latest = (_after(start, left, each) for each in (rate, fast, slow))
    if finish_at is None or earliest is None or latest is None:
        return Eta(why="it is too far away", rate=rate)
    if latest < now:
        return Eta(why="it is late, and nothing new was published", rate=rate)
    return Eta(
        max(now, finish_at), "measured", rate, max(now, earliest), latest, _confidence(len(rates), (fast - slow) / rate)
    )


def _quartiles(rates: list[float]) -> tuple[float, float]:
    first, _, third = quantiles(rates, n=4, method="inclusive")
    return first, third


def _after(start: int, left: float, rate: float) -> int | None:
    milliseconds = 1000 * left / rate
    # 9999-12-31, the last day that a frame, a browser and Python can all show.
    return round(start + milliseconds) if start + milliseconds < 253_402_214_400_000 else None


def _confidence(intervals: int, spread: float) -> Confidence:
    if intervals == 1:
        return "low"
    if intervals >= 5 and spread <= 0.25:
        return "high"
    return "medium" if spread <= 0.5 else "low"
