"""What each operation of a resource runner does: effects, child workflows, notes, and the end of its pass.

Each is one transaction, and gives the result of its answer as canonical JSON, if it has one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from ..resource_managers import passes
from ..state import managed_resources, resource_effect_actions, resource_effects, resource_values
from ..wire import canonical_json, identities
from ..wire.decoding import decoded
from ..wire.errors import ConflictError, ManagedResourceError
from ..wire.resource_messages import (
    BeginResourceEffect,
    FailPass,
    FinishPass,
    RecordEvent,
    ReserveResourceEffect,
    ReserveWorkflow,
    ResourceEffectState,
    ResourceMessage,
    UpdateResourceEffect,
)
from ..wire.resource_status import UNSET, Condition
from ..wire.runner_messages import encode
from .committer import Transaction

if TYPE_CHECKING:
    from .resource_runner_supervisor import ResourceRunnerSupervisor

T = TypeVar("T")
_reserve: Final = msgspec.json.Decoder(ReserveResourceEffect)
_begin: Final = msgspec.json.Decoder(BeginResourceEffect)
_update: Final = msgspec.json.Decoder(UpdateResourceEffect)
_workflow: Final = msgspec.json.Decoder(ReserveWorkflow)
_event: Final = msgspec.json.Decoder(RecordEvent)
_finish: Final = msgspec.json.Decoder(FinishPass)
_fail: Final = msgspec.json.Decoder(FailPass)
OWN_EVENTS: Final = ("lease.", "resource.", "resource_", "reconcile_", "workflow_", "deletion_", "effect.", "effect_")
"""What a manager cannot note as its own, but for an observation that failed, of which its process tells."""


class ResourceOperations:
    """The operations of one pass."""

    def __init__(self, supervisor: ResourceRunnerSupervisor) -> None:
        self._supervisor = supervisor
        self._server = supervisor.server
        self._pass = supervisor.one
        self._operations: Final[dict[str, Callable[[ResourceMessage], Awaitable[bytes | None]]]] = {
            "resource.reserveEffect": self._reserve_effect,
            "resource.beginEffect": self._begin_effect,
            "resource.updateEffect": self._update_effect,
            "resource.reserveWorkflow": self._reserve_workflow,
            "resource.recordEvent": self._record_event,
            "resource.finishPass": self._finish_pass,
            "resource.failPass": self._fail_pass,
        }

    async def answer(self, message: ResourceMessage) -> bytes | None:
        """Do what a message asks for."""
        return await self._operations[message.operation](message)

    async def _commit(self, operation: Callable[[Transaction], T]) -> T:
        return await self._server.committer.submit(operation)

    def _bytes(self, value: Any) -> bytes:
        given = self._supervisor.transfers.given(value)
        return given if isinstance(given, bytes) else b"".join(given.parts())

    # -- effects ------------------------------------------------------------------------------------------------------

    async def _reserve_effect(self, message: ResourceMessage) -> bytes:
        wish, one = decoded(_reserve, message.payload), self._pass
        claim, resource = one.claim, one.resource
        effect_id = identities.effect_id_of_resource(claim.lease.resource_id, wish.key)

        def reserve(transaction: Transaction) -> ResourceEffectState:
            connection = transaction.sql()
            known = connection.execute("SELECT 1 FROM effects WHERE effect_id = ?", (effect_id,)).fetchone()
            if known is None and (not wish.may_apply or one.applied):
                raise ConflictError(
                    f"a pass applies one effect: return ctx.requeue(), and the next pass applies {wish.key!r}"
                )
            effect, created = resource_effects.reserve(
                connection,
                claim.project_id,
                resource.uid,
                wish.key,
                claim,
                kind=wish.effect_kind,
                request_fingerprint=wish.request_fingerprint,
                generation=resource.generation,
                now=transaction.now,
            )
            wanted = resource_effect_actions.wanted(connection, effect_id)
            return ResourceEffectState(created, effect_id, effect.error, effect.external_ref, effect.state, wanted)

        found = await self._commit(reserve)
        if found.created:
            one.applied.add(wish.key)
        return encode(found)

    async def _begin_effect(self, message: ResourceMessage) -> None:
        wish, one = decoded(_begin, message.payload), self._pass
        if one.applied:
            raise ConflictError(f"a pass applies one effect: the next pass applies {wish.key!r}")

        def begin(transaction: Transaction) -> None:
            connection, now = transaction.sql(), transaction.now
            self._check_claim(transaction)
            effect_id = identities.effect_id_of_resource(one.claim.lease.resource_id, wish.key)
            resource_effect_actions.begin(connection, effect_id, one.claim, now)

        await self._commit(begin)
        one.applied.add(wish.key)

    def _check_claim(self, transaction: Transaction) -> None:
        claim, connection = self._pass.claim, transaction.sql()
        row = managed_resources.require_row_by_uid(connection, claim.project_id, self._pass.resource.uid)
        managed_resources.require_claim(row, claim, transaction.now)

    async def _update_effect(self, message: ResourceMessage) -> None:
        wish, one = decoded(_update, message.payload), self._pass
        event = f"effect_{wish.state}"
        if wish.observed and wish.state == "applied":
            event = "effect_recovered"
        told = {"effectKey": wish.key} if wish.error is None else {"effectKey": wish.key, "error": wish.error}

        def update(transaction: Transaction) -> int:
            connection, now = transaction.sql(), transaction.now
            resource_effects.update(
                connection,
                one.claim.project_id,
                one.resource.uid,
                wish.key,
                one.claim,
                state=wish.state,
                external_ref=wish.external_ref,
                error=wish.error,
                now=now,
            )
            return passes.note(connection, one, event, told, now)

        one.version = await self._commit(update)

    # -- the rest -----------------------------------------------------------------------------------------------------

    async def _reserve_workflow(self, message: ResourceMessage) -> bytes:
        wish = decoded(_workflow, message.payload)
        return await self._server.child_runs.ensure(
            self._supervisor, wish.request_key, wish.workflow, self._bytes(wish.input)
        )

    async def _record_event(self, message: ResourceMessage) -> None:
        wish, one = decoded(_event, message.payload), self._pass
        if wish.type.startswith(OWN_EVENTS) and wish.type != "effect_observe_failed":
            raise ManagedResourceError(f"an event of a manager's own is called otherwise than {wish.type!r}")
        payload = canonical_json.decode(self._bytes(wish.payload))
        resource_values.encode_payload(payload)

        def record(transaction: Transaction) -> int:
            return passes.note(transaction.sql(), one, wish.type, payload, transaction.now)

        one.version = await self._commit(record)

    async def _finish_pass(self, message: ResourceMessage) -> None:
        wish = decoded(_finish, message.payload)
        wanted = passes.Finish(
            wish.after_ms,
            UNSET if wish.status is None else canonical_json.decode(self._bytes(wish.status)),
            [Condition(each.type, each.status, each.reason, each.message) for each in wish.conditions],
            None if wish.finalizers is None else tuple(wish.finalizers),
        )
        await self._commit(lambda transaction: passes.finish(transaction.sql(), self._pass, wanted, transaction.now))
        self._supervisor.over = True

    async def _fail_pass(self, message: ResourceMessage) -> None:
        wish = decoded(_fail, message.payload)
        await self._commit(lambda transaction: passes.fail(transaction.sql(), self._pass, wish.error, transaction.now))
        self._supervisor.over = True
