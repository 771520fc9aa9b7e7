"""The walk through the graph: one node at a time, each end proposed together with the next start.

The engine knows nothing of files and processes. What it holds to: nothing but a compute node starts before everything
proposed is durable; an effect is reserved before the code that applies it is called, and settled with the outcome of
its node; a node whose time is over is given up at once, whether its code listens or not.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from time import monotonic, time_ns
from typing import TYPE_CHECKING, Any, Final, cast

from pi_workflows_nb.wire.errors import (
    EffectRequestConflictError,
    RoutingError,
    SettingsChangedError,
    StoppedByServer,
    WorkflowDefinitionError,
)
from pi_workflows_nb.wire.identities import new_id, utf16_units
from pi_workflows_nb.workflows.attempts import Attempt
from pi_workflows_nb.workflows.calls import Call, Callbacks, Drive
from pi_workflows_nb.workflows.compiled import Compiled, compile_workflow
from pi_workflows_nb.workflows.context import Context
from pi_workflows_nb.workflows.history import History, StepRecord, StoredValue, stored
from pi_workflows_nb.workflows.human_decisions import HumanDecision
from pi_workflows_nb.workflows.local_store import LocalStore
from pi_workflows_nb.workflows.nodes import Action, Agent, Node, SettingsRoute
from pi_workflows_nb.workflows.passing import Passing
from pi_workflows_nb.workflows.results import RunResult
from pi_workflows_nb.workflows.routing import next_node
from pi_workflows_nb.workflows.store import (
    EffectOutcome,
    ExecutionStore,
    NodeFinished,
    NodeStarted,
    Outcome,
    ProposedTransition,
    RunEnd,
    RunState,
    Settlement,
)
from pi_workflows_nb.workflows.tracebacks import error_text
from pi_workflows_nb.workflows.updates import UpdateLimits
from pi_workflows_nb.workflows.waiting_nodes import Sleep, WaitEvent

if TYPE_CHECKING:
    from pi_workflows_nb.workflows.definition import Workflow

TIMEOUT_ANSWER_SECONDS: Final = 30.0
EFFECT_KEY_UNITS: Final = 256
LONGEST_SECONDS: Final = 1e9
"""A deadline further away than this is as good as none, and would not be an exact number of milliseconds."""

PARKED_SECONDS: Final = 5.0
"""A pause before another try that is longer holds no process where the run can leave it."""

_CANCELLED: Final = "the run was cancelled"


@dataclass(slots=True)
class _Next:
    """The node to run now, or the mount or `mount.exit` that lies before it.

    `tries` of it have failed already, and it may start at `not_before` (seconds, `monotonic`).
    """

    node_id: str
    tries: int = 0
    not_before: float | None = None


@dataclass(slots=True)
class _Ending:
    """How an attempt ended, before it is said in a proposal; `raised` is what a retry is decided by."""

    outcome: Outcome
    output: bytes | None = None
    error: str | None = None
    raised: BaseException | None = None


@dataclass(slots=True)
class _Current:
    """The attempt that is under way; `started` is None until its start was proposed."""

    node: Node
    step: _Next
    context: Context
    number: int
    seconds: float | None
    started: NodeStarted | None = None
    attempt: Attempt | None = None
    effect_id: str | None = None


class WorkflowEngine:
    """Runs workflows: user code on a thread of its own, watched by the calling thread.

    `executor` answers agent and decision nodes: an object with `run(request)` or a callable of the request, sync or
    async (the request has prompt, expected_output, choices, node_id, attempt and input). `store` keeps what happens, in
    memory by default.
    """

    def __init__(self, *, executor: Any = None, store: ExecutionStore | None = None) -> None:
        self._executor = executor
        self._store: ExecutionStore = LocalStore() if store is None else store
        self._walk: _Walk | None = None

    def run(self, workflow: Workflow | Compiled, input: Any = None, *, resume: bool = False) -> RunResult:
        """Walk the workflow to its end, or to a checkpoint, and say how it ended.

        `input` is any JSON value that the workflow's own `input` accepts; a store that holds the run already has one.
        With `resume` the run in the store goes on from its last durable boundary. Raises `WorkflowDefinitionError` and
        `WorkflowInputError` before anything starts, and `StoppedByServer` when the run is no longer this process's to
        change; what nodes raise ends up in the result.
        """
        graph = workflow if isinstance(workflow, Compiled) else compile_workflow(workflow, checked=not resume)
        if isinstance(self._store, LocalStore) and not resume:
            self._store.begin(graph.workflow, input)
        state = self._store.prepare_resume() if resume else self._store.initialize()
        self._walk = walk = _Walk(graph, self._store, self._executor, state)
        try:
            return walk.run()
        finally:
            self._walk = None

    def cancel(self) -> None:
        """Cancel the run that is under way: its node is given up and the run ends as cancelled. Any thread may call."""
        if self._walk is not None:
            self._walk.callbacks.cancel()

    def interrupt(self) -> Call | None:
        """Tell the code of the node that is under way to stop, and give its call; the walk itself learns nothing.

        For a process that is about to end, in a handler of a signal on the thread that called `run`.
        """
        return None if self._walk is None else self._walk.callbacks.interrupt()


class _Walk:
    """One run on its way. Everything but `run` happens with the baton."""

    def __init__(self, graph: Compiled, store: ExecutionStore, executor: Any, state: RunState) -> None:
        self._graph = graph
        self._store = store
        self._executor = executor
        self._history = History(state)
        self._pending: dict[str, Any] | None = state.get("pending")
        self._limits = _limits_of(state)
        self._current: _Current | None = None
        self._opening: NodeStarted | None = None
        self._raised: BaseException | None = None
        self.callbacks = Callbacks(store.settle, self._leave_behind)
        self._passing = Passing(graph, self._history, self.callbacks, store.settings)
        store.attend(self.callbacks.wake)

    def run(self) -> RunResult:
        """From the state the store gave to the end."""
        result: RunResult = self.callbacks.watch(lambda: self._walk(self._first()))
        return result

    # -- the graph ----------------------------------------------------------------------------------------------------

    def _walk(self, step: _Next | RunEnd) -> RunResult:
        finished: NodeFinished | None = None
        while isinstance(step, _Next):
            not_before = step.not_before
            if not_before is not None:
                pause = not_before - monotonic()
                if finished is not None and self._store.parks and pause > PARKED_SECONDS:
                    step = RunEnd("sleeping", pause_ms=int(pause * 1000))
                    break
                self._say(finished)
                finished = None
                self._store.settle()
                self.callbacks.pause(not_before - monotonic())
            if self.callbacks.cancel_asked:
                step = RunEnd("cancelled", error=_CANCELLED)
            elif self._passing.lies_at(step.node_id):
                if self._passing.calls_code(step.node_id):
                    self._say(finished)
                    finished = None
                    self._store.settle()
                place = step.node_id
                step = _followed(self._passing.through(place))
                if place in self._graph.mounts and self._passing.has_settings(place) and isinstance(step, _Next):
                    # Its nodes are told of settings that are on record.
                    self._propose(ProposedTransition(finished=finished))
                    finished = None
            elif (refused := self._passing.too_many_steps(step.node_id)) is not None:
                step = refused
            else:
                finished, step = self._take(step, finished)
        return self._end(finished, step, abandoned=False)

    def _end(self, finished: NodeFinished | None, end: RunEnd, *, abandoned: bool) -> RunResult:
        self._propose(ProposedTransition(finished=finished, started=self._opening, end=end, abandoned=abandoned))
        self._store.settle()
        by_node = finished is not None and end.error is not None and end.error == finished.error
        raised = self._raised if by_node else None
        return RunResult(self._history.run_id, end.status, end.error, end.detail, end.output, self._history, raised)

    def _first(self) -> _Next | RunEnd:
        pending = self._pending
        if pending is None:
            return self._go_on()
        tries, not_before = int(pending.get("tries") or 0), None
        retries = self._node(pending["nodeId"]).retries
        if retries is not None and tries and pending.get("failedAt") is not None:
            # A clock that was set back meanwhile must not hold the run for longer than the pause itself.
            gone = max(0, _now() - int(pending["failedAt"])) / 1000
            not_before = monotonic() + retries.delay(tries) - gone
        return _Next(pending["nodeId"], tries, not_before)

    def _go_on(self) -> _Next | RunEnd:
        """What follows the last thing that is on record: a step, or the way through a mount behind it."""
        passage = self._history.last_passage
        if passage is not None:
            return _followed(self._passing.behind(passage))
        return self._route(self._history.steps[-1]) if self._history.steps else _Next(self._graph.start_at)

    def _node(self, node_id: str) -> Node:
        node = self._graph.nodes.get(node_id)
        if node is None:
            raise WorkflowDefinitionError(f"the run stands before node {node_id!r}, which the workflow does not have")
        return node

    def _route(self, step: StepRecord) -> _Next | RunEnd:
        graph, node_id = self._graph, step.node_id
        outer = graph.exits.get(node_id)
        if outer is not None and step.outcome == "ok":
            return _Next(outer)
        edge = graph.edges.get(node_id)
        try:
            if edge is None:
                target = None
            elif edge.path(graph.nodes.get(node_id)) is None:
                target = next_node(graph, node_id, {"outcome": step.outcome}, None)
            else:
                record = step.record()
                target = next_node(graph, node_id, record, record["output"])
        except RoutingError as error:
            return RunEnd("failed", error=error_text(error))
        if target is not None:
            return _Next(target)
        if step.outcome == "ok":
            return RunEnd("completed", output=None if step.output is None else step.output.json)
        return RunEnd(step.outcome, error=step.error)

    def _propose(self, transition: ProposedTransition) -> None:
        transition.through = self._passing.taken()
        self._store.propose(transition)

    def _say(self, finished: NodeFinished | None) -> None:
        """Propose an end alone, when what follows it cannot start at once."""
        if finished is not None:
            self._propose(ProposedTransition(finished=finished))

    # -- one attempt --------------------------------------------------------------------------------------------------

    def _take(self, step: _Next, before: NodeFinished | None) -> tuple[NodeFinished | None, _Next | RunEnd]:
        """Run one attempt: its end, and what comes after it.

        The end that is given is the one before where the attempt opens a wait, which outlives this walk.
        """
        node = self._node(step.node_id)
        path = step.node_id.rpartition("/")[0]
        settings = None
        if self._passing.has_settings(path):
            self._say(before)
            before = None
            settings = self._store.settings(path)
        number = self._history.next_attempt(step.node_id)
        context = Context(
            self._history,
            node_id=step.node_id,
            node_kind=node.kind,
            attempt_id=new_id(),
            attempt_number=number,
            cancelled=self.callbacks.cancelled,
            publish=self._publish if node.type in ("agent", "action") else None,
            path=path,
            settings=settings,
        )
        seconds = node.timeout
        if callable(seconds):
            self._say(before)
            before = None
            self._current = current = _Current(node, step, context, number, TIMEOUT_ANSWER_SECONDS)
            ending = self._ask_timeout(current)
        else:
            self._current = current = _Current(node, step, context, number, seconds)
            ending = None
        if ending is None and isinstance(node, WaitEvent):
            pause = None if current.seconds is None else round(current.seconds * 1000)
            return self._open(current, before, RunEnd("waiting", detail=step.node_id, pause_ms=pause))
        if ending is None and isinstance(node, Sleep):
            return self._sleep(current, node, before)
        self._start(current, before)
        if ending is None and self._store.asks_session:
            if isinstance(node, HumanDecision):
                pause = None if node.seconds is None else max(1, round(1000 * node.seconds))
                return self._ask_session(current, of_person=True, pause_ms=pause)
            if isinstance(node, Agent) and self._executor is None:
                return self._ask_session(current)
        if ending is None:
            ending = self._perform(current)
        return self._conclude(current, ending)

    def _ask_session(
        self, current: _Current, *, of_person: bool = False, pause_ms: int | None = None
    ) -> tuple[NodeFinished | None, _Next | RunEnd]:
        """Ask the node what is asked, and leave the attempt open for whoever answers it in the run's session."""
        self._store.settle()
        attempt = self._attempt(current)
        asked = self.callbacks.call(attempt.contract, attempt.deadline)
        if asked.error is not None or asked.stopping is not None:
            return self._conclude(current, _ending(current, asked))
        self._current = None
        attempt_id = current.context.attempt_id
        return None, RunEnd(
            "waiting",
            detail=current.step.node_id,
            pause_ms=pause_ms,
            request=asked.value,
            attempt_id=attempt_id,
            of_person=of_person,
        )

    def _attempt(self, current: _Current) -> Attempt:
        seconds = current.seconds
        deadline = None if seconds is None else self.callbacks.time.now() + seconds
        current.attempt = attempt = Attempt(current.node, current.context, self.callbacks, self._executor, deadline)
        self.callbacks.about = current.context.attempt_id
        return attempt

    def _open(
        self, current: _Current, before: NodeFinished | None, end: RunEnd
    ) -> tuple[NodeFinished | None, _Next | RunEnd]:
        """Leave an attempt open that somebody else, or time, will end."""
        current.seconds = None
        self._opening = self._opened(current)
        self._current = None
        return before, end

    def _sleep(
        self, current: _Current, node: Sleep, before: NodeFinished | None
    ) -> tuple[NodeFinished | None, _Next | RunEnd]:
        said = None
        if node.fn is not None:
            self._start(current, before)
            before = None
            function, context = node.fn, current.context
            deadline = None if current.seconds is None else self.callbacks.time.now() + current.seconds
            asked = self.callbacks.call(lambda: self.callbacks.invoke(function, context), deadline)
            if asked.error is not None or asked.stopping is not None:
                return self._conclude(current, _ending(current, asked))
            said = asked.value
        try:
            moment, pause = node.over(said)
        except WorkflowDefinitionError as error:
            return self._conclude(current, _Ending("failed", error=error_text(error)))
        left = moment - _now() if moment is not None else pause or 0
        if left > 0 and self._store.parks:
            end = RunEnd("sleeping", detail=current.step.node_id, due_at=moment, pause_ms=pause)
            if current.started is None:
                return self._open(current, before, end)
            self._current = None
            return before, end
        if current.started is None:
            self._start(current, before)
        self._store.settle()
        self.callbacks.pause(left / 1000)
        if self.callbacks.cancel_asked:
            return self._conclude(current, _Ending("cancelled", error=_CANCELLED))
        return self._conclude(current, _Ending("ok", output=b"null"))

    def _start(self, current: _Current, before: NodeFinished | None) -> None:
        self._propose(ProposedTransition(finished=before, started=self._opened(current)))

    def _opened(self, current: _Current) -> NodeStarted:
        node, seconds, started_at = current.node, current.seconds, _now()
        current.started = started = NodeStarted(
            current.step.node_id,
            node.type,
            current.context.attempt_id,
            current.number,
            started_at,
            None if seconds is None else started_at + int(min(seconds, LONGEST_SECONDS) * 1000),
            node.retries is not None
            and _may_try_again(node, current.step.tries, TimeoutError(), touched=node.effect is not None),
            current.context._settings,
        )
        return started

    def _perform(self, current: _Current) -> _Ending:
        node = current.node
        if node.type != "compute":
            self._store.settle()
        attempt = self._attempt(current)
        if isinstance(node, Action):
            return self._act(current, attempt, node)
        return _ending(current, self.callbacks.call(attempt.program(), attempt.deadline))

    def _act(self, current: _Current, attempt: Attempt, node: Action) -> _Ending:
        """Run an action: nothing of it is called before its effect is on record."""
        asked = self.callbacks.call(attempt.effect_request, attempt.deadline)
        if asked.error is not None or asked.stopping is not None:
            return _ending(current, asked)
        key = self._effect_key(node, current.step.node_id)
        try:
            reservation = self.callbacks.time.leave_out(
                self._store.reserve_effect,
                current.context.attempt_id,
                node.effect.type,
                key,
                node.effect.recovery,
                asked.value,
            )
        except EffectRequestConflictError as error:
            return _Ending("failed", error=error_text(error))
        if reservation.state == "ambiguous":
            raise StoppedByServer(
                f"the effect of node {current.step.node_id!r} may have happened; a person must confirm it or retry it"
            )
        if reservation.state == "applied":
            return _Ending("ok", output=stored(reservation.result).json)
        current.effect_id = reservation.effect_id
        attempt.enter_effect(key, reservation.attempt_number)
        return _ending(current, self.callbacks.call(attempt.program(), attempt.deadline))

    def _effect_key(self, node: Action, node_id: str) -> str:
        visit = self._history.visits.get(node_id, 0) + 1
        key = f"{self._history.run_id}:{node.effect.type}:{node_id}:{visit}"
        return key if utf16_units(key) <= EFFECT_KEY_UNITS else hashlib.sha256(key.encode()).hexdigest()

    def _ask_timeout(self, current: _Current) -> _Ending | None:
        """Let a node's own function say its seconds; gives how the attempt ended if there are none to be had."""
        function, name = cast("Any", current.node.timeout), current.step.node_id
        call = self.callbacks.call(
            lambda: self.callbacks.invoke(function, current.context), self.callbacks.time.now() + TIMEOUT_ANSWER_SECONDS
        )
        seconds, current.seconds = call.value, None
        if call.stopping == "cancelled":
            return _Ending("cancelled", error=_CANCELLED)
        if call.stopping is not None:
            call.error = TimeoutError(
                f"node {name!r}: its timeout function did not answer within {TIMEOUT_ANSWER_SECONDS:g} s"
            )
        elif call.error is None and seconds is not None:
            if isinstance(seconds, int | float) and not isinstance(seconds, bool) and 0 < seconds < math.inf:
                current.seconds = float(seconds)
                return None
            call.error = WorkflowDefinitionError(
                f"node {name!r}: its timeout function gave {seconds!r}; it must give seconds above 0, or None for none"
            )
        return None if call.error is None else _Ending("failed", error=error_text(call.error), raised=call.error)

    def _conclude(self, current: _Current, ending: _Ending) -> tuple[NodeFinished | None, _Next | RunEnd]:
        node, step, started = current.node, current.step, cast("NodeStarted", current.started)
        finished_at = max(_now(), started.started_at)
        # Read once: code that was left behind may still come back and change them.
        begun, done, rejected = (False, False, False) if current.attempt is None else current.attempt.progress()
        again = (
            ending.raised is not None
            and not (done or rejected)
            and _may_try_again(node, step.tries, ending.raised, touched=begun and node.effect is not None)
        )
        finished = NodeFinished(
            step.node_id, started.attempt_id, ending.outcome, ending.output, ending.error, finished_at, not again
        )
        if current.effect_id is not None:
            outcome: EffectOutcome = (
                "applied" if done else "retry" if again else "ambiguous" if begun and not rejected else "rejected"
            )
            finished.effect = Settlement(current.effect_id, outcome, current.context.effect.reference())
        self._current = None
        self._raised = ending.raised
        told: NodeFinished | None = finished
        if isinstance(node, SettingsRoute) and ending.outcome == "ok" and current.context._settings is not None:
            finished.unless_changed = current.context._settings
            if not self._accepted(finished):
                finished.unless_changed, finished.output, finished.step = None, None, False
                finished.outcome = "failed"
                finished.error = "the settings were changed; it is called again with the newest"
                return finished, _Next(step.node_id, step.tries)
            told = None
        if again and node.retries is not None:
            tries = step.tries + 1
            return finished, _Next(step.node_id, tries, monotonic() + node.retries.delay(tries))
        record = StepRecord(
            len(self._history.steps),
            step.node_id,
            started.attempt_id,
            started.number,
            node.type,
            ending.outcome,
            None if ending.output is None else StoredValue(ending.output),
            ending.error,
            started.started_at,
            finished_at,
        )
        self._history.add(record)
        if ending.outcome == "cancelled":
            return told, RunEnd("cancelled", error=_CANCELLED)
        if node.type == "checkpoint" and ending.outcome == "ok":
            return told, RunEnd("waiting", output=ending.output, detail=step.node_id)
        return told, self._route(record)

    def _accepted(self, finished: NodeFinished) -> bool:
        """Whether what a node routed on still holds when its end is stored."""
        try:
            self._propose(ProposedTransition(finished=finished))
        except SettingsChangedError:
            return False
        return True

    def _leave_behind(self, call: Call) -> Drive:
        """End the attempt whose code does not stop, in place of the worker that it keeps."""
        if self._current is None:
            left = self._end(None, self._passing.left_behind(call), abandoned=True)
            return lambda: left
        current = self._current
        ending = _ending(current, call)
        if current.started is None:
            current.seconds = None
            self._start(current, None)
        finished, step = self._conclude(current, ending)
        if isinstance(step, RunEnd):
            result = self._end(finished, step, abandoned=True)
            return lambda: result
        self._propose(ProposedTransition(finished=finished, abandoned=True))
        return lambda: self._walk(step)

    def _publish(self, attempt_id: str, update_type: str, key: str, data: bytes) -> Any:
        def publish() -> None:
            self._limits.take(update_type, key)
            self._store.publish_update(attempt_id, update_type, key, data)

        return self.callbacks.ask(attempt_id, publish)


def _limits_of(state: RunState) -> UpdateLimits:
    said = state.get("updates")
    return UpdateLimits() if said is None else UpdateLimits((tuple(pair) for pair in said["pairs"]), said["recent"])


def _followed(way: str | RunEnd) -> _Next | RunEnd:
    return _Next(way) if isinstance(way, str) else way


def _may_try_again(node: Node, tries: int, error: BaseException, *, touched: bool) -> bool:
    """Whether another try follows; `touched` says that the world may have been changed by this one."""
    retries = node.retries
    if retries is None or tries + 1 >= retries.times or not retries.covers(error):
        return False
    return not touched or node.effect is None or node.effect.recovery == "idempotent"


def _ending(current: _Current, call: Call) -> _Ending:
    if call.stopping is None:
        if call.error is not None:
            return _Ending("failed", error=error_text(call.error), raised=call.error)
        if current.attempt is not None and current.attempt.rejection is not None:
            return _Ending("failed", error=f"rejected: {current.attempt.rejection}")
        return _Ending("ok", output=call.value)
    if call.stopping == "cancelled":
        return _Ending("cancelled", error=_CANCELLED)
    left = "; its code did not stop and was left behind" if call.abandoned else ""
    error = TimeoutError(f"node {current.step.node_id!r} did not end within its {current.seconds or 0:g} s{left}")
    return _Ending("timed_out", error=error_text(error), raised=error)


def _now() -> int:
    return time_ns() // 1_000_000
