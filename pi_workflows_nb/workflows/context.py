"""What a callback gets: one object to read the run from, and to speak through."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from pi_workflows_nb.wire.errors import WorkflowDefinitionError
from pi_workflows_nb.workflows.history import stored
from pi_workflows_nb.workflows.updates import checked_update

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Callable, Iterable

    from pi_workflows_nb.workflows.history import History
    from pi_workflows_nb.workflows.store import SettingsCopy
    from pi_workflows_nb.workflows.tracking import Track

    Publish = Callable[[str, str, str, bytes], Any]

T = TypeVar("T")


@dataclass(frozen=True)
class Rejected:
    """What an action returns when the world said no; see `rejected`."""

    reason: str


def rejected(reason: str) -> Rejected:
    """Say, as the return value of an action, that the effect was refused and did not happen.

    Takes the reason, a text. The effect is recorded as rejected, the node fails with that text, and is not tried again.
    """
    return Rejected(str(reason))


class EffectHandle:
    """The recorded effect of the action that runs.

    `idempotency_key` is the same in every try of this visit, so that the system that is changed can tell a repetition;
    `attempt_number` counts the calls under that key from 1. What is assigned to `external_ref` (text) is stored with
    the effect.
    """

    __slots__ = ("attempt_number", "external_ref", "idempotency_key")

    def __init__(self, idempotency_key: str, attempt_number: int) -> None:
        self.idempotency_key = idempotency_key
        self.attempt_number = attempt_number
        self.external_ref: str | None = None

    def reference(self) -> str | None:
        """What is stored as the external reference."""
        return None if self.external_ref is None else str(self.external_ref)

    def __repr__(self) -> str:
        return f"effect {self.idempotency_key!r}, attempt {self.attempt_number}"


class Context:
    """The run as one callback sees it.

    `run_id`, `node_id`, `attempt_id` (texts) and `attempt_number` (from 1) say where it is. `cancelled` is a
    `threading.Event` that is set when the node's time is over or the run was cancelled: long loops should look at it.
    All values are copies of the callback's own.
    """

    def __init__(
        self,
        history: History,
        *,
        node_id: str,
        node_kind: str,
        attempt_id: str,
        attempt_number: int,
        cancelled: threading.Event,
        publish: Publish | None,
        path: str = "",
        settings: SettingsCopy | None = None,
    ) -> None:
        self.run_id = history.run_id
        self.workflow_name = history.workflow_name
        self.node_id = node_id
        self.attempt_id = attempt_id
        self.attempt_number = attempt_number
        self.cancelled = cancelled
        self._kind = node_kind
        self._history = history
        self._path = path
        self._settings = settings
        self._publish = publish
        self._effect: EffectHandle | None = None
        self._copies: dict[str, Any] = {}

    @property
    def input(self) -> Any:
        """The run's input, as its own validation left it; in a mounted workflow what it was entered with."""
        copies = self._copies
        if "input" not in copies:
            copies["input"] = self._history.invocations[self._path].input.copy()
        return copies["input"]

    @property
    def outputs(self) -> dict[str, Any]:
        """The accepted outputs by node: of each the newest visit, if that was `ok`.

        A mounted workflow that was left stands there under its name, as `{"exit", "output"}`; inside of it there are
        the outputs of its own nodes since it was entered.
        """
        copies = self._copies
        if "outputs" not in copies:
            copies["outputs"] = self._history.copy_outputs(self._path)
        outputs: dict[str, Any] = copies["outputs"]
        return outputs

    @property
    def results(self) -> dict[str, dict[str, Any]]:
        """The newest result record of each node: index, nodeId, attemptId, attemptNumber, nodeType, outcome, output,
        error, startedAt and finishedAt (milliseconds since the epoch).
        """
        copies = self._copies
        if "results" not in copies:
            copies["results"] = self._history.copy_results(self._path)
        results: dict[str, dict[str, Any]] = copies["results"]
        return results

    @property
    def state(self) -> dict[str, Any]:
        """The whole run: runId, workflowName, title, input, outputs, results, and `steps`, a list of result records."""
        copies = self._copies
        if "state" not in copies:
            copies["state"] = self._history.copy_state(self._path)
        state: dict[str, Any] = copies["state"]
        return state

    @property
    def settings(self) -> Any:
        """The settings of this attempt, as they were when it began; empty in a workflow that declares none."""
        copies = self._copies
        if "settings" not in copies:
            copies["settings"] = {} if self._settings is None else stored(self._settings.value).copy()
        return copies["settings"]

    @property
    def settings_scope_id(self) -> str | None:
        """The id of the scope of settings, None in a workflow that declares none."""
        return None if self._settings is None else self._settings.scope_id

    @property
    def settings_change_number(self) -> int:
        """How often the settings had been changed when this attempt began."""
        return 0 if self._settings is None else self._settings.change_number

    @property
    def effect(self) -> EffectHandle:
        """The recorded effect, in actions that declare one."""
        if self._effect is None:
            raise WorkflowDefinitionError(
                f"node {self.node_id!r} ({self._kind}): ctx.effect exists in actions and shell nodes with effect=… only"
            )
        return self._effect

    def publish_update(self, type: str, key: str, data: dict[str, Any]) -> Any:
        """Publish how things stand, for whoever watches the run; the newest data of a (type, key) pair is shown.

        Takes a type (`"progress"`), a key (`"overall"`) and a JSON object of at most 64 KiB. Blocks in a sync function
        until the update is stored, and is to be awaited in an async one. A run may publish 20 a second, 100 at once.
        Raises `UpdateError` for what cannot be published, `NotJsonError` for data that is not JSON.
        """
        if self._publish is None:
            raise WorkflowDefinitionError(
                f"node {self.node_id!r}: agents and actions publish updates, a {self._kind} node does not"
            )
        return self._publish(self.attempt_id, type, key, checked_update(type, key, data))

    def track(
        self,
        rows: Iterable[T] | AsyncIterable[T],
        *,
        label: str | None = None,
        total: float | None = None,
        unit: str = "rows",
        key: str | None = None,
    ) -> Track[T]:
        """Go through something and publish how far that is: `for row in ctx.track(rows, label="rows"):`.

        In an async function it is `async for`. `total` is their number where `len(rows)` cannot tell, `unit` what is
        counted, `key` the key of the updates (type `"progress"`), made from the label without it. It publishes at the
        start, at most once a second in between, and at the end; a loop that is left early says nothing more. Raises
        what `publish_update` raises.
        """
        from pi_workflows_nb.workflows.tracking import Track

        return Track(self.publish_update, rows, label, total, unit, key)

    def __repr__(self) -> str:
        return f"<context of node {self.node_id!r}, attempt {self.attempt_number}, run {self.run_id}>"
