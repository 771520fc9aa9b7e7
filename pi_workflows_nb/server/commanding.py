"""What all commands of a client share: one transaction with its receipt, done once however often it is asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..state import blobs, commands, runs
from ..wire import identities
from ..wire.client_messages import Request
from ..wire.decoding import of_kind
from ..wire.errors import StaleResourceError
from ..wire.runner_messages import ContentRef
from .committer import Transaction
from .contents import Transfers
from .receipts import Receipt

if TYPE_CHECKING:
    from .server import WorkflowServer


class Commands:
    """The commands of one client of a server."""

    def __init__(self, server: WorkflowServer, transfers: Transfers) -> None:
        self._server = server
        self._transfers = transfers

    async def commit(
        self, request: Request, apply: Callable[[Transaction], Receipt], fingerprint: bytes | None = None
    ) -> Receipt:
        """Apply a command and record its receipt, or adopt the receipt it has.

        `fingerprint` is for requests that are equal by more than operation, run and payload.
        Errors: `ConflictError` for the key of another request, `StaleResourceError` for another revision of the run.
        """
        server, identity = self._server, fingerprint or self._fingerprint(request)

        def command(transaction: Transaction) -> Receipt:
            connection = transaction.sql()
            earlier = commands.adopt(
                connection, request.request_id, request.client_id, request.idempotency_key, identity
            )
            if earlier is not None:
                return Receipt(earlier.receipt, earlier.run_id, earlier.revision, adopted=True)
            present = self.present_revision(request)
            if request.expected_revision not in (None, present):
                raise StaleResourceError(
                    f"run {request.run_id} has changed: its revision is {present}, not {request.expected_revision}"
                )
            given = apply(transaction)
            commands.record(
                connection,
                request_id=request.request_id,
                client_id=request.client_id,
                operation=_stored_operation(request.operation),
                key=request.idempotency_key,
                fingerprint=identity,
                run_id=given.run_id,
                revision=given.revision,
                receipt=given.receipt,
                server_epoch=server.ownership.epoch,
                now=transaction.now,
            )
            return given

        return await server.committer.submit(command)

    def earlier(self, request: Request) -> bool:
        """Whether the request has a receipt already, which its subject, changed since, must not refuse."""
        connection = self._server.database.connection
        return commands.known(connection, request.client_id, request.idempotency_key)

    def present_revision(self, request: Request) -> int | None:
        """That of the run which a request is about, if there is one."""
        run = None if request.run_id is None else runs.find(self._server.database.connection, request.run_id)
        return None if run is None else run.revision

    def _fingerprint(self, request: Request) -> bytes:
        """What makes two requests equal: operation, run and payload, a value by its bytes, however it was sent."""
        payload = {
            name: self._digest_of(value) if _is_value(value) else value
            for name, value in request.payload.items()
            if name not in ("coordinator", "environment")
        }
        return identities.fingerprint({"operation": request.operation, "payload": payload, "runId": request.run_id})

    def _digest_of(self, value: dict[str, Any]) -> str:
        if "content" in value:
            return of_kind(ContentRef, value["content"]).sha256
        return blobs.digest_of(self._transfers.given_in_payload(value)).hex()


def _is_value(value: Any) -> bool:
    return isinstance(value, dict) and len(value) == 1 and not value.keys().isdisjoint({"content", "inline"})


def _stored_operation(operation: str) -> str:
    if operation == "checkpoint.signal":
        return "checkpoint.answer"
    if operation == "workflowMessage.take":
        return "workflowMessage.reportBranch"
    if operation == "resourceManager.rebuildQueue":
        return "resourceManager.reconcile"
    return "channel.recover" if operation.startswith("effect.") else operation
