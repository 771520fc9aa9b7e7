"""What a session asks of the server: to speak for it, its next message, the end of a turn, an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from ..state import blobs, interactive_requests, places, transitions, workflow_messages
from ..state.interactive_requests import Submission
from ..state.mutation import Claim
from ..wire import identities
from ..wire.client_messages import Request
from ..wire.errors import ConflictError, ProtocolError, ServerStoppedError, WorkflowInputError
from .commanding import Commands
from .committer import Transaction
from .contents import Transfers
from .receipts import Receipt

if TYPE_CHECKING:
    from .server import WorkflowServer

MOST_WAIT_SECONDS: Final = 10.0


class SessionRequests:
    """The operations of one client about sessions."""

    def __init__(self, server: WorkflowServer, transfers: Transfers, commands: Commands) -> None:
        self._server = server
        self._transfers = transfers
        self._commands = commands
        self.operations: dict[str, Callable[[Request], Awaitable[Receipt]]] = {
            "decision.answer": self._decide,
            "interaction.submit": self._submit,
            "session.attach": self._attach,
            "session.wait": self._wait,
            "workflowMessage.take": self._take,
            "workflowTurn.report": self._report,
        }

    async def _attach(self, request: Request) -> Receipt:
        session_id = _session(request)
        kept = {str(turn_id) for turn_id in request.payload.get("openTurns") or ()}

        def lose(transaction: Transaction) -> None:
            lost = transitions.lose_turns(transaction.sql(), session_id, kept, transaction.now)
            transaction.changed |= lost

        epoch = self._server.sessions.attach(session_id)
        await self._server.committer.submit(lose)
        return Receipt({"coordinator": epoch})

    async def _wait(self, request: Request) -> Receipt:
        seconds = min(float(request.payload.get("seconds") or 0), MOST_WAIT_SECONDS)
        found = await self._server.sessions.wait(_session(request), request.payload["coordinator"], seconds)
        return Receipt({"pending": found})

    async def _take(self, request: Request) -> Receipt:
        session_id, epoch = _session(request), request.payload["coordinator"]

        def take(transaction: Transaction) -> Receipt:
            self._server.sessions.require(session_id, epoch)
            connection, now = transaction.sql(), transaction.now
            message = workflow_messages.next_of(connection, session_id)
            if message is None:
                return Receipt({"message": None})
            turn_id = workflow_messages.take(connection, message, session_id, f"entry-{identities.new_id()}", now)
            transaction.changed.add(message.run_id)
            taken = {
                "messageId": message.message_id,
                "requestId": message.source_id,
                "runId": message.run_id,
                "turnId": turn_id,
            }
            return Receipt({"message": taken}, message.run_id)

        return await self._commands.commit(request, take)

    async def _report(self, request: Request) -> Receipt:
        turn_id, reason = str(request.payload["turnId"]), str(request.payload["stopReason"])

        def end(transaction: Transaction) -> Receipt:
            run_id = transitions.end_turn(transaction.sql(), turn_id, reason, transaction.now)
            transaction.changed.add(run_id)
            return Receipt({"turnId": turn_id}, run_id)

        given = await self._commands.commit(request, end)
        if given.run_id is not None:
            self._server.wake(given.run_id)
        return given

    async def _decide(self, request: Request) -> Receipt:
        payload, server = request.payload, self._server
        decision_id, response = str(payload["decisionId"]), payload["response"]
        if payload.get("actor", "human") != "human":
            raise ConflictError(f"decision {decision_id} is a person's to take: an agent can never answer it")
        channel = str(payload.get("channel") or "client")

        def decide(transaction: Transaction) -> Receipt:
            connection = transaction.sql()
            heir = transitions.decide(
                connection, decision_id, response, request.client_id, channel, request.idempotency_key, transaction.now
            )
            parent = transitions.decided_run(connection, decision_id)
            transaction.changed |= {parent, heir}
            server.environments.inherit(parent, heir)
            return Receipt({"decisionId": decision_id, "runId": heir}, heir, 1)

        return await self._commands.commit(request, decide)

    async def _submit(self, request: Request) -> Receipt:
        payload, server = request.payload, self._server
        request_id, turn_id = str(payload["requestId"]), payload.get("turnId")
        if not (turn_id is None or isinstance(turn_id, str)):
            raise ProtocolError("the id of a turn is a text")
        value = b"" if self._commands.earlier(request) else self._transfers.given_in_payload(payload["value"])
        key = request.idempotency_key
        claims: list[Claim] = []

        def submit(transaction: Transaction) -> Receipt:
            connection = transaction.sql()
            run_id = interactive_requests.read(connection, request_id).run_id
            known = interactive_requests.submission_under(connection, request_id, key)
            if known is not None:
                if known.payload != blobs.digest_of(value):
                    raise ConflictError(f"another answer to request {request_id} was given under the same key")
                return Receipt({"submissionId": known.submission_id}, run_id, adopted=True)
            claims.clear()  # of a transaction that is done again
            submission_id, claim = transitions.submit(
                connection, request_id, key, value, server.ownership.server_id, transaction.now, turn_id
            )
            claims.append(claim)
            transaction.changed.add(run_id)
            return Receipt({"submissionId": submission_id}, run_id)

        given = await self._commands.commit(request, submit)
        self._transfers.drop(payload["value"])
        stored = self._stored(given)
        if stored.outcome == "validating":
            looking = server.sessions.look_at(stored.submission_id, claims[0] if claims else None)
            try:
                await asyncio.shield(looking)
            except asyncio.CancelledError:
                if not looking.cancelled():
                    raise
                raise ServerStoppedError(
                    "the server stopped while it looked at the answer; the next one does"
                ) from None
            stored = self._stored(given)
        if stored.outcome == "rejected":
            raise WorkflowInputError(interactive_requests.refusal(server.database.connection, stored))
        return given

    def _stored(self, given: Receipt) -> Submission:
        return interactive_requests.submission(self._server.database.connection, given.receipt["submissionId"])


def _session(request: Request) -> str:
    session_id: Any = request.payload["session"]
    if not isinstance(session_id, str) or not session_id or session_id.startswith(places.HEADLESS):
        raise ProtocolError(f"{request.operation} needs the id of a session")
    return session_id
