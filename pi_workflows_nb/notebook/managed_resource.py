"""One managed resource, as an object in a cell: what is wanted, what was observed, and what a person can ask of it."""

from __future__ import annotations

import time
from html import escape
from typing import TYPE_CHECKING, Any, Final

from pi_workflows_nb.state import managed_resources
from pi_workflows_nb.wire.errors import ManagedResourceNotFoundError, PiWorkflowsError, QueryError, WaitTimeout

from . import representations, wording
from .filters import Filters
from .stored import message

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas as pd

    from pi_workflows_nb.wire.resource_status import Condition, Status

    from .link import Link

LOOK_SECONDS: Final = 0.05
_QUEUE: Final = """
    SELECT q.available_at, q.consecutive_errors, x.content, l.expires_at FROM controller_resources c
    JOIN leases l USING (resource_id) LEFT JOIN controller_queue q USING (controller_resource_id)
    LEFT JOIN blobs x ON x.blob_hash = q.last_error_hash WHERE c.uid = ?
"""
_EFFECTS: Final = """
    SELECT e.resource_id FROM effects e JOIN controller_resources c ON c.resource_id = e.source_resource_id
    WHERE c.uid = ?
"""


class ManagedResource:
    """A managed resource. Its properties are read anew each time; `ManagedResourceNotFoundError` once it is gone.

    It stands for this life of its key: a resource of the same key that is made later is another one.
    """

    def __init__(self, link: Link, project: str, uid: str, resource_manager: str, key: str) -> None:
        self.uid = uid
        self.resource_manager = resource_manager
        self.key = key
        self._link = link
        self._project = project

    # -- what it is -----------------------------------------------------------------------------------------------

    def _read(self) -> managed_resources.ManagedResource:
        with self._link.reader.snapshot() as connection:
            found = managed_resources.get_by_uid(connection, None, self.uid)
        if found is None:
            raise ManagedResourceNotFoundError(
                f"the managed resource {self.key!r} of {self.resource_manager!r} is gone (uid {self.uid})"
            )
        return found

    @property
    def exists(self) -> bool:
        """Whether it is still there."""
        try:
            self._read()
        except ManagedResourceNotFoundError:
            return False
        return True

    @property
    def spec(self) -> Any:
        """What is wanted, decoded JSON."""
        return self._read().spec

    @property
    def status(self) -> Status:
        """What was observed; `resource_manager_status` in it is the manager's own."""
        return self._read().status

    @property
    def conditions(self) -> dict[str, Condition]:
        """The conditions by their types, each with status (True, False or "unknown"), reason, message and times."""
        return {condition.type: condition for condition in self._read().status.conditions}

    @property
    def generation(self) -> int:
        """Grows with each change of the spec."""
        return self._read().generation

    @property
    def resource_version(self) -> int:
        """Grows with each change of any kind."""
        return self._read().resource_version

    @property
    def deletion_timestamp(self) -> pd.Timestamp | None:
        """Since when somebody wants it gone; None while nobody does."""
        import pandas as pd

        since = self._read().deletion_timestamp
        return None if since is None else pd.Timestamp(since, unit="ms", tz="UTC")

    @property
    def finalizers(self) -> tuple[str, ...]:
        """What must be cleaned up before it is gone."""
        return self._read().finalizers

    # -- waiting --------------------------------------------------------------------------------------------------

    def wait_for(self, condition: str, timeout: float | None = None) -> ManagedResource:
        """Wait until a condition is true for the present spec, and give the resource.

        `timeout` is in seconds. `WaitTimeout` says how the resource stands, `ServerStoppedError` that nobody works on
        it any more, `ManagedResourceNotFoundError` that it is gone; can be interrupted.
        """
        if not condition:
            raise QueryError(f'condition={condition!r}: it is the type of a condition, such as "Ready"')

        def holds() -> bool:
            found = self._read()
            held = next((one for one in found.status.conditions if one.type == condition), None)
            return (
                held is not None
                and held.status is True
                and (held.observed_generation is None or held.observed_generation >= found.generation)
            )

        self._wait(holds, f"is not {condition}", timeout)
        return self

    def wait_settled(self, timeout: float | None = None) -> ManagedResource:
        """Wait until its manager has seen the present spec and nothing is to do; errors as `wait_for`."""

        def idle() -> bool:
            found = self._read()
            row = self._link.reader.row(_QUEUE, (self.uid,))
            resting = row is not None and row[0] is None and row[3] is None
            return resting and found.status.observed_generation >= found.generation

        self._wait(idle, "is not settled", timeout)
        return self

    def wait_deleted(self, timeout: float | None = None) -> None:
        """Wait until it is gone; errors as `wait_for`."""
        self._wait(lambda: not self.exists, "is still there", timeout)

    def _wait(self, over: Callable[[], bool], said: str, timeout: float | None) -> None:
        give_up = None if timeout is None else time.monotonic() + timeout
        while not over():
            connection = self._link.connection
            if connection is not None and not connection.alive:
                self._link.ask("server.status", {})  # says that nobody serves
            if give_up is not None and time.monotonic() > give_up:
                raise WaitTimeout(f"{self.key!r} of {self.resource_manager!r} {said} after {timeout:g} s\n{self!r}")
            time.sleep(LOOK_SECONDS)

    # -- what a person can ask ------------------------------------------------------------------------------------

    def _named(self, **more: Any) -> dict[str, Any]:
        return {"key": self.key, "project": self._project, "resourceManager": self.resource_manager, **more}

    def reconcile(self) -> ManagedResource:
        """Have its manager look at it now. `ServerStoppedError`."""
        self._read()
        self._link.ask("resourceManager.reconcile", self._named())
        return self

    def delete(self, force: bool = False) -> ManagedResource:
        """Ask for its end: it is gone once its manager has settled it and no finalizer stands.

        With `force` it is gone at once, whatever finalizers stand and whoever works on it. What they were to clean up
        stays as it is; the event `resource.deletion_forced` says who did it.
        """
        import warnings

        self._read()
        given = self._link.ask("resourceManager.delete", self._named(force=force)).receipt or {}
        if force and given.get("finalizers"):
            warnings.warn(
                f"{self.key!r} of {self.resource_manager!r} was deleted past its finalizers"
                f" ({', '.join(given['finalizers'])}): what they were to clean up is left as it is",
                stacklevel=2,
            )
        return self

    # -- frames ---------------------------------------------------------------------------------------------------

    def _aggregate(self) -> str:
        row = self._link.reader.row("SELECT resource_id FROM controller_resources WHERE uid = ?", (self.uid,))
        if row is None:
            self._read()  # says that it is gone
            raise AssertionError("gone and there at once")
        return str(row[0])

    def events(self, *, limit: int | None = None, payloads: bool = True) -> pd.DataFrame:
        """Its history, oldest first, as `server.events()` shows it, with payloads unless told otherwise."""
        from . import frames

        filters = Filters(aggregate=self._aggregate(), limit=limit)
        return frames.read(self._link.reader, "events", filters, payloads=payloads)

    def effects(self, *, payloads: bool = False) -> pd.DataFrame:
        """Its effects, as `server.effects()` shows them."""
        from . import frames

        ids = [row[0] for row in self._link.reader.rows(_EFFECTS, (self.uid,))]
        return frames.read(self._link.reader, "effects", Filters(aggregate=ids or [""]), payloads=payloads)

    def logs(self) -> str:
        """What its newest pass printed."""
        path = self._link.reader.path
        log = path.with_name(f"{path.name}.d") / "logs" / f"resource-{self.uid}.log"
        try:
            return log.read_text(errors="replace")
        except FileNotFoundError:
            return ""

    # -- showing --------------------------------------------------------------------------------------------------

    def _facts(self) -> tuple[str, list[tuple[str, Any]]]:
        found = self._read()
        queue = self._link.reader.row(_QUEUE, (self.uid,)) or (None, 0, None, None)
        facts: list[tuple[str, Any]] = [
            ("generation", f"{found.generation}, observed {found.status.observed_generation}"),
            ("resource version", found.resource_version),
        ]
        for one in found.status.conditions:
            told = "unknown" if one.status == "unknown" else "yes" if one.status else "no"
            facts.append((one.type, f"{told} ({one.reason})" + (f": {one.message}" if one.message else "")))
        facts += [
            ("status", found.status.resource_manager_status),
            ("finalizers", ", ".join(found.finalizers)),
            ("deletion wanted", wording.moment(found.deletion_timestamp)),
            ("next pass", None if queue[0] is None else wording.moment(queue[0])),
            ("errors in a row", queue[1] or None),
            ("last error", message(queue[2])),
        ]
        state = "reconciling" if queue[3] else "settled" if queue[0] is None else "queued"
        return state, [(name, value) for name, value in facts if value not in (None, "")]

    def __repr__(self) -> str:
        title = f"managed resource {wording.one_line(self.resource_manager)} {wording.one_line(self.key, 80)}"
        try:
            state, facts = self._facts()
        except PiWorkflowsError as error:
            return f"<{title}: {error}>"
        return representations.facts_text(f"{title} · {state}", facts)

    def _repr_html_(self) -> str:
        try:
            state, facts = self._facts()
        except PiWorkflowsError:
            return f"<code>{escape(repr(self))}</code>"
        return representations.facts_html(f"{self.resource_manager} {self.key}", facts, state)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": self._repr_html_()}
