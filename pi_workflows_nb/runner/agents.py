"""Who answers agent and decision nodes in a run without a session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from pi_workflows_nb.workflows.sources import LoadedSource
    from pi_workflows_nb.workflows.store import AgentRequest


class CallableAgent:
    """The function that was shipped with the run; it takes the request and gives the answer, sync or async."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    @property
    def run(self) -> Callable[[AgentRequest], Any]:
        """The function itself, so that the engine sees whether it is async."""
        return self._function


def executor_of(source: LoadedSource) -> CallableAgent | None:
    """Give the executor of a loaded source; None where it holds none, and an agent node then says so."""
    return None if source.agent is None else CallableAgent(source.agent)
