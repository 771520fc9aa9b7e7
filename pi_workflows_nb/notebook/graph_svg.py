"""A graph as a small inline SVG: cards of one size in ranks, the way a run took drawn strong.

It loads nothing, runs nothing, and takes the page's own text colour, so that it reads in light and dark.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Final

from . import wording
from .graph_layout import Graph, Layout, Link, layout

if TYPE_CHECKING:
    from .run_picture import NodePicture, RunPicture

CARD: Final = (190, 42)
GAP: Final = (22, 30)
GUTTER: Final = 26
MAX_NODES: Final = 60


def of_graph(graph: Graph) -> str:
    """The drawing of a workflow; empty for a graph too large to read as one."""
    return _drawing(graph, {}, set(), None)


def of_run(picture: RunPicture) -> str:
    """The drawing of a run; empty for a graph too large to read as one."""
    return _drawing(picture.graph, picture.nodes, picture.taken, picture.current)


@dataclass(frozen=True)
class Line:
    """How a link is drawn: paths of the way and of its head, and where its label stands."""

    link: Link
    path: str
    head: str
    x: float
    y: float
    anchor: str = "start"

    @property
    def label(self) -> str:
        """The cases that take it."""
        return wording.one_line(", ".join(self.link.labels), 24)


@dataclass(frozen=True)
class Geometry:
    """Where everything of a drawing stands, in pixels."""

    width: float
    height: float
    corners: dict[str, tuple[float, float]]
    lines: list[Line]


def geometry(graph: Graph) -> Geometry:
    """The places of cards and lines."""
    places = layout(graph)
    backs = [link for link in graph.links if link.back]
    lines = [
        _loop(places, link, backs.index(link)) if link.back else _way(places, link)
        for link in graph.links
    ]  # fmt: skip
    return Geometry(
        places.columns * (CARD[0] + GAP[0]) - GAP[0] + 4 + (GUTTER + 10 * len(backs) if backs else 0),
        places.rows * (CARD[1] + GAP[1]) - GAP[1] + 4,
        {name: _corner(places, name) for name in graph.nodes},
        lines,
    )


def _drawing(graph: Graph, nodes: dict[str, NodePicture], taken: set[tuple[str, str]], current: str | None) -> str:
    if not graph.nodes or len(graph.nodes) > MAX_NODES:
        return ""
    where = geometry(graph)
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{where.width}" height="{where.height}"'
            f' viewBox="-2 -2 {where.width} {where.height}" style="max-width:100%;height:auto"'
            f' role="img" aria-label="graph of {wording.count(len(graph.nodes), "node")}"'
            ' font-family="system-ui,sans-serif" font-size="12" fill="currentColor">'
        )
    ]
    parts.extend(_line(line, (line.link.source, line.link.target) in taken) for line in where.lines)
    parts.extend(_card(graph, where.corners[name], name, nodes.get(name), name == current) for name in graph.nodes)
    parts.append("</svg>")
    return "\n".join(parts)


def _corner(places: Layout, node: str) -> tuple[float, float]:
    column, row = places.places[node]
    return column * (CARD[0] + GAP[0]), row * (CARD[1] + GAP[1])


def _way(places: Layout, link: Link) -> Line:
    points = [
        (column * (CARD[0] + GAP[0]) + CARD[0] / 2, row * (CARD[1] + GAP[1]))
        for column, row in places.ways[link.source, link.target]
    ]
    path = [f"M{points[0][0]:g} {points[0][1] + CARD[1]:g}"]
    for number, (x, y) in enumerate(points[1:], start=1):
        before = points[number - 1]
        bend = GAP[1] * 0.6
        path.append(f"C{before[0]:g} {before[1] + CARD[1] + bend:g} {x:g} {y - bend:g} {x:g} {y:g}")
        if number < len(points) - 1:
            path.append(f"V{y + CARD[1]:g}")
    x, y = points[-1]
    head = f"M{x - 4:g} {y - 6:g}L{x:g} {y:g}L{x + 4:g} {y - 6:g}"
    # The label stands beside the head, on the side that the line does not come from.
    near = points[1]
    left = near[0] < points[0][0]
    return Line(link, "".join(path), head, near[0] + (-7 if left else 7), near[1] - 5, "end" if left else "start")


def _loop(places: Layout, link: Link, number: int) -> Line:
    right = places.columns * (CARD[0] + GAP[0]) - GAP[0] + 12 + 10 * number
    x1, y1 = _corner(places, link.source)
    x2, y2 = _corner(places, link.target)
    x1, x2, y1, y2 = x1 + CARD[0], x2 + CARD[0], y1 + CARD[1] * 0.65, y2 + CARD[1] * 0.35
    path = f"M{x1:g} {y1:g}C{right:g} {y1:g} {right:g} {y1:g} {right:g} {(y1 + y2) / 2:g}"
    path += f"C{right:g} {y2:g} {right:g} {y2:g} {x2:g} {y2:g}"
    head = f"M{x2 + 6:g} {y2 - 4:g}L{x2:g} {y2:g}L{x2 + 6:g} {y2 + 4:g}"
    return Line(link, path, head, x1 + 4, y1 + 12)


def _line(line: Line, strong: bool) -> str:
    look = 'stroke-width="2.5" opacity="0.9"' if strong else 'stroke-width="1.2" opacity="0.45"'
    stroke = f'fill="none" stroke="currentColor" {look}'
    dashes = ' stroke-dasharray="4 3"' if line.link.back else ""
    text = ""
    if line.link.labels:
        text = (
            f'<text x="{line.x:g}" y="{line.y:g}" font-size="10" text-anchor="{line.anchor}" opacity="0.8">'
            f"{escape(line.label)}</text>"
        )
    return f'<path d="{line.path}"{dashes} {stroke}/><path d="{line.head}" {stroke}/>{text}'


def _card(graph: Graph, corner: tuple[float, float], name: str, about: NodePicture | None, current: bool) -> str:
    x, y = corner
    colour = wording.colour(about.status) if about is not None else wording.NEUTRAL
    strong = 2.5 if current else 1.2
    told = graph.kind(name)
    if about is not None:
        told += f" · {wording.words(about.status)}"
        if about.attempts > 1:
            told += f" ×{about.attempts}"
        if about.started_at is not None and about.finished_at is not None:
            told += f" · {wording.duration(about.finished_at - about.started_at)}"
    fill = f'fill="{colour}" fill-opacity="{0.16 if about is not None else 0.05}"'
    second = escape(wording.one_line(told, 32))
    return (
        f"<g><title>{escape(name)}: {escape(told)}</title>"
        f'<rect x="{x:g}" y="{y:g}" width="{CARD[0]}" height="{CARD[1]}" rx="6" {fill} stroke="{colour}"'
        f' stroke-width="{strong}"/>'
        f'<text x="{x + 10:g}" y="{y + 17:g}" font-weight="600">{escape(wording.one_line(name, 25))}</text>'
        f'<text x="{x + 10:g}" y="{y + 33:g}" font-size="10.5" opacity="0.8">{second}</text></g>'
    )
