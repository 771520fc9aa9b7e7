"""What runs and effects share with the server object they came from: the file, and the way to the server.

A link without a connection reads the file and can change nothing.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final, Protocol

from pi_workflows_nb.server import live_view
from pi_workflows_nb.wire import canonical_json, errors
from pi_workflows_nb.wire.errors import ConflictError, PiWorkflowsError, ServerStoppedError, StateFileError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pi_workflows_nb.wire.client_messages import Farewell, Response

    from .reader import Reader


class Connection(Protocol):
    """The way to a server, whichever process it lives in."""

    @property
    def database(self) -> Path:
        """The state file."""

    @property
    def server_pid(self) -> int:
        """The process that serves."""

    @property
    def server_id(self) -> str:
        """The server's own id."""

    @property
    def placement(self) -> str:
        """`thread` (in this kernel), `process` (in one of its own), or `kernel` (in another kernel)."""

    @property
    def owner(self) -> bool:
        """Whether this kernel has started the server."""

    @property
    def alive(self) -> bool:
        """Whether the server serves, or another will in a moment."""

    @property
    def ready(self) -> bool:
        """Whether it answers at once."""

    @property
    def farewell(self) -> Farewell | None:
        """How the server has ended; None while it serves, and when it ended without a word."""

    def request(
        self,
        operation: str,
        payload: dict[str, Any],
        *,
        run_id: str | None = None,
        key: str | None = None,
        client_id: str | None = None,
    ) -> Response:
        """The answer to one operation. `ServerStoppedError` when nobody answers any more."""

    def value(self, canonical: bytes) -> dict[str, Any]:
        """A value as payloads carry it, uploaded first when it is large."""

    def subscribe(self, run_id: str, callback: Callable[[dict[str, Any]], None]) -> Callable[[], None]:
        """Call back with the live view of a run, now and at every change, on a thread of its own. Gives its end."""

    def on_stopped(self, callback: Callable[[], None]) -> None:
        """Call back, on a thread of its own, when the server has stopped."""

    def stop_server(self) -> None:
        """Stop the server."""

    def close(self) -> None:
        """Leave the server; the one in this process stops."""


_ERROR_OF: Final[dict[str, type[PiWorkflowsError]]] = {
    "notFound": errors.NotFoundError,
    "unavailable": errors.StateUnavailableError,
}


class Link:
    """The file of a server, its project, and the connection while there is one."""

    def __init__(self, reader: Reader, connection: Connection | None = None, project_id: str | None = None) -> None:
        self.reader = reader
        self.connection = connection
        self.project_id = project_id

    def ask(
        self,
        operation: str,
        payload: dict[str, Any],
        *,
        run_id: str | None = None,
        key: str | None = None,
        client_id: str | None = None,
    ) -> Response:
        """The accepted answer to an operation; any other outcome is the error that it stands for."""
        if self.connection is None:
            raise StateFileError(
                f"{operation}: {self.reader.path} was opened to be read; a server, pw.start(database=…), can act"
            )
        response = self.connection.request(operation, payload, run_id=run_id, key=key, client_id=client_id)
        if response.outcome in {"accepted", "adopted"}:
            return response
        raise refusal(response, operation)

    def value(self, value: Any) -> dict[str, Any]:
        """A JSON value as payloads carry it; `NotJsonError` for what is none."""
        from pi_workflows_nb.workflows.values import to_json

        canonical = canonical_json.encode(to_json(value))
        if self.connection is None:
            return {"inline": canonical_json.decode(canonical)}
        return self.connection.value(canonical)

    def view(self, run_id: str) -> dict[str, Any] | None:
        """The live view of a run: from the server, and from the file when no server is there to ask.

        None, or `NotFoundError`, where there is no such run.
        """
        if self.connection is not None:
            try:
                return self.ask("run.status", {}, run_id=run_id).receipt
            except ServerStoppedError:
                pass
        with self.reader.snapshot() as connection:
            return live_view.read_only(connection, run_id, time.time_ns() // 1_000_000)


def refusal(response: Response, operation: str) -> PiWorkflowsError:
    """The error that a response which was not accepted stands for: by the class its text names, else by its outcome."""
    said = response.error or f"{operation} was answered with {response.outcome}"
    name, _, text = said.partition(": ")
    kind = getattr(errors, name, None)
    if response.outcome == "claimLost" or kind is errors.StaleClaimError:
        return errors.StaleClaimError(text or said, "missingAuthority")
    if isinstance(kind, type) and issubclass(kind, PiWorkflowsError) and kind is not errors.NotJsonError:
        return kind(text)
    return _ERROR_OF.get(response.outcome, ConflictError)(said)
