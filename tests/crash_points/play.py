"""One play of a scenario: a server that dies at a point, whoever follows it, and what the file tells at the end."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
import traceback
import uuid
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

import pi_workflows_nb as pw
from pi_workflows_nb.state.database import open_read_only
from pi_workflows_nb.state.verify import verify
from pi_workflows_nb.wire.errors import ServerStoppedError, StaleClaimError
from tests.trials.family import MARK, Family
from tests.trials.trial import environment

T = TypeVar("T")
PATIENCE_SECONDS: Final = 60.0
ROOT: Final = Path(__file__).parent.parent.parent


@dataclass
class Outcome:
    """What came of a play. `reached` says whether the server died at the point; `story` is how it ended."""

    point: str
    reached: bool = False
    commits: list[str] = field(default_factory=list)
    story: Any = None
    faults: list[str] = field(default_factory=list)
    seconds: float = 0.0


class Play:
    """What a scenario works with. All that it asks for is asked again, with the same key, when a server dies of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.project = folder / "project"
        self.project.mkdir(parents=True)
        self.database = folder / "s.sqlite"
        self._process: subprocess.Popen[str] | None = None

    # -- the server ---------------------------------------------------------------------------------------------------

    def begin(self, point: str) -> None:
        """Start the server that will die at `point`, and wait until it serves or is dead."""
        options = {"endWhenAlone": True, "maxRunners": 4, "preload": [], "runAhead": 16}
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    sys.executable, "-m", "tests.crash_points.serving", point,
                    str(self.database), os.environ["PI_WORKFLOWS_HOME"], json.dumps(options),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
                text=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])},
            )  # fmt: skip
        assert self._process.stdout is not None
        with self._process.stdout as said:
            said.readline()

    def kill(self) -> None:
        """End the server that `begin` has started, as a loss of power does: with nobody there to serve in its place."""
        assert self._process is not None
        self.server()._link.connection.close()
        self._process.kill()
        self._process.wait()
        self._process = None

    def server(self) -> Any:
        """A server of the file: the one that will die, or who follows it."""
        return pw.start(database=self.database, project=self.project, server="process", session=str(self.project))

    def again(self, act: Callable[[Any], T]) -> T:
        """Do something with a server; when it dies of it, do it with the next one."""
        limit = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                return act(self.server())
            except ServerStoppedError:
                if time.monotonic() > limit:
                    raise

    # -- what a scenario does -----------------------------------------------------------------------------------------

    def run(self, workflow: Any, given: Any = None, **options: Any) -> str:
        """Start the run of a workflow, once. Gives its id."""
        return self.again(lambda server: server.run(workflow, given, key=workflow.name, **options).id)

    def ask(self, operation: str, run_id: str | None = None, payload: dict[str, Any] | None = None) -> dict[str, Any]:
        """Ask for an operation once, by a key of its own."""
        key = f"{operation}:{uuid.uuid4().hex}"

        def act(server: Any) -> dict[str, Any]:
            link = server._link
            return link.ask(operation, payload or {}, run_id=run_id, key=key, client_id="player").receipt

        return self.again(act)

    def turn(self, value: Any) -> None:
        """Speak for the session: take its next message, submit a value unless it is None, and end the turn."""
        limit = time.monotonic() + PATIENCE_SECONDS
        while (taken := self._take(f"take:{uuid.uuid4().hex}")) is None:
            assert time.monotonic() < limit, "nothing is asked"
            time.sleep(0.005)
        if value is not None:
            submitted = {"requestId": taken["requestId"], "turnId": taken["turnId"], "value": {"inline": value}}
            with contextlib.suppress(pw.WorkflowInputError):
                self.ask("interaction.submit", None, submitted)
        self.ask("workflowTurn.report", None, {"stopReason": "completed", "turnId": taken["turnId"]})

    def _take(self, key: str) -> dict[str, Any] | None:
        def take(server: Any) -> Any:
            link, session = server._link, server.session.id
            open_turns = link.reader.rows("SELECT workflow_turn_id FROM workflow_turns WHERE state = 'started'")
            kept = {"openTurns": [turn_id for (turn_id,) in open_turns], "session": session}
            epoch = link.ask("session.attach", kept).receipt["coordinator"]
            asked = {"coordinator": epoch, "session": session}
            try:
                return link.ask("workflowMessage.take", asked, key=key, client_id="player").receipt["message"]
            except StaleClaimError:
                raise ServerStoppedError("another server by now") from None

        taken: dict[str, Any] | None = self.again(take)
        return taken

    def view(self, run_id: str) -> dict[str, Any]:
        """The live view of a run."""
        return self.again(lambda server: server._link.ask("run.status", {}, run_id=run_id).receipt)

    def until(self, run_id: str, *wanted: str) -> dict[str, Any]:
        """Wait until the display status of the run, or of what continues it, is one of these. Gives its live view."""
        limit = time.monotonic() + PATIENCE_SECONDS
        while True:
            view = self.view(run_id)
            if view["continuedBy"]:
                run_id = view["continuedBy"]
                continue
            if view["status"] in wanted:
                return view
            if time.monotonic() > limit:
                raise AssertionError(f"{view['workflow']} is {view['status']}, not {wanted}: {view['reason']}")
            time.sleep(0.005)

    def wait_for(self, path: Path) -> None:
        """Wait until something outside has come to be."""
        limit = time.monotonic() + PATIENCE_SECONDS
        while not path.exists():
            self.again(lambda server: server.status())
            if time.monotonic() > limit:
                raise AssertionError(f"{path.name} never came")
            time.sleep(0.005)

    # -- the end ------------------------------------------------------------------------------------------------------

    def end(self) -> bool:
        """Stop whatever serves; whether the server of `begin` had died at its point."""
        self.again(lambda server: server.stop())
        if self._process is None:
            return True
        return self._process.wait(30) == -9

    def story(self) -> tuple[Any, list[str]]:
        """How runs and resources ended, without what may differ between two executions, and what `verify` says."""
        with closing(open_read_only(self.database)) as connection:
            faults = [str(finding) for finding in verify(connection) if finding.severity == "error"]
            return _Teller(connection).tell(), faults


class _Teller:
    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def tell(self) -> list[Any]:
        roots = self._connection.execute(
            "SELECT run_id FROM runs JOIN workflow_definitions USING (definition_digest) WHERE parent_run_id IS NULL"
            " ORDER BY workflow_name, runs.created_at"
        ).fetchall()
        return [self._run(run_id) for (run_id,) in roots] + self._resources()

    def _resources(self) -> list[Any]:
        """What managed resources asked for, and what is left of them."""
        effects = (
            "SELECT effect_type, status FROM effects e JOIN resources r ON r.resource_id = e.source_resource_id"
            " WHERE resource_type = 'controller' ORDER BY 1, 2"
        )
        left = "SELECT controller_name, resource_key FROM controller_resources"
        told = (
            "SELECT event_type, count(*) FROM events"
            " WHERE event_type IN ('resource.created', 'resource.deleted', 'reconcile_failed') GROUP BY 1 ORDER BY 1"
        )
        return [self._connection.execute(query).fetchall() for query in (left, effects, told)]

    def _run(self, run_id: str) -> dict[str, Any]:
        connection = self._connection
        name, status, paused, output, lineage, queue, code = connection.execute(
            "SELECT workflow_name, r.status, paused, (SELECT cast(content AS TEXT) FROM blobs WHERE blob_hash ="
            " final_output_hash), lineage_kind, q.status, q.error_code FROM runs r JOIN workflow_definitions"
            " USING (definition_digest) LEFT JOIN run_queue q USING (run_id) WHERE run_id = ?",
            (run_id,),
        ).fetchone()
        children = connection.execute(
            "SELECT run_id FROM runs WHERE parent_run_id = ? ORDER BY created_at", (run_id,)
        ).fetchall()
        return {
            "workflow": name,
            "status": status,
            "queue": queue,
            "code": code,
            "paused": paused,
            "output": output,
            "lineage": lineage,
            "steps": connection.execute(
                "SELECT s.step_index, a.node_id, a.status, (SELECT cast(content AS TEXT) FROM blobs WHERE blob_hash ="
                " coalesce(s.output_override_hash, a.output_hash)) FROM run_steps s JOIN node_attempts a"
                " USING (attempt_id) WHERE s.run_id = ? ORDER BY s.step_index",
                (run_id,),
            ).fetchall(),
            # What a cancellation finds pending is cancelled, what it finds under way is ambiguous: both by right.
            "effects": connection.execute(
                "SELECT effect_type, replace(e.status, 'ambiguous', 'cancelled') FROM effects e"
                " JOIN runs r ON r.resource_id = source_resource_id"
                " WHERE r.run_id = ? ORDER BY effect_type, e.status",
                (run_id,),
            ).fetchall(),
            "children": [self._run(child) for (child,) in children],
        }


def play(scenario: Callable[[Play], None], point: str, folder: Path) -> Outcome:
    """Play a scenario with a server that dies at `point`; nothing of it is left but the folder."""
    outcome, begun, mark = Outcome(point), time.monotonic(), uuid.uuid4().hex
    family = Family(mark)
    with environment(**{MARK: mark, "PI_WORKFLOWS_HOME": str(folder / "home")}):
        stage = Play(folder)
        try:
            before = getattr(scenario, "before", None)
            if before is not None:
                stage.begin("none")
                before(stage)
                stage.kill()
            told = stage.database.with_name(stage.database.name + ".commits")
            told.unlink(missing_ok=True)
            stage.begin(point)
            scenario(stage)
            outcome.reached = stage.end()
            outcome.commits = told.read_text().splitlines()
            outcome.story, outcome.faults = stage.story()
            ledger = folder / "ledger"
            lines = ledger.read_text().split() if ledger.exists() else []
            outcome.story.append(sorted(Counter(line.rsplit(":")[-2] for line in lines).items()))
            outcome.faults += family.left(5)
        except Exception:
            outcome.faults.append(traceback.format_exc())
        finally:
            family.end()
    outcome.seconds = time.monotonic() - begun
    return outcome
