"""`ctx.track`: progress of a loop, published as it goes."""

from __future__ import annotations

import re
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Sized
from contextlib import suppress
from time import monotonic
from typing import Any, Final, Generic, TypeVar

from pi_workflows_nb.wire.errors import PiWorkflowsError, WorkflowDefinitionError
from pi_workflows_nb.workflows.calls import running_loop
from pi_workflows_nb.workflows.progress import LONGEST, PROGRESS

T = TypeVar("T")

EVERY_SECONDS: Final = 1.0
_NOT_IN_A_KEY: Final = re.compile(r"[^A-Za-z0-9._:/-]+")


class Track(Generic[T]):
    """The items of something, one by one, while it publishes how far they are; at most once a second in between."""

    def __init__(
        self,
        publish: Callable[[str, str, dict[str, Any]], Any],
        rows: Iterable[T] | AsyncIterable[T],
        label: str | None,
        total: float | None,
        unit: str,
        key: str | None,
    ) -> None:
        self._publish = publish
        self._rows = rows
        self._total = total if total is not None else len(rows) if isinstance(rows, Sized) else None
        self._label = None if label is None else str(label)[: LONGEST["label"]]
        self._unit = unit
        self._key = _key_of(label) if key is None else key
        self._said_at = -EVERY_SECONDS

    def __iter__(self) -> Iterator[T]:
        if running_loop() is not None:
            raise WorkflowDefinitionError("ctx.track in an async function: write `async for row in ctx.track(rows)`")
        if not isinstance(self._rows, Iterable):
            raise WorkflowDefinitionError(f"ctx.track: {type(self._rows).__name__} has nothing to go through")
        done = 0
        self._say("running", done)
        rows = iter(self._rows)
        while True:
            try:
                row = next(rows)
            except StopIteration:
                break
            except Exception:
                with suppress(PiWorkflowsError):
                    self._say("failed", done)
                raise
            yield row
            done += 1
            if self._is_time():
                self._say("running", done)
        self._say("completed", done)

    async def __aiter__(self) -> AsyncIterator[T]:
        done = 0
        await self._say("running", done)
        rows = _one_by_one(self._rows)
        while True:
            try:
                row = await anext(rows)
            except StopAsyncIteration:
                break
            except Exception:
                with suppress(PiWorkflowsError):
                    await self._say("failed", done)
                raise
            yield row
            done += 1
            if self._is_time():
                await self._say("running", done)
        await self._say("completed", done)

    def _is_time(self) -> bool:
        return monotonic() - self._said_at >= EVERY_SECONDS

    def _say(self, status: str, done: int) -> Any:
        self._said_at = monotonic()
        data = {"schema": PROGRESS, "status": status, "completed": done, "unit": self._unit}
        if self._total is not None:
            data["total"] = self._total
        if self._label is not None:
            data["label"] = self._label
        return self._publish("progress", self._key, data)


async def _one_by_one(rows: Iterable[T] | AsyncIterable[T]) -> AsyncIterator[T]:
    if isinstance(rows, AsyncIterable):
        async for row in rows:
            yield row
    else:
        for row in rows:
            yield row


def _key_of(label: str | None) -> str:
    key = _NOT_IN_A_KEY.sub("-", "" if label is None else str(label)).lstrip("-._:/")
    return key[:128] or "track"
