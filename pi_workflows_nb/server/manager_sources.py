"""The sources of resource managers: where they are found, those from cells that were kept, and what is known of them.

A manager from a cell is kept beside the state file, signed, when a resource of it is applied, so that its passes go on
under the next server; so are the workflows of the kernel that it may start. One from a file is read at each pass.
Nothing here runs a line of what it finds: that is asked of a child.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..resource_managers.builtin import MANAGERS
from ..resource_managers.definition import NAME, PASS_SECONDS
from ..wire import canonical_json, identities
from ..wire.errors import NotFoundError, PiWorkflowsError, SourceError
from ..workflows import discovery, sources
from . import inspecting

if TYPE_CHECKING:
    from .server import WorkflowServer


@dataclass(frozen=True)
class ManagerSource:
    """The frozen source of a manager; `filename` for its tracebacks, `workflows` of the kernel that it came from.

    A workflow is `{"frozen": …, "source": identity}`.
    """

    name: str
    frozen: dict[str, Any]
    identity: dict[str, str]
    filename: str | None = None
    workflows: dict[str, Any] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """What two sources of the same code have in common (SHA-256, hex)."""
        return identities.sha256_hex(canonical_json.encode([self.name, self.frozen["text"], self.frozen["pickle"]]))


@dataclass(frozen=True)
class Facts:
    """What a manager's own code says of it: limits, and its initial status as `{"value": …}` if it is one value."""

    timeout_ms: int = int(PASS_SECONDS * 1000)
    concurrency: int | None = None
    initial: dict[str, Any] | None = None


class ManagerSources:
    """Finds the managers of every project of a server, and remembers what was asked of them."""

    def __init__(self, server: WorkflowServer) -> None:
        self._server = server
        self._facts: dict[str, Facts] = {}
        self._kept: dict[Path, tuple[tuple[int, int, int], dict[str, Any]]] = {}
        self._environments: dict[tuple[str, str], Mapping[str, str]] = {}

    # -- where they are ------------------------------------------------------------------------------------------------

    def applied(self, name: str, project: str, kept: dict[str, Any] | None) -> ManagerSource:
        """The source that a resource is applied with: what the client sent (`kept`, checked here), or what is found.

        A manager of cells that are gone is the one that was kept, unless a file of its name is there by now.
        `NotFoundError` where there is none, `SourceError` for one that this user has not made.
        """
        if kept is not None and kept["frozen"] is not None:
            if not sources.verify_mac(kept["frozen"], self._server.signing_key):
                raise SourceError("the resource manager was not frozen by this user on this machine; it is not loaded")
            return ManagerSource(name, kept["frozen"], kept["identity"], None, kept["workflows"])
        sent = {} if kept is None else kept["workflows"]
        try:
            return _with(self._discovered(name, Path(project)), sent)
        except NotFoundError:
            before = self._read(self._path(identities.project_id(project), name)) if NAME.fullmatch(name) else None
            if before is None or before["frozen"] is None:
                raise
            return ManagerSource(name, before["frozen"], before["identity"], None, {**before["workflows"], **sent})

    def resolve(self, name: str, project_id: str, project: str) -> ManagerSource | None:
        """The source that a pass is made with; None where there is none, or none that may be loaded."""
        kept = self._read(self._path(project_id, name)) if NAME.fullmatch(name) else None
        if kept is not None and kept["frozen"] is not None:
            return ManagerSource(name, kept["frozen"], kept["identity"], None, kept["workflows"])
        try:
            found = self._discovered(name, Path(project))
        except PiWorkflowsError:
            return None
        return _with(found, {} if kept is None else kept["workflows"])

    def _discovered(self, name: str, project: Path) -> ManagerSource:
        if not NAME.fullmatch(name):
            raise NotFoundError(f"there is no resource manager {name!r}: a name has small letters, digits and -")
        found = discovery.find(name, project, kind=MANAGERS)
        frozen = sources.freeze(None, text=found.text)
        return ManagerSource(name, frozen, found.identity, None if found.path is None else str(found.path))

    def keep(self, source: ManagerSource, project_id: str) -> None:
        """Keep a source that is found nowhere else, and the workflows that came with it; on disk when this returns.

        Workflows that came with an earlier source of the name stay. `OSError` when it cannot be written.
        """
        path = self._path(project_id, source.name)
        before = self._read(path)
        elsewhere = source.filename is not None or source.identity["type"] == "builtin"
        workflows = {**({} if before is None else before["workflows"]), **source.workflows}
        kept = {
            "frozen": None if elsewhere else source.frozen,
            "identity": source.identity,
            "workflows": workflows,
        }
        if before == kept or (before is None and elsewhere and not workflows):
            return
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        whole = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
        descriptor = os.open(whole, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(canonical_json.encode({**kept, "mac": self._mac(kept)}))
                file.flush()
                os.fsync(file.fileno())
            whole.replace(path)
        except BaseException:
            whole.unlink(missing_ok=True)
            raise

    def _path(self, project_id: str, name: str) -> Path:
        return self._server.folder / "managers" / project_id / f"{name}.json"

    def _read(self, path: Path) -> dict[str, Any] | None:
        """What was kept at a path; None where there is nothing, or nothing that this user has kept."""
        try:
            status = path.stat()
            stamp = status.st_ino, status.st_mtime_ns, status.st_size
            known = self._kept.get(path)
            if known is not None and known[0] == stamp:
                return known[1]
            found = canonical_json.decode(path.read_bytes())
            mac = found.pop("mac")
        except (OSError, PiWorkflowsError, LookupError, AttributeError):
            return None
        if not isinstance(mac, str) or not hmac.compare_digest(mac, self._mac(found)):
            return None
        kept: dict[str, Any] = found
        self._kept[path] = stamp, kept
        return kept

    def _mac(self, kept: dict[str, Any]) -> str:
        return hmac.new(self._server.signing_key, canonical_json.encode(kept), hashlib.sha256).hexdigest()

    # -- what they say of themselves -----------------------------------------------------------------------------------

    def known_facts(self, source: ManagerSource) -> Facts | None:
        """What was asked of a source before."""
        return self._facts.get(source.digest)

    async def facts(self, source: ManagerSource, project_id: str, folder: str) -> Facts:
        """What a manager's code says of it, asked of a child once for each source. `SourceError` and its like."""
        known = self.known_facts(source)
        if known is not None:
            return known
        said = await self._ask(source, project_id, folder, {"op": "describeManager"})
        facts = self._facts[source.digest] = Facts(said["timeoutMs"], said["concurrency"], said["initial"])
        return facts

    def assume(self, source: ManagerSource) -> None:
        """Take the usual for a source whose code could not say: its passes tell why."""
        self._facts.setdefault(source.digest, Facts())

    async def initial_status(self, source: ManagerSource, project_id: str, folder: str, spec: bytes) -> Any:
        """The manager's status of a new resource with this spec."""
        facts = await self.facts(source, project_id, folder)
        if facts.initial is not None:
            return facts.initial["value"]
        question = {"op": "initialStatus", "spec": canonical_json.decode(spec)}
        return (await self._ask(source, project_id, folder, question))["value"]

    async def _ask(
        self, source: ManagerSource, project_id: str, folder: str, question: dict[str, Any]
    ) -> dict[str, Any]:
        asked = {**question, "filename": source.filename, "name": source.name, "source": source.frozen}
        return await inspecting.ask(self._server, asked, self.environment(project_id, source.name), folder)

    # -- environments --------------------------------------------------------------------------------------------------

    def keep_environment(self, project_id: str, name: str, variables: Mapping[str, str] | None) -> None:
        """Let the passes of a manager see the variables of who applied a resource of it last; in memory only."""
        if variables is not None:
            self._environments[project_id, name] = variables

    def environment(self, project_id: str, name: str) -> Mapping[str, str] | None:
        """The variables that passes of a manager see; None for the server's own."""
        return self._environments.get((project_id, name))


def _with(source: ManagerSource, workflows: dict[str, Any]) -> ManagerSource:
    return ManagerSource(source.name, source.frozen, source.identity, source.filename, workflows)


NO_FACTS: Final = Facts()
