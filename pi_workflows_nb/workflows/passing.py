"""The way into mounted workflows and out of them, which takes no step.

What is entered or left is noted, and rides with the next proposal: the way from one node to the next is one transition,
however many mounts lie on it. Code of the user that is called on the way (`input` of an include, the child's own
`input`, `validate` of an exit) belongs to no attempt; a run whose code fails there ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from pi_workflows_nb.wire import canonical_json
from pi_workflows_nb.wire.errors import RoutingError, WorkflowDefinitionError
from pi_workflows_nb.workflows.composition import mount_of
from pi_workflows_nb.workflows.context import Context
from pi_workflows_nb.workflows.history import StoredValue, to_canonical
from pi_workflows_nb.workflows.inputs import accept, normalize_input
from pi_workflows_nb.workflows.nodes import DEFAULT_TIMEOUT
from pi_workflows_nb.workflows.routing import next_node
from pi_workflows_nb.workflows.settings import initial_settings, parsed
from pi_workflows_nb.workflows.store import Passage, RunEnd
from pi_workflows_nb.workflows.tracebacks import error_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from pi_workflows_nb.workflows.calls import Call, Callbacks
    from pi_workflows_nb.workflows.compiled import Compiled, Mount
    from pi_workflows_nb.workflows.definition import Workflow
    from pi_workflows_nb.workflows.history import History
    from pi_workflows_nb.workflows.settings import WorkflowSettings
    from pi_workflows_nb.workflows.store import SettingsCopy


class Passing:
    """Goes through the mounts of one run. A place is a node, a mount, or `mount.exit`."""

    def __init__(
        self, graph: Compiled, history: History, callbacks: Callbacks, settings: Callable[[str], SettingsCopy]
    ) -> None:
        self._graph = graph
        self._history = history
        self._callbacks = callbacks
        self._settings = settings
        self._noted: list[Passage] = []
        self._asking = ""

    def lies_at(self, place: str) -> bool:
        """Whether the place is no node."""
        return place in self._graph.mounts or mount_of(place) is not None

    def calls_code(self, place: str) -> bool:
        """Whether going through it calls code of the user, before which everything else must be durable."""
        mount = self._graph.mounts.get(place)
        if mount is not None:
            own = mount.workflow
            return callable(mount.include.input) or own.input is not None or own.settings is not None
        return self._graph.exit_of(place).validate is not None

    def through(self, place: str) -> str | RunEnd:
        """Go through a mount's door, and say what lies behind it."""
        mount = self._graph.mounts.get(place)
        passed = self._leave(place) if mount is None else self._enter(mount)
        if isinstance(passed, RunEnd):
            return passed
        self._history.pass_through(passed)
        self._noted.append(passed)
        return self.behind(passed)

    def behind(self, passage: Passage) -> str | RunEnd:
        """What lies behind a door that was gone through."""
        mount = self._graph.mounts.get(passage.mount)
        if mount is None:
            raise WorkflowDefinitionError(
                f"the run stands before {passage.mount!r}, which the workflow does not include"
            )
        if passage.event == "include_entered":
            return mount.start
        seen = canonical_json.decode(passage.value)
        place = f"{mount.path}.{seen['exit']}"
        outer = self._graph.exits.get(place)
        if outer is not None:
            return outer
        try:
            target = next_node(self._graph, place, {"outcome": "ok", "output": seen}, seen)
        except RoutingError as error:
            return RunEnd("failed", error=error_text(error))
        return RunEnd("completed", output=passage.value) if target is None else target

    def taken(self) -> tuple[Passage, ...]:
        """What was gone through since this was last asked."""
        noted, self._noted = tuple(self._noted), []
        return noted

    def has_settings(self, path: str) -> bool:
        """Whether the workflow mounted there, or the run's own, declares settings."""
        workflow = self._graph.mounts[path].workflow if path else self._graph.workflow
        return workflow.settings is not None

    def too_many_steps(self, node_id: str) -> RunEnd | None:
        """The end of a run that may take no step more, or that has none left in a workflow around the node."""
        count = len(self._history.steps)
        if count >= self._graph.max_steps:
            return _too_many("the run", count, self._graph.workflow, node_id)
        path = node_id.rpartition("/")[0]
        while path:
            child, count = self._graph.mounts[path].workflow, self._history.invocations[path].count
            if count >= child.max_steps:
                return _too_many(f"workflow {child.name!r}, mounted as {path!r},", count, child, node_id)
            path = path.rpartition("/")[0]
        return None

    def left_behind(self, call: Call) -> RunEnd:
        """How a run ends whose code on the way did not stop."""
        how = "cancelled" if call.stopping == "cancelled" else "timed_out"
        return RunEnd(how, error=f"{self._asking}: its code did not stop and was left behind")  # type: ignore[arg-type]

    def _enter(self, mount: Mount) -> Passage | RunEnd:
        parent, child, made = mount.path.rpartition("/")[0], mount.workflow, mount.include.input
        given: bytes | RunEnd
        if made is None and child.input is None:
            given = self._history.invocations[parent].input.json
        else:
            context = self._context(mount.path, parent)

            def ask() -> Any:
                if callable(made):
                    return self._callbacks.invoke(made, context)
                return context.input if made is None else made

            what = f"include {mount.path!r}: its input"
            given = self._ask(what, lambda: to_canonical(normalize_input(child, ask())))
        if isinstance(given, RunEnd) or child.settings is None:
            return given if isinstance(given, RunEnd) else Passage("include_entered", mount.path, given)
        settings = self._begun_with(mount, child.settings, parent, given)
        if isinstance(settings, RunEnd):
            return settings
        return Passage("include_entered", mount.path, given, settings)

    def _begun_with(self, mount: Mount, declared: WorkflowSettings, parent: str, given: bytes) -> bytes | RunEnd:
        made, context = mount.include.settings, self._context(mount.path, parent)

        def ask() -> bytes:
            if made is None:
                return initial_settings(declared, canonical_json.decode(given), f"include {mount.path!r}")
            value = self._callbacks.invoke(made, context) if callable(made) else made
            return parsed(declared, value, f"include {mount.path!r}")

        return self._ask(f"include {mount.path!r}: its settings", ask)

    def _leave(self, place: str) -> Passage | RunEnd:
        mount, _, name = place.rpartition(".")
        output, shape = self._carried(), self._graph.exit_of(place).validate
        if shape is not None:
            value = output.copy()
            what = f"the output at exit {place!r}"
            asked = self._ask(what, lambda: to_canonical(accept(what, shape, value)))
            if isinstance(asked, RunEnd):
                return asked
            output = StoredValue(asked)
        return Passage("include_exited", mount, to_canonical({"exit": name, "output": output.copy()}))

    def _carried(self) -> StoredValue:
        """What is carried out: the output of the last step, or of the mount that has just been left."""
        passage = self._history.last_passage
        if passage is not None:
            return StoredValue(passage.value)
        return cast("StoredValue", self._history.steps[-1].output)

    def _context(self, mount: str, path: str) -> Context:
        return Context(
            self._history,
            node_id=mount,
            node_kind="include",
            attempt_id="",
            attempt_number=0,
            cancelled=self._callbacks.cancelled,
            publish=None,
            path=path,
            settings=self._settings(path) if self.has_settings(path) else None,
        )

    def _ask(self, what: str, ask: Callable[[], bytes]) -> bytes | RunEnd:
        self._asking = what
        callbacks = self._callbacks
        callbacks.about = None
        call = callbacks.call(ask, callbacks.time.now() + DEFAULT_TIMEOUT)
        if call.stopping == "cancelled":
            return RunEnd("cancelled", error="the run was cancelled")
        if call.stopping is not None:
            return RunEnd("timed_out", error=f"{what} was not there within {DEFAULT_TIMEOUT:g} s")
        if call.error is not None:
            return RunEnd("failed", error=f"{what}: {error_text(call.error)}")
        value: bytes = call.value
        return value


def _too_many(who: str, count: int, workflow: Workflow, node_id: str) -> RunEnd:
    return RunEnd(
        "failed",
        error=f"{who} has taken {count} steps, and max_steps={workflow.max_steps} allows no more; "
        f"{node_id!r} would have been next. Give the workflow a larger max_steps if it is meant to go on",
    )
