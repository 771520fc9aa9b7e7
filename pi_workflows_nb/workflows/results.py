"""How a run ended, for whoever called the engine."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pi_workflows_nb.workflows.history import History, StoredValue
from pi_workflows_nb.workflows.store import EndStatus


@dataclass(frozen=True)
class RunResult:
    """How a run ended: `status` is completed, failed, timed_out, cancelled or waiting (at the checkpoint `detail`).

    `error` is a text, None after a run that completed or waits; `raised` is what the node raised that the run failed
    by, where that was it.
    """

    run_id: str
    status: EndStatus
    error: str | None
    detail: str | None
    _output: bytes | None = field(repr=False)
    _history: History = field(repr=False)
    raised: BaseException | None = field(default=None, repr=False, compare=False)

    @property
    def output(self) -> Any:
        """The last node's output, or what the checkpoint asks with; a fresh copy each time."""
        return None if self._output is None else StoredValue(self._output).copy()

    @property
    def steps(self) -> list[dict[str, Any]]:
        """The result records of all steps in order, each as in `ctx.results`."""
        return [step.record() for step in self._history.steps]
