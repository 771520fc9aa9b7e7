"""What a reconcile function gets: the resource as its pass found it, and `ctx`, its way to effects and workflows.

Everything the function wants recorded is one question to the server, answered before the call returns. `ensure` works
in sync and in async functions: where a loop runs it is to be awaited, elsewhere it blocks.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from pi_workflows_nb.resource_managers import definition
from pi_workflows_nb.resource_managers.definition import Observation, PassResult
from pi_workflows_nb.wire import canonical_json, errors, identities
from pi_workflows_nb.wire.errors import ConflictError, ManagedResourceError, PiWorkflowsError
from pi_workflows_nb.wire.resource_messages import (
    RESOURCE_KINDS,
    BeginResourceEffect,
    ChildState,
    RecordEvent,
    ReserveResourceEffect,
    ReserveWorkflow,
    ResourceEffectState,
    UpdateResourceEffect,
)
from pi_workflows_nb.wire.resource_status import UNSET, Condition, Status
from pi_workflows_nb.wire.runner_messages import RunnerResponse, Value, encode
from pi_workflows_nb.workflows.context import Rejected
from pi_workflows_nb.workflows.tracebacks import error_text
from pi_workflows_nb.workflows.values import to_json

if TYPE_CHECKING:
    from pi_workflows_nb.runner.transport import Transport
    from pi_workflows_nb.workflows.definition import Workflow

T = TypeVar("T")
_effect: Final = msgspec.json.Decoder(ResourceEffectState).decode
_child: Final = msgspec.json.Decoder(ChildState).decode


@dataclass(frozen=True)
class ObservedResource:
    """A managed resource as it was when the pass began: what is wanted (`spec`) and what was observed (`status`).

    `deletion_timestamp` is in milliseconds since the epoch, None while nobody wants it gone.
    """

    uid: str
    resource_manager: str
    key: str
    resource_version: int
    generation: int
    deletion_timestamp: int | None
    finalizers: tuple[str, ...]
    spec: Any
    status: Status


@dataclass(frozen=True)
class EffectCall:
    """What `observe` and `apply` get when they take an argument: the effect's key, kind and request."""

    key: str
    kind: str
    request: Any


@dataclass(frozen=True)
class EnsuredEffect:
    """How an effect stands after `ensure`: `state` is applied, rejected or indeterminate."""

    key: str
    effect_id: str
    state: str
    external_ref: str | None
    error: str | None


@dataclass(frozen=True)
class ChildWorkflow:
    """How a child workflow stands: `state` is running, waiting, succeeded or failed; `output` once it has succeeded."""

    request_id: str
    run_id: str | None
    state: str
    attempt: int
    error: str | None
    output: Any


class Server:
    """The questions of one pass, one at a time, from whichever thread they are asked."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._lock = threading.Lock()

    def ask(self, operation: str, payload: Any) -> RunnerResponse:
        """The accepted answer; a refusal is the error that it names."""
        with self._lock:
            answer = self._transport.ask(RESOURCE_KINDS[operation], operation, encode(payload), 0, refusable=True)
        if answer.outcome == "rejected":
            name, _, text = (answer.error or "the server does not say why").partition(": ")
            kind = getattr(errors, name, None)
            if isinstance(kind, type) and issubclass(kind, PiWorkflowsError):
                raise kind(text)
            raise ConflictError(answer.error or text)
        return answer

    def value(self, value: Any) -> Value:
        """A JSON value for a message; `NotJsonError`."""
        with self._lock:
            return self._transport.value(canonical_json.encode(to_json(value)), 0)

    def bytes_of(self, value: Value | None) -> bytes:
        """The bytes of a value of an answer."""
        with self._lock:
            return self._transport.bytes_of(value, 0)


class Effects:
    """`ctx.effects`: at most one external effect a pass, recorded before it happens."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._applied = False

    def ensure(
        self,
        key: str,
        kind: str,
        request: Any = None,
        observe: Callable[..., Any] | None = None,
        apply: Callable[..., Any] | None = None,
    ) -> Any:
        """See to it that an effect has happened once, and give how it stands, an `EnsuredEffect`.

        A key stands for one effect of this resource: the same kind and request (JSON) at the same generation. A new
        effect is recorded, then `apply` is called. One that was recorded and not settled, since a pass was cut off or
        nobody could tell, is observed first: `observe` returns `pw.applied()`, `pw.not_applied()` (it is applied then)
        or `pw.cannot_tell()` (it stays indeterminate, until a person confirms it or wants another try). Without
        `observe` nobody can tell.

        What `apply` raises leaves the effect indeterminate, `pw.rejected(reason)` rejected; anything else it returns
        means applied, `pw.applied(external_ref)` with a name. Both functions may be async, and may take an
        `EffectCall`.

        `EffectRequestConflictError` when the key stands for another kind, request or generation; `ConflictError` when
        this pass has applied an effect already: return `ctx.requeue()` and let the next pass go on.
        """
        _checked_name(key, "the key of an effect")
        _checked_name(kind, "the kind of an effect")
        if not callable(apply):
            raise ManagedResourceError(f"the effect {key!r} needs apply=: a function that does it")
        return _either(self._ensure(key, kind, to_json(request), observe, apply))

    async def _ensure(
        self, key: str, kind: str, request: Any, observe: Callable[..., Any] | None, apply: Callable[..., Any]
    ) -> EnsuredEffect:
        server = self._server
        fingerprint = identities.fingerprint(request).hex()
        may_apply = not self._applied
        answer = server.ask("resource.reserveEffect", ReserveResourceEffect(kind, key, may_apply, fingerprint))
        found = _effect(server.bytes_of(answer.result))
        if found.state in ("applied", "rejected"):
            return EnsuredEffect(key, found.effect_id, found.state, found.external_ref, found.error)
        call = EffectCall(key, kind, request)
        if not found.created:
            seen = await self._observe(call, observe)
            if seen.state == "applied":
                return self._update(call, found, "applied", seen.external_ref, None, observed=True)
            if seen.state == "cannot_tell" and not found.wanted:
                return self._update(call, found, "indeterminate", None, seen.reason, observed=True)
            if self._applied:
                raise ConflictError(
                    f"a pass applies one effect: return ctx.requeue(), and the next pass applies {key!r}"
                )
            server.ask("resource.beginEffect", BeginResourceEffect(key))
        self._applied = True
        try:
            given = await _called(apply, call)
        except Exception as error:
            return self._update(call, found, "indeterminate", None, error_text(error), observed=False)
        if isinstance(given, Rejected):
            return self._update(call, found, "rejected", None, given.reason, observed=False)
        reference = given.external_ref if isinstance(given, Observation) else None
        return self._update(call, found, "applied", reference, None, observed=False)

    async def _observe(self, call: EffectCall, observe: Callable[..., Any] | None) -> Observation:
        if observe is None:
            return definition.cannot_tell("nobody can look whether it happened: confirm it or have it tried again")
        try:
            seen = await _called(observe, call)
        except Exception as error:
            payload = {"effectKey": call.key, "error": error_text(error)}
            self._server.ask("resource.recordEvent", RecordEvent(self._server.value(payload), "effect_observe_failed"))
            raise
        if not isinstance(seen, Observation):
            raise ManagedResourceError(
                f"observe of the effect {call.key!r} returns pw.applied(), pw.not_applied() or pw.cannot_tell(),"
                f" not {seen!r}"
            )
        return seen

    def _update(
        self,
        call: EffectCall,
        found: ResourceEffectState,
        state: Any,
        reference: str | None,
        error: str | None,
        *,
        observed: bool,
    ) -> EnsuredEffect:
        plain = None if error is None else identities.utf8(identities.cap_units(error)).decode()
        self._server.ask("resource.updateEffect", UpdateResourceEffect(plain, reference, call.key, observed, state))
        return EnsuredEffect(call.key, found.effect_id, state, reference, plain)


class ChildWorkflows:
    """`ctx.workflows`: workflows that this resource asks for, one for each request key."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def ensure(self, request_key: str, workflow: Workflow | str, input: Any = None) -> Any:
        """See to it that a workflow runs for this request, and give how it stands, a `ChildWorkflow`.

        `workflow` is a name: a file of the project, a `%%workflow` cell of the kernel that applied the resource, or one
        that the manager was made with (`workflows=`), which may be given itself. The run is headless. When it ends or
        waits the resource is woken. A child that was interrupted gets another run at the next call.

        `WorkflowRequestConflictError` when the key stands for another workflow or input; also what starting a run may
        raise (`NotFoundError`, `SourceError`, `WorkflowInputError`, `SessionRequiredError`).
        """
        _checked_name(request_key, "a request key")
        name = workflow if isinstance(workflow, str) else getattr(workflow, "name", None)
        if not isinstance(name, str) or not name:
            raise ManagedResourceError(f"workflow={workflow!r}: the name of a workflow, or one of those in workflows=")
        return _either(self._ensure(request_key, name, input))

    async def _ensure(self, request_key: str, workflow: str, given: Any) -> ChildWorkflow:
        server = self._server
        wish = ReserveWorkflow(server.value(given), request_key, workflow)
        found = _child(server.bytes_of(server.ask("resource.reserveWorkflow", wish).result))
        output = None if found.output is None else canonical_json.decode(server.bytes_of(found.output))
        return ChildWorkflow(found.request_id, found.run_id, found.state, found.attempt, found.error, output)


class ReconcileContext:
    """What a pass may do beside looking at its resource: effects, child workflows, notes, and its end."""

    def __init__(self, server: Server, resource: ObservedResource) -> None:
        self.resource = resource
        self.effects = Effects(server)
        self.workflows = ChildWorkflows(server)
        self._server = server

    def settled(
        self, *, status: Any = UNSET, conditions: Iterable[Condition] = (), finalizers: Iterable[str] | None = None
    ) -> PassResult:
        """End the pass: nothing is to do until the spec changes or something else wakes the resource.

        `status` is a patch of the manager's own status (the fields of an object that change, or a whole new value),
        `conditions` those that were looked at, `finalizers` all that stand from now on. A resource that is marked for
        deletion is gone when it is settled without finalizers.
        """
        return definition.settled(status=status, conditions=conditions, finalizers=finalizers)

    def requeue(
        self, *, status: Any = UNSET, conditions: Iterable[Condition] = (), finalizers: Iterable[str] | None = None
    ) -> PassResult:
        """End the pass: there is to be another at once."""
        return definition.requeue_after(0, status=status, conditions=conditions, finalizers=finalizers)

    def requeue_after(
        self,
        seconds: float | timedelta,
        *,
        status: Any = UNSET,
        conditions: Iterable[Condition] = (),
        finalizers: Iterable[str] | None = None,
    ) -> PassResult:
        """End the pass: there is to be another after so many seconds (or a timedelta), sooner if something happens."""
        return definition.requeue_after(seconds, status=status, conditions=conditions, finalizers=finalizers)

    def record_event(self, type: str, payload: dict[str, Any] | None = None) -> None:
        """Note something in the history of the resource; the payload is a JSON object of at most 64 KiB."""
        _checked_name(type, "the type of an event")
        if payload is not None and not isinstance(payload, dict):
            raise ManagedResourceError(f"the payload of an event is a JSON object, not a {payload.__class__.__name__}")
        self._server.ask("resource.recordEvent", RecordEvent(self._server.value(payload or {}), type))

    def __repr__(self) -> str:
        return f"<context of a pass over {self.resource.key!r} of {self.resource.resource_manager!r}>"


def _checked_name(value: object, what: str) -> None:
    if not isinstance(value, str) or not value:
        raise ManagedResourceError(f"{what} is a text of at least one character, not {value!r}")


def run_to_end(value: Any) -> Any:
    """What a function gave, once it is there: an awaitable is run on a loop of its own."""
    if not inspect.isawaitable(value):
        return value

    async def finish() -> Any:
        return await value

    return asyncio.run(finish())


def _either(coroutine: Coroutine[Any, Any, T]) -> Any:
    """The coroutine where a loop runs, else what it gives."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    return coroutine


async def _called(function: Callable[..., Any], call: EffectCall) -> Any:
    try:
        inspect.signature(function).bind()
    except TypeError:
        given = function(call)
    except ValueError:  # built in, without a signature
        given = function()
    else:
        given = function()
    return await given if inspect.isawaitable(given) else given
