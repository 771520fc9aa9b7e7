"""`%%workflow`, `%pw`, `%%pw_sql`, and how workflows look when a cell ends with one.

Loaded by `pw.start()`, or by `%load_ext pi_workflows_nb`; loading them again changes nothing.
"""

from __future__ import annotations

import os
import shlex
import sys
from typing import TYPE_CHECKING, Any, Final

from IPython.core.error import UsageError
from IPython.core.magic import Magics, cell_magic, line_magic, magics_class

from pi_workflows_nb.resource_managers.definition import ResourceManager
from pi_workflows_nb.wire.errors import (
    NotJsonError,
    PiWorkflowsError,
    ResourceManagerDefinitionError,
    WorkflowDefinitionError,
)
from pi_workflows_nb.workflows import sources
from pi_workflows_nb.workflows.discovery import text_digest

from . import cells, representations, starting

if TYPE_CHECKING:
    from pi_workflows_nb.workflows.definition import Workflow

    from .server import Server

LISTS: Final = (
    "runs",
    "effects",
    "steps",
    "attempts",
    "events",
    "leases",
    "runners",
    "run_queue",
    "logs",
    "commands",
    "resources",
    "conditions",
    "resource_queue",
    "child_workflows",
)
_USAGE: Final = (
    "%pw                    the server of this kernel\n"
    "%pw runs               a frame; also " + ", ".join(LISTS[1:]) + "\n"
    "%pw run NAME [JSON]    start a run of a workflow by its name, with a JSON input\n"
    "%pw RUN-ID             one run"
)


@magics_class
class WorkflowMagics(Magics):
    """The magics of this package."""

    @cell_magic
    def workflow(self, line: str, cell: str) -> Workflow:
        """`%%workflow NAME`: define a workflow that `server.run("NAME")` starts from the text of this cell.

        The cell is plain Python that stands alone, imports included, and makes one `pw.Workflow` of that name. It is
        executed here once, in a module of its own, so that its mistakes show and its names can be used; each run
        executes the text itself, in a process of its own.
        """
        name = line.strip()
        if not name or len(name.split()) != 1:
            raise UsageError("%%workflow NAME: one name, without blanks")
        text = cell if cell.endswith("\n") else f"{cell}\n"
        workflow = sources.load_text(text, name=name, filename=f"<workflow {name}>")
        if workflow.name != name:
            raise WorkflowDefinitionError(
                f"%%workflow {name}: the cell makes a workflow named {workflow.name!r}; give both the same name"
            )
        cells.register(name, text, workflow)
        module = sys.modules[f"pi_workflows_source_{text_digest(text)[:16]}"]
        self._names().update({key: value for key, value in vars(module).items() if not key.startswith("_")})
        return workflow

    @cell_magic
    def resource_manager(self, line: str, cell: str) -> ResourceManager:
        """`%%resource_manager NAME`: define a resource manager whose passes execute the text of this cell.

        As with `%%workflow`, the cell is plain Python that stands alone, and makes one `pw.ResourceManager` of that
        name; `server.resources.apply("NAME", key, spec)` or `server.apply(manager, …)` sends it along.
        """
        name = line.strip()
        if not name or len(name.split()) != 1:
            raise UsageError("%%resource_manager NAME: one name, without blanks")
        text = cell if cell.endswith("\n") else f"{cell}\n"
        sought = sources.Sought(ResourceManager, "resource manager", f"m = pw.ResourceManager({name!r})")
        manager = sources.load_kind(text, sought, name=name, filename=f"<resource manager {name}>")
        if manager.name != name:
            raise ResourceManagerDefinitionError(
                f"%%resource_manager {name}: the cell makes the manager {manager.name!r}; give both the same name"
            )
        manager.function  # noqa: B018 - raises where there is none
        cells.register_manager(name, text, manager)
        module = sys.modules[f"pi_workflows_source_{text_digest(text)[:16]}"]
        self._names().update({key: value for key, value in vars(module).items() if not key.startswith("_")})
        return manager

    def _names(self) -> dict[str, Any]:
        assert self.shell is not None
        names: dict[str, Any] = self.shell.user_ns
        return names

    @line_magic
    def pw(self, line: str) -> Any:
        """`%pw`: the server of this kernel; `%pw runs` and other frames; `%pw run NAME {json}`; `%pw RUN-ID`."""
        words = line.split(maxsplit=2)
        server = _server()
        if not words:
            return server
        if words[0] in LISTS and len(words) == 1:
            return getattr(server, words[0])()
        if words[0] == "run" and len(words) > 1:
            return server.run(words[1], _json(words[2] if len(words) > 2 else "null"))
        if len(words) == 1 and words[0] not in {"run", "help", "-h", "--help"}:
            return server.get_run(words[0])
        raise UsageError(_USAGE)

    @cell_magic
    def pw_sql(self, line: str, cell: str) -> Any:
        """`%%pw_sql [-o VARIABLE]`: the result of one SQL statement as a frame; with `-o` it is kept in a variable.

        Beside the tables there are views with the columns of the frames: runs_v, steps_v, …
        """
        words = shlex.split(line)
        if words and (words[0] != "-o" or len(words) != 2 or not words[1].isidentifier()):
            raise UsageError("%%pw_sql [-o VARIABLE], and one SQL statement in the cell")
        result = _server().sql(cell)
        if words:
            self._names()[words[1]] = result
            return None
        return result


def load_ipython_extension(shell: Any) -> None:
    """Add the magics to a shell, and let it draw workflows; again and again without harm."""
    if getattr(shell, "_pi_workflows_nb", False):
        return
    shell.register_magics(WorkflowMagics)
    formatter = getattr(shell.display_formatter, "mimebundle_formatter", None)
    if formatter is not None:
        formatter.for_type_by_name("pi_workflows_nb.workflows.definition", "Workflow", _bundle)
    shell._pi_workflows_nb = True


def _bundle(workflow: Workflow, **_: Any) -> dict[str, str]:
    try:
        return representations.workflow_bundle(workflow)
    except PiWorkflowsError as error:
        # A graph that is still being written has no drawing yet, which is no reason to fail the cell.
        return {"text/plain": f"{workflow!r}\n  {error}"}


def _server() -> Server:
    for (pid, _), (connection, by_project) in reversed(starting._servers.items()):
        if pid == os.getpid() and connection.alive and by_project:
            return list(by_project.values())[-1]
    raise UsageError("no server in this kernel yet: `import pi_workflows_nb as pw`, then `server = pw.start()`")


def _json(text: str) -> Any:
    from pi_workflows_nb.wire import canonical_json

    try:
        return canonical_json.decode(text.encode())
    except NotJsonError as error:
        raise UsageError(f'the input is JSON, as {{"text": "…"}}: {error}') from error
