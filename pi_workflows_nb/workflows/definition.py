"""A workflow as a value: its nodes, its edges, and the two ways to write it down.

`define_workflow` takes everything at once and checks it at once. A `Workflow` is filled by decorators, cell by cell;
the graph as a whole is checked when it is started, drawn, or asked to with `check()`.
"""

from __future__ import annotations

import dataclasses
import inspect
import os
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, overload

from pi_workflows_nb.wire.errors import WorkflowDefinitionError
from pi_workflows_nb.workflows import composition, human_decisions
from pi_workflows_nb.workflows import edges as edge_forms
from pi_workflows_nb.workflows import nodes as kinds
from pi_workflows_nb.workflows import waiting_nodes as waiting
from pi_workflows_nb.workflows.composition import Exit, Include
from pi_workflows_nb.workflows.edges import Edge
from pi_workflows_nb.workflows.effects import Effect
from pi_workflows_nb.workflows.nodes import DEFAULT_TIMEOUT, Callback, Node, Parse, Prompt, Timeout, check_name
from pi_workflows_nb.workflows.retries import Retry

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from pi_workflows_nb import Findings, WorkflowGraph
    from pi_workflows_nb.workflows.human_decisions import Default
    from pi_workflows_nb.workflows.local_store import LocalStore
    from pi_workflows_nb.workflows.results import RunResult
    from pi_workflows_nb.workflows.settings import WorkflowSettings
    from pi_workflows_nb.workflows.shell_updates import ShellUpdates

DEFAULT_MAX_STEPS: Final = 100
RESERVED_NAMES: Final = frozenset({"answer", "cancel", "list", "pause", "resume", "status"})

F = TypeVar("F", bound=Callback)
P = TypeVar("P", bound=Prompt)
if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault

    N = TypeVarWithDefault("N", bound=str, default=Any)
else:
    N = TypeVar("N", bound=str)


class Workflow(Generic[N]):
    """A graph of nodes.

    Takes the name; `start_at`, the first node; `nodes` (a dict from name to a node of `agent`, `decision`, `compute`,
    `action`, `shell`, `checkpoint`, `sleep` or `wait_event`) and `edges`, both usually added later by the methods of
    the same names; `input`, a callable of the input that gives the one to use, or a type (dataclass, TypedDict,
    pydantic model); `title`, a text or a callable of (input, workflow name); `max_steps`, how many steps a run and its
    continuations may take; `includes`, a dict from the name of a mount to `include(…)`; `exits`, a dict from the name
    of a way out to `exit(…)`, for the case that this workflow is included itself;
    `settings`, from `workflow_settings(…)`; `presentation_prompt` and `contract_id`, texts.

    Every kind of node is a decorator: `@wf.compute`, or with arguments `@wf.compute(name="total", timeout=5)`. The
    node takes the name of the function unless `name` is given, and a node or edge of the same name is replaced.
    The decorated function stays what it was.

    For type checkers it is generic over its places: a `Workflow[Literal["ask", "done"]]` has edges between those alone.

    Raises WorkflowDefinitionError for an argument that cannot be right.
    """

    def __init__(
        self,
        name: str,
        *,
        start_at: N,
        nodes: Mapping[str, Node] | None = None,
        edges: Iterable[Edge] = (),
        input: Any = None,
        title: str | Callable[..., str] | None = None,
        includes: Mapping[str, Include] | None = None,
        exits: Mapping[str, Exit] | None = None,
        settings: WorkflowSettings | None = None,
        max_steps: int = DEFAULT_MAX_STEPS,
        presentation_prompt: str | None = None,
        contract_id: str | None = None,
    ) -> None:
        self.name = _checked_workflow_name(name)
        self.start_at = check_name(start_at, "node (start_at)")
        self.nodes: dict[str, Node] = {}
        self.edges: dict[str, Edge] = {}
        self.includes: dict[str, Include] = {}
        self.exits: dict[str, Exit] = {}
        self.input = input
        self.title = title
        self.settings = settings
        self.max_steps = max_steps
        self.presentation_prompt = presentation_prompt
        self.contract_id = contract_id
        check_fields(self)
        for key, node in _mapping(self.name, nodes).items():
            self._add(key, node)
        for mount, included in _mapping(self.name, includes, "includes", "{'fix': pw.include(child)}").items():
            self._mount(mount, included)
        for exit_name, way in _mapping(self.name, exits, "exits", "{'done': pw.exit('last')}").items():
            self._open(exit_name, way)
        for edge in edges:
            self._join(edge, replace=False)

    def __repr__(self) -> str:
        count = len(self.nodes)
        return f"Workflow({self.name!r}, {count} node{'' if count == 1 else 's'}, start_at={self.start_at!r})"

    def check(self) -> Findings:
        """Check the whole graph, what it includes, and what its functions carry along, and give all that is suspicious.

        A frame with a row for each finding, warnings first: loops without a way out, switches that lack a case, limits
        that cannot be kept, retries that never happen, outputs of nodes that are none, and each variable that travels
        from a cell, with its size, and whether it looks like a secret.
        Raises WorkflowDefinitionError for a fault of the graph, SourceError for a captured value that is too large or
        cannot be sent to a runner.
        """
        from pi_workflows_nb import check_workflow

        return check_workflow(self)

    def graph(self) -> WorkflowGraph:
        """The graph with all it includes: a drawing, `.text`, `.mermaid`, and `.nodes` and `.edges` as DataFrames.

        Raises WorkflowDefinitionError for a workflow that could not be started.
        """
        from pi_workflows_nb import WorkflowGraph

        return WorkflowGraph(self)

    def run_here(
        self, input: Any = None, *, agent: Any = None, store: LocalStore | None = None, resume: bool = False
    ) -> RunResult:
        """Walk the workflow in this kernel, without a server or another process, and give how it ended.

        `pdb.set_trace()` and breakpoints stop in its nodes, and interrupting the cell ends them. `agent` answers agent
        nodes, as in `server.run`. What happens is kept in `store`, a `LocalStore`, by default one that is forgotten. A
        run that waits gives `status` `waiting`; after `store.answer(value)` it goes on with `resume=True`.

        Raises what the node raised that the run failed by, so that `%debug` stands in its code, RunFailed where no node
        did, RunCancelled; before anything runs WorkflowDefinitionError and WorkflowInputError.
        """
        from pi_workflows_nb import run_here

        return run_here(self, input, agent, store, resume)

    @overload
    def edge(self, source: N, target: N) -> Edge: ...
    @overload
    def edge(self, source: N, *, switch: str, cases: Mapping[Any, N]) -> Edge: ...
    def edge(
        self,
        source: str,
        target: str | None = None,
        *,
        switch: str | None = None,
        cases: Mapping[Any, str] | None = None,
    ) -> Edge:
        """Lead from `source` to `target`, or by `switch=` and `cases=`; replaces the edge that left `source` before.

        Takes, gives and raises the same as `pw.edge`.
        """
        return self._join(edge_forms.edge(source, target, switch=switch, cases=cases))

    def switch(self, source: N, path: str, cases: Mapping[Any, N]) -> Edge:
        """Lead from `source` by the value at `path`; takes, gives and raises the same as `pw.switch`."""
        return self._join(edge_forms.switch(source, path, cases))

    def decision_edge(self, source: N, cases: Mapping[str, N]) -> Edge:
        """Lead from a decision by its choice; takes, gives and raises the same as `pw.decision_edge`."""
        return self._join(edge_forms.decision_edge(source, cases))

    @overload
    def agent(self, fn: P, /) -> P: ...
    @overload
    def agent(
        self,
        /,
        *,
        name: str | None = None,
        expected_output: str | None = None,
        validate: Any = None,
        timeout: Timeout = DEFAULT_TIMEOUT,
        retries: Retry | None = None,
        status_detail: str | None = None,
    ) -> Callable[[P], P]: ...
    def agent(self, fn: Any = None, /, *, name: str | None = None, **given: Any) -> Any:
        """Decorate the function that gives an agent's prompt; takes `name` and the keywords of `pw.agent`."""
        return self._decorate(kinds.agent, fn, name, given)

    @overload
    def decision(self, fn: P, /) -> P: ...
    @overload
    def decision(
        self,
        /,
        *,
        name: str | None = None,
        choices: Iterable[str] | Mapping[str, str],
        field: str = "route",
        validate: Any = None,
        timeout: Timeout = DEFAULT_TIMEOUT,
        retries: Retry | None = None,
        status_detail: str | None = None,
    ) -> Callable[[P], P]: ...
    def decision(self, fn: Any = None, /, *, name: str | None = None, choices: Any = (), **given: Any) -> Any:
        """Decorate the function that gives a decision's prompt; takes `name` and the keywords of `pw.decision`."""
        return self._decorate(kinds.decision, fn, name, {"choices": choices, **given})

    @overload
    def compute(self, fn: F, /) -> F: ...
    @overload
    def compute(
        self,
        /,
        *,
        name: str | None = None,
        timeout: Timeout = DEFAULT_TIMEOUT,
        retries: Retry | None = None,
        status_detail: str | None = None,
    ) -> Callable[[F], F]: ...
    def compute(self, fn: Any = None, /, *, name: str | None = None, **given: Any) -> Any:
        """Decorate a pure function; takes `name` and the keywords of `pw.compute`."""
        return self._decorate(kinds.compute, fn, name, given)

    @overload
    def settings_route(self, fn: F, /) -> F: ...
    @overload
    def settings_route(
        self,
        /,
        *,
        name: str | None = None,
        timeout: Timeout = DEFAULT_TIMEOUT,
        status_detail: str | None = None,
    ) -> Callable[[F], F]: ...
    def settings_route(self, fn: Any = None, /, *, name: str | None = None, **given: Any) -> Any:
        """Decorate a pure function of the newest settings; takes `name` and the keywords of `pw.settings_route`."""
        return self._decorate(kinds.settings_route, fn, name, given)

    @overload
    def action(self, fn: F, /) -> F: ...
    @overload
    def action(
        self,
        /,
        *,
        name: str | None = None,
        effect: Effect,
        timeout: Timeout = DEFAULT_TIMEOUT,
        retries: Retry | None = None,
        status_detail: str | None = None,
    ) -> Callable[[F], F]: ...
    def action(self, fn: Any = None, /, *, name: str | None = None, **given: Any) -> Any:
        """Decorate a function that changes something outside; takes `name` and the keywords of `pw.action`."""
        return self._decorate(kinds.action, fn, name, given)

    @overload
    def shell(self, fn: F, /) -> F: ...
    @overload
    def shell(
        self,
        /,
        *,
        name: str | None = None,
        effect: Effect,
        parse: Parse | None = None,
        updates: ShellUpdates | None = None,
        timeout: Timeout = DEFAULT_TIMEOUT,
        retries: Retry | None = None,
        status_detail: str | None = None,
    ) -> Callable[[F], F]: ...
    @overload
    def shell(
        self,
        name: str,
        /,
        exec: Mapping[str, Any] | Callback,
        *,
        effect: Effect,
        parse: Parse | None = None,
        updates: ShellUpdates | None = None,
        timeout: Timeout = DEFAULT_TIMEOUT,
        retries: Retry | None = None,
        status_detail: str | None = None,
    ) -> Node: ...
    def shell(
        self,
        fn: Any = None,
        /,
        exec: Any = None,
        *,
        name: str | None = None,
        **given: Any,
    ) -> Any:
        """Add a node that runs a command.

        As a decorator, of a function that gives the command as a dict; or by name, `wf.shell("log", exec={"command":
        "git", "args": ["log"]}, effect=…)`, which gives the node. Takes the keywords of `pw.shell`.
        """
        if isinstance(fn, str):
            return self._add(fn, self._make(kinds.shell, exec, fn, given))
        if exec is not None:
            if name is None:
                raise WorkflowDefinitionError(
                    "wf.shell(exec=…): give the node a name first, as wf.shell('log', exec={…})"
                )
            return self._add(name, self._make(kinds.shell, exec, name, given))
        return self._decorate(kinds.shell, fn, name, given)

    @overload
    def checkpoint(self, fn: F, /) -> F: ...
    @overload
    def checkpoint(
        self,
        /,
        *,
        name: str | None = None,
        summary: str | None = None,
        validate: Any = None,
        timeout: Timeout = DEFAULT_TIMEOUT,
        status_detail: str | None = None,
    ) -> Callable[[F], F]: ...
    @overload
    def checkpoint(
        self,
        name: str,
        /,
        *,
        summary: str | None = None,
        validate: Any = None,
        status_detail: str | None = None,
    ) -> Node: ...
    def checkpoint(self, fn: Any = None, /, *, name: str | None = None, **given: Any) -> Any:
        """Add a node that waits for an answer.

        By name, `wf.checkpoint("gate", summary="please look")`, which gives the node; or as a decorator of a function
        that returns what the person should see. Takes the keywords of `pw.checkpoint`.
        """
        if isinstance(fn, str):
            return self._add(fn, self._make(kinds.checkpoint, None, fn, given))
        return self._decorate(kinds.checkpoint, fn, name, given)

    def human_decision(
        self,
        /,
        *,
        choices: Mapping[str, Any],
        name: str | None = None,
        audience: str = "owner",
        on_timeout: Default | None = None,
        timeout: Timeout = DEFAULT_TIMEOUT,
        status_detail: str | None = None,
    ) -> Callable[[F], F]:
        """Decorate the function that says what a person is to decide; takes the keywords of `pw.human_decision`."""
        given = {"audience": audience, "choices": choices, "on_timeout": on_timeout, "timeout": timeout}
        made: Callable[[F], F] = self._decorate(
            human_decisions.human_decision, None, name, {**given, "status_detail": status_detail}
        )
        return made

    def human_decision_edge(self, source: N, cases: Mapping[str, N]) -> Edge:
        """Lead from a person's decision by its choice; the same as `decision_edge`."""
        return self.decision_edge(source, cases)

    def sleep(
        self,
        name: str,
        /,
        seconds: float | timedelta | Callback | None = None,
        *,
        until: datetime | Callback | None = None,
        status_detail: str | None = None,
    ) -> Node:
        """Add a node that pauses the run, `wf.sleep("nap", 60)`, and give it; the rest is as in `pw.sleep`."""
        return self._add(
            name, self._make(waiting.sleep, seconds, name, {"until": until, "status_detail": status_detail})
        )

    def wait_event(
        self,
        name: str,
        /,
        event: str | None = None,
        *,
        timeout: Timeout = None,
        summary: str | None = None,
        validate: Any = None,
        status_detail: str | None = None,
    ) -> Node:
        """Add a node that waits for an event, by default that of the node's own name, and give the node.

        The rest is as in `pw.wait_event`.
        """
        given = {"timeout": timeout, "summary": summary, "validate": validate, "status_detail": status_detail}
        return self._add(name, self._make(waiting.wait_event, name if event is None else event, name, given))

    def include(
        self, name: str, workflow: Workflow | str | os.PathLike[str], *, input: Any = None, settings: Any = None
    ) -> Include:
        """Mount a workflow under a name; an edge to the name enters it, edges from `name.exit` go on behind it.

        Takes, gives and raises the same as `pw.include`.
        """
        return self._mount(name, composition.include(workflow, input=input, settings=settings))

    def exit(self, name: str, node: str, *, validate: Any = None) -> Exit:
        """Name a way out behind a node, for workflows that include this one; gives and raises the same as `pw.exit`."""
        return self._open(name, composition.exit(node, validate=validate))

    def _mount(self, name: str, included: Any) -> Include:
        check_name(name, "mount")
        if not isinstance(included, Include):
            raise WorkflowDefinitionError(
                f"workflow {self.name!r}: include {name!r} is {included!r}; write includes={{{name!r}: pw.include(…)}}"
            )
        self.includes[name] = included
        return included

    def _open(self, name: str, way: Any) -> Exit:
        check_name(name, "exit")
        if not isinstance(way, Exit):
            raise WorkflowDefinitionError(
                f"workflow {self.name!r}: exit {name!r} is {way!r}; write exits={{{name!r}: pw.exit('node')}}"
            )
        self.exits[name] = way
        return way

    def _decorate(self, make: Callable[..., Node], fn: Any, name: str | None, given: dict[str, Any]) -> Any:
        if isinstance(fn, str):
            if name is not None:
                raise WorkflowDefinitionError(f"wf.{make.__name__}({fn!r}, name={name!r}): one name is enough")
            fn, name = None, fn

        def decorate(function: F) -> F:
            self._add(name or _name_of(make.__name__, function), self._make(make, function, name, given))
            return function

        return decorate if fn is None else decorate(fn)

    def _make(self, make: Callable[..., Node], subject: Any, name: str | None, given: dict[str, Any]) -> Node:
        try:
            return make(subject, **given)
        except WorkflowDefinitionError as error:
            if name is None or repr(name) in str(error):
                raise
            raise WorkflowDefinitionError(f"node {name!r}: {error}") from None
        except TypeError as error:
            unknown = _unexpected_keyword(error)
            if unknown is None:
                raise
            named = f" node {name!r}" if name else ""
            raise WorkflowDefinitionError(f"wf.{make.__name__}{named}: there is no {unknown}") from None

    def _add(self, name: str, node: Any) -> Node:
        check_name(name)
        if not isinstance(node, Node):
            raise WorkflowDefinitionError(
                f"node {name!r} of workflow {self.name!r} is {node!r}; make it with pw.compute(fn), pw.action(fn, …), "
                "pw.shell(…), pw.agent(fn), pw.decision(fn, …), pw.checkpoint(), pw.sleep(…) or pw.wait_event(…)"
            )
        placed = dataclasses.replace(node, name=name)
        self.nodes[name] = placed
        return placed

    def _join(self, edge: Any, replace: bool = True) -> Edge:
        if not isinstance(edge, Edge):
            raise WorkflowDefinitionError(
                f"workflow {self.name!r}: {edge!r} is not an edge; write pw.edge('a', 'b') "
                "or pw.switch('a', '$.field', {…})"
            )
        before = self.edges.get(edge.source)
        if before is not None and not replace:
            raise WorkflowDefinitionError(
                f"workflow {self.name!r}: two edges leave node {edge.source!r}, to {_named(before)} "
                f"and to {_named(edge)}; "
                "one edge at most leaves a node, use pw.switch to choose between targets"
            )
        self.edges[edge.source] = edge
        return edge


def define_workflow(
    *,
    name: str,
    start_at: str,
    nodes: Mapping[str, Node],
    edges: Iterable[Edge] = (),
    input: Any = None,
    title: str | Callable[..., str] | None = None,
    includes: Mapping[str, Include] | None = None,
    exits: Mapping[str, Exit] | None = None,
    settings: WorkflowSettings | None = None,
    max_steps: int = DEFAULT_MAX_STEPS,
    presentation_prompt: str | None = None,
    contract_id: str | None = None,
) -> Workflow:
    """Make a workflow from all its parts and check it at once.

    Takes the keywords of `Workflow`, with `nodes` as a dict from name to node and `edges` as a list of `edge`,
    `switch` and `decision_edge`. Raises WorkflowDefinitionError, naming the node or edge at fault.
    """
    from pi_workflows_nb.workflows.validation import validate

    workflow = Workflow(
        name,
        start_at=start_at,
        nodes=nodes,
        edges=edges,
        input=input,
        title=title,
        includes=includes,
        exits=exits,
        settings=settings,
        max_steps=max_steps,
        presentation_prompt=presentation_prompt,
        contract_id=contract_id,
    )
    validate(workflow)
    return workflow


def _name_of(kind: str, function: Any) -> str:
    name = getattr(function, "__name__", None)
    if isinstance(name, str) and name != "<lambda>":
        return name
    raise WorkflowDefinitionError(
        f"wf.{kind}: {function!r} has no name that the node could take; give one, as wf.{kind}(name='total')(…)"
    )


def _named(edge: Edge) -> str:
    return " or ".join(repr(target) for target in edge.targets)


def _unexpected_keyword(error: TypeError) -> str | None:
    said = str(error)
    _, found, rest = said.partition("got an unexpected keyword argument ")
    return f"keyword {rest}" if found else None


def _checked_workflow_name(name: object) -> str:
    if isinstance(name, str) and name in RESERVED_NAMES:
        raise WorkflowDefinitionError(
            f"{name!r} cannot be the name of a workflow: it is reserved, "
            f"as are {', '.join(sorted(RESERVED_NAMES - {name}))}"
        )
    if (
        not isinstance(name, str)
        or not name.strip()
        or name != name.strip()
        or len(name) > 128
        or not name.isprintable()
        or any(mark in name for mark in "/\\:")
        or name.endswith(".py")
    ):
        raise WorkflowDefinitionError(
            f"{name!r} cannot be the name of a workflow: use a short text (at most 128 characters) "
            "without / \\ : and line breaks"
        )
    return name


def _mapping(
    name: str, given: object, what: str = "nodes", example: str = "{'done': pw.compute(done)}"
) -> Mapping[str, Any]:
    if given is None:
        return {}
    if isinstance(given, Mapping):
        return given
    raise WorkflowDefinitionError(
        f"workflow {name!r}: {what} is a dict from name to {what.removesuffix('s')}, as {example}"
    )


def check_fields(workflow: Workflow) -> None:
    """Check what a workflow holds beside its graph; WorkflowDefinitionError names the field."""
    label = f"workflow {workflow.name!r}"
    steps: object = workflow.max_steps
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
        raise WorkflowDefinitionError(f"{label}: max_steps={steps!r}; it is a whole number of at least 1")
    if not (workflow.title is None or isinstance(workflow.title, str) or callable(workflow.title)):
        raise WorkflowDefinitionError(
            f"{label}: title is a text or a function of (input, workflow name), not {workflow.title!r}"
        )
    if not (workflow.input is None or callable(workflow.input)):
        raise WorkflowDefinitionError(
            f"{label}: input is a function or a type that checks the input, not {workflow.input!r}"
        )
    from pi_workflows_nb.workflows.settings import WorkflowSettings

    if not (workflow.settings is None or isinstance(workflow.settings, WorkflowSettings)):
        raise WorkflowDefinitionError(
            f"{label}: settings is {workflow.settings!r}; write settings=pw.workflow_settings(initial={{…}}, paths=[…])"
        )
    if inspect.iscoroutinefunction(workflow.input):
        raise WorkflowDefinitionError(
            f"{label}: input is an async function; it is called as a plain one, drop the `async`"
        )
    for field in ("presentation_prompt", "contract_id"):
        value = getattr(workflow, field)
        if not (value is None or isinstance(value, str)):
            raise WorkflowDefinitionError(f"{label}: {field} is a text, not {value!r}")
