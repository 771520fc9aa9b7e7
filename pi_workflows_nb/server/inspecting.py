"""Questions about a workflow's source that only its own code can answer, put to a short-lived child of the nursery."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, Any, Final

from ..wire import canonical_json, identities
from ..wire import errors as tree
from ..wire.errors import PiWorkflowsError, SourceError

if TYPE_CHECKING:
    from .server import WorkflowServer

INSPECT_SECONDS: Final = 60.0


async def ask(
    server: WorkflowServer, question: dict[str, Any], environment: dict[str, str] | None, folder: str
) -> dict[str, Any]:
    """Send one question, wait up to 60 s, give the answer's `result`.

    An error of the workflow's own code comes back as the class of this project's tree that the child named.
    """
    epoch = identities.new_id()
    log = server.logs / f"{epoch}.log"
    child = await server.nursery.spawn(mode="inspect", environment=environment, folder=folder, log=log, epoch=epoch)
    try:
        reader, writer = await asyncio.open_connection(sock=child.socket, limit=64 << 20)
        writer.write(canonical_json.encode(question) + b"\n")
        line = await asyncio.wait_for(reader.readline(), INSPECT_SECONDS)
        writer.close()
    except TimeoutError:
        raise SourceError(f"the workflow's source did not answer within {INSPECT_SECONDS:.0f} s") from None
    except (OSError, ValueError) as error:
        raise SourceError(f"the workflow's source could not be asked: {error}") from None
    finally:
        child.signal(signal.SIGKILL)
        await child.exited
        log.unlink(missing_ok=True)
    if not line.endswith(b"\n"):
        raise SourceError("the process that loaded the workflow's source ended without an answer")
    answer = canonical_json.decode(line)
    if answer["ok"]:
        result: dict[str, Any] = answer["result"]
        return result
    kind = getattr(tree, answer.get("kind", ""), SourceError)
    if not (isinstance(kind, type) and issubclass(kind, PiWorkflowsError)):
        kind = SourceError
    try:
        raise kind(answer["error"])
    except TypeError:
        raise SourceError(answer["error"]) from None
