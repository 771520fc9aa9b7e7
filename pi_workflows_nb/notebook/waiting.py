"""Waiting for a run without holding anybody up: by subscription, in slices, with one line that says how it stands."""

from __future__ import annotations

import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Final, Self

from pi_workflows_nb.wire.errors import PiWorkflowsError

from . import kernel, wording
from .run_picture import TERMINAL

if TYPE_CHECKING:
    from collections.abc import Callable

    from .link import Connection

SLICE: Final = 0.2
# A change is pushed; asking now and then finds out that the server has gone.
ASK_EVERY: Final = 2.0


def settled(view: dict[str, Any], until: str | None) -> bool:
    """Whether a wait is over: at the end of the run, or, unless `until` is `end`, when it needs a person."""
    if view["continuedBy"] is not None:
        return False
    return view["status"] in TERMINAL or (until != "end" and view["needsPerson"])


class Watch:
    """Follows one run and its continuations through subscriptions.

    `view` is the newest live view of the newest run of the chain; `notify` is called on a foreign thread after each
    change. Close it in any case.
    """

    def __init__(self, connection: Connection, run_id: str, notify: Callable[[], None] = lambda: None) -> None:
        self.run_id = run_id
        self.view: dict[str, Any] | None = None
        self._connection = connection
        self._notify = notify
        self._changed = threading.Event()
        self._end: Callable[[], None] = lambda: None
        self._asked = time.monotonic()

    def start(self) -> None:
        """Subscribe."""
        self._end = self._connection.subscribe(self.run_id, self._receive)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Unsubscribe."""
        end, self._end = self._end, lambda: None
        end()

    def _receive(self, view: dict[str, Any]) -> None:
        if view["runId"] == self.run_id:
            self.view = view
            self._changed.set()
            self._notify()

    def wait(self, seconds: float) -> None:
        """Return at the next change, at the latest after `seconds`; `ServerStoppedError` when the server has gone."""
        if self._changed.wait(seconds):
            self._changed.clear()
        self.check()

    def check(self) -> None:
        """Follow a continuation, and ask whether the server is still there when nothing was heard for a while."""
        view = self.view
        if view is not None and view["continuedBy"] is not None:
            self.close()
            self.run_id = view["continuedBy"]
            self.start()
            return
        now = time.monotonic()
        # While one server takes over from another, nobody can be asked; then the subscription tells.
        due = self._connection.ready and now - self._asked >= ASK_EVERY
        if not self._connection.alive or due:
            self._asked = now
            response = self._connection.request("run.status", {}, run_id=self.run_id)
            if response.receipt is not None and response.outcome in {"accepted", "adopted"}:
                self.view = response.receipt


class ProgressLine:
    """One line on the screen that is written over; the last state of it stays."""

    def __init__(self) -> None:
        self._shown = ""
        self._handle: Any = None
        self._terminal = not kernel.is_kernel() and sys.stderr is not None and sys.stderr.isatty()

    def show(self, text: str) -> None:
        """Write the line if it changed."""
        if text == self._shown:
            return
        self._shown = text
        if kernel.is_kernel():
            bundle = {"text/plain": text}
            if self._handle is None:
                self._handle = kernel.display(bundle)
            else:
                self._handle.update(bundle, raw=True)
        elif self._terminal:
            sys.stderr.write(f"\r{text}\x1b[K")
            sys.stderr.flush()

    def close(self) -> None:
        """End the line."""
        if self._terminal and self._shown:
            sys.stderr.write("\n")
            sys.stderr.flush()


def line(view: dict[str, Any], since: int) -> str:
    """A live view in one line; `since` is when the first run of its chain was created, in milliseconds."""
    end = view["finishedAt"] if view["status"] in TERMINAL and view["finishedAt"] is not None else time.time() * 1000
    parts = [
        wording.one_line(view["title"] or view["workflow"], 80),
        wording.words(view["status"]),
        wording.count(view["stepCount"], "step"),
        wording.duration(int(end - since)),
    ]
    if view["status"] not in TERMINAL:
        if view["currentNode"]:
            parts.append(f"at {view['currentNode']}")
        if view["reason"]:
            parts.append(wording.one_line(view["reason"], 120))
    return " · ".join(parts)


def quietly(action: Callable[[], Any]) -> None:
    """Do something that may come too late."""
    try:
        action()
    except PiWorkflowsError:
        pass
