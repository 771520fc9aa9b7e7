"""How a command line finds the server of a file, and what it reads where nobody serves."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

from ..client.connection import SocketConnection
from ..server import live_view, resource_view
from ..state import admission
from ..state.database import open_read_only
from ..wire import errors, identities
from ..wire.client_messages import Response
from ..wire.errors import ConflictError, NotFoundError, PiWorkflowsError, ServerStoppedError, StateFileError
from ..wire.sockets import socket_path, state_folder

KIND: Final = "command line"


def resolved(database: Path | None) -> Path:
    """The real path of a state file; the default one unless another is given."""
    return admission.resolve(state_folder() / "state.sqlite" if database is None else database)


def find(path: Path) -> SocketConnection | None:
    """A connection to the server of a file; None where none answers."""
    where = socket_path(path, state_folder())
    if not where.exists():
        return None
    try:
        return SocketConnection(where, path, Path(os.getcwd()), kind=KIND)
    except ServerStoppedError:
        return None


def answers(path: Path) -> bool:
    """Whether a server of the file answers."""
    connection = find(path)
    if connection is not None:
        connection.close()
    return connection is not None


@contextmanager
def server_of(path: Path) -> Iterator[SocketConnection]:
    """The server of a file for a while; `ServerStoppedError` where nobody serves it."""
    connection = find(path)
    if connection is None:
        raise ServerStoppedError(f"nobody serves {path}: `pi-workflows-nb server start` does, or pw.start() in Python")
    try:
        yield connection
    finally:
        connection.close()


def receipt(response: Response) -> dict[str, Any]:
    """What an accepted request gave; any other outcome is the error that it stands for."""
    if response.outcome in ("accepted", "adopted"):
        return response.receipt or {}
    name, _, text = (response.error or response.outcome).partition(": ")
    kind = getattr(errors, name, None)
    if isinstance(kind, type) and issubclass(kind, PiWorkflowsError) and kind is not errors.StaleClaimError:
        raise kind(text)
    raise ConflictError(response.error or response.outcome)


def runs(path: Path, limit: int) -> list[dict[str, Any]]:
    """The live views of the newest runs, newest first: from the server, or from the file that nobody serves."""
    connection = find(path)
    if connection is not None:
        with closing(connection):
            listed: list[dict[str, Any]] = receipt(connection.request("run.list", {"limit": limit}))["runs"]
            return listed
    with closing(open_file(path)) as file:
        return live_view.read_only_list(file, limit, None, time.time_ns() // 1_000_000)


def run(path: Path, run_id: str) -> dict[str, Any]:
    """The live view of one run, from the same places. `NotFoundError`."""
    connection = find(path)
    if connection is not None:
        with closing(connection):
            return receipt(connection.request("run.status", {}, run_id=run_id))
    with closing(open_file(path)) as file:
        view = live_view.read_only(file, run_id, time.time_ns() // 1_000_000)
    if view is None:
        raise NotFoundError(f"no run {run_id!r} in {path}; `pi-workflows-nb runs` lists what it holds")
    return view


def resources(path: Path, folder: Path, limit: int) -> list[dict[str, Any]]:
    """The managed resources of the project in a folder, by manager and key, as the file holds them."""
    with closing(open_file(path)) as file:
        return resource_view.listed(file, identities.project_id(str(folder)), None, limit)


def resource(path: Path, folder: Path, resource_manager: str, key: str) -> dict[str, Any]:
    """All there is to know of one of them. `ManagedResourceNotFoundError`."""
    with closing(open_file(path)) as file:
        found = resource_view.required(file, identities.project_id(str(folder)), resource_manager, key)
        return resource_view.whole(file, found)


def open_file(path: Path) -> sqlite3.Connection:
    """A connection that reads a file; the caller closes it. `StateFileError`."""
    if not path.exists():
        raise StateFileError(f"there is no state file {path} yet, and nobody serves it: see pi-workflows-nb --help")
    return open_read_only(path)
