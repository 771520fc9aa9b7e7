"""Graphs as Mermaid text, which JupyterLab and many web pages draw by themselves.

Names and labels come from workflows, so they are data: every character that Mermaid could read as syntax, markup,
directive or list is written as its code, and ids are made here.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from . import wording

if TYPE_CHECKING:
    from .graph_layout import Graph
    from .run_picture import NodePicture, RunPicture

MIME: Final = "text/vnd.mermaid"
MAX_NODES: Final = 250
LABEL: Final = 60
# Letters, digits and blanks say nothing to Mermaid; an underscore only between such.
_PLAIN: Final = re.compile(r"[^\W_]|(?<=[^\W_])_(?=[^\W_])| ")
_SHAPES: Final = {
    "checkpoint": ('{{"', '"}}'),
    "agent": ('("', '")'),
    "action": ('["', '"]'),
    "shell": ('[["', '"]]'),
}


def of_graph(graph: Graph) -> str:
    """A workflow's graph as a flow chart from top to bottom."""
    return _chart(graph, {}, set())


def of_run(picture: RunPicture) -> str:
    """A run's graph: nodes coloured by status, the way it took drawn strong."""
    return _chart(picture.graph, picture.nodes, picture.taken)


def label(text: str) -> str:
    """Text for a quoted label, cut to 60 characters, nothing in it active."""
    flat = wording.one_line(text, LABEL)
    plain = {match.start() for match in _PLAIN.finditer(flat)}
    return "".join(character if at in plain else f"#{ord(character)};" for at, character in enumerate(flat))


def _chart(graph: Graph, nodes: dict[str, NodePicture], taken: set[tuple[str, str]]) -> str:
    names = list(graph.nodes)[:MAX_NODES]
    ids = {name: f"n{number}" for number, name in enumerate(names)}
    lines = ["flowchart TD"]
    for name, node_id in ids.items():
        opening, closing = _SHAPES.get(graph.kind(name), ('["', '"]'))
        about = nodes.get(name)
        text = label(name)
        if about is not None and about.attempts > 1:
            text += f" #215;{about.attempts}"
        status = f":::{about.status}" if about is not None else ""
        lines.append(f"    {node_id}{opening}{text}{closing}{status}")
    if len(names) < len(graph.nodes):
        lines.append(f'    more["#8230; and {len(graph.nodes) - len(names)} more nodes"]')
    strong = []
    drawn = [link for link in graph.links if link.source in ids and link.target in ids]
    for number, link in enumerate(drawn):
        arrow = "-.->" if link.back else "-->"
        said = ", ".join(link.labels)
        between = f'{arrow}|"{label(said)}"|' if said else arrow
        lines.append(f"    {ids[link.source]} {between} {ids[link.target]}")
        if (link.source, link.target) in taken:
            strong.append(str(number))
    if nodes:
        lines.extend(
            f"    classDef {status} fill:{wording.colour(status)},stroke:{wording.colour(status)},color:#ffffff"
            for status in sorted({about.status for name, about in nodes.items() if name in ids})
        )
    if strong:
        lines.append(f"    linkStyle {','.join(strong)} stroke-width:3px")
    return "\n".join(lines) + "\n"
