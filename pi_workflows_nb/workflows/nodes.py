"""The kinds of nodes as plain values, and the functions that make them.

A node that was made by one of these functions has no name yet; the workflow that takes it in gives it one.
Everything a node holds is a plain attribute, so that a workflow can be shipped to another process.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from pi_workflows_nb.wire.errors import WorkflowDefinitionError
from pi_workflows_nb.workflows.effects import Effect
from pi_workflows_nb.workflows.retries import Retry
from pi_workflows_nb.workflows.shell_updates import ShellUpdates

if TYPE_CHECKING:
    from pi_workflows_nb.workflows.context import Context

DEFAULT_TIMEOUT: Final = 900.0
NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")

Callback = Callable[["Context"], Any]
Prompt = Callable[["Context"], str | Awaitable[str]]
Parse = Callable[[dict[str, Any]], Any]
Timeout = float | None | Callable[["Context"], float | Awaitable[float | None] | None]
NodeType = Literal["agent", "compute", "action", "checkpoint"]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Node:
    """What all kinds have.

    `fn` is called with the context (None only in a checkpoint or a shell node made without a function), `timeout` is in
    seconds, None for none, or a callable of the context that gives either; `status_detail` is a text shown while the
    node runs. `effect` is set in actions alone, `validate` in agents and checkpoints alone.
    """

    type: ClassVar[NodeType]
    kind: ClassVar[str]

    name: str = ""
    fn: Callback | None = None
    timeout: Timeout = DEFAULT_TIMEOUT
    retries: Retry | None = None
    status_detail: str | None = None
    effect: Effect | None = None
    validate: Any = None

    def __repr__(self) -> str:
        return f"{self.kind}({self.name!r})" if self.name else f"{self.kind}(…)"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Agent(Node):
    """A prompt (what `fn` returns) for an agent, which answers with a JSON value.

    `expected_output` is a text that tells the agent the shape wanted. `validate` is a callable of the value or a type.
    """

    type: ClassVar[NodeType] = "agent"
    kind: ClassVar[str] = "agent"

    expected_output: str | None = None


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Decision(Agent):
    """An agent that picks one of `choices`; its output holds the pick under `field`."""

    kind: ClassVar[str] = "decision"

    choices: tuple[str, ...] = ()
    field: str = "route"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Compute(Node):
    """A pure function of the context; its return value is the output."""

    type: ClassVar[NodeType] = "compute"
    kind: ClassVar[str] = "compute"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SettingsRoute(Compute):
    """A compute that is called again when the settings were changed before its output was stored."""

    kind: ClassVar[str] = "settings_route"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Action(Node):
    """A function that changes the world under the recovery that `effect` declares."""

    type: ClassVar[NodeType] = "action"
    kind: ClassVar[str] = "action"
    execution: ClassVar[Literal["function", "shell"]] = "function"

    effect: Effect


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Shell(Action):
    """The command form of an action.

    `exec` is a dict or a callable of the context that gives one (see `pi_workflows_nb.workflows.shell`); `parse` is
    called with the result of the command and gives the output, which is that result itself without it. `updates` reads
    updates out of its lines.
    """

    kind: ClassVar[str] = "shell"
    execution: ClassVar[Literal["function", "shell"]] = "shell"

    exec: Mapping[str, Any] | Callback
    parse: Parse | None = None
    updates: ShellUpdates | None = None


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Checkpoint(Node):
    """Where the run stops until it is answered; `fn`, when there is one, gives what the answer is asked for with.

    `summary` is a text for the person. `validate` is a callable of the answer or a type.
    """

    type: ClassVar[NodeType] = "checkpoint"
    kind: ClassVar[str] = "checkpoint"

    summary: str | None = None


def agent(
    fn: Prompt,
    *,
    expected_output: str | None = None,
    validate: Any = None,
    timeout: Timeout = DEFAULT_TIMEOUT,
    retries: Retry | None = None,
    status_detail: str | None = None,
) -> Agent:
    """A node that gives an agent the prompt `fn(ctx)` returns (text) and takes the JSON value it answers with.

    `expected_output` is text for the agent; `validate` a callable that takes the value and gives the one to keep (None
    keeps it as it is) or raises, or a type (dataclass, TypedDict, pydantic model). `timeout` is in seconds.
    Raises WorkflowDefinitionError for an argument that cannot be right.
    """
    label = _label("agent", fn)
    check_text(label, "expected_output", expected_output)
    check_validate(label, validate)
    return Agent(
        fn=check_callback(label, fn, gives="the prompt"),
        expected_output=expected_output,
        validate=validate,
        **check_common(label, timeout, retries, status_detail),
    )


def decision(
    fn: Prompt,
    *,
    choices: Iterable[str] | Mapping[str, str],
    field: str = "route",
    validate: Any = None,
    timeout: Timeout = DEFAULT_TIMEOUT,
    retries: Retry | None = None,
    status_detail: str | None = None,
) -> Decision:
    """A node whose agent picks one of `choices`: names, or a dict from name to what it stands for.

    `fn(ctx)` gives the prompt (text). The output is a dict with the pick under `field`. The rest is as in `agent`.
    Raises WorkflowDefinitionError for an argument that cannot be right.
    """
    label = _label("decision", fn)
    names = _choices(label, choices)
    if not _is_name(field):
        raise WorkflowDefinitionError(f"{label}: field={field!r} is not the name of a field; leave it out for 'route'")
    check_validate(label, validate)
    return Decision(
        fn=check_callback(label, fn, gives="the prompt"),
        choices=names,
        field=field,
        expected_output=_expected_pick(field, names, choices if isinstance(choices, Mapping) else {}),
        validate=validate,
        **check_common(label, timeout, retries, status_detail),
    )


def compute(
    fn: Callback,
    *,
    timeout: Timeout = DEFAULT_TIMEOUT,
    retries: Retry | None = None,
    status_detail: str | None = None,
) -> Compute:
    """A node that calls `fn(ctx)`, sync or async, and keeps what it returns (JSON) as its output.

    It may be called again after a crash, so it should change nothing outside. `timeout` is in seconds.
    Raises WorkflowDefinitionError for an argument that cannot be right.
    """
    label = _label("compute", fn)
    return Compute(
        fn=check_callback(label, fn, gives="the output"), **check_common(label, timeout, retries, status_detail)
    )


def settings_route(
    fn: Callback, *, timeout: Timeout = DEFAULT_TIMEOUT, status_detail: str | None = None
) -> SettingsRoute:
    """A compute node whose output is stored only while the settings it saw are the newest; else it is called again.

    A switch behind it therefore never takes a way that the settings had closed before.
    Raises WorkflowDefinitionError for an argument that cannot be right.
    """
    label = _label("settings_route", fn)
    return SettingsRoute(
        fn=check_callback(label, fn, gives="the output"), **check_common(label, timeout, None, status_detail)
    )


def action(
    fn: Callback,
    *,
    effect: Effect | None = None,
    timeout: Timeout = DEFAULT_TIMEOUT,
    retries: Retry | None = None,
    status_detail: str | None = None,
) -> Action:
    """A node that calls `fn(ctx)`, sync or async, to change something outside, and keeps what it returns (JSON).

    `effect` is required: `idempotent_effect(…)` or `manual_effect(…)`. `timeout` is in seconds.
    Raises WorkflowDefinitionError for an argument that cannot be right.
    """
    label = _label("action", fn)
    return Action(
        fn=check_callback(label, fn, gives="the output"),
        effect=_declared(label, effect),
        **check_common(label, timeout, retries, status_detail),
    )


def shell(
    exec: Mapping[str, Any] | Callback,
    *,
    effect: Effect | None = None,
    parse: Parse | None = None,
    updates: ShellUpdates | None = None,
    timeout: Timeout = DEFAULT_TIMEOUT,
    retries: Retry | None = None,
    status_detail: str | None = None,
) -> Shell:
    """A node that runs one command.

    `exec` is a dict with `command` (the program) and optionally `args` (list of text), `cwd`, `env` (added to the
    environment), `stdin` (text), `timeout` (seconds), `allow_nonzero_exit` (bool), `max_output_chars` (of each stream,
    1,000,000), or a callable of the context that gives such a dict. `effect` is required, as in `action`. `parse`
    takes the result (keys stdout, stderr, exitCode, signal, durationMs, stdoutTruncated, stderrTruncated) and gives
    the output. `updates=pw.shell_updates(parse_line)` publishes what its lines say while it runs.
    Raises WorkflowDefinitionError for an argument that cannot be right.
    """
    label = _label("shell", exec)
    if isinstance(exec, Mapping):
        from pi_workflows_nb.workflows.shell import check_command

        check_command(exec, label)
    else:
        check_callback(label, exec, gives="the command as a dict")
    if parse is not None:
        check_callback(f"{label}, parse", parse, gives="the output", takes="result")
    if not (updates is None or isinstance(updates, ShellUpdates)):
        raise WorkflowDefinitionError(f"{label}: updates={updates!r}; write updates=pw.shell_updates(parse_line)")
    return Shell(
        fn=None if isinstance(exec, Mapping) else exec,
        exec=exec,
        parse=parse,
        updates=updates,
        effect=_declared(label, effect),
        **check_common(label, timeout, retries, status_detail),
    )


def checkpoint(
    fn: Callback | None = None,
    *,
    summary: str | None = None,
    validate: Any = None,
    timeout: Timeout = DEFAULT_TIMEOUT,
    status_detail: str | None = None,
) -> Checkpoint:
    """A node that ends the run in `waiting`; the answer becomes its output and the run goes on behind it.

    `fn(ctx)`, when given, is called first and returns (JSON) what the person should see. `summary` is a text.
    `validate` looks at the answer and is a callable or a type, as in `agent`.
    Raises WorkflowDefinitionError for an argument that cannot be right.
    """
    label = _label("checkpoint", fn)
    check_text(label, "summary", summary)
    check_validate(label, validate)
    return Checkpoint(
        fn=None if fn is None else check_callback(label, fn, gives="what is asked"),
        summary=summary,
        validate=validate,
        **check_common(label, timeout, None, status_detail),
    )


def check_name(name: object, what: str = "node") -> str:
    """Give back a node's name, or raise WorkflowDefinitionError when it is not one."""
    if isinstance(name, str) and _is_name(name):
        return name
    raise WorkflowDefinitionError(
        f"{name!r} cannot be the name of a {what}: a name starts "
        "with a letter or _ and goes on with letters, digits, _ or -"
    )


def _is_name(name: object) -> bool:
    return isinstance(name, str) and NAME.fullmatch(name) is not None


def _choices(label: str, choices: object) -> tuple[str, ...]:
    if isinstance(choices, str) or not isinstance(choices, Iterable):
        raise WorkflowDefinitionError(
            f"{label}: choices is a list of names, as choices=['bug', 'question'], not {choices!r}"
        )
    names = tuple(choices)
    if not names or not all(isinstance(choice, str) and choice for choice in names):
        raise WorkflowDefinitionError(
            f"{label}: choices needs at least one name, each a text that is not empty, not {list(names)!r}"
        )
    if len(set(names)) < len(names):
        raise WorkflowDefinitionError(f"{label}: the same choice stands twice in {list(names)!r}; name each one once")
    return names


def _label(kind: str, fn: object) -> str:
    name = getattr(fn, "__name__", None)
    return f"{kind} node {name!r}" if isinstance(name, str) and name != "<lambda>" else f"{kind} node"


def check_callback(label: str, fn: object, *, gives: str, takes: str = "ctx") -> Any:
    """A function that a node calls with one argument; WorkflowDefinitionError for anything else."""
    if isinstance(fn, Node) or not callable(fn):
        raise WorkflowDefinitionError(
            f"{label}: {fn!r} is not a function; give one that takes `{takes}` and returns {gives}"
        )
    if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        raise WorkflowDefinitionError(
            f"{label}: the function yields; it must return {gives}, once (collect into a list)"
        )
    try:
        signature = inspect.signature(fn)
    except (TypeError, ValueError):
        return fn
    try:
        signature.bind(None)
    except TypeError:
        raise WorkflowDefinitionError(
            f"{label}: the function is called with one argument, so write `def …({takes})`, not `def …{signature}`"
        ) from None
    return fn


def check_common(label: str, timeout: object, retries: object, status_detail: object) -> dict[str, Any]:
    """What all kinds of nodes have, as keywords; WorkflowDefinitionError for what cannot be right."""
    if isinstance(timeout, bool) or not (timeout is None or callable(timeout) or isinstance(timeout, int | float)):
        raise WorkflowDefinitionError(
            f"{label}: timeout={timeout!r}; give seconds as a number, None for none, or a function of ctx"
        )
    if isinstance(timeout, int | float) and not (math.isfinite(timeout) and timeout > 0):
        raise WorkflowDefinitionError(f"{label}: timeout={timeout!r}; seconds are greater than 0 (None means no limit)")
    if not (retries is None or isinstance(retries, Retry)):
        raise WorkflowDefinitionError(f"{label}: retries={retries!r}; write retries=pw.retry(times=3)")
    check_text(label, "status_detail", status_detail)
    return {"timeout": timeout, "retries": retries, "status_detail": status_detail}


def check_text(label: str, field: str, value: object) -> None:
    """WorkflowDefinitionError unless the value is a text or None."""
    if not (value is None or isinstance(value, str)):
        raise WorkflowDefinitionError(f"{label}: {field} is a text, not {value!r}")


def check_validate(label: str, validate: object) -> None:
    """WorkflowDefinitionError unless the value can look at an answer, or is None."""
    if not (validate is None or callable(validate)):
        raise WorkflowDefinitionError(
            f"{label}: validate={validate!r}; give a function that takes the value "
            "and returns the one to keep, or a type"
        )
    if inspect.iscoroutinefunction(validate):
        raise WorkflowDefinitionError(
            f"{label}: validate is an async function; it is called as a plain one, drop the `async`"
        )


def _declared(label: str, effect: object) -> Effect:
    if isinstance(effect, Effect):
        return effect
    said = "says nothing about being repeated" if effect is None else f"has effect={effect!r}"
    raise WorkflowDefinitionError(
        f"{label} {said}: add effect=pw.idempotent_effect('some.type') when running it twice does no harm "
        "(reading, or writing under ctx.effect.idempotency_key), else effect=pw.manual_effect('some.type')"
    )


def _expected_pick(field: str, names: tuple[str, ...], meanings: Mapping[str, str]) -> str:
    picks = " | ".join(f'"{name}"' for name in names)
    lines = [f'{{"{field}": {picks}}}']
    lines += [f"{name}: {meanings[name]}" for name in names if meanings.get(name)]
    return "\n".join(lines)
