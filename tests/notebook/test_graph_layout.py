"""Cards get places of their own, below the nodes that lead to them, in any graph."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from pi_workflows_nb.notebook.graph_layout import graph_of, layout


def graph(edges, count):
    nodes = {f"n{number}": {"nodeType": "compute"} for number in range(count)}
    return graph_of(
        {
            "name": "w",
            "startAt": "n0",
            "nodes": nodes,
            "edges": [
                {"from": f"n{source}", "switch": {"on": "$.x", "cases": {f"c{at}": f"n{t}" for at, t in enumerate(ts)}}}
                for source, ts in edges.items()
            ],
        }
    )


@st.composite
def graphs(draw):
    count = draw(st.integers(1, 12))
    ends = st.integers(0, count - 1)
    return graph(draw(st.dictionaries(ends, st.lists(ends, min_size=1, max_size=4), max_size=count)), count)


@given(graphs())
@settings(max_examples=150, deadline=None)
def test_every_node_has_a_place_of_its_own_and_links_lead_down(drawn):
    placed = layout(drawn)
    assert set(placed.places) == set(drawn.nodes)
    assert len(set(placed.places.values())) == len(drawn.nodes)
    for link in drawn.links:
        if link.back:
            continue
        way = placed.ways[link.source, link.target]
        assert way[0] == placed.places[link.source]
        assert way[-1] == placed.places[link.target]
        rows = [row for _, row in way]
        assert rows == list(range(rows[0], rows[-1] + 1))
        assert rows[-1] > rows[0]
    passed = [place for way in placed.ways.values() for place in way[1:-1]]
    assert not set(passed) & set(placed.places.values())
    assert all(0 <= column < placed.columns and 0 <= row < placed.rows for column, row in placed.places.values())


@given(graphs())
@settings(max_examples=100, deadline=None)
def test_without_the_links_back_nothing_goes_round(drawn):
    order = {node: position for position, node in enumerate(drawn.nodes)}
    assert all(order[link.source] < order[link.target] for link in drawn.links if not link.back)


def test_cases_to_one_node_are_one_link():
    drawn = graph({0: [1, 1, 2]}, 3)
    assert [(link.target, link.labels) for link in drawn.links] == [("n1", ("c0", "c1")), ("n2", ("c2",))]


def test_a_loop_is_a_link_back():
    drawn = graph({0: [1], 1: [0], 2: [2]}, 3)
    assert {(link.source, link.target) for link in drawn.links if link.back} == {("n1", "n0"), ("n2", "n2")}
    assert list(drawn.nodes) == ["n0", "n1", "n2"]


def test_branches_are_read_in_the_order_of_their_cases():
    assert list(graph({0: [1, 2], 1: [3], 2: [3]}, 4).nodes) == ["n0", "n1", "n2", "n3"]


def test_an_empty_definition_has_no_places():
    drawn = graph_of({})
    assert layout(drawn).places == {}
