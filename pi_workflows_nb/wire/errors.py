"""Every error a person can cause, as one small tree.

An error's text says what was wrong, where, and what to do. Whoever wants to catch everything of this project catches
`PiWorkflowsError`. The classes also derive from the built-in kind a reader would expect, so that `except ValueError`
around a definition works.
"""

from __future__ import annotations

from typing import Any


class PiWorkflowsError(Exception):
    """Base of all errors of this project."""


class NotJsonError(PiWorkflowsError, ValueError):
    """A value that canonical JSON cannot hold.

    `path` leads to it from the root, as `$.rows[3].when`.
    """

    def __init__(self, message: str, path: str = "$") -> None:
        super().__init__(f"{path}: {message}")
        self.path = path


class ProtocolError(PiWorkflowsError, ValueError):
    """A frame that is too large, not canonical, or not of the protocol."""


class WorkflowDefinitionError(PiWorkflowsError, ValueError):
    """A workflow that cannot be run as it is written; the text names the node or edge."""


class ResourceManagerDefinitionError(PiWorkflowsError, ValueError):
    """A resource manager that cannot be used as it is written."""


class WorkflowInputError(PiWorkflowsError, ValueError):
    """An input or an answer that the workflow's own validation refuses."""


class SourceError(PiWorkflowsError):
    """A workflow's source that cannot be found, frozen, trusted or loaded."""


class RoutingError(PiWorkflowsError):
    """A switch met a value without a case."""


class StateFileError(PiWorkflowsError):
    """A file that is not, or not safely, a state file of this system. Nothing was changed."""


class StateUnavailableError(PiWorkflowsError):
    """The file could not be written just now (disk full, folder gone); the same call may succeed later."""


class ServerRunningError(PiWorkflowsError):
    """Another live process serves the file."""


class ServerStoppedError(PiWorkflowsError):
    """The server is not running any more; `pw.start()` starts one."""


class StaleResourceError(PiWorkflowsError):
    """An expected revision is not the present one."""


class StaleClaimError(PiWorkflowsError):
    """A claim that is no longer the live one.

    `reason` is `missingAuthority`, `expired`, `ownerChanged`, `tokenChanged` or `generationChanged`.
    """

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class BlobConflictError(PiWorkflowsError):
    """A blob whose stored row does not hold the bytes that its digest promises."""


class ConflictError(PiWorkflowsError):
    """A request under a key that stands for another request, or against the state of its subject."""


class EffectRequestConflictError(ConflictError):
    """An effect's key was used before with another request."""


class WorkflowRequestConflictError(ConflictError):
    """A child workflow's key was used before with another workflow or input."""


class ManagedResourceConflictError(ConflictError):
    """A managed resource is not at the expected resource version any more."""


class ClaimTargetError(PiWorkflowsError):
    """A claim of one managed resource or run was presented for another."""


class ManagedResourceError(PiWorkflowsError, ValueError):
    """A name, spec, status, payload or list of finalizers that a managed resource may not have."""


class ProjectNotRegisteredError(PiWorkflowsError):
    """Something that only the store of one project can do was asked of the store of all projects."""


class ReadOnlyStoreError(PiWorkflowsError):
    """A change was asked of a store that was opened for reading."""


class NotFoundError(PiWorkflowsError, LookupError):
    """No run, effect or workflow of that name or id."""


class ManagedResourceNotFoundError(NotFoundError):
    """No managed resource of that manager and key in the project."""


class QueryError(PiWorkflowsError, ValueError):
    """A query or a filter that the state file cannot answer; the text names what it could be."""


class UpdateError(PiWorkflowsError, ValueError):
    """An update that a node may not publish: its type, key, size or rate."""


class SettingsError(PiWorkflowsError, ValueError):
    """A change of settings that is malformed, too large, does not fit, or is not allowed; nothing was changed."""


class SettingsChangedError(PiWorkflowsError):
    """Inside a runner: settings that a node routed on were changed before its output was stored."""


class SessionRequiredError(PiWorkflowsError):
    """A run that needs the session of a notebook."""


class CommandFailed(PiWorkflowsError):
    """A command of a shell node that could not be started, was cancelled, or ended otherwise than well.

    `result` is what is known of it (stdout, stderr, exitCode, signal, …), None when it never ran.
    """

    def __init__(self, message: str, result: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.result = result


class RunFailed(PiWorkflowsError):
    """The run failed or timed out; the text carries the traceback of the node's code."""


class RunCancelled(PiWorkflowsError):
    """The run was cancelled."""


class NotFinished(PiWorkflowsError):
    """The run has no output yet."""


class WaitTimeout(PiWorkflowsError, TimeoutError):
    """The time given to `wait` ran out; the run goes on."""


class StoppedByServer(PiWorkflowsError):
    """Inside a runner: its claim is gone and it must end without another word."""
