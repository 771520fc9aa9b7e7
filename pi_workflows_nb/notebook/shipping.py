"""What a kernel sends along with a resource: its manager, frozen, and the workflows of its cells that it may start."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pi_workflows_nb.resource_managers.definition import ResourceManager
from pi_workflows_nb.wire.errors import ResourceManagerDefinitionError
from pi_workflows_nb.workflows import snapshot, sources, validation
from pi_workflows_nb.workflows.definition import Workflow
from pi_workflows_nb.workflows.discovery import text_digest

from . import cells

if TYPE_CHECKING:
    from collections.abc import Iterable


def definition_of(
    manager: ResourceManager | str, workflows: Iterable[Workflow], project: Path, key: bytes
) -> dict[str, Any] | None:
    """`{"frozen", "identity", "workflows"}` of a manager; frozen is None where the server finds it by its name.

    None altogether where nothing is to be sent. `SourceError` for what cannot be shipped.
    """
    frozen, identity = None, {"ref": "", "revision": "", "type": "file"}
    text = cells.manager_text(manager)
    if text is not None:
        name = manager if isinstance(manager, str) else manager.name
        frozen = sources.sign(sources.freeze(None, text=text), key)
        identity = {"ref": f"cell:{name}", "revision": text_digest(text), "type": "file"}
    elif isinstance(manager, ResourceManager):
        labels = {id(manager.function): "the reconcile function", id(manager.initial_status): "the initial status"}
        frozen = sources.sign(sources.freeze_object(manager, labels, project=project), key)
        digest = text_digest(frozen["text"] or frozen["pickle"])
        identity = {"ref": f"inline:{manager.name}", "revision": digest, "type": "file"}
    sent = {name: _cell(name, text, key) for name, text in cells.workflow_texts().items()}
    own = manager.workflows if isinstance(manager, ResourceManager) else ()
    for workflow in (*own, *workflows):
        sent[_checked(workflow).name] = _workflow(workflow, project, key)
    if frozen is None and not sent:
        return None
    return {"frozen": frozen, "identity": identity, "workflows": sent}


def _checked(workflow: object) -> Workflow:
    if not isinstance(workflow, Workflow):
        raise ResourceManagerDefinitionError(f"workflows= holds workflows, not {workflow!r}")
    return workflow


def _cell(name: str, text: str, key: bytes) -> dict[str, Any]:
    identity = {"ref": f"cell:{name}", "revision": text_digest(text), "type": "file"}
    return {"frozen": sources.sign(sources.freeze(None, text=text), key), "source": identity}


def _workflow(workflow: Workflow, project: Path, key: bytes) -> dict[str, Any]:
    text = cells.text_of(workflow.name)
    if text is not None and cells.made(workflow):
        return _cell(workflow.name, text, key)
    validation.validate(workflow)
    snapshot.definition_snapshot(workflow)
    frozen = sources.sign(sources.freeze(workflow, project=project), key)
    return {"frozen": frozen, "source": sources.source_identity(workflow, frozen)}
