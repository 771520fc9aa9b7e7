"""What all live views have in common: a place in a cell, one widget, wishes from the front end, and a static end.

A view lives as long as there is something to follow. Then its display is replaced, once, by a bundle without a widget,
so that a saved notebook shows the last state wherever it is opened.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any, Final

from pi_workflows_nb.wire.errors import PiWorkflowsError

from . import kernel
from .display_thread import DISPLAY, WORKER
from .waiting import quietly

if TYPE_CHECKING:
    from collections.abc import Callable

    from .link import Connection, Link

VIEWS_OF_ONE_THING: Final = 8
FLUSH_SECONDS: Final = 2.0

log = logging.getLogger(__name__)

_views: list[LiveView] = []
_views_lock = threading.Lock()


def can_be_live(link: Link) -> bool:
    """Whether a front end is there that could show a live view, and a server that has something to tell."""
    if not kernel.is_kernel() or link.connection is None or not link.connection.alive:
        return False
    try:
        import anywidget  # noqa: F401
    except ImportError:
        return False
    return True


def settle(link: Link) -> None:
    """Make the views of a server static; its end was asked for."""
    stopped(link)
    DISPLAY.flush(FLUSH_SECONDS)


def stopped(link: Link) -> None:
    """The server of these views has stopped. Never waits."""
    for view in living():
        if view.link is link:
            DISPLAY.post(view, view.settle)


def living() -> list[LiveView]:
    """The views on the screen."""
    with _views_lock:
        return list(_views)


class LiveView:
    """One live view. After `open`, its widget is touched on the display thread alone."""

    def __init__(self, link: Link, thing: str, widget: Any) -> None:
        assert link.connection is not None
        self.link = link
        self.thing = thing
        self.connection: Connection = link.connection
        self.cell, self.execution = kernel.cell_key()
        self.widget = widget
        self.ended = False
        self._handle: Any = None
        widget.on_msg(self._hear)

    # -- what each kind of view says ----------------------------------------------------------------------------------

    def bundle(self) -> dict[str, str]:
        """The static form."""
        raise NotImplementedError

    def start(self) -> None:
        """Begin to follow."""
        raise NotImplementedError

    def leave(self) -> None:
        """Follow no more. Called on the worker thread."""
        raise NotImplementedError

    def carry_out(self, wish: dict[str, Any]) -> dict[str, Any]:
        """Do what a person has asked for, on the worker thread; gives what to answer."""
        raise NotImplementedError

    # -- its life -----------------------------------------------------------------------------------------------------

    def open(self, bundle: dict[str, str]) -> None:
        """Show the view in the present cell and follow."""
        self._make_room()
        with _views_lock:
            _views.append(self)
        DISPLAY.enter()
        shown = self.widget._repr_mimebundle_()[0]
        # A front end without widgets, or an untrusted notebook, falls back on these.
        self._handle = kernel.display(dict(shown) | {name: bundle[name] for name in ("text/plain", "text/html")})
        kernel.forget_route(self.widget)
        self.start()

    def _make_room(self) -> None:
        """The front end has cleared what an earlier execution of this cell showed; and too many views are slow."""
        views = living()
        for view in views:
            if self.cell and view.cell == self.cell and view.execution != self.execution:
                DISPLAY.post(view, view.close)
        same = [view for view in views if view.thing == self.thing]
        for view in same[: max(0, len(same) - VIEWS_OF_ONE_THING + 1)]:
            DISPLAY.post(view, view.settle)

    def settle(self) -> None:
        """Replace the display by a static one, and end. On the display thread."""
        if self.ended:
            return
        try:
            self._handle.update(self.bundle(), raw=True)
        finally:
            self.close()

    def close(self) -> None:
        """End without a last drawing: what was shown is gone from the screen. On the display thread."""
        if self.ended:
            return
        self.ended = True
        DISPLAY.tick(self, None)
        with _views_lock:
            _views.remove(self)
        WORKER.post(lambda: quietly(self.leave))
        self.widget.close()
        DISPLAY.leave()

    def show(self, **traits: Any) -> None:
        """Give the front end what has changed of these traits. On the display thread."""
        changed = {name: value for name, value in traits.items() if getattr(self.widget, name) != value}
        if self.ended or not changed:
            return
        with self.widget.hold_sync():
            for name, value in changed.items():
                setattr(self.widget, name, value)
        # Clicks are to be handled beside a busy cell, whoever published last.
        kernel.forget_route(self.widget)

    def send(self, message: dict[str, Any]) -> None:
        """Say something to the front end. On the display thread."""
        if not self.ended:
            self.widget.send(message)
            kernel.forget_route(self.widget)

    # -- wishes -------------------------------------------------------------------------------------------------------

    def _hear(self, _widget: Any, wish: Any, _buffers: Any) -> None:
        """On a thread of the kernel that must never be held up."""
        if isinstance(wish, dict):
            number = wish.get("number")
            DISPLAY.post((self, "heard", number), lambda: self.send({"heard": number}))
            WORKER.post(lambda: self._answer(wish))

    def _answer(self, wish: dict[str, Any]) -> None:
        answer: dict[str, Any]
        try:
            answer = self.carry_out(wish)
        except PiWorkflowsError as error:
            answer = {"failed": True, "said": str(error)}
        except Exception:
            log.exception("a wish of a live view could not be carried out")
            answer = {"failed": True, "said": "this could not be shown or done; the log of the kernel says why"}
        if answer:
            key = (self, "answer", wish.get("number"))
            DISPLAY.post(key, lambda: self.send(answer))


def act(actions: dict[str, Callable[[], Any]], wish: dict[str, Any]) -> dict[str, Any]:
    """Carry out one of the actions by its name."""
    action = actions.get(str(wish.get("act")))
    if action is None:
        return {}
    action()
    return {"said": ""}
