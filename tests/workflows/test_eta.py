"""Estimates of the end: which intervals count, what they give, how sure it is, and why there is none."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pi_workflows_nb.workflows.eta import FRESH_MS, Sample, estimate
from pi_workflows_nb.workflows.progress import PROGRESS

T0 = 1_767_225_600_000


def at(seconds, completed=None, total=100, status="running", unit="rows", attempt="a", **fields):
    data = {"schema": PROGRESS, "status": status, "unit": unit, **fields}
    if completed is not None:
        data["completed"] = completed
    if total is not None:
        data["total"] = total
    return Sample(T0 + round(1000 * seconds), data, attempt)


def counted(*counts, every=1.0, **fields):
    return [at(number * every, count, **fields) for number, count in enumerate(counts)]


def left(eta, now=T0):
    return None if eta.finish_at is None else (eta.finish_at - now) / 1000


def test_one_interval_is_a_point_of_low_confidence():
    eta = estimate(counted(0, 10), T0 + 1000)
    assert (eta.rate, eta.confidence, eta.source, left(eta, T0 + 1000)) == (10, "low", "measured", 9)
    assert eta.earliest == eta.finish_at == eta.latest


@pytest.mark.parametrize(
    ("gains", "confidence"),
    [
        ((10, 10), "medium"),
        ((10, 10, 10, 10), "medium"),
        ((10, 30), "medium"),  # quartiles 15 and 25 around 20: a spread of exactly a half
        ((10, 31), "low"),
        ((10, 10, 10, 10, 10), "high"),
        ((8, 9, 10, 11.5, 12), "high"),  # quartiles 9 and 11.5: exactly a quarter
        ((8, 9, 10, 11.6, 12), "medium"),
        ((6, 7, 10, 12, 30), "medium"),
        ((6, 7, 10, 12.1, 30), "low"),
    ],
)
def test_confidence_by_number_of_intervals_and_spread(gains, confidence):
    counts = np.concatenate([[0], np.cumsum(gains)]).tolist()
    assert estimate(counted(*counts, total=1000), T0).confidence == confidence


def test_the_range_is_that_of_the_quartiles_and_the_newest_eight_intervals_count():
    gains = [900, 1, 2, 3, 4, 5, 6, 7, 8]
    counts = np.concatenate([[0], np.cumsum(gains)]).tolist()
    eta = estimate(counted(*counts, total=1000), T0)
    slow, middle, fast = np.percentile(gains[1:], [25, 50, 75])
    end, missing = T0 + 9000, 1000 - sum(gains)
    assert eta.rate == middle
    assert [eta.earliest, eta.finish_at, eta.latest] == [round(end + 1000 * missing / x) for x in (fast, middle, slow)]


def test_a_heartbeat_makes_an_interval_longer_and_is_none():
    assert estimate([at(0, 0), at(1, 0), at(2, 0), at(4, 8)], T0).rate == 2


@pytest.mark.parametrize(
    "after",
    [
        {"phase": "second"},
        {"unit": "files"},
        {"total": 200},
    ],
)
def test_another_phase_unit_or_total_begins_anew(after):
    before = counted(0, 50, 60)
    eta = estimate([*before, at(3, 61, **after)], T0)
    assert eta.why == "no interval has been measured yet"
    assert estimate([*before, at(3, 61, **after), at(4, 63, **after)], T0).rate == 2


def test_a_count_that_falls_and_a_track_that_lives_again_begin_anew():
    assert estimate([*counted(0, 50, 60), at(3, 1), at(4, 3)], T0).rate == 2
    over = at(3, 60, status="completed")
    assert estimate([*counted(0, 50, 60), over, at(4, 60), at(5, 63)], T0).rate == 3


def test_time_in_which_it_did_not_run_is_no_interval():
    for pause in (at(2, 10, status="waiting"), at(2, 10, status="blocked"), at(2)):
        eta = estimate([at(0, 0), at(1, 10), pause, at(100, 10), at(101, 20)], T0)
        assert (eta.rate, eta.confidence) == (10, "medium")
    assert estimate([at(0, 0), at(1, 10), at(100, 20, attempt="b")], T0).rate == 10


def test_time_of_the_source_counts_where_it_says_so():
    samples = [
        at(0, 0, sourceUpdatedAt="2026-01-01T00:00:00Z"), at(9, 10, sourceUpdatedAt="2026-01-01T00:00:02Z"),
    ]  # fmt: skip
    eta = estimate(samples, T0)
    assert eta.rate == 5
    assert left(eta) == 2 + 90 / 5


def test_a_fresh_estimate_of_the_source_comes_first():
    samples = [at(0, 0), at(1, 10, sourceEstimatedFinishAt="2026-01-01T00:01:00Z")]
    eta = estimate(samples, T0 + 1000)
    assert (eta.source, left(eta), eta.confidence, eta.earliest) == ("source", 60, None, None)
    late = [samples[0], at(1, 10, sourceEstimatedFinishAt="2026-01-01T00:00:01Z")]
    assert estimate(late, T0 + 2000).source == "measured"
    stale = [samples[0], at(1, 10, sourceEstimatedFinishAt="2026-01-02T00:00:00Z")]
    assert estimate(stale, T0 + 1000 + FRESH_MS).source == "source"
    assert estimate(stale, T0 + 1001 + FRESH_MS).source is None
    assert estimate([at(0, status="waiting", sourceEstimatedFinishAt="2026-01-01T00:00:05Z")], T0).source == "source"


@pytest.mark.parametrize(
    ("samples", "now", "why"),
    [
        ([], 0, "nothing was published"),
        ([at(0, 0)], 0, "no interval has been measured yet"),
        ([at(0, 0), at(1, 0)], 1, "no interval has been measured yet"),
        ([at(0, 0), at(0, 5)], 1, "no interval has been measured yet"),
        (counted(0, 10, total=None), 1, "its total is not known"),
        ([at(0)], 1, "nothing says how much is done"),
        (counted(0, 101), 1, "more is done than its total"),
        ([*counted(0, 10), at(2, 10, status="waiting")], 2, "it is waiting"),
        ([*counted(0, 10), at(2, 10, status="completed")], 2, "it is completed"),
        (counted(0, 10), 10.001, "it is late, and nothing new was published"),
        (counted(0, 1, total=10**13), 1, "it is too far away"),
    ],
)
def test_without_an_estimate_there_is_a_reason(samples, now, why):
    eta = estimate(samples, T0 + round(1000 * now))
    assert (eta.finish_at, eta.earliest, eta.latest, eta.confidence, eta.source) == (None,) * 5
    assert eta.why == why
    assert str(eta) == f"ETA unavailable: {why}"


def test_an_estimate_is_never_in_the_past():
    eta = estimate(counted(0, 10, 40, total=100), T0 + 5500)
    assert eta.finish_at == max(T0 + 5500, T0 + 2000 + 3000)
    assert eta.earliest == T0 + 5500 < eta.latest


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 5000), st.integers(0, 60), st.sampled_from(["running"] * 5 + ["waiting", "completed"])
        ),
        max_size=30,
    ),
    st.integers(0, 200_000),
)
def test_it_agrees_with_a_calculation_of_its_own(steps, now):
    samples, clock = [], 0
    for gap, completed, status in steps:
        clock += gap
        samples.append(at(clock / 1000, completed, status=status))
    eta = estimate(samples, T0 + now)
    rates = by_hand([(s.at, s.data["completed"], s.data["status"]) for s in samples])[-8:]
    if not samples or samples[-1].data["status"] != "running" or not rates:
        assert eta.finish_at is None
        return
    slow, middle, fast = np.percentile(rates, [25, 50, 75])
    assert eta.rate == pytest.approx(middle)
    remaining = 100 - samples[-1].data["completed"]
    latest = samples[-1].at + 1000 * remaining / slow
    if eta.finish_at is None:
        assert latest < T0 + now + 1
        return
    assert eta.latest == pytest.approx(latest, abs=1)
    assert eta.finish_at == pytest.approx(max(T0 + now, samples[-1].at + 1000 * remaining / middle), abs=1)
    spread = (fast - slow) / middle
    words = {1: "low"}.get(len(rates)) or (
        "high" if len(rates) >= 5 and spread <= 0.25 else "medium" if spread <= 0.5 else "low"
    )
    assert eta.confidence == words or min(abs(spread - 0.25), abs(spread - 0.5)) < 1e-9


def by_hand(samples):
    """Rates by looking at every pair of neighbours that grew, over what lies between."""
    epochs = [[]]
    for number, sample in enumerate(samples):
        if number:
            before = samples[number - 1]
            if sample[1] < before[1] or (before[2] == "completed" and sample[2] != "completed"):
                epochs.append([])
        epochs[-1].append(sample)
    rates, stretches = [], [[]]
    for sample in epochs[-1]:
        if sample[2] == "running":
            stretches[-1].append(sample)
        else:
            stretches.append([])
    for stretch in stretches:
        firsts = []
        for moment, count, _ in stretch:
            if not firsts or (count > firsts[-1][1] and moment > firsts[-1][0]):
                firsts.append((moment, count))
        rates += [1000 * (b[1] - a[1]) / (b[0] - a[0]) for a, b in itertools.pairwise(firsts)]
    return rates
