"""The server as an object in a cell: start runs, find them again, ask what the file holds."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from pi_workflows_nb.wire import canonical_json, identities
from pi_workflows_nb.wire.errors import (
    PiWorkflowsError,
    ServerStoppedError,
    SessionRequiredError,
    WorkflowDefinitionError,
)
from pi_workflows_nb.workflows.definition import Workflow
from pi_workflows_nb.workflows.values import to_json

from . import cells, representations, scheduling, wording
from .file_access import FileAccess
from .inbox import Inbox
from .link import Link
from .origin_session import origin_session
from .reader import Reader
from .resources import Resources
from .run import Run
from .session import Session

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Iterable
    from types import TracebackType

    from pi_workflows_nb.resource_managers.definition import ResourceManager

    from .link import Connection
    from .managed_resource import ManagedResource

MODES: Final = ("headless", "interactive")
PLACES: Final = {"kernel": "another kernel", "process": "a process of its own", "thread": "this kernel"}


class Status(dict[str, Any]):
    """Counts and times of a server, by name."""

    def __repr__(self) -> str:
        return representations.facts_text("server", list(self.items()))

    def _repr_html_(self) -> str:
        return representations.facts_html("server", list(self.items()))


class Server(FileAccess):
    """The server of a state file, wherever it runs; `pw.start()` gives one.

    As a context manager it stops at the end, unless it was not started by this kernel. Frames show the runs of its
    project; `project="*"` shows all of the file.
    """

    def __init__(self, connection: Connection, *, project: Path, session: str | None, home: Path) -> None:
        self.project = Path(project)
        self.home = Path(home)
        self._connection = connection
        reader = Reader(connection.database, lambda: True if connection.alive else None)
        self._link = Link(reader, connection, identities.project_id(self.project))
        self.session = Session(self._link, origin_session(self.project, session))
        connection.on_stopped(self._stopped)

    @property
    def database(self) -> Path:
        """The state file."""
        return self._connection.database

    @property
    def placement(self) -> str:
        """Where the server lives now: `thread` (this kernel), `process` (one of its own), `kernel` (another kernel)."""
        return self._connection.placement

    @property
    def alive(self) -> bool:
        """Whether it serves."""
        return self._connection.alive

    # -- runs -------------------------------------------------------------------------------------------------------

    def run(
        self,
        workflow: Workflow | str | os.PathLike[str],
        input: Any = None,
        *,
        key: str | None = None,
        agent: Callable[..., Any] | None = None,
        mode: str | None = None,
        tags: Iterable[str] = (),
    ) -> Run:
        """Commit a run and give it; it starts as soon as there is room.

        `workflow` is a Workflow, the name of one (a `%%workflow` cell of this kernel, a file of the project, a
        built-in) or the path of a file. `input` is JSON, or what the workflow's own `input` accepts. The same `key`
        adopts the run that it started before in this project. `agent` answers agent and decision nodes: a callable that
        is shipped to the run's process. Without one they ask this notebook: `server.session.agent`, and
        `server.inbox()`. `mode` is "headless" or "interactive", by default what the graph needs. `tags`
        are texts to find the run by. The run sees the environment variables of this moment.

        Errors: `WorkflowDefinitionError`, `WorkflowInputError`, `SourceError` (it cannot be shipped), `NotFoundError`
        (no workflow of that name), `SessionRequiredError`, `ConflictError` (the key stands for another input),
        `ServerStoppedError`.
        """
        if mode is not None and mode not in MODES:
            raise WorkflowDefinitionError(f"mode={mode!r}: it is {' or '.join(map(repr, MODES))}, or left out")
        if agent is not None and not callable(agent):
            raise WorkflowDefinitionError(f"agent={agent!r}: it is a callable of the request that gives the answer")
        tag_list = _checked_tags(tags)
        if not isinstance(workflow, Workflow):
            payload = self._named(os.fspath(workflow), input, agent, mode)
        elif cells.made(workflow):
            payload = self._named(workflow.name, input, agent, mode)
        else:
            payload = self._described(workflow, input, agent, mode)
        payload |= {"environment": dict(os.environ), "project": str(self.project), "tags": tag_list}
        if mode != "headless":
            payload |= {"session": self.session.id}
        response = self._link.ask(
            "run.start",
            payload,
            key=key,
            client_id=None if key is None else f"key:{self._link.project_id}",
        )
        receipt = response.receipt or {}
        return Run(self._link, receipt["runId"], receipt.get("note"))

    def _described(self, workflow: Workflow, given: Any, agent: Any, mode: str | None) -> dict[str, Any]:
        from pi_workflows_nb.workflows import compiled, finding, human_decisions, inputs, settings, snapshot, sources

        find = finding.Discovered(self.project, cells.texts())
        graph = compiled.compile_workflow(workflow, find)
        normalized = inputs.normalize_input(workflow, given)
        described = snapshot.definition_snapshot(graph)
        needs_session = human_decisions.asks_session(graph, has_agent=agent is not None)
        if needs_session and mode == "headless":
            raise SessionRequiredError(
                f"workflow {workflow.name!r} asks the session of this notebook: leave mode='headless' out, or, where"
                " no person decides in it, give agent=<a callable> that answers its agent nodes"
            )
        frozen = sources.freeze(workflow, agent=agent, project=self.project)
        if find.mounts:
            frozen["mounts"] = find.mounts
        sources.sign(frozen, sources.signing_key(self.home))
        initial = None
        if workflow.settings is not None:
            initial = settings.initial_settings(workflow.settings, normalized, f"workflow {workflow.name!r}")
        value = self._connection.value
        return {
            "frozen": value(canonical_json.encode(frozen)),
            "input": value(canonical_json.encode(normalized)),
            "mode": mode or ("interactive" if needs_session else "headless"),
            "mountedSources": graph.mounted_sources(),
            "name": workflow.name,
            "settings": None if initial is None else value(initial),
            "snapshot": value(canonical_json.encode(described)),
            "source": sources.source_identity(workflow, frozen),
            "title": inputs.make_title(workflow, normalized),
        }

    def _named(self, name: str, given: Any, agent: Any, mode: str | None) -> dict[str, Any]:
        from pi_workflows_nb.workflows import sources

        value = self._connection.value
        frozen = None
        if agent is not None:
            signed = sources.sign(
                sources.freeze(None, agent=agent, project=self.project), sources.signing_key(self.home)
            )
            frozen = value(canonical_json.encode(signed))
        text = cells.text_of(name)
        return {
            "agent": frozen,
            "cell": None if text is None else {"name": name, "text": text},
            "cells": cells.texts(),
            "input": value(canonical_json.encode(to_json(given))),
            "mode": mode,
            "workflow": name,
        }

    def inbox(self) -> Inbox:
        """What the runs of this notebook ask at this moment; each question has `answer(value)`."""
        return Inbox(self._link, self.session.id)

    def signal(self, name: str, value: Any = None) -> int:
        """Give an event to every run of this project that waits for it at this moment, and say how many that were.

        `value` is JSON, and becomes the output of their `wait_event` nodes. A node that refuses it goes on waiting;
        `WorkflowInputError` when all do. Also `NotJsonError`, `ServerStoppedError`.
        """
        payload = {"name": name, "project": str(self.project), "value": self._link.value(value)}
        return int((self._link.ask("checkpoint.signal", payload).receipt or {})["answered"])

    # -- managed resources ------------------------------------------------------------------------------------------

    @property
    def resources(self) -> Resources:
        """The managed resources of this project: called it is the frame; it has `apply`, `get` and `rebuild_queue`."""
        return Resources(self._link, self.project, self.home, self._frame)

    def apply(
        self,
        resource_manager: ResourceManager | str,
        key: str,
        spec: Any = None,
        *,
        workflows: Iterable[Workflow] = (),
    ) -> ManagedResource:
        """Say what is wanted of a managed resource, and give it; see `server.resources.apply`."""
        return self.resources.apply(resource_manager, key, spec, workflows=workflows)

    def every(
        self, interval: dt.timedelta, workflow: Workflow | str, input: Any = None, *, key: str | None = None
    ) -> ManagedResource:
        """Start a run again and again, for the first time when an interval is over, and give the schedule.

        `interval` is a timedelta of at least a second. The schedule is a managed resource of the built-in manager
        `schedule`: it outlives this server, `delete()` ends it, and `server.child_workflows()` lists its runs. Moments
        that nobody served are made up for by one run, at once. `workflow` is a `Workflow` or a name. The same call
        again adopts the same schedule; with a `key` of your own another call changes it.
        """
        return scheduling.every(self.resources, self.project, interval, workflow, input, key)

    def once(
        self,
        moment: dt.datetime | dt.timedelta,
        workflow: Workflow | str,
        input: Any = None,
        *,
        key: str | None = None,
    ) -> ManagedResource:
        """Start a run at a moment (a datetime, UTC unless it names a zone, or a timedelta from now), as `every`.

        When nobody serves at that moment it is started as soon as somebody does.
        """
        return scheduling.once(self.resources, self.project, moment, workflow, input, key)

    # -- the server -------------------------------------------------------------------------------------------------

    def status(self) -> Status:
        """Counts and times: pid, epoch, runners, runs and queue by status, commits, lag in ms. `ServerStoppedError`."""
        receipt = self._link.ask("server.status", {}).receipt or {}
        return Status({_snake(name): value for name, value in receipt.items()})

    def backup(self, path: str | os.PathLike[str]) -> Status:
        """Copy the state file while it is served, check the copy, and give its path, bytes and number of findings.

        The copy is one moment of the file, and nobody waits for it. `StateFileError` where there is something already,
        or when the file has a fault that no backup may carry on; nothing is left then.
        """
        return self._receipt("state.backup", {"destination": os.path.abspath(Path(path).expanduser())})

    def prune(
        self,
        before: dt.datetime | dt.timedelta | str,
        apply: bool = False,
        backup: str | os.PathLike[str] | None = None,
    ) -> Status:
        """Tell which runs that ended before a moment could leave the file; with `apply` they do.

        `before` is a datetime or an ISO text (UTC unless it names a zone), or an age. A run leaves with everything that
        continues or restarts it, and with all that is its own, when nothing needs it any more; `kept` counts the others
        by reason. `apply=True` needs `backup`, the path of a copy that is made and checked first. `StateFileError`,
        `QueryError` for what is no moment.
        """
        from .frames import milliseconds

        copy = None if backup is None else os.path.abspath(Path(backup).expanduser())
        payload = {"apply": bool(apply), "backup": copy, "before": max(0, milliseconds(before))}
        return self._receipt("state.prune", payload)

    def _receipt(self, operation: str, payload: dict[str, Any]) -> Status:
        receipt = self._link.ask(operation, payload).receipt or {}
        return Status({_snake(name): value for name, value in receipt.items()})

    def stop(self) -> None:
        """Stop the server, for every kernel: runners end, their runs wait for the next start.

        Frames and finished runs stay readable.
        """
        self._close_database()
        try:
            self._connection.stop_server()
        except ServerStoppedError:
            pass
        self._leave()

    def _leave(self) -> None:
        from . import views

        self.session._close()
        self._close_database()
        self._connection.close()
        views.settle(self._link)

    def _stopped(self) -> None:
        from . import views

        views.stopped(self._link)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._connection.owner:
            self.stop()
        else:
            self._leave()

    # -- showing ----------------------------------------------------------------------------------------------------

    def _facts(self) -> tuple[str, list[tuple[str, Any]]]:
        facts: list[tuple[str, Any]] = [
            ("state file", self.database),
            ("project", self.project),
            ("runs", self._counted_runs()),
        ]
        try:
            status = self.status()
        except PiWorkflowsError:
            return "stopped", [*facts, ("to go on", "pw.start() serves the file again")]
        place = PLACES[self.placement]
        facts += [
            ("server", f"in {place} (pid {status.get('pid')}), epoch {status.get('epoch')}"),
            ("runners", f"{status.get('runners')} of {status.get('max_runners')}"),
            ("queue", wording.counts(status.get("queue", {})) or "empty"),
            ("commits", status.get("commits")),
        ]
        if status.get("ambiguous_effects"):
            facts.append(("ambiguous effects", f"{status['ambiguous_effects']}: server.effects(status='ambiguous')"))
        if status.get("slowed_by_cell"):
            facts.append(
                ("note", 'the cell slows the server; pw.start(server="process") gives it a process of its own')
            )
        return "running", facts

    def __repr__(self) -> str:
        state, facts = self._facts()
        return representations.facts_text(f"pi-workflows server · {state} · {time.strftime('%H:%M:%S')}", facts)

    def _repr_html_(self) -> str:
        state, facts = self._facts()
        return representations.facts_html("pi-workflows server", facts, state)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": self._repr_html_()}


def _checked_tags(tags: Iterable[str]) -> list[str]:
    listed = [tags] if isinstance(tags, str) else list(tags)
    for tag in listed:
        if not isinstance(tag, str):
            raise WorkflowDefinitionError(f"tags={listed!r}: a tag is a text")
    return listed


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)
