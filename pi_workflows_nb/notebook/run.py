"""One run, as an object in a cell: watch it, wait for it, control it, read what it did."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from dataclasses import replace
from html import escape
from typing import TYPE_CHECKING, Any, Final

from pi_workflows_nb.wire.errors import (
    NotFinished,
    NotFoundError,
    PiWorkflowsError,
    QueryError,
    RunCancelled,
    RunFailed,
    ServerStoppedError,
    WaitTimeout,
)

from . import kernel, representations, run_picture
from .frame_methods import RunFrames
from .stored import decoded, message
from .waiting import SLICE, ProgressLine, Watch, line, settled

if TYPE_CHECKING:
    from collections.abc import Generator

    from .filters import Filters
    from .link import Connection, Link
    from .reader import Reader
    from .run_picture import RunPicture

_CHAIN: Final = """
    WITH RECURSIVE up(run_id, depth) AS (
        SELECT ?1, 0 UNION ALL SELECT r.parent_run_id, up.depth - 1 FROM runs r JOIN up USING (run_id)
        WHERE r.lineage_kind = 'continuation'),
    down(run_id, depth) AS (
        SELECT ?1, 0 UNION ALL SELECT r.run_id, down.depth + 1 FROM runs r JOIN down ON r.parent_run_id = down.run_id
        WHERE r.lineage_kind = 'continuation')
    SELECT run_id FROM (SELECT * FROM up UNION SELECT * FROM down) ORDER BY depth
"""
_END: Final = """
    SELECT r.status, o.content, e.content FROM runs r LEFT JOIN blobs o ON o.blob_hash = r.final_output_hash
    LEFT JOIN blobs e ON e.blob_hash = r.error_hash WHERE r.run_id = ?
"""
_OUTPUT_OF: Final = """
    SELECT a.status, coalesce(o.content, b.content), e.content FROM run_steps s JOIN node_attempts a USING (attempt_id)
    LEFT JOIN blobs o ON o.blob_hash = s.output_override_hash LEFT JOIN blobs b ON b.blob_hash = a.output_hash
    LEFT JOIN blobs e ON e.blob_hash = a.error_hash
    WHERE s.run_id = ? AND a.node_id = ? ORDER BY s.step_index DESC LIMIT 1
"""
_ROOT: Final = """
    SELECT i.content, l.content FROM runs r JOIN blobs i ON i.blob_hash = r.input_hash
    JOIN blobs l ON l.blob_hash = r.launch_options_hash WHERE r.run_id = ?
"""


class Run(RunFrames):
    """A run together with the runs that continue it after answers: status, wait and output are those of the last one.

    Properties are read anew each time. `await run` waits as `run.wait()` does, without holding the kernel up. Frames
    (`run.steps()`, `run.events()`, …) are those of the server, of this run alone.
    """

    def __init__(self, link: Link, run_id: str, note: str | None = None) -> None:
        self.id = run_id
        self._link = link
        self._note = note

    # -- what it is -----------------------------------------------------------------------------------------------

    @property
    def chain(self) -> list[str]:
        """The ids of the run and its continuations, first to last."""
        return [run_id for (run_id,) in self._link.reader.rows(_CHAIN, (self.id,))]

    @property
    def _leaf(self) -> str:
        return self.chain[-1]

    @property
    def status(self) -> str:
        """queued, running, waiting, paused, ambiguous, completed, failed, timed_out or cancelled.

        What the server says; when it has stopped, what the file says.
        """
        return str(self._view(self._leaf)["status"])

    def _view(self, run_id: str) -> dict[str, Any]:
        view = self._link.view(run_id)
        if view is None:
            raise NotFoundError(f"run {run_id} is not in the file any more")
        return view

    @property
    def output(self) -> Any:
        """What the run gave, decoded JSON.

        `RunFailed` (with the traceback of the node's code) when it failed or timed out, `RunCancelled`, `NotFinished`.
        """
        leaf = self._leaf
        status, output, error = self._end(leaf)
        if status == "completed":
            return None if output is None else decoded(output)
        if status in {"failed", "timed_out"}:
            raise RunFailed(f"run {leaf} {status.replace('_', ' ')}\n\n{message(error) or 'no error was recorded'}")
        if status == "cancelled":
            raise RunCancelled(f"run {leaf} was cancelled")
        view = self._view(leaf)
        what_next = view["reason"] if view["needsPerson"] and view["reason"] else "run.wait() waits for its end"
        raise NotFinished(f"run {leaf} is {view['status']}: {what_next}")

    def output_of(self, node: str) -> Any:
        """The accepted output of a node, decoded JSON; of several visits the last one's.

        `RunFailed` when that visit failed, `NotFinished` when there was none yet, `NotFoundError` when there is no such
        node in the run.
        """
        leaf = self._leaf
        row = self._link.reader.row(_OUTPUT_OF, (leaf, node))
        if row is None:
            picture = self._picture()
            if picture is not None and node not in picture.graph.nodes:
                raise NotFoundError(f"no node {node!r} in this run; there are {', '.join(picture.graph.nodes)}")
            raise NotFinished(f"node {node!r} of run {leaf} has no output (yet)")
        status, output, error = row
        if status != "completed":
            raise RunFailed(f"node {node!r} of run {leaf} {status.replace('_', ' ')}\n\n{message(error) or ''}")
        return None if output is None else decoded(output)

    @property
    def error(self) -> str | None:
        """The text of the error that ended the run, with the traceback of the node's code; None without one."""
        return message(self._end(self._leaf)[2])

    @property
    def input(self) -> Any:
        """What the run was started with, decoded JSON, as its workflow normalized it."""
        return decoded(self._root()[0])

    @property
    def tags(self) -> list[str]:
        """The tags it was started with."""
        return [str(tag) for tag in decoded(self._root()[1]).get("tags", ())]

    @property
    def note(self) -> str | None:
        """What to know about a run that was adopted by its key, such as that the workflow has changed since."""
        return self._note

    def _root(self) -> tuple[Any, ...]:
        row = self._link.reader.row(_ROOT, (self.chain[0],))
        if row is None:
            raise NotFoundError(f"run {self.id} is not in the file any more")
        return row

    def _end(self, run_id: str) -> tuple[str, bytes | None, bytes | None]:
        row = self._link.reader.row(_END, (run_id,))
        if row is None:
            raise NotFoundError(f"run {run_id} is not in the file any more")
        return row

    # -- waiting --------------------------------------------------------------------------------------------------

    def wait(self, timeout: float | None = None, until: str | None = None) -> Run:
        """Wait until the run has ended or needs a person (an answer, a decision about an effect, a resume).

        `timeout` in seconds, after which `WaitTimeout` is raised and the run goes on. With `until="end"` it waits for
        the end whatever happens. Gives the run itself; how it ended is told by `status` and `output`. Interrupting the
        cell leaves the run going. `ServerStoppedError` when the server stops before.
        """
        _check_until(until)
        connection = self._connection("wait")
        if connection is None:
            return self
        deadline = None if timeout is None else time.monotonic() + timeout
        progress = ProgressLine()
        chain = self.chain
        (since,) = self._link.reader.row("SELECT created_at FROM runs WHERE run_id = ?", (chain[0],)) or (0,)
        with Watch(connection, chain[-1]) as watch:
            try:
                while watch.view is None or not settled(watch.view, until):
                    if watch.view is not None:
                        progress.show(line(watch.view, since))
                    left = SLICE if deadline is None else min(SLICE, deadline - time.monotonic())
                    if left <= 0:
                        raise WaitTimeout(f"run {watch.run_id} is not done after {timeout:g} s; it goes on")
                    watch.wait(left)
                progress.show(line(watch.view, since))
            finally:
                progress.close()
        if kernel.is_kernel():
            from . import run_view

            run_view.flush(self)
        return self

    def __await__(self) -> Generator[Any, None, Run]:
        return self._wait_on_loop().__await__()

    async def _wait_on_loop(self) -> Run:
        connection = self._connection("await")
        if connection is None:
            return self
        loop = asyncio.get_running_loop()
        changed = asyncio.Event()

        def notify() -> None:
            try:
                loop.call_soon_threadsafe(changed.set)
            except RuntimeError:
                pass  # the loop was closed meanwhile, and nobody waits any more

        leaf = await asyncio.to_thread(lambda: self._leaf)
        watch = Watch(connection, leaf, notify)
        try:
            await asyncio.to_thread(watch.start)
            while watch.view is None or not settled(watch.view, None):
                try:
                    await asyncio.wait_for(changed.wait(), 1.0)
                except TimeoutError:
                    pass
                changed.clear()
                await asyncio.to_thread(watch.check)
        finally:
            # Unsubscribing may have to wait for the server; a cancelled task cannot.
            threading.Thread(target=watch.close, name="pi-workflows-unsubscribe", daemon=True).start()
        return self

    def _connection(self, verb: str) -> Connection | None:
        """The connection to wait on; None when there is nothing to wait for."""
        if self._link.connection is not None:
            return self._link.connection
        if self._end(self._leaf)[0] in run_picture.TERMINAL:
            return None
        raise ServerStoppedError(
            f"{verb}: nobody serves {self._link.reader.path}; pw.start(database=…) lets its runs go on"
        )

    # -- acting ---------------------------------------------------------------------------------------------------

    def pause(self) -> Run:
        """Park the run at its last durable boundary and stop its process; one that waits or sleeps is held there.

        `ConflictError`, which says how the run stands, when it is over or was stopped already.
        """
        self._link.ask("run.pause", {}, run_id=self._leaf)
        return self

    def resume(self) -> Run:
        """Let a paused or parked run go on: from its last durable boundary, or waiting and sleeping as before.

        `ConflictError`, which says how the run stands, when it is over, or waits without being paused.
        """
        self._link.ask("run.resume", {}, run_id=self._leaf)
        return self

    def cancel(self) -> Run:
        """End the run now; code that is running is stopped. A second cancel changes nothing.

        `ConflictError` when the run has ended otherwise.
        """
        self._link.ask("run.cancel", {}, run_id=self._leaf)
        return self

    def restart(self) -> Run:
        """Start the run once more, with its input, its source and the environment of this moment; gives the new run.

        Only what is over is restarted, once, and not what was cancelled. In a chain of runs there are three restarts at
        most, and none after two runs ended in the same way. `ConflictError` says which of these it is.
        """
        payload = {"environment": dict(os.environ)}
        receipt = self._link.ask("run.restart", payload, run_id=self._leaf).receipt or {}
        return Run(self._link, receipt["runId"])

    def answer(self, value: Any) -> Run:
        """Answer the checkpoint, or give the event, that the run waits for; it goes on as a continuation.

        `value` is JSON. `WorkflowInputError` when the node's own validation refuses it, `NotJsonError` for one that is
        not JSON, `ConflictError` when the run waits for no answer or is paused.
        """
        self._link.ask("checkpoint.answer", {"value": self._link.value(value)}, run_id=self._leaf)
        return self

    def change_settings(self, patch: list[dict[str, Any]], expected: int | None = None, *, mount: str = "") -> int:
        """Change the settings of the run while it goes on, and give the new change number.

        `patch` is a JSON Patch (RFC 6902): attempts that begin from now on see what it makes of the settings. With
        `expected` the change is made only at that change number. `mount` is the path of an included workflow that has
        settings of its own. Errors: `SettingsError` for a patch that is malformed, too large or not allowed,
        `WorkflowInputError` when the workflow refuses the value, `ConflictError` for another change number or a run
        that is over, `NotFoundError` where there are no settings.
        """
        from pi_workflows_nb.workflows.settings import check_patch
        from pi_workflows_nb.workflows.values import to_json

        payload = {"expected": expected, "mount": mount, "patch": to_json(check_patch(patch))}
        receipt = self._link.ask("run.changeSettings", payload, run_id=self._leaf).receipt or {}
        return int(receipt["changeNumber"])

    def queue_follow_up(self, text: str) -> str:
        """Queue a prompt for the run's session, for after the run has completed, and give its id.

        At most 64 KiB, and not blank. `ConflictError` for a run that is over or has no session.
        """
        receipt = self._link.ask("followUp.queue", {"prompt": text}, run_id=self._leaf).receipt or {}
        return str(receipt["followUpId"])

    def remove_follow_up(self, follow_up_id: str) -> None:
        """Take a queued prompt back. `NotFoundError`, or `ConflictError` when it was removed or cancelled before."""
        self._link.ask("followUp.remove", {"followUpId": follow_up_id}, run_id=self._leaf)

    # -- showing --------------------------------------------------------------------------------------------------

    def _reader(self) -> Reader:
        return self._link.reader

    def _scoped(self, filters: Filters, _name: str) -> Filters:
        # The last run of a chain starts with the steps of those before it.
        return replace(filters, run=[self._leaf] if _name == "steps" else self.chain)

    def _picture(self) -> RunPicture | None:
        chain = self.chain
        view = self._link.view(chain[-1])
        return None if view is None else run_picture.read(self._link.reader, chain[-1], chain[0], view)

    def __repr__(self) -> str:
        try:
            picture = self._picture()
        except PiWorkflowsError as error:
            return f"<Run {self.id}: {error}>"
        if picture is None:
            return f"<Run {self.id}: not in the file any more>"
        note = f"\n  {self._note}" if self._note else ""
        return f"<Run {picture.run_id}: {representations.run_line(picture)}>{note}"

    def _repr_html_(self) -> str:
        return self._repr_mimebundle_()["text/html"]

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        try:
            picture = self._picture()
        except PiWorkflowsError:
            picture = None
        if picture is None:
            return {"text/plain": repr(self), "text/html": f"<code>{escape(repr(self))}</code>"}
        return representations.run_bundle(picture, self._note)

    def _ipython_display_(self) -> None:
        if not kernel.is_kernel():
            raise NotImplementedError
        from . import run_view

        run_view.show(self)


def _check_until(until: str | None) -> None:
    if until not in {None, "end"}:
        raise QueryError(f'until={until!r}: leave it out, or say until="end" to wait for the end')
