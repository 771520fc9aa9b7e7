"""A run on the screen while it goes on: graph, timeline, inspector, exactly the controls that the server allows.

The front end gets how the run stands, its newest steps, and once its graph; what the inspector shows is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pi_workflows_nb.wire import canonical_json
from pi_workflows_nb.wire.errors import NotJsonError

from . import graph_svg, kernel, representations, run_inspector, run_picture, views, wording
from .display_thread import DISPLAY, WORKER
from .effect import Effect
from .run_picture import TERMINAL
from .views import FLUSH_SECONDS, LiveView
from .waiting import Watch, quietly

if TYPE_CHECKING:
    from .graph_layout import Graph
    from .run import Run
    from .run_picture import RunPicture

STEPS: Final = 500
_STEPS: Final = """
    SELECT s.step_index, a.node_id, a.status, a.started_at, a.finished_at, a.attempt_number
    FROM run_steps s JOIN node_attempts a USING (attempt_id) WHERE s.run_id = ? ORDER BY s.step_index DESC LIMIT ?
"""


def show(run: Run) -> None:
    """Show a run in the cell that runs now: live while there is something to follow, else as it ended."""
    bundle = run._repr_mimebundle_()
    if views.can_be_live(run._link) and run.status not in TERMINAL:
        RunView(run).open(bundle)
    else:
        kernel.display(bundle)


def flush(run: Run) -> None:
    """Have the views of a run show how it stands now."""
    root = run.chain[0]
    found = [view for view in views.living() if isinstance(view, RunView) and view.thing == root]
    for view in found:
        DISPLAY.post((view, "catch up"), view.catch_up)
    if found:
        DISPLAY.flush(FLUSH_SECONDS)


class RunView(LiveView):
    """The live view of a run and the runs that continue it."""

    def __init__(self, run: Run) -> None:
        from .widgets import RunWidget

        chain = run.chain
        super().__init__(run._link, chain[0], RunWidget())
        self.run = run
        self._drawn: Graph | None = None
        self._watch = Watch(self.connection, chain[-1], lambda: DISPLAY.post(self, self.refresh))

    def bundle(self) -> dict[str, str]:
        """The run in every static form."""
        return self.run._repr_mimebundle_()

    def start(self) -> None:
        """Subscribe."""
        self._watch.start()

    def leave(self) -> None:
        """Unsubscribe."""
        self._watch.close()

    def refresh(self) -> None:
        """Draw the run as it stands; when it has ended, for the last time."""
        view = self._watch.view
        if self.ended or view is None:
            return
        if view["continuedBy"] is not None:
            WORKER.post(lambda: quietly(self._watch.check))
            return
        self._draw(view)

    def catch_up(self) -> None:
        """Draw the run as the server says now, without waiting to be told."""
        view = None if self.ended else self.link.view(self.run.chain[-1])
        if view is not None:
            self._draw(view)

    def _draw(self, view: dict[str, Any]) -> None:
        if view["status"] in TERMINAL:
            self.settle()
            return
        picture = run_picture.read(self.link.reader, view["runId"], self.thing, view)
        if picture is None:
            return
        steps = self.link.reader.rows(_STEPS, (picture.run_id, STEPS))[::-1]
        traits: dict[str, Any] = {
            "picture": _picture(picture, view["controls"], self.run),
            "steps": [list(step) for step in steps],
        }
        if self._drawn is None or self._drawn != picture.graph:
            self._drawn = picture.graph
            traits["graph"] = _graph(picture.graph)
        self.show(**traits)

    def carry_out(self, wish: dict[str, Any]) -> dict[str, Any]:
        """A control, an answer, a decision about an effect, or something to inspect."""
        if "inspect" in wish:
            return run_inspector.inspect(self.run, str(wish["inspect"]), wish.get("node"))
        if wish.get("act") == "answer":
            text = str(wish.get("text", ""))
            try:
                value = canonical_json.decode(text.encode())
            except NotJsonError:
                value = text
            self.run.answer(value)
            return {"answered": True, "said": ""}
        effect = Effect(self.link, str(wish.get("effect")))
        return views.act(
            {
                "pause": self.run.pause,
                "resume": self.run.resume,
                "cancel": self.run.cancel,
                "restart": self.run.restart,
                "confirm": effect.confirm,
                "retry": effect.retry,
            },
            wish,
        )


def _picture(picture: RunPicture, controls: list[str], run: Run) -> dict[str, Any]:
    return {
        "chain": run.chain,
        "controls": controls,
        "createdAt": picture.created_at,
        "current": picture.current,
        "error": None if picture.error is None else representations.cut(picture.error),
        "finishedAt": picture.finished_at,
        "nodes": {
            name: [about.status, about.attempts, about.started_at, about.finished_at]
            for name, about in picture.nodes.items()
        },
        "note": run.note,
        "reason": None if picture.reason is None else wording.one_line(picture.reason, 400),
        "runId": picture.run_id,
        "status": picture.status,
        "steps": picture.steps,
        "taken": sorted([source, target] for source, target in picture.taken),
        "title": None if picture.title is None else wording.one_line(picture.title, 200),
        "workflow": wording.one_line(picture.workflow, 200),
    }


def _graph(graph: Graph) -> dict[str, Any]:
    where = graph_svg.geometry(graph)
    return {
        "card": list(graph_svg.CARD),
        "height": where.height,
        "links": [
            {
                "anchor": line.anchor,
                "back": line.link.back,
                "head": line.head,
                "label": line.label,
                "path": line.path,
                "source": line.link.source,
                "target": line.link.target,
                "x": line.x,
                "y": line.y,
            }
            for line in where.lines
        ],
        "nodes": [
            {"kind": graph.kind(name), "name": name, "shown": wording.one_line(name, 25), "x": x, "y": y}
            for name, (x, y) in where.corners.items()
        ],
        "width": where.width,
    }
