"""Questions about a source that only its own code can answer: one line in, one line out, and the process ends.

`describe` gives what must be known of a workflow before a run of it is committed; `validate` what a node makes of a
value that was submitted to it. What is asked of a resource manager stands in `managers`.
"""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any, Final

from pi_workflows_nb.runner import managers
from pi_workflows_nb.wire import canonical_json
from pi_workflows_nb.wire.errors import NotFoundError, PiWorkflowsError, ProtocolError, SourceError
from pi_workflows_nb.workflows.compiled import Compiled, compile_workflow
from pi_workflows_nb.workflows.definition import Workflow
from pi_workflows_nb.workflows.finding import Discovered, Stored
from pi_workflows_nb.workflows.human_decisions import asks_session
from pi_workflows_nb.workflows.inputs import accept_value, make_title, normalize_input
from pi_workflows_nb.workflows.settings import changed, initial_settings
from pi_workflows_nb.workflows.snapshot import definition_digest, definition_snapshot
from pi_workflows_nb.workflows.sources import LoadedSource, load
from pi_workflows_nb.workflows.tracebacks import error_text

MAX_QUESTION_BYTES: Final = 256 << 20
READY: Final = b'{"ready":true}'


def serve(channel: socket.socket) -> None:
    """Say that this process is there, read one question and answer it.

    `{"op": "describe", "source", "name", "input"}` gives snapshot, digest (hex), input, title, mode and name;
    `{"op": "validate", "source", "nodeId", "value"}` gives the value to keep. An answer is `{"ok": true, "result"}` or
    `{"ok": false, "error", "kind"}`, where kind names a class of this project's errors.
    """
    with channel.makefile("rwb") as stream:
        stream.write(READY + b"\n")
        stream.flush()
        line = stream.readline(MAX_QUESTION_BYTES)
        stream.write(canonical_json.encode(answer(line)) + b"\n")


def answer(line: bytes) -> dict[str, Any]:
    """Give the answer to one question."""
    try:
        question = canonical_json.decode(line)
        operation = _OPERATIONS.get(question["op"])
        if operation is None:
            raise ProtocolError(f"there is no question {question['op']!r}")
        return {"ok": True, "result": operation(question)}
    except PiWorkflowsError as error:
        return {"ok": False, "error": str(error), "kind": type(error).__name__}
    except BaseException as error:
        return {"ok": False, "error": error_text(error), "kind": SourceError.__name__}


def needs_session(workflow: Compiled, source: LoadedSource) -> bool:
    """Whether a run of the workflow needs a session: it asks a person, or an agent where none came with the source."""
    return asks_session(workflow, has_agent=source.agent is not None)


def _describe(question: dict[str, Any]) -> dict[str, Any]:
    source = load(_inline(question["source"]), name=question.get("name"))
    workflow = _workflow(source)
    folder = question.get("folder")
    find = Discovered(Path.cwd(), question.get("cells"), folder=None if folder is None else Path(folder))
    graph = compile_workflow(workflow, find)
    snapshot = definition_snapshot(graph)
    given = normalize_input(workflow, _inline(question.get("input")))
    return {
        "digest": definition_digest(snapshot).hex(),
        "input": given,
        "mode": "interactive" if needs_session(graph, source) else "headless",
        "mountedSources": graph.mounted_sources(),
        "mounts": find.mounts,
        "name": workflow.name,
        "settings": _settings(workflow, given),
        "snapshot": snapshot,
        "title": make_title(workflow, given),
    }


def _settings(workflow: Workflow, given: Any) -> dict[str, Any] | None:
    """What the settings of a run begin as, under `value`; None where the workflow declares none."""
    if workflow.settings is None:
        return None
    initial = initial_settings(workflow.settings, given, f"workflow {workflow.name!r}")
    return {"value": canonical_json.decode(initial)}


def _change_settings(question: dict[str, Any]) -> dict[str, Any]:
    frozen, mount = _inline(question["source"]), question["mountPath"]
    workflow = _workflow(load(frozen, name=question.get("name")))
    if mount:
        workflow = compile_workflow(workflow, Stored(frozen), checked=False).mounts[mount].workflow
    if workflow.settings is None:
        raise NotFoundError(f"workflow {workflow.name!r} declares no settings")
    value = changed(workflow.settings, question["before"], question["after"], "the change of settings")
    return {"value": canonical_json.decode(value)}


def _validate(question: dict[str, Any]) -> dict[str, Any]:
    frozen = _inline(question["source"])
    workflow = compile_workflow(_workflow(load(frozen, name=question.get("name"))), Stored(frozen), checked=False)
    node = workflow.nodes.get(question["nodeId"])
    if node is None:
        raise NotFoundError(f"workflow {workflow.name!r} has no node {question['nodeId']!r}")
    return {"value": accept_value(node, _inline(question["value"]))}


def _workflow(source: LoadedSource) -> Workflow:
    if source.workflow is None:
        raise SourceError("the source holds no workflow")
    return source.workflow


def _inline(value: Any) -> Any:
    """A value as it is, or as the `{"inline": …}` of the other frames."""
    return value["inline"] if isinstance(value, dict) and set(value) == {"inline"} else value


_OPERATIONS: Final = {
    "changeSettings": _change_settings,
    "describe": _describe,
    "describeManager": managers.describe,
    "initialStatus": managers.initial_status,
    "validate": _validate,
}
