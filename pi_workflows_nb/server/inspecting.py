"""Questions about a workflow's source that only its own code can answer, put to a short-lived child of the nursery."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from ..runner.inspection import READY
from ..wire import canonical_json, identities
from ..wire import errors as tree
from ..wire.errors import PiWorkflowsError, ProtocolError, SourceError
from .child_runner_supervisor import ChildRunnerSupervisor, ChildSpec
from .launch import Diagnostics

if TYPE_CHECKING:
    from .server import WorkflowServer

INSPECT_SECONDS: Final = 60.0
MAX_ANSWER_BYTES: Final = 256 << 20


async def ask(
    server: WorkflowServer, question: dict[str, Any], environment: Mapping[str, str] | None, folder: str
) -> dict[str, Any]:
    """Send one question, wait up to 60 s, give the answer's `result`.

    An error of the workflow's own code comes back as the class of this project's tree that the child named.
    """
    epoch = identities.new_id()
    answers: list[bytes] = []
    spec = ChildSpec(
        label="inspection",
        mode="inspect",
        epoch=epoch,
        envelope=canonical_json.encode(question),
        environment=environment,
        folder=folder,
        log=server.logs / f"{epoch}.log",
        max_frame_bytes=MAX_ANSWER_BYTES,
    )

    def hear(line: bytes) -> None:
        if line == READY and not answers:
            child.said_ready()
            return
        if answers:
            raise ProtocolError("a second answer")
        answers.append(line)
        child.said_exiting()
        child.kill("exited")

    child = ChildRunnerSupervisor(server, spec, hear, Diagnostics())
    life = asyncio.get_running_loop().create_task(child.live(lambda: None))
    try:
        done, _ = await asyncio.wait([life], timeout=INSPECT_SECONDS)
    finally:
        child.kill("timedOut")
        end = await life
        spec.log.unlink(missing_ok=True)
    if not done:
        raise SourceError(f"the source did not answer within {INSPECT_SECONDS:.0f} s")
    if not end.spawned:
        raise SourceError(f"the source could not be asked: {end.diagnostic}")
    if not answers:
        raise SourceError("the process that loaded the source ended without an answer")
    return _result(answers[0])


def _result(line: bytes) -> dict[str, Any]:
    try:
        answer = canonical_json.decode(line)
        if answer["ok"]:
            result: dict[str, Any] = answer["result"]
            return result
        said, kind = str(answer["error"]), getattr(tree, str(answer.get("kind")), SourceError)
    except (PiWorkflowsError, LookupError, TypeError, AttributeError):
        raise SourceError("the process that loaded the source gave no proper answer") from None
    if not (isinstance(kind, type) and issubclass(kind, PiWorkflowsError)):
        kind = SourceError
    try:
        raise kind(said)
    except TypeError:
        raise SourceError(said) from None
