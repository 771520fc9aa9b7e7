"""The first code of this project in a forked runner, and the last.

A runner lives for one generation of one run: it says that it is ready, is told what to do, walks the workflow, and
ends. It always ends by `os._exit`: what user code registered to run at exit belongs to no run, and its threads may
never end.
"""

from __future__ import annotations

import fcntl
import os
import resource
import signal
import socket
import traceback
from os import _exit
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, Final, NoReturn

import msgspec

from pi_workflows_nb.runner import inspection, resource_pass
from pi_workflows_nb.runner.agents import executor_of
from pi_workflows_nb.runner.output import AttemptLog
from pi_workflows_nb.runner.store import ServerBackedWorkflowStore
from pi_workflows_nb.runner.transport import EXIT_REFUSED, Transport
from pi_workflows_nb.wire.canonical_json import decode as decode_json
from pi_workflows_nb.wire.decoding import decoded
from pi_workflows_nb.wire.errors import PiWorkflowsError, ProtocolError, SourceError, StoppedByServer
from pi_workflows_nb.wire.identities import cap_units, digest_bytes
from pi_workflows_nb.wire.runner_messages import (
    COMMAND_SCHEMA,
    LAUNCH_SCHEMA,
    PROTOCOL_VERSION,
    LaunchEnvelope,
    RunnerCommand,
)
from pi_workflows_nb.workflows import sources
from pi_workflows_nb.workflows.calls import GRACE_SECONDS
from pi_workflows_nb.workflows.compiled import Compiled, compile_workflow
from pi_workflows_nb.workflows.engine import WorkflowEngine
from pi_workflows_nb.workflows.finding import Stored
from pi_workflows_nb.workflows.snapshot import definition_digest, definition_snapshot

if TYPE_CHECKING:
    from types import FrameType

    from pi_workflows_nb.workflows.sources import LoadedSource

HIGHEST_DESCRIPTOR: Final = 1000
LOWEST_DESCRIPTOR: Final = 100
EXIT_TERMINATED: Final = 128 + signal.SIGTERM
_envelope: Final = msgspec.json.Decoder(LaunchEnvelope)
_command: Final = msgspec.json.Decoder(RunnerCommand)


def main(channel: socket.socket, mode: str, log_path: str | os.PathLike[str]) -> NoReturn:
    """Be a runner ("run"), make a pass over a resource ("reconcile") or answer one question about a source ("inspect").

    The process ends with it.

    Takes the runner's end of its channel and the path of its log. Session, environment and folder are set already.
    """
    log = AttemptLog(Path(log_path))
    code = 1
    try:
        channel = _out_of_reach(channel)
        os.register_at_fork(after_in_child=lambda: _be_a_copy(channel))
        if mode == "inspect":
            inspection.serve(channel)
        elif mode == "reconcile":
            resource_pass.serve(channel, log)
        else:
            _run(channel, log)
        code = 0
    except StoppedByServer:
        code = EXIT_REFUSED
    except BaseException:
        traceback.print_exc()
    finally:
        log.flush()
        _exit(code)


def _run(channel: socket.socket, log: AttemptLog) -> None:
    running = _Terminator(log)
    transport = Transport(channel, log.check)
    envelope = _launched(transport)
    command = _commanded(transport)
    transport.start_watching()
    store = ServerBackedWorkflowStore(transport, log, command.window)
    frozen = decode_json(transport.bytes_of(command.source, 0))
    try:
        source, graph = _load(frozen, envelope)
    except PiWorkflowsError as error:
        store.leave("sourceChanged", cap_units(str(error)))
        raise  # not reached
    engine = WorkflowEngine(executor=executor_of(source), store=store)
    running.engine = engine
    try:
        engine.run(graph, resume=command.command == "resume")
    except StoppedByServer:
        raise
    except Exception as error:
        traceback.print_exc()
        store.leave("failed", cap_units(f"{type(error).__name__}: {error}"))
    store.leave()


def _launched(transport: Transport) -> LaunchEnvelope:
    envelope = decoded(_envelope, transport.receive_line())
    if envelope.schema != LAUNCH_SCHEMA or envelope.protocol_version != PROTOCOL_VERSION:
        raise ProtocolError(f"this runner speaks version {PROTOCOL_VERSION}, the server {envelope.protocol_version}")
    transport.launched(envelope)
    transport.send("runner.ready", "runner.ready", b"{}", 0)
    return envelope


def _commanded(transport: Transport) -> RunnerCommand:
    while transport.receive_response(line := transport.receive_line()):
        pass
    command = decoded(_command, line)
    if command.schema != COMMAND_SCHEMA:
        raise ProtocolError(f"a command of the unknown schema {command.schema!r}")
    return command


def _load(frozen: dict[str, Any], envelope: LaunchEnvelope) -> tuple[LoadedSource, Compiled]:
    """Bring the run's source to life and make sure that it still is what the run was started with."""
    reference = envelope.workflow_source.get("ref", "")
    filename = reference if os.path.isabs(reference) else None
    name = os.path.basename(reference.partition(":")[2] or reference).removesuffix(".py").removesuffix(".workflow")
    try:
        source = sources.load(frozen, name=name or None, filename=filename)
        if source.workflow is None:
            raise SourceError("the stored source holds no workflow")
        graph = compile_workflow(source.workflow, Stored(frozen), checked=False)
    except SourceError:
        raise
    except BaseException as error:
        raise SourceError(f"the source cannot be loaded: {type(error).__name__}: {error}") from error
    if definition_digest(definition_snapshot(graph)) != digest_bytes(envelope.definition_digest):
        raise SourceError(
            f"the source of workflow {source.workflow.name!r} now makes another graph than the one this run was "
            "started with; mend what it reads when it is loaded, then resume the run"
        )
    return source, graph


class _Terminator:
    """What SIGTERM does: the node's code hears of it and has a second; nothing more is proposed."""

    def __init__(self, log: AttemptLog) -> None:
        self.engine: WorkflowEngine | None = None
        self._log = log
        signal.signal(signal.SIGTERM, self._end)

    def _end(self, number: int, frame: FrameType | None) -> NoReturn:
        del number, frame
        call = None if self.engine is None else self.engine.interrupt()
        until = monotonic() + GRACE_SECONDS
        while call is not None and call.finished is None and monotonic() < until:
            sleep(0.005)
        self._log.flush()
        _exit(EXIT_TERMINATED)


def _be_a_copy(channel: socket.socket) -> None:
    """What a child that the node's code forks is without: the way to the server, and this process's way to end."""
    channel.close()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _out_of_reach(channel: socket.socket) -> socket.socket:
    """Move the channel to a high descriptor, where code that closes or counts its own does not meet it."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    wanted = HIGHEST_DESCRIPTOR if limit > HIGHEST_DESCRIPTOR or limit < 0 else max(LOWEST_DESCRIPTOR, limit - 1)
    try:
        moved = fcntl.fcntl(channel.fileno(), fcntl.F_DUPFD_CLOEXEC, wanted)
    except OSError:
        return channel
    channel.close()
    result = socket.socket(fileno=moved)
    result.setblocking(True)
    return result
