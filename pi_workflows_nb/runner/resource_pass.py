"""A resource runner: one pass over one managed resource, in a process of its own.

It says that it is ready, is sent the resource and its manager's source, calls the reconcile function, says how that
ended, and leaves. Told to stop, it raises `PassCancelled` in the function; who takes no notice is killed.
"""

from __future__ import annotations

import signal
import socket
from os import _exit
from typing import TYPE_CHECKING, Any, Final, NoReturn

import msgspec

from pi_workflows_nb.resource_managers.definition import PassResult, ResourceManager
from pi_workflows_nb.runner.managers import load_manager
from pi_workflows_nb.runner.reconcile_context import ObservedResource, ReconcileContext, Server, run_to_end
from pi_workflows_nb.runner.transport import Transport
from pi_workflows_nb.wire import canonical_json, identities
from pi_workflows_nb.wire.decoding import decoded
from pi_workflows_nb.wire.errors import ManagedResourceError, ProtocolError
from pi_workflows_nb.wire.resource_messages import (
    RECONCILE_SCHEMA,
    RESOURCE_LAUNCH_SCHEMA,
    ConditionMessage,
    FailPass,
    FinishPass,
    ReconcileCommand,
    ResourceEnvelope,
    ResourceState,
)
from pi_workflows_nb.wire.resource_status import UNSET, Status
from pi_workflows_nb.wire.runner_messages import PROTOCOL_VERSION, Exiting
from pi_workflows_nb.workflows.tracebacks import error_text

if TYPE_CHECKING:
    from pi_workflows_nb.runner.output import AttemptLog

EXIT_TERMINATED: Final = 128 + signal.SIGTERM
_envelope: Final = msgspec.json.Decoder(ResourceEnvelope)
_command: Final = msgspec.json.Decoder(ReconcileCommand)


class PassCancelled(KeyboardInterrupt):
    """The pass has taken too long, or the server stops: clean up and return within two seconds."""


def serve(channel: socket.socket, log: AttemptLog) -> NoReturn:
    """Make the pass, and end the process."""
    transport = Transport(channel, log.check)
    envelope = decoded(_envelope, transport.receive_line())
    if envelope.schema != RESOURCE_LAUNCH_SCHEMA or envelope.protocol_version != PROTOCOL_VERSION:
        raise ProtocolError(f"this runner speaks version {PROTOCOL_VERSION}, the server {envelope.protocol_version}")
    transport.launched(envelope)
    transport.send("runner.ready", "runner.ready", b"{}", 0)
    while transport.receive_response(line := transport.receive_line()):
        pass
    command = decoded(_command, line)
    if command.schema != RECONCILE_SCHEMA:
        raise ProtocolError(f"a command of the unknown schema {command.schema!r}")
    transport.start_watching()
    server = Server(transport)
    signal.signal(signal.SIGTERM, _cancel)
    try:
        _reconcile(server, envelope, command)
    except KeyboardInterrupt:
        log.flush()
        _exit(EXIT_TERMINATED)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    server.ask("runner.exiting", Exiting(None, "done"))
    log.flush()
    _exit(0)


def _cancel(number: int, frame: object) -> NoReturn:
    del number, frame
    raise PassCancelled


def _reconcile(server: Server, envelope: ResourceEnvelope, command: ReconcileCommand) -> None:
    try:
        manager = load_manager(
            canonical_json.decode(server.bytes_of(command.source)), envelope.resource_manager, command.filename
        )
        resource = _observed(server, envelope, command.resource)
        result = run_to_end(manager.function(ReconcileContext(server, resource), resource))
        server.ask("resource.finishPass", _finished(server, manager, resource, result))
    except Exception as error:
        server.ask("resource.failPass", FailPass(identities.utf8(error_text(error)).decode()))


def _observed(server: Server, envelope: ResourceEnvelope, state: ResourceState) -> ObservedResource:
    return ObservedResource(
        envelope.uid,
        envelope.resource_manager,
        envelope.key,
        state.resource_version,
        state.generation,
        state.deletion_timestamp,
        tuple(state.finalizers),
        canonical_json.decode(server.bytes_of(state.spec)),
        Status.from_json(canonical_json.decode(server.bytes_of(state.status))),
    )


def _finished(server: Server, manager: ResourceManager, resource: ObservedResource, result: Any) -> FinishPass:
    if not isinstance(result, PassResult):
        raise ManagedResourceError(
            f"the reconcile function of {manager.name!r} returns ctx.settled(), ctx.requeue() or"
            f" ctx.requeue_after(seconds), not {_shown(result)}"
        )
    status = None
    if result.status is not UNSET:
        present = resource.status.resource_manager_status
        patched = isinstance(present, dict) and isinstance(result.status, dict)
        status = server.value({**present, **result.status} if patched else result.status)
    return FinishPass(
        None if result.after is None else int(result.after * 1000),
        [ConditionMessage(one.message, one.reason, one.status, one.type) for one in result.conditions],
        None if result.finalizers is None else list(result.finalizers),
        status,
    )


def _shown(value: Any) -> str:
    try:
        return repr(value)[:200]
    except Exception:  # a class of the user's whose own parts raise
        return f"a {type(value).__name__}"
