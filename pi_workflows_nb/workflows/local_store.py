"""A store in memory, for direct runs and for trying workflows out.

It keeps the same record of a run as a file does, so a run can be stopped and gone on with, and effects are adopted
under their keys, as long as the object lives.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import time_ns
from typing import TYPE_CHECKING, Any

from pi_workflows_nb.wire import canonical_json
from pi_workflows_nb.wire.errors import (
    ConflictError,
    EffectRequestConflictError,
    NotFoundError,
    SettingsChangedError,
)
from pi_workflows_nb.wire.identities import effect_id_of_run, new_run_id, settings_scope_id
from pi_workflows_nb.workflows.settings import changed, check_patch, initial_settings, patched, rights_of
from pi_workflows_nb.workflows.store import (
    EffectReservation,
    NodeFinished,
    NodeStarted,
    ProposedTransition,
    Recovery,
    RunState,
    SettingsCopy,
    Settlement,
)

if TYPE_CHECKING:
    from pi_workflows_nb.workflows.definition import Workflow


@dataclass(slots=True)
class LocalEffect:
    """A recorded effect: `status` is pending, applying, applied, rejected or ambiguous; `result` its JSON value."""

    effect_id: str
    key: str
    recovery: Recovery
    request: bytes
    status: str = "applying"
    attempts: int = 1
    result: Any = None
    external_ref: str | None = None


class LocalStore:
    """One run at a time, in memory.

    `transitions` lists what was proposed, `updates` what was published as (attempt id, type, key, data), `effects` the
    recorded effects by id. A run that has to wait for a moment waits in place.
    """

    parks = False
    asks_session = False

    def __init__(self) -> None:
        self.transitions: list[ProposedTransition] = []
        self.updates: list[tuple[str, str, str, Any]] = []
        self.effects: dict[str, LocalEffect] = {}
        self._workflow: Workflow | None = None
        self._state: RunState | None = None
        self._running: NodeStarted | None = None

    def begin(self, workflow: Workflow, input: Any) -> None:
        """Take a new run in: its input is validated, its title made, and what the store held before is forgotten."""
        from pi_workflows_nb.workflows.inputs import make_title, normalize_input
        from pi_workflows_nb.workflows.validation import validate

        validate(workflow)
        normal = normalize_input(workflow, input)
        self.transitions.clear()
        self.updates.clear()
        self.effects.clear()
        self._running = None
        self._workflow = workflow
        run_id = new_run_id(workflow.name, time_ns() // 1_000_000)
        settings: dict[str, dict[str, Any]] = {}
        if workflow.settings is not None:
            initial = initial_settings(workflow.settings, normal, f"workflow {workflow.name!r}")
            settings[""] = _scope(run_id, "", 1, initial)
        self._state = {
            "runId": run_id,
            "workflowName": workflow.name,
            "title": make_title(workflow, normal),
            "input": normal,
            "steps": [],
            "passages": [],
            "attemptCounts": {},
            "pending": None,
            "settings": settings,
        }

    def answer(self, value: Any) -> None:
        """Give the node, at which the run waits, its answer (JSON) or its event; resuming goes on behind it."""
        steps, started = self._known()["steps"], self._running
        if started is not None:
            now = max(time_ns() // 1_000_000, started.started_at)
            self._end_attempt(started, NodeFinished(started.node_id, started.attempt_id, "ok", b"null", None, now))
        steps[-1]["output"] = canonical_json.decode(canonical_json.encode(value))

    def initialize(self) -> RunState:
        """The run that `begin` took in."""
        return self._copy()

    def prepare_resume(self) -> RunState:
        """The run as the last proposal left it; what an attempt that never ended had begun is uncertain."""
        if self._running is not None:
            pending = self._known()["pending"]
            tries = pending["tries"] if pending and pending["nodeId"] == self._running.node_id else 0
            self._known()["pending"] = {"nodeId": self._running.node_id, "tries": tries, "failedAt": None}
            self._running = None
            for effect in self.effects.values():
                if effect.status == "applying":
                    effect.status = "pending" if effect.recovery == "idempotent" else "ambiguous"
        return self._copy()

    def propose(self, transition: ProposedTransition) -> None:
        """Keep a transition."""
        state, finished = self._known(), transition.finished
        seen = None if finished is None else finished.unless_changed
        if seen is not None and state["settings"][seen.mount]["number"] != seen.change_number:
            raise SettingsChangedError("the settings have changed")
        self.transitions.append(transition)
        if finished is not None and self._running is not None:
            self._end_attempt(self._running, finished)
        for passage in transition.through:
            state["passages"].append(
                {
                    "event": passage.event,
                    "mount": passage.mount,
                    "steps": len(state["steps"]),
                    "value": canonical_json.decode(passage.value),
                }
            )
            if passage.settings is not None:
                number = state["settings"].get(passage.mount, {"invocation": 0})["invocation"] + 1
                state["settings"][passage.mount] = _scope(state["runId"], passage.mount, number, passage.settings)
        if transition.started is not None:
            self._running = transition.started
            state["attemptCounts"][transition.started.node_id] = transition.started.number

    def _end_attempt(self, started: NodeStarted, finished: NodeFinished) -> None:
        state, self._running = self._known(), None
        output = None if finished.output is None else canonical_json.decode(finished.output)
        if finished.step:
            state["pending"] = None
            state["steps"].append(
                {
                    "index": len(state["steps"]),
                    "nodeId": finished.node_id,
                    "attemptId": finished.attempt_id,
                    "attemptNumber": started.number,
                    "nodeType": started.node_type,
                    "outcome": finished.outcome,
                    "output": output,
                    "error": finished.error,
                    "startedAt": started.started_at,
                    "finishedAt": finished.finished_at,
                }
            )
        else:
            tries = (state["pending"] or {"tries": 0})["tries"] + 1
            state["pending"] = {"nodeId": finished.node_id, "tries": tries, "failedAt": finished.finished_at}
        if finished.effect is not None:
            self._settle_effect(finished.effect, output)

    def settle(self) -> None:
        """Nothing to wait for."""

    def reserve_effect(
        self, attempt_id: str, effect_type: str, key: str, recovery: Recovery, request: bytes
    ) -> EffectReservation:
        """Record an effect or adopt the one that stands under the key."""
        del attempt_id
        effect_id = effect_id_of_run(self._known()["runId"], effect_type, key)
        effect = self.effects.get(effect_id)
        if effect is None:
            self.effects[effect_id] = LocalEffect(effect_id, key, recovery, request)
            return EffectReservation(effect_id, "apply")
        if effect.request != request:
            raise EffectRequestConflictError(
                f"the effect {effect_type!r} was recorded under its key with another request; the request of an action "
                "must depend on the run's input and outputs alone"
            )
        if effect.status == "applied":
            return EffectReservation(effect_id, "applied", effect.result, effect.attempts)
        if effect.status != "pending" and not (effect.status == "ambiguous" and recovery == "idempotent"):
            return EffectReservation(effect_id, "ambiguous", None, effect.attempts)
        effect.status = "applying"
        effect.attempts += 1
        return EffectReservation(effect_id, "apply", None, effect.attempts)

    def settings(self, mount: str) -> SettingsCopy:
        """The newest settings of a mount, or of the run."""
        scope = self._known()["settings"][mount]
        value = canonical_json.decode(canonical_json.encode(scope["value"]))
        return SettingsCopy(mount, scope["scopeId"], scope["number"], value)

    def change_settings(
        self, patch: list[dict[str, Any]], expected: int | None = None, *, mount: str = "", actor: str = "human"
    ) -> int:
        """Change the settings of the run, or of a mount, and give the new change number.

        `SettingsError` for a patch that is malformed or not allowed, `WorkflowInputError` when the workflow refuses the
        value, `ConflictError` when the change number is not the expected one.
        """
        workflow = self._workflow
        for name in mount.split("/") if mount else ():
            included = None if workflow is None else workflow.includes.get(name)
            child = None if included is None else included.workflow
            workflow = None if isinstance(child, str) else child
        declared, scope = None if workflow is None else workflow.settings, self._known()["settings"].get(mount)
        if declared is None or scope is None:
            raise NotFoundError(f"there are no settings of {mount or 'the run'!r}")
        if expected is not None and expected != scope["number"]:
            raise ConflictError(f"the change number is {scope['number']}, not {expected}")
        rules = [rule.told() for rule in declared.paths]
        after = patched(scope["value"], check_patch(patch), rights_of(rules, actor))
        after = canonical_json.decode(changed(declared, scope["value"], after, "the change"))
        scope["value"], scope["number"] = after, scope["number"] + 1
        return int(scope["number"])

    def publish_update(self, attempt_id: str, update_type: str, key: str, data: bytes) -> None:
        """Keep an update."""
        self.updates.append((attempt_id, update_type, key, canonical_json.decode(data)))

    def attend(self, wake: Callable[[], None]) -> None:
        """Nothing here ever needs attention."""

    def _settle_effect(self, settlement: Settlement, output: Any) -> None:
        effect = self.effects[settlement.effect_id]
        effect.status = "pending" if settlement.outcome == "retry" else settlement.outcome
        effect.external_ref = settlement.external_ref
        effect.result = output if settlement.outcome == "applied" else None

    def _copy(self) -> RunState:
        state: RunState = canonical_json.decode(canonical_json.encode(self._known()))
        return state

    def _known(self) -> RunState:
        if self._state is None:
            raise NotFoundError("this store holds no run; WorkflowEngine.run(workflow, input) begins one")
        return self._state


def _scope(run_id: str, mount: str, invocation: int, value: bytes) -> dict[str, Any]:
    return {
        "invocation": invocation,
        "number": 0,
        "scopeId": settings_scope_id(run_id, mount, invocation),
        "value": canonical_json.decode(value),
    }
