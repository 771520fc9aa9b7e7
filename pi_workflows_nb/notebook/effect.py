"""One recorded external action, as an object that a person can settle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pi_workflows_nb.wire.errors import NotFoundError

from . import representations, wording
from .filters import Filters
from .stored import decoded, message

if TYPE_CHECKING:
    import pandas as pd

    from .link import Link

_EFFECT: Final = """
    SELECT e.status, e.effect_type, e.idempotency_key, e.attempt_count, e.external_ref, e.created_at, e.settled_at,
           p.content, t.content, f.content, r.run_id
    FROM effects e LEFT JOIN blobs p ON p.blob_hash = e.payload_hash LEFT JOIN blobs t ON t.blob_hash = e.result_hash
    LEFT JOIN blobs f ON f.blob_hash = e.error_hash LEFT JOIN runs r ON r.resource_id = e.source_resource_id
    WHERE e.effect_id = ?
"""


class Effect:
    """A recorded external action. Its properties are read anew each time.

    An `ambiguous` one may or may not have happened: look at the outside world, then `confirm()` or `retry()`.
    """

    def __init__(self, link: Link, effect_id: str) -> None:
        self.id = effect_id
        self._link = link

    def _row(self) -> tuple[Any, ...]:
        row = self._link.reader.row(_EFFECT, (self.id,))
        if row is None:
            raise NotFoundError(f"effect {self.id} is not in the file any more")
        return row

    @property
    def status(self) -> str:
        """pending, applying, applied, rejected, ambiguous or cancelled."""
        return str(self._row()[0])

    @property
    def type(self) -> str:
        """What kind of action it is, as the workflow named it."""
        return str(self._row()[1])

    @property
    def idempotency_key(self) -> str:
        """The key under which the outside world can tell a repetition."""
        return str(self._row()[2])

    @property
    def external_ref(self) -> str | None:
        """What the outside world calls the thing, if that is known."""
        reference = self._row()[4]
        return None if reference is None else str(reference)

    @property
    def request(self) -> Any:
        """What was reserved, decoded: of a run's effect `{"recovery": …, "request": …}`."""
        return decoded(self._row()[7])

    @property
    def result(self) -> Any:
        """What applying it gave, decoded; None while there is nothing."""
        content = self._row()[8]
        return None if content is None else decoded(content)

    @property
    def error(self) -> str | None:
        """Why it was rejected or is in doubt."""
        return message(self._row()[9])

    @property
    def run_id(self) -> str | None:
        """The run it belongs to; None for one of a managed resource."""
        run_id = self._row()[10]
        return None if run_id is None else str(run_id)

    def attempts(self) -> pd.DataFrame:
        """Its tries, one row each, as `server.effect_attempts()` shows them, with result and error."""
        sql = "SELECT resource_id FROM effects WHERE effect_id = ?"
        row = self._link.reader.row(sql, (self.id,))
        aggregate = "" if row is None else str(row[0])
        from . import frames

        return frames.read(self._link.reader, "effect_attempts", Filters(aggregate=aggregate), payloads=True)

    def confirm(self, external_ref: str | None = None) -> Effect:
        """Record that an ambiguous effect has happened; its run goes on. `external_ref` names the thing outside.

        `ConflictError` when it is not ambiguous.
        """
        self._link.ask("effect.confirm", {"effectId": self.id, "externalRef": external_ref})
        return self

    def retry(self) -> Effect:
        """Let an ambiguous effect that did not happen be applied again; its run goes on.

        `ConflictError` when it is not ambiguous.
        """
        self._link.ask("effect.retry", {"effectId": self.id})
        return self

    def _facts(self) -> tuple[str, list[tuple[str, Any]]]:
        row = self._row()
        facts: list[tuple[str, Any]] = [
            ("type", row[1]),
            ("key", row[2]),
            ("tries", row[3]),
            ("run", row[10]),
            ("external reference", row[4]),
            ("reserved", wording.moment(row[5])),
            ("settled", wording.moment(row[6])),
            ("error", message(row[9])),
        ]
        if row[0] == "ambiguous":
            facts.append(("to do", "effect.confirm() if it happened, effect.retry() if it did not"))
        return str(row[0]), [(name, value) for name, value in facts if value not in {None, ""}]

    def __repr__(self) -> str:
        status, facts = self._facts()
        return representations.facts_text(f"effect {self.id} · {status}", facts)

    def _repr_html_(self) -> str:
        status, facts = self._facts()
        return representations.facts_html(f"effect {self.id}", facts, status)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": self._repr_html_()}
