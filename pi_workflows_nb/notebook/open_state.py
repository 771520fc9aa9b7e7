"""A state file opened to be read: the same frames, queries and runs, and nothing that could change it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from . import representations
from .file_access import FileAccess
from .link import Link
from .reader import Reader

if TYPE_CHECKING:
    import os
    from types import TracebackType

    import pandas as pd

    from .filters import Moment, Words


def open_state(path: str | os.PathLike[str]) -> State:
    """Open a state file to be read, live or at rest, one of this system or of the original one.

    Nothing is created, repaired or changed. `StateFileError` when it is not a state file or cannot be read.
    """
    return State(path)


class State(FileAccess):
    """A state file to be read; frames show all projects. `close()` when `db` was used."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        from pi_workflows_nb.state.admission import resolve

        self._link = Link(Reader(resolve(path)))
        self._link.reader.open().close()

    @property
    def path(self) -> str:
        """The file's real path."""
        return str(self._link.reader.path)

    def resources(
        self,
        *,
        resource_manager: Words | None = None,
        status: Words | None = None,
        text: str | None = None,
        aggregate: Words | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
        project: str | None = None,
        order: Words | None = None,
        limit: int | None = None,
        payloads: bool = False,
    ) -> pd.DataFrame:
        """One row a managed resource, by manager and key; index `uid`.

        From the tables controller_resources, resources, leases and controller_queue. `status` compares the column
        `state`: settled, queued or reconciling; `ready` is the condition of that name; `text` is searched in manager,
        key and uid. `payloads` adds spec, status (as stored) and error.
        """
        return self._frame(
            "resources",
            payloads=payloads,
            resource_manager=resource_manager,
            status=status,
            text=text,
            aggregate=aggregate,
            since=since,
            until=until,
            project=project,
            order=order,
            limit=limit,
        )

    def close(self) -> None:
        """Close what `db` opened; frames can still be asked for."""
        self._close_database()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _facts(self) -> list[tuple[str, Any]]:
        return [("file", self.path), ("runs", self._counted_runs())]

    def __repr__(self) -> str:
        return representations.facts_text("state file, read only", self._facts())

    def _repr_html_(self) -> str:
        return representations.facts_html("state file, read only", self._facts())

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": self._repr_html_()}
