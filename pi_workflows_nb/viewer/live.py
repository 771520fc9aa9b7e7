"""Runs as plain text: one snapshot, or followed until they end or somebody has seen enough.

Everything shown is what the live view says.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pandas as pd
from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ..client.connection import SocketConnection
from ..state.controls import TERMINAL
from ..wire.errors import ServerStoppedError
from . import asking
from .tables import duration

UPDATES_A_SECOND: Final = 10
TICK_SECONDS: Final = 1.0
STATUS_STYLES: Final = {
    "ambiguous": "magenta",
    "cancelled": "dim",
    "completed": "green",
    "failed": "bold red",
    "paused": "cyan",
    "running": "bold blue",
    "timed_out": "bold red",
    "waiting": "yellow",
}


def of_runs(views: Iterable[dict[str, Any]]) -> Table:
    """The runs as a table without lines, newest first."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("run", "status", "title", "steps", "elapsed", "activity"):
        right = name in ("steps", "elapsed")
        table.add_column(name, justify="right" if right else "left", no_wrap=name in ("run", "status"))
    for view in views:
        table.add_row(
            view["runId"],
            _status(view),
            Text(view["title"] or view["workflow"]),
            f"{view['stepCount']:,}",
            elapsed(view),
            Text(view["reason"] or view["activity"]),
        )
    return table


def of_run(view: dict[str, Any]) -> Group:
    """One run, a fact a line."""
    facts: list[tuple[str, Any]] = [
        ("workflow", view["workflow"]),
        ("title", view["title"]),
        ("status", _status(view)),
        ("activity", view["activity"]),
        ("reason", view["reason"]),
        ("possible", ", ".join(view["controls"])),
        ("steps", f"{view['stepCount']:,}"),
        ("elapsed", elapsed(view)),
        ("goes on as", view["continuedBy"]),
        ("error", view["error"]),
    ]
    width = max(len(name) for name, _ in facts)
    lines: list[Text] = [Text(view["runId"], style="bold")]
    for name, value in facts:
        if value:
            lines.append(Text.assemble((f"  {name:<{width}}  ", "dim"), value))
    return Group(*lines)


def elapsed(view: dict[str, Any]) -> str:
    """How long a run has taken, or takes by now."""
    end = view["finishedAt"] if view["finishedAt"] is not None else time.time() * 1000
    return duration(pd.Timedelta(max(0.0, end - view["createdAt"]), unit="ms"))


def _status(view: dict[str, Any]) -> Text:
    return Text(view["status"].replace("_", " "), style=STATUS_STYLES.get(view["status"], ""))


def follow(path: Path, run_id: str | None, limit: int, console: Console) -> None:
    """Show the list of runs, or one run and those that continue it, until it ends or the server does."""
    connection = asking.find(path)
    if connection is None:
        console.print(of_runs(asking.runs(path, limit)) if run_id is None else of_run(asking.run(path, run_id)))
        return
    with closing(connection):
        if run_id is None:
            _follow_list(connection, limit, console)
        else:
            _follow_run(connection, run_id, console)
        if connection.farewell is not None or not connection.alive:
            raise ServerStoppedError(f"the server of {path} has stopped")


def _follow_list(connection: SocketConnection, limit: int, console: Console) -> None:
    changes: queue.SimpleQueue[list[dict[str, Any]]] = queue.SimpleQueue()
    connection.subscribe_list(lambda view: changes.put(view["runs"]), limit=limit)
    rows: dict[str, dict[str, Any]] = {}
    with _live(console) as live:
        while connection.alive:
            rows |= {row["runId"]: row for row in _next(changes, [])}
            newest = sorted(rows.values(), key=lambda row: row["createdAt"], reverse=True)[:limit]
            rows = {row["runId"]: row for row in newest}
            live.update(of_runs(newest))


def _follow_run(connection: SocketConnection, run_id: str, console: Console) -> None:
    changes: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    connection.subscribe(run_id, changes.put)
    view: dict[str, Any] | None = None
    with _live(console) as live:
        while connection.alive:
            view = _next(changes, view)
            if view is None:
                continue
            live.update(of_run(view), refresh=True)
            following = view["continuedBy"]
            if following is not None and following != run_id:
                run_id, view = following, None
                connection.subscribe(run_id, changes.put)
            elif view["status"] in TERMINAL:
                return


def _next(changes: queue.SimpleQueue[Any], otherwise: Any) -> Any:
    """The next change, or, when there is none for a second, what was known."""
    try:
        return changes.get(timeout=TICK_SECONDS)
    except queue.Empty:
        return otherwise


def _live(console: Console) -> Live:
    shown: RenderableType = Text("…")
    return Live(shown, console=console, refresh_per_second=UPDATES_A_SECOND, vertical_overflow="crop")
