"""A run on the screen while it goes on: its drawing, exactly the controls that the server allows, and a box to answer.

The view lives as long as its run does. Then the display is replaced, once, by a static one without a widget, so that a
saved notebook shows the end of the run wherever it is opened.
"""

from __future__ import annotations

import threading
from html import escape
from typing import TYPE_CHECKING, Any, Final

from pi_workflows_nb.wire import canonical_json
from pi_workflows_nb.wire.errors import NotJsonError, PiWorkflowsError

from . import kernel, representations, run_picture
from .display_thread import DISPLAY, WORKER
from .run_picture import TERMINAL
from .waiting import Watch, quietly

if TYPE_CHECKING:
    from collections.abc import Callable

    from .link import Connection, Link
    from .run import Run

VIEWS_OF_ONE_RUN: Final = 8
FLUSH_SECONDS: Final = 2.0
ACTIONS: Final = {
    "pause": ("Pause", "Park the run at its last durable boundary"),
    "resume": ("Resume", "Let the run go on"),
    "cancel": ("Cancel", "End the run now"),
}

_views: list[RunView] = []
_views_lock = threading.Lock()


def show(run: Run) -> None:
    """Show a run in the cell that runs now: live while there is something to follow, else as it ended."""
    connection = run._link.connection
    bundle = run._repr_mimebundle_()
    live = connection is not None and connection.alive and run.status not in TERMINAL
    if connection is None or not live or not _has_widgets():
        kernel.display(bundle)
        return
    cell, execution = kernel.cell_key()
    _make_room(run.chain[0], cell, execution)
    view = RunView(run, connection, cell, execution)
    with _views_lock:
        _views.append(view)
    view.open(bundle)


def flush(run: Run) -> None:
    """Have the views of a run show how it stands now."""
    root = run.chain[0]
    views = [view for view in _live() if view.root == root]
    for view in views:
        DISPLAY.post((view, "catch up"), view.catch_up)
    if views:
        DISPLAY.flush(FLUSH_SECONDS)


def settle(link: Link) -> None:
    """Make the views of a server static; its end was asked for."""
    stopped(link)
    DISPLAY.flush(FLUSH_SECONDS)


def stopped(link: Link) -> None:
    """The server of these views has stopped. Never waits."""
    for view in _live():
        if view.link is link:
            DISPLAY.post(view, view.settle)


def _live() -> list[RunView]:
    with _views_lock:
        return list(_views)


def _make_room(root: str, cell: str, execution: str) -> None:
    """The front end has cleared what an earlier execution of this cell showed; and too many views are slow."""
    views = _live()
    for view in views:
        if cell and view.cell == cell and view.execution != execution:
            DISPLAY.post(view, view.close)
    same = [view for view in views if view.root == root]
    for view in same[: max(0, len(same) - VIEWS_OF_ONE_RUN + 1)]:
        DISPLAY.post(view, view.settle)


def _has_widgets() -> bool:
    try:
        import ipywidgets  # noqa: F401
    except ImportError:
        return False
    return True


class RunView:
    """The widgets of one live view. After `open`, they are touched on the display thread alone."""

    def __init__(self, run: Run, connection: Connection, cell: str, execution: str) -> None:
        import ipywidgets as widgets

        self.run = run
        self.link = run._link
        self.root = run.chain[0]
        self.cell = cell
        self.execution = execution
        self._handle: Any = None
        self._ended = False
        self._picture: run_picture.RunPicture | None = None
        self._watch = Watch(connection, run.chain[-1], self._changed)
        self._drawing = widgets.HTML()
        self._message = widgets.HTML()
        self._buttons: dict[str, Any] = {}
        for name, (text, tooltip) in ACTIONS.items():
            button = widgets.Button(description=text, tooltip=tooltip, layout={"width": "auto", "display": "none"})
            button.on_click(lambda _, name=name: self._ask(getattr(self.run, name)))
            self._buttons[name] = button
        self._box = widgets.Text(
            description="Answer", placeholder="JSON, or plain text", continuous_update=True, layout={"width": "24em"}
        )
        self._send = widgets.Button(
            description="Send", tooltip="Answer the checkpoint; the run goes on", layout={"width": "auto"}
        )
        self._send.on_click(lambda _: self._ask(self._answering(self._box.value)))
        self._answer = widgets.HBox([self._box, self._send], layout={"display": "none"})
        self._whole = widgets.VBox(
            [self._drawing, widgets.HBox([*self._buttons.values(), self._answer]), self._message]
        )

    def open(self, bundle: dict[str, Any]) -> None:
        """Show the view in the present cell and follow the run."""
        DISPLAY.enter()
        self._drawing.value = bundle["text/html"]
        shown = dict(self._whole._repr_mimebundle_() or {})
        # A front end without widgets, or an untrusted notebook, falls back on these.
        shown |= {"text/plain": bundle["text/plain"], "text/html": bundle["text/html"]}
        self._handle = kernel.display(shown)
        self._release()
        self._watch.start()

    # -- on any thread ------------------------------------------------------------------------------------------------

    def _changed(self) -> None:
        DISPLAY.post(self, self.refresh)

    def _ask(self, action: Callable[[], Any]) -> None:
        WORKER.post(lambda: self._carry_out(action))

    def _carry_out(self, action: Callable[[], Any]) -> None:
        try:
            action()
        except PiWorkflowsError as error:
            said = f'<span role="alert" style="color:#c62828">{escape(str(error))}</span>'
        else:
            said = ""
        DISPLAY.post((self, "message"), lambda: self._say(said))

    def _answering(self, text: str) -> Callable[[], Any]:
        def answer() -> None:
            try:
                value = canonical_json.decode(text.encode())
            except NotJsonError:
                value = text
            self.run.answer(value)
            DISPLAY.post((self, "box"), self._clear_box)

        return answer

    # -- on the display thread ----------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Draw the run as it stands; when it has ended, for the last time."""
        if self._ended:
            return
        view = self._watch.view
        if view is None:
            return
        if view["continuedBy"] is not None:
            WORKER.post(lambda: quietly(self._watch.check))
            return
        self._draw(view)

    def catch_up(self) -> None:
        """Draw the run as the server says now, without waiting to be told."""
        view = None if self._ended else self.link.view(self.run.chain[-1])
        if view is not None:
            self._draw(view)

    def _draw(self, view: dict[str, Any]) -> None:
        if view["status"] in TERMINAL:
            self.settle()
            return
        self._picture = run_picture.read(self.link.reader, view["runId"], self.root, view)
        self._redraw()
        # Only the clock moves while a node is at work.
        DISPLAY.tick(self, self._redraw if view["status"] == "running" else None)
        for name, button in self._buttons.items():
            button.layout.display = None if name in view["controls"] else "none"
        self._answer.layout.display = None if "answer" in view["controls"] else "none"
        self._release()

    def _redraw(self) -> None:
        if self._picture is not None and not self._ended:
            self._drawing.value = representations.run_html(self._picture, self.run.note)
            kernel.forget_route(self._drawing)

    def settle(self) -> None:
        """Replace the display by a static one, and end."""
        if self._ended:
            return
        try:
            self._handle.update(self.run._repr_mimebundle_(), raw=True)
        finally:
            self.close()

    def close(self) -> None:
        """End without a last drawing: what was shown is gone from the screen."""
        if self._ended:
            return
        self._ended = True
        DISPLAY.tick(self, None)
        with _views_lock:
            _views.remove(self)
        WORKER.post(lambda: quietly(self._watch.close))
        for widget in self._parts():
            widget.close()
        DISPLAY.leave()

    def _say(self, html: str) -> None:
        if not self._ended:
            self._message.value = html
            self._release()

    def _clear_box(self) -> None:
        if not self._ended:
            self._box.value = ""
            self._release()

    def _parts(self) -> list[Any]:
        found: list[Any] = []
        rest = [self._whole]
        while rest:
            widget = rest.pop()
            found.append(widget)
            rest.extend(getattr(widget, "children", ()))
        return found

    def _release(self) -> None:
        """Let the clicks on these widgets be handled beside a busy cell, whoever published last."""
        for widget in self._parts():
            kernel.forget_route(widget)
