"""Where the cards of a graph stand: ranks from top to bottom, one row of cards a rank, few crossings.

Pure arithmetic over a definition snapshot. Links that lead back (loops) are left out of the ranking; a link over
several ranks passes each of them through a free place of its own, so that it crosses no card.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any, Final

ROUNDS: Final = 4


@dataclass(frozen=True)
class Link:
    """One way from a node to another; `labels` are the cases of a switch that take it, `back` closes a loop."""

    source: str
    target: str
    labels: tuple[str, ...] = ()
    back: bool = False


@dataclass
class Graph:
    """A definition snapshot as nodes in reading order and links."""

    start: str
    nodes: dict[str, dict[str, Any]]
    links: list[Link]

    def kind(self, node: str) -> str:
        """What a person calls the node's kind."""
        about = self.nodes[node]
        return "shell" if about.get("actionExecution") == "shell" else str(about.get("nodeType", ""))


@dataclass
class Layout:
    """The places of cards, in columns and rows from 0; `ways` lists the places each forward link passes."""

    columns: int = 0
    rows: int = 0
    places: dict[str, tuple[float, int]] = field(default_factory=dict)
    ways: dict[tuple[str, str], list[tuple[float, int]]] = field(default_factory=dict)


def graph_of(snapshot: dict[str, Any]) -> Graph:
    """The graph of a definition snapshot, nodes in the order a person would read them."""
    given: dict[str, dict[str, Any]] = snapshot.get("nodes", {})
    start = str(snapshot.get("startAt", ""))
    ways: dict[tuple[str, str], list[str]] = {}
    for edge in snapshot.get("edges", []):
        if "switch" in edge:
            for case, target in edge["switch"].get("cases", {}).items():
                ways.setdefault((edge["from"], target), []).append(case)
        else:
            ways.setdefault((edge["from"], edge["to"]), [])
    after: dict[str, list[str]] = {node: [] for node in given}
    for source, target in ways:
        if source in given and target in given:
            after[source].append(target)
    order = {node: position for position, node in enumerate(_reading_order(start, after))}
    links = [
        Link(source, target, tuple(labels), order[source] >= order[target])
        for (source, target), labels in ways.items()
        if source in given and target in given
    ]
    return Graph(start, {node: given[node] for node in order}, links)


def _reading_order(start: str, after: dict[str, list[str]]) -> list[str]:
    """Each node before the nodes it leads to, as far as there are no loops; what cannot be reached comes last."""
    order: list[str] = []
    seen: set[str] = set()
    for root in [start, *after]:
        if root not in after or root in seen:
            continue
        done: list[str] = []
        seen.add(root)
        stack = [(root, iter(reversed(after[root])))]
        while stack:
            node, rest = stack[-1]
            target = next((other for other in rest if other not in seen), None)
            if target is None:
                done.append(node)
                stack.pop()
            else:
                seen.add(target)
                stack.append((target, iter(reversed(after[target]))))
        order += reversed(done)
    return order


def layout(graph: Graph) -> Layout:
    """Places for all nodes."""
    forward = [link for link in graph.links if not link.back]
    ranks = _ranks(graph, forward)
    rows: list[list[str]] = [[] for _ in range(max(ranks.values(), default=-1) + 1)]
    for node, rank in ranks.items():
        rows[rank].append(node)
    chains: dict[tuple[str, str], list[str]] = {}
    neighbours: dict[str, list[str]] = {}
    for link in forward:
        chain = [link.source]
        for rank in range(ranks[link.source] + 1, ranks[link.target]):
            passing = f"\0{link.source}\0{link.target}\0{rank}"
            rows[rank].append(passing)
            chain.append(passing)
        chain.append(link.target)
        chains[link.source, link.target] = chain
        for one, other in itertools.pairwise(chain):
            neighbours.setdefault(one, []).append(other)
            neighbours.setdefault(other, []).append(one)
    places = _columns(rows, neighbours)
    return Layout(
        columns=max(map(len, rows), default=0),
        rows=len(rows),
        places={node: places[node] for node in graph.nodes},
        ways={ends: [places[item] for item in chain] for ends, chain in chains.items()},
    )


def _ranks(graph: Graph, forward: list[Link]) -> dict[str, int]:
    ranks = dict.fromkeys(graph.nodes, 0)
    leaving: dict[str, list[str]] = {}
    for link in forward:
        leaving.setdefault(link.source, []).append(link.target)
    # Reading order is a topological one once the links back are left out.
    for node in graph.nodes:
        for target in leaving.get(node, ()):
            ranks[target] = max(ranks[target], ranks[node] + 1)
    return ranks


def _columns(rows: list[list[str]], neighbours: dict[str, list[str]]) -> dict[str, tuple[float, int]]:
    width = max(map(len, rows), default=0)
    places: dict[str, tuple[float, int]] = {}

    def settle(rank: int) -> None:
        margin = (width - len(rows[rank])) / 2
        for column, item in enumerate(rows[rank]):
            places[item] = (margin + column, rank)

    for rank in range(len(rows)):
        settle(rank)
    for turn in range(ROUNDS):
        downwards = turn % 2 == 0
        for rank in range(len(rows)) if downwards else reversed(range(len(rows))):
            side = rank - 1 if downwards else rank + 1

            def middle(item: str, side: int = side) -> float:
                near = [places[other][0] for other in neighbours.get(item, ()) if places[other][1] == side]
                return sum(near) / len(near) if near else places[item][0]

            rows[rank].sort(key=middle)
            settle(rank)
    return places
