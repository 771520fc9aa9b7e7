"""The operations a client can ask for. Each that changes something is one transaction with its receipt."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ..state import blobs, commands, places, run_effects, runs, transitions, waits
from ..wire import canonical_json, identities
from ..wire.client_messages import ClientOutcome, Request, Response, RunList
from ..wire.decoding import of_kind
from ..wire.errors import (
    ConflictError,
    NotFoundError,
    PiWorkflowsError,
    ProtocolError,
    SessionRequiredError,
    SourceError,
    StaleClaimError,
    StaleResourceError,
    StateUnavailableError,
    WorkflowInputError,
)
from ..wire.runner_messages import ContentRead
from ..workflows import discovery, sources
from . import answers, contents, environments, inspecting
from .commanding import Commands
from .committer import Transaction
from .contents import Transfers
from .live_requests import LiveRequests
from .receipts import Receipt
from .resource_requests import ResourceRequests, recover_effect
from .session_requests import SessionRequests
from .state_requests import StateRequests

if TYPE_CHECKING:
    from .server import WorkflowServer

_SESSIONS: Final = "sessions are served without it by this version"
NOT_YET: Final = {
    "interaction.update": _SESSIONS,
    "workflowMessage.reportBranch": _SESSIONS,
    "sessionView.clearTerminal": _SESSIONS,
    "session.record": _SESSIONS,
    "channel.reload": "channels of the original are shown, not served",
    "channel.recover": "channels of the original are shown, not served",
}
"""Operations whose subject comes later, each with the sentence that answers it."""
STOP_SECONDS: Final = 2.0
_OUTCOMES: Final[list[tuple[type[PiWorkflowsError], ClientOutcome]]] = [
    (NotFoundError, "notFound"),
    (ConflictError, "conflict"),
    (StaleResourceError, "conflict"),
    (StaleClaimError, "claimLost"),
    (StateUnavailableError, "unavailable"),
]


class Requests:
    """Answers the requests of one client of a server."""

    def __init__(self, server: WorkflowServer, transfers: Transfers) -> None:
        self._server = server
        self._transfers = transfers
        self._commands = Commands(server, transfers)
        self._operations: dict[str, Callable[[Request], Any]] = {
            "run.start": self._start,
            "run.pause": self._pause,
            "run.resume": self._resume,
            "run.cancel": self._cancel,
            "run.restart": self._restart,
            "run.status": self._status,
            "run.list": self._list,
            "checkpoint.answer": self._answer,
            "checkpoint.signal": self._signal,
            "effect.confirm": self._effect,
            "effect.retry": self._effect,
            "server.status": self._server_status,
            "server.stop": self._stop,
            "content.read": self._content,
            **SessionRequests(server, transfers, self._commands).operations,
            **LiveRequests(server, self._commands).operations,
            **StateRequests(server, self._commands).operations,
            **ResourceRequests(server, transfers, self._commands).operations,
        }

    async def handle(self, request: Request) -> Response:
        """The answer to a request; errors of this project's tree become its outcome."""
        operation = self._operations.get(request.operation)
        try:
            if operation is None:
                return _not_served(request)
            given = await operation(request)
        except (OSError, sqlite3.OperationalError) as error:
            return _response(request, "unavailable", error=f"StateUnavailableError: {request.operation}: {error}")
        except PiWorkflowsError as error:
            outcome: ClientOutcome = next((name for kind, name in _OUTCOMES if isinstance(error, kind)), "rejected")
            revision = self._commands.present_revision(request) if isinstance(error, StaleResourceError) else None
            return _response(request, outcome, error=f"{type(error).__name__}: {error}", revision=revision)
        except (KeyError, TypeError, ValueError, msgspec.MsgspecError) as error:
            return _response(
                request, "rejected", error=f"ProtocolError: malformed payload of {request.operation}: {error!r}"
            )
        return _response(
            request, "adopted" if given.adopted else "accepted", receipt=given.receipt, revision=given.revision
        )

    def bytes_of(self, value: dict[str, Any]) -> bytes:
        """The canonical bytes of a payload's value, inline or transferred before."""
        return self._transfers.bytes_of_payload(value)

    # -- runs ---------------------------------------------------------------------------------------------------------

    async def _start(self, request: Request) -> Receipt:
        server, payload = self._server, request.payload
        project = identities.canonical_path(payload["project"])
        environment = environments.checked(payload.get("environment"))
        described = payload if "snapshot" in payload else await self._describe(payload, project, environment)
        name = described["name"]
        given = self._transfers.given_in_payload(described["input"])
        session = _session(payload, described["mode"])
        if described["mode"] == "interactive" and session is None:
            raise SessionRequiredError(
                f"workflow {name!r} has a node that needs the session of a notebook: start it from one without"
                " mode='headless', or give agent=<a callable> to answer its agent nodes"
            )
        frozen = self.bytes_of(described["frozen"])
        snapshot = self.bytes_of(described["snapshot"])
        source = described["source"]
        settings = None if described.get("settings") is None else self.bytes_of(described["settings"])
        fingerprint = identities.fingerprint(
            {"input": blobs.digest_of(given).hex(), "name": name, "operation": "run.start"}
        )
        options = runs.LaunchOptions(identities.sha256_hex(frozen), list(payload.get("tags") or ())).encode()

        def start(transaction: Transaction) -> Receipt:
            connection, now = transaction.sql(), transaction.now
            run_id = identities.new_run_id(name, now)
            new = runs.NewRun(
                run_id=run_id,
                workflow_name=name,
                project_id=runs.register_project(connection, project, now),
                snapshot=snapshot,
                input=given,
                launch_options=options,
                source=source,
                mounted=described.get("mountedSources") or [],
                settings=settings,
                frozen=frozen,
                session_id=session or f"{places.HEADLESS}{run_id}",
                title=described.get("title"),
                mode="headless" if session is None else "interactive",
            )
            revision = runs.create(connection, new, now)
            transaction.changed.add(run_id)
            server.environments.keep(run_id, environment)
            return Receipt({"adopted": False, "note": None, "runId": run_id}, run_id, revision)

        receipt = await self._commands.commit(request, start, fingerprint)
        self._transfers.drop(described["input"])
        if receipt.adopted and receipt.run_id is not None:
            note = self._adoption_note(receipt.run_id, identities.sha256(snapshot), source)
            receipt.receipt = {**receipt.receipt, "adopted": True, "note": note}
            if server.environments.of(receipt.run_id) is None:
                server.environments.keep(receipt.run_id, environment)
                server.environments.forget_ended(server.database.connection, [receipt.run_id])
        return receipt

    async def _describe(
        self, payload: dict[str, Any], project: str, environment: dict[str, str] | None
    ) -> dict[str, Any]:
        """A workflow given by name, path or cell: its source is frozen here and asked in a child."""
        cell = payload.get("cell")
        cells = {cell["name"]: cell["text"]} if cell else {}
        found = discovery.find(payload["workflow"], Path(project), cells)
        if cell is not None:
            # A copy to be read; what a run executes is stored with it.
            with contextlib.suppress(OSError):
                discovery.save_cell(found.text, self._server.sources)
        frozen = sources.freeze(None, text=found.text)
        if payload.get("agent") is not None:
            agent = canonical_json.decode(self.bytes_of(payload["agent"]))
            if not sources.verify_mac(agent, self._server.signing_key):
                raise SourceError("the agent was not frozen by this user on this machine; nothing of it was loaded")
            frozen = {**frozen, "pickle": agent["pickle"]}
        frozen = sources.sign(frozen, self._server.signing_key)
        question = {
            "cells": payload.get("cells") or cells,
            "folder": None if found.path is None else str(found.path.parent),
            "input": canonical_json.decode(self.bytes_of(payload["input"])) if payload.get("input") else None,
            "name": found.name,
            "op": "describe",
            "source": frozen,
        }
        result = await inspecting.ask(self._server, question, environment, project)
        if result["mounts"]:
            frozen = sources.sign({**frozen, "mounts": result["mounts"]}, self._server.signing_key)
        return {
            **{key: {"inline": result[key]} for key in ("input", "snapshot")},
            "frozen": {"inline": frozen},
            "mode": result["mode"],
            "mountedSources": result["mountedSources"],
            "settings": None if result["settings"] is None else {"inline": result["settings"]["value"]},
            "name": result["name"],
            "source": found.identity,
            "title": result["title"],
        }

    def _adoption_note(self, run_id: str, digest: bytes, source: dict[str, str]) -> str | None:
        connection = self._server.database.connection
        row = connection.execute(
            "SELECT r.status, r.definition_digest, s.source_revision, s.source_ref FROM runs r"
            " JOIN run_sources s ON s.run_id = r.run_id AND s.mount_path = '' WHERE r.run_id = ?",
            (run_id,),
        ).fetchone()
        if row is None:
            return None
        if row[0] in ("failed", "timed_out", "cancelled"):
            how = "was cancelled" if row[0] == "cancelled" else row[0].replace("_", " ")
            again = "" if row[0] == "cancelled" else ", restart() this one once more"
            return f"this run {how}; another key= starts a new one{again}"
        if row[1] != digest or (row[3] == source["ref"] and row[2] != source["revision"]):
            return "the workflow has changed since this run was started; another key= starts one of the new form"
        return None

    async def _pause(self, request: Request) -> Receipt:
        run_id = _run_id(request)

        def pause(transaction: Transaction) -> Receipt:
            run = transitions.pause(transaction.sql(), run_id, transaction.now, request.client_id)
            transaction.changed.add(run_id)
            return Receipt({"runId": run_id}, run_id, run.revision)

        given = await self._commands.commit(request, pause)
        self._end_runner(run_id)
        return given

    async def _resume(self, request: Request) -> Receipt:
        run_id = _run_id(request)

        def resume(transaction: Transaction) -> Receipt:
            run = transitions.resume(transaction.sql(), run_id, transaction.now, request.client_id)
            transaction.changed.add(run_id)
            return Receipt({"runId": run_id}, run_id, run.revision)

        given = await self._commands.commit(request, resume)
        self._server.wake(run_id)
        return given

    async def _cancel(self, request: Request) -> Receipt:
        run_id = _run_id(request)

        def cancel(transaction: Transaction) -> Receipt:
            connection = transaction.sql()
            first = commands.of_run(connection, run_id, "run.cancel")
            if first is not None and runs.read(connection, run_id).status == "cancelled":
                return Receipt(first.receipt, run_id, first.revision, adopted=True)
            run = transitions.cancel(connection, run_id, transaction.now, request.client_id, "the run was cancelled")
            transaction.changed.add(run_id)
            return Receipt({"runId": run_id}, run_id, run.revision)

        given = await self._commands.commit(request, cancel)
        self._end_runner(run_id)
        return given

    def _end_runner(self, run_id: str) -> None:
        supervisor = self._server.supervisors.get(run_id)
        if supervisor is not None:
            supervisor.stop("cancelled")

    async def _status(self, request: Request) -> Receipt:
        view = self._server.view(_run_id(request))
        if view is None:
            raise NotFoundError(f"no run {request.run_id!r} in this state file; server.runs() lists what it holds")
        return Receipt(view, request.run_id, view["revision"])

    async def _list(self, request: Request) -> Receipt:
        asked = of_kind(RunList, request.payload)
        return Receipt({"runs": self._server.run_list(asked.limit, asked.project)})

    async def _answer(self, request: Request) -> Receipt:
        run_id = _run_id(request)
        earlier = self._commands.earlier(request)
        value = self.bytes_of(request.payload["value"])
        answer = value if earlier else await answers.accepted(self._server, run_id, value)

        def go_on(transaction: Transaction) -> Receipt:
            continuation = answers.give(self._server, transaction, run_id, answer)
            return Receipt({"runId": continuation}, continuation, 1)

        return await self._commands.commit(request, go_on)

    async def _signal(self, request: Request) -> Receipt:
        payload = request.payload
        project, name = identities.project_id(payload["project"]), payload["name"]
        value = self.bytes_of(payload["value"])
        given = {} if self._commands.earlier(request) else await answers.events(self._server, project, name, value)

        def tell(transaction: Transaction) -> Receipt:
            waiting = {one.run_id for one in waits.for_event(transaction.sql(), project, name, transaction.now)}
            answered = {
                run_id: answers.give(self._server, transaction, run_id, answer)
                for run_id, answer in given.items()
                if run_id in waiting
            }
            return Receipt({"answered": len(answered), "continuations": answered, "signal": name})

        return await self._commands.commit(request, tell)

    async def _restart(self, request: Request) -> Receipt:
        run_id, environment = _run_id(request), environments.checked(request.payload.get("environment"))

        def restart(transaction: Transaction) -> Receipt:
            new_id = transitions.restart(transaction.sql(), run_id, transaction.now)
            transaction.changed |= {run_id, new_id}
            self._server.environments.keep(new_id, environment)
            return Receipt({"runId": new_id}, new_id, 1)

        return await self._commands.commit(request, restart)

    async def _effect(self, request: Request) -> Receipt:
        action = request.operation.removeprefix("effect.")
        effect_id = str(request.payload["effectId"])
        external_ref = request.payload.get("externalRef")
        if external_ref is not None and not isinstance(external_ref, str):
            raise WorkflowInputError("external_ref is a text that names what was made outside")

        def recover(transaction: Transaction) -> Receipt:
            of_resource = recover_effect(transaction, effect_id, action, external_ref)
            if of_resource is not None:
                return of_resource
            cursor, now = transaction.sql(), transaction.now
            effect = run_effects.read(cursor, effect_id)
            run_effects.recover(cursor, effect, action, external_ref, now)
            run = runs.read(cursor, effect.run_id)
            if (
                run.error_code == "effectAmbiguous"
                and run.status == "waiting"
                and not run_effects.ambiguous(cursor, run)
            ):
                transitions.resume_after_effect(cursor, run, now)
            transaction.changed.add(effect.run_id)
            return Receipt({"effectId": effect_id, "runId": effect.run_id}, effect.run_id, run.revision)

        given = await self._commands.commit(request, recover)
        if given.run_id is not None:
            self._server.wake(given.run_id)
        self._server.reconciling.wake()
        return given

    # -- the server ---------------------------------------------------------------------------------------------------

    async def _server_status(self, _: Request) -> Receipt:
        return Receipt(self._server.status())

    async def _stop(self, request: Request) -> Receipt:
        try:
            given = await asyncio.wait_for(self._commands.commit(request, lambda _: Receipt({})), STOP_SECONDS)
        except (StateUnavailableError, TimeoutError):
            given = Receipt({})  # a full disk keeps nobody from stopping
        if not given.adopted:
            asyncio.get_running_loop().call_soon(self._server.request_stop)
        return given

    async def _content(self, request: Request) -> Receipt:
        wish = of_kind(ContentRead, request.payload)
        part = contents.bytes_of(wish, self._server.database.connection)
        return Receipt({"base64": base64.b64encode(part).decode()})


def _not_served(request: Request) -> Response:
    if request.operation in NOT_YET:
        return _response(request, "unavailable", error=f"{request.operation}: {NOT_YET[request.operation]}")
    return _response(request, "rejected", error=f"{request.operation[:80]} is not an operation")


def _run_id(request: Request) -> str:
    if not request.run_id:
        raise ProtocolError(f"{request.operation} needs a run id")
    return request.run_id


def _session(payload: dict[str, Any], mode: str) -> str | None:
    """The session of an interactive run; None for a headless one, and for one that names none."""
    asked, session = payload.get("mode"), payload.get("session")
    if asked != "interactive" and (asked == "headless" or mode != "interactive" or session is None):
        return None
    if not isinstance(session, str) or not session or session.startswith(places.HEADLESS):
        raise ProtocolError("an interactive run needs the id of its session")
    return session


def _response(
    request: Request,
    outcome: ClientOutcome,
    *,
    receipt: dict[str, Any] | None = None,
    error: str | None = None,
    revision: int | None = None,
) -> Response:
    return Response(error=error, outcome=outcome, receipt=receipt, request_id=request.request_id, revision=revision)
