"""What one attempt calls, by its kind of node. All of it runs on the worker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, cast

from pi_workflows_nb.wire.errors import SessionRequiredError, WorkflowDefinitionError
from pi_workflows_nb.workflows.context import Context, EffectHandle, Rejected
from pi_workflows_nb.workflows.history import to_canonical
from pi_workflows_nb.workflows.human_decisions import HumanDecision
from pi_workflows_nb.workflows.nodes import Action, Agent, Callback, Checkpoint, Decision, Node, Shell
from pi_workflows_nb.workflows.store import AgentRequest

if TYPE_CHECKING:
    from pi_workflows_nb.workflows.calls import Callbacks
    from pi_workflows_nb.workflows.shell_updates import LineReader, ShellUpdates


CONTRACT: Final = "pi-workflows.interaction-contract.v1"


class Attempt:
    """One execution of one node, and how far it came.

    `begun`: an action's own code has been entered, so that the world may have changed; `done`: that code has come back,
    so that it has; `rejection`: it came back with `rejected(reason)`.
    """

    __slots__ = ("begun", "callbacks", "context", "deadline", "done", "executor", "node", "rejection")

    def __init__(
        self, node: Node, context: Context, callbacks: Callbacks, executor: Any, deadline: float | None
    ) -> None:
        self.node = node
        self.context = context
        self.callbacks = callbacks
        self.executor = executor
        self.deadline = deadline
        self.begun = False
        self.done = False
        self.rejection: str | None = None

    def program(self) -> Callable[[], bytes | None]:
        """What is to be called; it gives the output as canonical JSON, None after a rejection."""
        program: Callable[[], bytes | None] = _PROGRAMS[self.node.kind].__get__(self)
        return program

    def progress(self) -> tuple[bool, bool, bool]:
        """What is known now: begun, done, rejected."""
        return self.begun, self.done, self.rejection is not None

    def enter_effect(self, key: str, number: int) -> EffectHandle:
        """Let the action's code see the effect that was reserved for it."""
        self.context._effect = handle = EffectHandle(key, number)
        return handle

    def effect_request(self) -> bytes:
        """What is recorded of an action before it is called."""
        effect = cast("Action", self.node).effect
        context = self.context
        if effect.request is None:
            return to_canonical({"input": context.input, "outputs": context.outputs})
        if callable(effect.request):
            return to_canonical(self.callbacks.invoke(effect.request, context))
        return to_canonical(effect.request)

    def _compute(self) -> bytes:
        return to_canonical(self.callbacks.invoke(cast("Callback", self.node.fn), self.context))

    def _action(self) -> bytes | None:
        self.begun = True
        return self._outcome(self.callbacks.invoke(cast("Callback", self.node.fn), self.context))

    def _outcome(self, value: Any) -> bytes | None:
        if isinstance(value, Rejected):
            self.rejection = value.reason
            return None
        self.done = True
        return to_canonical(value)

    def _shell(self) -> bytes | None:
        from pi_workflows_nb.workflows.shell import run_shell

        node = cast("Shell", self.node)
        command = node.exec if isinstance(node.exec, Mapping) else self.callbacks.invoke(node.exec, self.context)
        if isinstance(command, Rejected):
            return self._outcome(command)
        clock = self.callbacks.time.now
        remaining = None if self.deadline is None else max(0.0, self.deadline - clock())
        result = run_shell(
            command,
            timeout=remaining,
            cancelled=self.context.cancelled,
            on_start=self._entered,
            clock=clock,
            readers=self._readers(node.updates),
        )
        self.done = True
        return to_canonical(result if node.parse is None else self.callbacks.invoke(node.parse, result))

    def _readers(self, updates: ShellUpdates | None) -> dict[str, LineReader]:
        from pi_workflows_nb.workflows.shell_updates import LineReader, updates_of

        if updates is None:
            return {}
        parse_line, publish = updates.parse_line, self.context.publish_update

        def use(line: str) -> None:
            for kind, key, data in updates_of(self.callbacks.invoke(parse_line, line)):
                publish(kind, key, data)

        return {stream: LineReader(stream, use) for stream in updates.streams}

    def _entered(self, *_: object) -> None:
        self.begun = True

    def _agent(self) -> bytes:
        from pi_workflows_nb.workflows.inputs import accept_value

        node, context = cast("Agent", self.node), self.context
        prompt = self._prompt()
        if self.executor is None:
            raise SessionRequiredError(
                f"node {context.node_id!r} asks an agent, and this run has none: start it with agent=, a function that "
                "takes the request and returns the answer"
            )
        if context.cancelled.is_set():
            raise TimeoutError("the time was over before the agent was asked")
        request = AgentRequest(
            prompt, node.expected_output, self._choices(), context.node_id, context.attempt_number, context.input
        )
        answer = self.callbacks.invoke(getattr(self.executor, "run", self.executor), request)
        return to_canonical(accept_value(node, answer))

    def contract(self) -> bytes:
        """What a session is asked in place of an executor: who asks, the prompt, and what an answer looks like."""
        if isinstance(self.node, HumanDecision):
            return self._human_decision()
        node, context = cast("Agent", self.node), self.context
        return to_canonical(
            {
                "attemptId": context.attempt_id,
                "attemptNumber": context.attempt_number,
                "choices": self._choices(),
                "expectedOutput": node.expected_output,
                "nodeId": context.node_id,
                "prompt": self._prompt(),
                "schema": CONTRACT,
            }
        )

    def _human_decision(self) -> bytes:
        node = cast("HumanDecision", self.node)
        return to_canonical(node.asked(self.callbacks.invoke(cast("Callback", node.fn), self.context)))

    def _choices(self) -> list[str] | None:
        return list(self.node.choices) if isinstance(self.node, Decision) else None

    def _prompt(self) -> str:
        prompt = self.callbacks.invoke(cast("Callback", self.node.fn), self.context)
        if not isinstance(prompt, str):
            raise WorkflowDefinitionError(
                f"node {self.context.node_id!r}: its function must return the prompt, a text, not"
                f" {type(prompt).__name__}"
            )
        return prompt

    def _checkpoint(self) -> bytes:
        node = cast("Checkpoint", self.node)
        return b"null" if node.fn is None else to_canonical(self.callbacks.invoke(node.fn, self.context))


_PROGRAMS: Final[dict[str, Any]] = {
    "compute": Attempt._compute,
    "settings_route": Attempt._compute,
    "action": Attempt._action,
    "shell": Attempt._shell,
    "agent": Attempt._agent,
    "decision": Attempt._agent,
    "checkpoint": Attempt._checkpoint,
    "human_decision": Attempt._human_decision,
}
