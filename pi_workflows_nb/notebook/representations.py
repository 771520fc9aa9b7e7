"""Workflows and runs as plain text, as HTML that stands alone, and as Mermaid.

All three say the same. The HTML carries its looks inline, so that it survives a sanitizer, an untrusted notebook, a
dark theme and a saved page; it holds no script and loads nothing. What comes from a workflow is escaped.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any, Final

from . import graph_svg, mermaid, wording
from .graph_layout import Graph, graph_of

if TYPE_CHECKING:
    from pi_workflows_nb.workflows.definition import Workflow

    from .run_picture import RunPicture

MAX_ROWS: Final = 200
ERROR_CHARACTERS: Final = 8_000
_BOX: Final = "font-family:var(--jp-ui-font-family,system-ui,sans-serif);font-size:13px;line-height:1.45"
_CELL: Final = "text-align:left;padding:3px 12px 3px 0;border-bottom:1px solid rgba(128,128,128,0.25)"
_MUTED: Final = "opacity:0.75"


def workflow_bundle(workflow: Workflow) -> dict[str, str]:
    """A workflow in every form, by media type. `WorkflowDefinitionError` when its graph cannot be."""
    from pi_workflows_nb.workflows.snapshot import definition_snapshot

    snapshot = definition_snapshot(workflow)
    graph = graph_of(snapshot)
    return {
        "text/plain": workflow_text(str(snapshot["name"]), graph),
        "text/html": workflow_html(str(snapshot["name"]), graph),
        mermaid.MIME: mermaid.of_graph(graph),
    }


def workflow_text(name: str, graph: Graph) -> str:
    """A line for the workflow, and one for each node with the ways out of it."""
    lines = [f"workflow {wording.one_line(name)}: {wording.count(len(graph.nodes), 'node')}"]
    width = max((len(node) for node in graph.nodes), default=0)
    for node in list(graph.nodes)[:MAX_ROWS]:
        ways = ", ".join(_way_text(link.target, link.labels) for link in graph.links if link.source == node)
        lines.append(f"  {node:<{width}}  {graph.kind(node):<10}  {'→ ' + ways if ways else '■'}")
    return "\n".join([*lines, *_more(len(graph.nodes))])


def workflow_html(name: str, graph: Graph) -> str:
    """The drawing of a workflow beside a table of its nodes."""
    rows = []
    for node in list(graph.nodes)[:MAX_ROWS]:
        ways = ", ".join(_way_text(link.target, link.labels) for link in graph.links if link.source == node)
        rows.append([f"<strong>{escape(node)}</strong>", escape(graph.kind(node)), escape(ways or "the end")])
    head = f"<strong>{escape(name)}</strong> {_muted(wording.count(len(graph.nodes), 'node'))}"
    table = _table(["node", "kind", "leads to"], rows, _more(len(graph.nodes)))
    return _framed(head, graph_svg.of_graph(graph), table)


def run_line(picture: RunPicture) -> str:
    """A run in one line: workflow, status, steps, elapsed time, and the node that it is at."""
    parts = [
        wording.one_line(picture.title or picture.workflow, 80),
        wording.words(picture.status),
        wording.count(picture.steps, "step"),
        wording.duration(picture.elapsed),
    ]
    if picture.current is not None and picture.finished_at is None:
        parts.append(f"at {picture.current}")
    return " · ".join(parts)


def run_bundle(picture: RunPicture, note: str | None = None) -> dict[str, str]:
    """A run in every form, by media type."""
    return {
        "text/plain": run_text(picture, note),
        "text/html": run_html(picture, note),
        mermaid.MIME: mermaid.of_run(picture),
    }


def run_text(picture: RunPicture, note: str | None = None) -> str:
    """A line for the run, and one for each node."""
    graph = picture.graph
    lines = [run_line(picture), f"  run {picture.run_id}"]
    lines += [f"  {wording.one_line(text, 400)}" for text in (picture.reason, note) if text]
    width = max((len(node) for node in graph.nodes), default=0)
    for node in list(graph.nodes)[:MAX_ROWS]:
        about = picture.nodes.get(node)
        told = "–" if about is None else wording.words(about.status)
        times = "" if about is None or about.attempts < 2 else f" ×{about.attempts}"
        lines.append(f"  {node:<{width}}  {graph.kind(node):<10}  {told}{times}  {_length(picture, node)}".rstrip())
    lines += _more(len(graph.nodes))
    if picture.error:
        lines += ["", cut(picture.error)]
    return "\n".join(lines)


def run_html(picture: RunPicture, note: str | None = None) -> str:
    """The drawing of a run beside a table of its nodes with their times on one line, and its error if it has one."""
    head = (
        f"{chip(picture.status)} <strong>{escape(picture.title or picture.workflow)}</strong> "
        + _muted(
            f"{escape(picture.workflow) + ' · ' if picture.title else ''}{wording.count(picture.steps, 'step')} · "
            f"{wording.duration(picture.elapsed)} · started {wording.moment(picture.created_at)}"
        )
        + f'<br><code style="font-size:11px;{_MUTED}">{escape(picture.run_id)}</code>'
    )
    for text in (picture.reason, note):
        if text:
            head += f"<br>{escape(text)}"
    rows = [_node_row(picture, node) for node in list(picture.graph.nodes)[:MAX_ROWS]]
    table = _table(["node", "kind", "status", "tries", "time", "when"], rows, _more(len(picture.graph.nodes)))
    foot = ""
    if picture.error:
        foot = (
            '<details open><summary>error</summary><pre style="white-space:pre-wrap;font-size:12px">'
            f"{escape(cut(picture.error))}</pre></details>"
        )
    return _framed(head, graph_svg.of_run(picture), table, foot)


def chip(status: str) -> str:
    """A status on its colour."""
    return (
        f'<span style="background-color:{wording.colour(status)};color:#ffffff;border-radius:9px;padding:1px 9px;'
        f'font-size:12px;white-space:nowrap">{escape(wording.words(status))}</span>'
    )


def facts_html(title: str, facts: list[tuple[str, Any]], status: str | None = None) -> str:
    """A small table of names and values."""
    head = f"<strong>{escape(title)}</strong>"
    if status is not None:
        head = f"{chip(status)} {head}"
    return _framed(head, "", _table([], [[_muted(escape(name)), escape(str(value))] for name, value in facts], []))


def facts_text(title: str, facts: list[tuple[str, Any]]) -> str:
    """The same as plain text."""
    width = max((len(name) for name, _ in facts), default=0)
    return "\n".join([title, *(f"  {name:<{width}}  {wording.one_line(str(value), 400)}" for name, value in facts)])


def _node_row(picture: RunPicture, node: str) -> list[str]:
    about = picture.nodes.get(node)
    cells = [f"<strong>{escape(node)}</strong>", escape(picture.graph.kind(node))]
    if about is None:
        return [*cells, _muted("–"), "", "", ""]
    bar = ""
    if about.started_at is not None:
        whole = max(1, picture.elapsed)
        end = about.finished_at if about.finished_at is not None else picture.created_at + whole
        left = min(99.0, max(0.0, 100 * (about.started_at - picture.created_at) / whole))
        width = min(100 - left, max(1.0, 100 * (end - about.started_at) / whole))
        bar = (
            '<div style="width:140px;height:9px;background-color:rgba(128,128,128,0.15);border-radius:4px">'
            f'<div style="margin-left:{left:.1f}%;width:{width:.1f}%;height:9px;border-radius:4px;'
            f'background-color:{wording.colour(about.status)}"></div></div>'
        )
    return [*cells, chip(about.status), str(about.attempts), _length(picture, node), bar]


def _length(picture: RunPicture, node: str) -> str:
    about = picture.nodes.get(node)
    if about is None or about.started_at is None or about.finished_at is None:
        return ""
    return wording.duration(about.finished_at - about.started_at)


def _way_text(target: str, labels: tuple[str, ...]) -> str:
    return f"{target} ({wording.one_line(', '.join(labels), 60)})" if labels else target


def _more(count: int) -> list[str]:
    return [f"  … and {count - MAX_ROWS:,} more nodes"] if count > MAX_ROWS else []


def cut(text: str) -> str:
    """The end of a text that is too long to show."""
    return text if len(text) <= ERROR_CHARACTERS else f"…\n{text[-ERROR_CHARACTERS:]}"


def _muted(html: str) -> str:
    return f'<span style="{_MUTED}">{html}</span>'


def _table(titles: list[str], rows: list[list[str]], more: list[str]) -> str:
    head = "".join(f'<th scope="col" style="{_CELL};font-weight:normal;{_MUTED}">{title}</th>' for title in titles)
    body = "".join("<tr>" + "".join(f'<td style="{_CELL}">{cell}</td>' for cell in row) + "</tr>" for row in rows)
    head = f"<thead><tr>{head}</tr></thead>" if titles else ""
    table = f'<table style="border-collapse:collapse;margin:0;font-size:13px">{head}<tbody>{body}</tbody></table>'
    return table + "".join(f"<div>{escape(line)}</div>" for line in more)


def _framed(head: str, drawing: str, table: str, foot: str = "") -> str:
    side = f'<div style="overflow:auto;max-height:640px">{drawing}</div>' if drawing else ""
    return (
        f'<div style="{_BOX}"><div style="margin-bottom:8px">{head}</div>'
        f'<div style="display:flex;flex-wrap:wrap;gap:20px;align-items:flex-start">{side}'
        f'<div style="overflow:auto;max-height:640px">{table}</div></div>{foot}</div>'
    )
