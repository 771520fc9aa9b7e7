"""Durable workflows for people who work in notebooks.

Importing this package is cheap and starts nothing: each name is fetched from its room when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .notebook.doctor import doctor as doctor
    from .notebook.magics import load_ipython_extension as load_ipython_extension
    from .notebook.open_state import open_state as open_state
    from .notebook.running_here import run_here as run_here
    from .notebook.starting import start as start
    from .notebook.workflow_graph import Findings as Findings
    from .notebook.workflow_graph import WorkflowGraph as WorkflowGraph
    from .notebook.workflow_graph import check_workflow as check_workflow
    from .resource_managers.definition import ResourceManager as ResourceManager
    from .resource_managers.definition import applied as applied
    from .resource_managers.definition import cannot_tell as cannot_tell
    from .resource_managers.definition import condition_false as condition_false
    from .resource_managers.definition import condition_true as condition_true
    from .resource_managers.definition import condition_unknown as condition_unknown
    from .resource_managers.definition import not_applied as not_applied
    from .wire.errors import CommandFailed as CommandFailed
    from .wire.errors import ConflictError as ConflictError
    from .wire.errors import ManagedResourceError as ManagedResourceError
    from .wire.errors import ManagedResourceNotFoundError as ManagedResourceNotFoundError
    from .wire.errors import NotFinished as NotFinished
    from .wire.errors import NotFoundError as NotFoundError
    from .wire.errors import NotJsonError as NotJsonError
    from .wire.errors import PiWorkflowsError as PiWorkflowsError
    from .wire.errors import ResourceManagerDefinitionError as ResourceManagerDefinitionError
    from .wire.errors import RunCancelled as RunCancelled
    from .wire.errors import RunFailed as RunFailed
    from .wire.errors import ServerRunningError as ServerRunningError
    from .wire.errors import ServerStoppedError as ServerStoppedError
    from .wire.errors import SessionRequiredError as SessionRequiredError
    from .wire.errors import SettingsError as SettingsError
    from .wire.errors import SourceError as SourceError
    from .wire.errors import StateFileError as StateFileError
    from .wire.errors import StateUnavailableError as StateUnavailableError
    from .wire.errors import UpdateError as UpdateError
    from .wire.errors import WaitTimeout as WaitTimeout
    from .wire.errors import WorkflowDefinitionError as WorkflowDefinitionError
    from .wire.errors import WorkflowInputError as WorkflowInputError
    from .workflows.command_batch import run_command_batch as run_command_batch
    from .workflows.composition import exit as exit  # noqa: A004 - it reads as what it is, `pw.exit`
    from .workflows.composition import include as include
    from .workflows.context import Context as Context
    from .workflows.context import rejected as rejected
    from .workflows.definition import Workflow as Workflow
    from .workflows.definition import define_workflow as define_workflow
    from .workflows.edges import decision_edge as decision_edge
    from .workflows.edges import edge as edge
    from .workflows.edges import human_decision_edge as human_decision_edge
    from .workflows.edges import switch as switch
    from .workflows.effects import idempotent_effect as idempotent_effect
    from .workflows.effects import manual_effect as manual_effect
    from .workflows.engine import WorkflowEngine as WorkflowEngine
    from .workflows.human_decisions import after as after
    from .workflows.human_decisions import choice as choice
    from .workflows.human_decisions import human_choices as human_choices
    from .workflows.human_decisions import human_decision as human_decision
    from .workflows.human_decisions import text_input as text_input
    from .workflows.local_store import LocalStore as LocalStore
    from .workflows.nodes import action as action
    from .workflows.nodes import agent as agent
    from .workflows.nodes import checkpoint as checkpoint
    from .workflows.nodes import compute as compute
    from .workflows.nodes import decision as decision
    from .workflows.nodes import settings_route as settings_route
    from .workflows.nodes import shell as shell
    from .workflows.progress import PROGRESS as PROGRESS
    from .workflows.results import RunResult as RunResult
    from .workflows.retries import retry as retry
    from .workflows.settings import allow_settings_path as allow_settings_path
    from .workflows.settings import workflow_settings as workflow_settings
    from .workflows.shell_updates import shell_updates as shell_updates
    from .workflows.waiting_nodes import sleep as sleep
    from .workflows.waiting_nodes import wait_event as wait_event

_ROOMS = {
    "notebook.doctor": ("doctor",),
    "notebook.magics": ("load_ipython_extension",),
    "notebook.open_state": ("open_state",),
    "notebook.running_here": ("run_here",),
    "notebook.starting": ("start",),
    "notebook.workflow_graph": ("Findings", "WorkflowGraph", "check_workflow"),
    "resource_managers.definition": (
        "ResourceManager",
        "applied",
        "cannot_tell",
        "condition_false",
        "condition_true",
        "condition_unknown",
        "not_applied",
    ),
    "wire.errors": (
        "CommandFailed",
        "ConflictError",
        "ManagedResourceError",
        "ManagedResourceNotFoundError",
        "NotFinished",
        "NotFoundError",
        "NotJsonError",
        "PiWorkflowsError",
        "ResourceManagerDefinitionError",
        "RunCancelled",
        "RunFailed",
        "ServerRunningError",
        "ServerStoppedError",
        "SessionRequiredError",
        "SettingsError",
        "SourceError",
        "StateFileError",
        "StateUnavailableError",
        "UpdateError",
        "WaitTimeout",
        "WorkflowDefinitionError",
        "WorkflowInputError",
    ),
    "workflows.command_batch": ("run_command_batch",),
    "workflows.composition": ("exit", "include"),
    "workflows.context": ("Context", "rejected"),
    "workflows.definition": ("Workflow", "define_workflow"),
    "workflows.edges": ("decision_edge", "edge", "human_decision_edge", "switch"),
    "workflows.effects": ("idempotent_effect", "manual_effect"),
    "workflows.engine": ("WorkflowEngine",),
    "workflows.human_decisions": ("after", "choice", "human_choices", "human_decision", "text_input"),
    "workflows.local_store": ("LocalStore",),
    "workflows.waiting_nodes": ("sleep", "wait_event"),
    "workflows.nodes": ("action", "agent", "checkpoint", "compute", "decision", "settings_route", "shell"),
    "workflows.progress": ("PROGRESS",),
    "workflows.results": ("RunResult",),
    "workflows.retries": ("retry",),
    "workflows.settings": ("allow_settings_path", "workflow_settings"),
    "workflows.shell_updates": ("shell_updates",),
}
_ROOM_OF = {name: room for room, names in _ROOMS.items() for name in names}

__all__ = sorted(_ROOM_OF)  # noqa: PLE0605 - one list of names, not two


def __getattr__(name: str) -> Any:
    room = _ROOM_OF.get(name)
    if room is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{room}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
