"""How workflows that are included by name or path are found: among files and cells, or in a run's own stored source."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pi_workflows_nb.wire.errors import SourceError
from pi_workflows_nb.workflows import discovery
from pi_workflows_nb.workflows.compiled import Found
from pi_workflows_nb.workflows.definition import Workflow
from pi_workflows_nb.workflows.sources import load_text


class Discovered:
    """Finds them where workflows are kept, and runs their text; `mounts` is what a frozen source keeps of them.

    Takes the project's folder, the texts of the session's cells by name, and the folder of the user's own workflows.
    """

    def __init__(
        self,
        project: Path,
        cells: Mapping[str, str] | None = None,
        *,
        folder: Path | None = None,
        home: Path | None = None,
    ) -> None:
        self.mounts: dict[str, dict[str, str]] = {}
        self._project = project
        self._cells = cells
        self._folder = folder
        self._home = home
        self._loaded: dict[str, Workflow] = {}

    def __call__(self, mounted: str, reference: str, folder: Path | None) -> Found:
        """Find a child; errors as `discovery.find` and `load_text`, with the mount before them."""
        begin = (folder or self._folder or self._project) if reference.startswith(".") else self._project
        found = discovery.find(reference, begin, self._cells, home=self._home)
        workflow = self._loaded.get(found.ref)
        if workflow is None:
            workflow = load_text(found.text, name=found.name, filename=None if found.path is None else str(found.path))
            self._loaded[found.ref] = workflow
        self.mounts[mounted] = {**found.identity, "name": found.name, "text": found.text}
        return Found(workflow, found.identity, None if found.path is None else found.path.parent)


class Stored:
    """Finds them in a frozen source, whatever became of their files since."""

    def __init__(self, frozen: Mapping[str, Any]) -> None:
        self._mounts: dict[str, dict[str, str]] = frozen.get("mounts") or {}
        self._loaded: dict[str, Workflow] = {}

    def __call__(self, mounted: str, reference: str, folder: Path | None) -> Found:
        """Give the child of a mount; SourceError when the source holds none."""
        del folder
        kept = self._mounts.get(mounted)
        if kept is None:
            raise SourceError(f"the stored source holds no workflow {reference!r} for {mounted!r}")
        text, path = kept["text"], Path(kept["ref"])
        workflow = self._loaded.get(kept["ref"])
        if workflow is None:
            workflow = load_text(text, name=kept["name"], filename=str(path) if path.is_absolute() else None)
            self._loaded[kept["ref"]] = workflow
        return Found(workflow, {key: kept[key] for key in ("type", "ref", "revision")})
