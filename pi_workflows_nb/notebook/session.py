"""`server.session`: this notebook as the origin of its runs, and the agent that answers what they ask it.

The agent is called on a thread of its own, one call at a time. What it gave is handed over under the id of its turn, so
that an answer is counted once, whoever serves by then.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pi_workflows_nb.state import blobs, interactive_requests
from pi_workflows_nb.wire import canonical_json
from pi_workflows_nb.wire.errors import (
    ConflictError,
    NotFoundError,
    PiWorkflowsError,
    ServerStoppedError,
    StaleClaimError,
    WorkflowDefinitionError,
)
from pi_workflows_nb.workflows.store import AgentRequest
from pi_workflows_nb.workflows.tracebacks import error_text

from . import representations
from .inbox import answering

if TYPE_CHECKING:
    from collections.abc import Callable

    from .link import Link

F = TypeVar("F", bound="Callable[[AgentRequest], Any]")
WAIT_SECONDS: Final = 5.0
PAUSE_SECONDS: Final = 0.2

_MESSAGE: Final = (
    "SELECT m.content_hash, r.input_hash, a.attempt_number FROM workflow_messages m JOIN runs r USING (run_id)"
    " JOIN interactive_requests i ON i.request_id = m.source_id JOIN node_attempts a USING (attempt_id)"
    " WHERE m.workflow_message_id = ?"
)

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Turn:
    """A turn under way."""

    turn_id: str
    message_id: str
    request_id: str


class Session:
    """The session of a notebook: runs that need one are shown here.

    `id` is the same after the kernel has restarted, and another for a copy of the notebook.
    """

    def __init__(self, link: Link, session_id: str) -> None:
        self.id = session_id
        self._link = link
        self._agent: SessionAgent | None = None

    def agent(self, fn: F | None) -> F | None:
        """Let a function answer the agent and decision nodes of this session's runs; also as a decorator.

        `fn(request)`, sync or async, gets the request (prompt, expected_output, choices, node_id, attempt, input) and
        gives a JSON value. A value that the node refuses, or an error, ends the turn; the agent is asked twice more,
        with the reason at the end of the prompt, before the node fails. The function runs on a thread of its own, one
        call at a time. A second one takes the place of the first, in this kernel or in another; None lets the person
        answer by `server.inbox()`. `WorkflowDefinitionError` for what is no function, `ServerStoppedError`.
        """
        if fn is not None and not callable(fn):
            raise WorkflowDefinitionError(
                f"session.agent({fn!r}): it is a function of the request that gives the answer"
            )
        if self._agent is not None and self._agent.alive and fn is not None:
            self._agent.function = fn
            return fn
        if self._agent is not None:
            self._agent.stop()
            self._agent = None
        if fn is not None:
            self._agent = SessionAgent(self._link, self.id, fn)
            self._agent.start()
        return fn

    def _close(self) -> None:
        if self._agent is not None:
            self._agent.stop()

    def _facts(self) -> list[tuple[str, Any]]:
        agent = self._agent
        if agent is None or not agent.alive:
            fenced = agent is not None and agent.fenced
            said = "another kernel's, which came later" if fenced else "none: server.inbox() lists what is asked"
            return [("id", self.id), ("agent", said)]
        facts = [("id", self.id), ("agent", getattr(agent.function, "__name__", repr(agent.function)))]
        return facts if agent.last_error is None else [*facts, ("last error", agent.last_error)]

    def __repr__(self) -> str:
        return representations.facts_text("session", self._facts())

    def _repr_html_(self) -> str:
        return representations.facts_html("session", self._facts())


class SessionAgent:
    """Speaks for a session: takes its messages, calls the function, hands its answers over."""

    def __init__(self, link: Link, session_id: str, function: Callable[[AgentRequest], Any]) -> None:
        self.function = function
        self.fenced = False
        self.last_error: str | None = None
        self._link = link
        self._session_id = session_id
        self._coordinator = ""
        self._server_id = ""
        self._turn: _Turn | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="pi-workflows-nb agent", daemon=True)

    def start(self) -> None:
        """Become the one who speaks for the session. `ServerStoppedError`."""
        self._attach()
        self._thread.start()

    def stop(self) -> None:
        """Take no message any more; a call that is under way goes on, and its answer is handed over."""
        self._ended.set()

    @property
    def alive(self) -> bool:
        """Whether it still speaks for the session."""
        return self._thread.is_alive() and not self._ended.is_set()

    # -- the thread ---------------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        while not self._ended.is_set():
            try:
                self._take()
            except ServerStoppedError:
                if not self._wait_for_server():
                    return
            except StaleClaimError:
                if self._server() == self._server_id:
                    self.fenced = True
                    log.warning(
                        "another kernel speaks for session %s now; this one's agent is not asked", self._session_id
                    )
                    return
                self._attach_again()
            except PiWorkflowsError as error:
                self.last_error = str(error)
                self._ended.wait(PAUSE_SECONDS)

    def _take(self) -> None:
        asked = {"coordinator": self._coordinator, "session": self._session_id}
        if not self._ask("session.wait", {**asked, "seconds": WAIT_SECONDS})["pending"] or self._ended.is_set():
            return
        taken = self._ask("workflowMessage.take", asked)["message"]
        if taken is not None:
            self._turn = turn = _Turn(taken["turnId"], taken["messageId"], taken["requestId"])
            try:
                self._answer(turn)
            finally:
                self._turn = None

    def _answer(self, turn: _Turn) -> None:
        reason = "completed"
        try:
            value = self._link.value(_called(self.function, self._request(turn)))
        except Exception as error:
            reason, self.last_error = "error", error_text(error)
            log.warning("the agent of this session failed: %s", self.last_error)
        else:
            payload = {"requestId": turn.request_id, "turnId": turn.turn_id, "value": value}
            try:
                self._through("interaction.submit", payload, turn.turn_id)
                self.last_error = None
            except PiWorkflowsError as error:
                self.last_error = str(error)
        try:
            self._through("workflowTurn.report", {"stopReason": reason, "turnId": turn.turn_id}, f"{turn.turn_id}:end")
        except (ConflictError, NotFoundError) as error:
            self.last_error = str(error)  # it was taken from this agent meanwhile

    def _request(self, turn: _Turn) -> AgentRequest:
        with self._link.reader.snapshot() as connection:
            content, given, number = connection.execute(_MESSAGE, (turn.message_id,)).fetchone()
            contract = blobs.read_json(connection, interactive_requests.read(connection, turn.request_id).contract)
            return AgentRequest(
                prompt=blobs.read_json(connection, content)["content"],
                expected_output=contract["expectedOutput"],
                choices=contract["choices"],
                node_id=contract["nodeId"],
                attempt=number,
                input=canonical_json.decode(blobs.read_json_bytes(connection, given)),
            )

    # -- the server ---------------------------------------------------------------------------------------------------

    def _ask(self, operation: str, payload: dict[str, Any], key: str | None = None) -> dict[str, Any]:
        return (
            self._link.ask(operation, payload, key=key, client_id=None if key is None else self._session_id).receipt
            or {}
        )

    def _through(self, operation: str, payload: dict[str, Any], key: str) -> dict[str, Any]:
        """Ask until some server has answered."""
        while True:
            if self._server() != self._server_id:
                self._attach_again()
            try:
                return self._ask(operation, payload, key)
            except ServerStoppedError:
                if not self._wait_for_server():
                    raise

    def _attach(self) -> None:
        open_turns = [] if self._turn is None else [self._turn.turn_id]
        server_id = self._server()
        given = self._ask("session.attach", {"openTurns": open_turns, "session": self._session_id})
        self._coordinator, self._server_id = given["coordinator"], server_id

    def _attach_again(self) -> None:
        try:
            self._attach()
        except ServerStoppedError:
            self._wait_for_server()

    def _server(self) -> str:
        connection = self._link.connection
        return "" if connection is None else connection.server_id

    def _wait_for_server(self) -> bool:
        """Wait until somebody serves again; False when nobody will."""
        connection = self._link.connection
        while connection is not None and connection.alive:
            if connection.ready:
                return True
            time.sleep(PAUSE_SECONDS)
        return False


def _called(function: Callable[[AgentRequest], Any], request: AgentRequest) -> Any:
    token = answering.set(True)
    try:
        value = function(request)
        return asyncio.run(_awaited(value)) if inspect.isawaitable(value) else value
    finally:
        answering.reset(token)


async def _awaited(value: Any) -> Any:
    return await value
