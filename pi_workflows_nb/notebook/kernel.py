"""Whether this process is a notebook's kernel, and how to show things there. IPython is never imported."""

from __future__ import annotations

import sys
from typing import Any


def shell() -> Any:
    """The running IPython shell, or None."""
    module = sys.modules.get("IPython")
    return None if module is None else module.get_ipython()


def is_kernel() -> bool:
    """Whether a front end is on the other side, not a terminal."""
    return getattr(shell(), "kernel", None) is not None


def display(bundle: dict[str, Any], display_id: str | None = None) -> Any:
    """Show a bundle of media types; gives the handle that replaces it."""
    from IPython.display import display as show

    return show(  # type: ignore[no-untyped-call]
        bundle, raw=True, display_id=True if display_id is None else display_id
    )


def cell_key() -> tuple[str, str]:
    """What identifies the cell that runs now, as far as the front end says it, and this execution of it."""
    parent: dict[str, Any] = getattr(shell().kernel, "get_parent", dict)() if is_kernel() else {}
    header, metadata = parent.get("header", {}), parent.get("metadata", {})
    return str(metadata.get("cellId", "")), str(header.get("msg_id", ""))


def forget_route(widget: Any) -> None:
    """Let a front end's messages for a widget go to the thread that the front end chose for them.

    The kernel notes which of its threads last published on a widget and sends everything about it there; after a cell
    did, that is the main thread, and a click waits for all cells that are queued.
    """
    comm = getattr(widget, "comm", None)
    lock = getattr(comm, "_reply_subshell_lock", None)
    if lock is not None:
        with lock:
            vars(comm).pop("_reply_subshell_id", None)
