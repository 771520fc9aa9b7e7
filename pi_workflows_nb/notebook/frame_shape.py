"""What a kind of frame is made of: a source in the file, columns, an index, and what filters compare with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from .columns import Column, Kind

ACTOR: Final = ("session", "server", "resource_manager", "channel", "human", "policy", "control", "system")
OLDER_ACTORS: Final = {"host": "server", "controller": "resource_manager"}


@dataclass(frozen=True)
class Payload:
    """A column whose values stand in blobs, and the join that finds them."""

    column: Column
    join: str = ""


@dataclass(frozen=True)
class Frame:
    """One kind of frame.

    `run`, `project` and `aggregate` are the expressions that the filters of these names compare, `project` over the id
    of a project, and `manager` the name of a resource manager; empty where the filter has no meaning. `time` is the
    column for `since` and `until`. `payloads` are fetched on request.
    """

    name: str
    about: str
    source: str
    columns: tuple[Column, ...]
    index: tuple[str, ...]
    order: str
    run: str = ""
    project: str = ""
    aggregate: str = ""
    status: str = ""
    workflow: str = ""
    node: str = ""
    manager: str = ""
    time: str = ""
    payloads: tuple[Payload, ...] = ()
    search: tuple[str, ...] = field(default=())

    def column(self, name: str) -> Column | None:
        """The column of that name."""
        return next((column for column in self.columns if column.name == name), None)

    @property
    def view(self) -> str:
        """The temporary view of the same columns for SQL users."""
        columns = ", ".join(f"{column.plain} AS {column.name}" for column in self.columns)
        return f"CREATE TEMP VIEW {self.name}_v AS SELECT {columns} FROM {self.source}"


def many(kind: Kind, *names: str, of: str = "") -> tuple[Column, ...]:
    """Columns of one kind that are called as in the file."""
    return tuple(Column(name, kind, f"{of}.{name}" if of else name) for name in names)


def state(name: str, sql: str, words: tuple[str, ...], older: dict[str, str] | None = None) -> Column:
    """A column over a closed set of words."""
    return Column(name, "state", sql, words, older or {})


def blob(name: str, kind: Kind, digest: str) -> Payload:
    """A payload that stands in a blob; `content` may be JSON or text, and the blob says which."""
    alias = f"blob_{name}"
    value = f"{alias}.content"
    if kind == "content":
        value = f"CASE {alias}.media_type WHEN 'application/json' THEN {value} ELSE CAST({value} AS TEXT) END"
    return Payload(Column(name, kind, value), f" LEFT JOIN blobs {alias} ON {alias}.blob_hash = {digest}")


def actor(sql: str) -> Column:
    """The column `actor_type`: what kind of actor did it."""
    return state("actor_type", sql, ACTOR, OLDER_ACTORS)


def of_run(run: str) -> str:
    """The condition that a run belongs to a project, over the project's id."""
    return f"{run} IN (SELECT run_id FROM runs WHERE project_id = ?)"
