"""A file that another implementation wrote is read with the same frames, and left as it was."""

from __future__ import annotations

import pandas as pd
import pytest

from pi_workflows_nb.notebook.frame_definitions import FRAMES
from pi_workflows_nb.notebook.open_state import open_state
from tests.state.files import rebuild_original


@pytest.fixture(scope="module")
def foreign(tmp_path_factory):
    path = tmp_path_factory.mktemp("foreign") / "state.sqlite"
    rebuild_original(path)
    return path


@pytest.mark.parametrize("name", sorted(FRAMES))
def test_every_frame_reads_it(foreign, name):
    state = open_state(foreign)
    frame = getattr(state, name)()
    for column in FRAMES[name].columns:
        if column.kind == "state" and column.name in frame:
            plain = state.sql(f"select count({column.name}) n from {name}_v")["n"][0]
            assert frame[column.name].notna().sum() == plain, column.name


def test_what_it_says(foreign):
    state = open_state(foreign)
    assert len(state.runs()) == 35
    assert len(state.events()) == 638
    assert len(state.projects()) == 4
    assert set(state.leases()["aggregate_type"]) >= {"run", "managed_resource", "effect", "settings"}
    runs = state.runs()
    ended = runs["status"].isin(["completed", "failed", "timed_out", "cancelled"])
    assert (runs["finished_at"].notna() == ended).all()
    assert runs["waiting_since"].notna().sum() == (runs["status"] == "waiting").sum()


def test_every_run_of_it_is_drawn(foreign):
    state = open_state(foreign)
    for run_id in state.runs().index:
        bundle = state.get_run(run_id)._repr_mimebundle_()
        assert (
            run_id in bundle["text/plain"] + bundle["text/html"]
            or state.runs().loc[run_id, "continued_by"] is not pd.NA
        )


def test_nothing_of_it_changes(foreign):
    before = foreign.read_bytes()
    state = open_state(foreign)
    state.events(payloads=True)
    state.verify()
    assert foreign.read_bytes() == before
    assert [path.name for path in foreign.parent.iterdir()] == [foreign.name]
