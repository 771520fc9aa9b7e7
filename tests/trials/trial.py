"""One trial: a kernel with a run, kills at random moments, and whoever died started again, until the run has ended."""

from __future__ import annotations

import json
import os
import random
import time
import traceback
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.kernels import Kernel

from . import checks, phases
from .cell import NODES, STOP, Cell
from .family import MARK, Family, subset
from .phases import Estimates, Kill, Moment
from .record import Glance, Record, Watch

RECOVERY_SECONDS: Final = 10.0
PATIENCE_SECONDS: Final = 45.0
"""How long a run may take to end after the last kill; longer than any lease."""

CRASHES_ALLOWED: Final = 2
"""A third crash in a row without progress parks a run until a person resumes it, which is no trial's business."""

LOOK_SECONDS: Final = 0.0003


class Violation(AssertionError):
    """A check failed; its texts say which."""


@dataclass
class Strike:
    """One kill as it was: what was running, and who was hit."""

    phase: str
    target: str
    roles: tuple[str, ...]
    stage: str = ""
    recovered: float | None = None


@dataclass
class Result:
    """What came of a trial. `violations` is empty after a good one."""

    seed: str
    placement: str
    folder: Path
    strikes: list[Strike] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def __str__(self) -> str:
        told = ", ".join(f"{strike.phase} [{'+'.join(strike.roles)}]" for strike in self.strikes)
        return f"{self.seed} {self.placement}: {told}; {self.seconds:.1f} s" + "".join(
            f"\n    VIOLATION {text}" for text in self.violations
        )


@contextmanager
def environment(**names: str) -> Iterator[None]:
    """Variables for whatever is started meanwhile."""
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(names)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


class Trial:
    """Runs once. `seed` decides what a trial decides by itself; the timing of processes is the machine's."""

    def __init__(self, folder: Path, placement: str, seed: str, estimates: Estimates, fault: str | None = None) -> None:
        self._choice = random.Random(seed)
        self._placement = placement
        self._folder = folder
        self._estimates = estimates
        self._cell = Cell(folder, placement, self._choice.randrange(1, 1000), fault)
        self._mark = uuid.uuid4().hex
        self._family = Family(self._mark)
        self._watch = Watch(self._cell.database, self._cell.executions, self._cell.ledger)
        self._records: list[tuple[str, Record]] = []
        self._kernel: Kernel | None = None
        self._turn = 0
        self._begun = 0.0
        self._message = ""
        self._ended = False
        self._claimed = False
        self._server_lost = False
        self._restart_at: float | None = None
        self._recovering = False
        self._struck_at = 0.0
        self._at_last_kill = Glance()
        self._lost_at_last_kill = False
        self._pids_then: frozenset[int] = frozenset()
        self._crashes = 0
        self._result = Result(seed, placement, folder)

    def run(self) -> Result:
        """The whole trial; nothing of it is left afterwards but the folder."""
        started = time.monotonic()
        jupyter = {name: str(self._folder / name.lower()) for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR")}
        own = {MARK: self._mark, "JUPYTER_RUNTIME_DIR": str(self._folder / "runtime"), **jupyter}
        with environment(**own):
            try:
                self._go()
            except Violation as violation:
                self._result.violations += violation.args
            except Exception:
                self._result.violations.append(f"the trial itself failed: {traceback.format_exc()}")
            finally:
                self._clean_up()
        self._result.seconds = time.monotonic() - started
        return self._result

    # -- the story ----------------------------------------------------------------------------------------------------

    def _go(self) -> None:
        self._kernel = Kernel(self._folder, self._folder / "kernel.log")
        self._execute()
        kills = phases.plan(self._choice)
        for number, kill in enumerate(kills):
            following = kills[number + 1] if number + 1 < len(kills) else None
            if self._until(kill) or not self._result.strikes:
                self._strike(kill, hurry=following is not None and following.target == "recovery")
        self._until(None)
        self._finish()

    def _execute(self) -> None:
        assert self._kernel is not None
        self._turn += 1
        self._ended = self._server_lost = False
        self._message = self._kernel.begin(self._cell.text(self._turn))
        self._begun = time.monotonic()

    def _until(self, kill: Kill | None) -> bool:
        """Look on until a kill is due; False when the run ended, and its cell with it, before that."""
        limit = time.monotonic() + PATIENCE_SECONDS
        while True:
            lines, glance, now = self._watch.lines(), self._watch.glance(), time.monotonic()
            if not self._claimed and glance.generation:
                self._claimed = True
                if not self._result.strikes:
                    self._estimates.learn("claim", now - self._begun)
            moment = Moment(
                glance,
                lines,
                now - self._begun,
                now - self._struck_at,
                self._recovering,
                self._server_lost,
                self._at_last_kill,
            )
            if kill is not None and self._restart_at is None and phases.due(kill, moment, self._estimates):
                return True
            if self._recovering and self._has_recovered(glance):
                self._note_recovery()
                continue
            if self._restart_at is not None and now >= self._restart_at:
                self._restart()
            if self._restart_at is None and not self._ended:
                self._hear_cell()
            if self._ended:
                return False
            if now > limit:
                last = lines[-1] if lines else None
                raise self._failure(f"end: nothing came of the run for {PATIENCE_SECONDS:g} s: {glance}, last {last}")
            time.sleep(LOOK_SECONDS)

    def _hear_cell(self) -> None:
        path = self._cell.outcome(self._turn)
        if not path.exists():
            return
        outcome = json.loads(path.read_text())
        if outcome.get("error") == "ServerStoppedError" and self._server_lost:
            # What a person does then: run the cell again.
            self._execute()
            return
        if "error" in outcome:
            raise self._failure(f"cell: it raised {outcome['error']}: {outcome['text'][:500]}")
        if outcome["status"] != "completed" or outcome["output"] != self._cell.value(NODES - 1):
            raise self._failure(f"cell: the run was told to be {str(outcome)[:500]}")
        if self._server_lost:
            # It had heard of the end before its server died; what is left is for the next server to clear up.
            self._execute()
            return
        self._ended = True

    # -- kills --------------------------------------------------------------------------------------------------------

    def _strike(self, kill: Kill, *, hurry: bool) -> None:
        time.sleep(kill.delay)
        assert self._kernel is not None
        family, watch = self._family, self._watch
        roles = family.roles(self._kernel.pid, watch.glance().server_pid, self._placement)
        if not roles:
            return
        chosen = self._chosen(roles)
        watch.lines()
        glance = watch.glance()
        hit = set(family.kill(pid for role in chosen for pid in roles[role]))
        struck_at = time.monotonic()
        killed = tuple(sorted(role for role in chosen if hit & set(roles[role])))
        if not killed:
            return
        if self._choice.random() < 0.5:
            # Whether somebody else has the file open decides how SQLite recovers it.
            watch.close()
        server_dead = ("kernel" if self._placement == "thread" else "server") in killed
        lines = watch.lines()
        exact = watch.glance() if server_dead else glance
        strike = Strike(phases.classify(exact, lines, recovering=self._recovering), kill.target, killed)
        if self._recovering:
            strike.stage = phases.stage(exact, self._at_last_kill, server_lost=self._lost_at_last_kill)
        self._result.strikes.append(strike)
        if not self._recovering and strike.phase not in ("start", "claim"):
            self._learn_pace()
        self._struck_at, self._lost_at_last_kill = struck_at, server_dead
        self._at_last_kill, self._pids_then = exact, frozenset(line.pid for line in lines)
        self._recovering = self._recovering or server_dead or "nursery" in killed or "runner" in killed
        self._server_lost = self._server_lost or server_dead
        if "kernel" in killed:
            wait = self._choice.uniform(0, 0.4) if self._placement == "process" and not server_dead else 0.0
            self._restart_at = time.monotonic() + wait
        self._look(f"right after kill {len(self._result.strikes)}", glance, verified=not (hurry and not server_dead))
        if self._ended and self._restart_at is None:
            self._execute()

    def _chosen(self, roles: Iterable[str]) -> list[str]:
        present = set(roles)
        server = "kernel" if self._placement == "thread" else "server"
        while True:
            chosen = subset(self._choice, present)
            crash = "runner" in chosen and server not in chosen
            if not crash or self._crashes < CRASHES_ALLOWED:
                self._crashes += crash
                return chosen
            present.discard("runner")
            if not present:
                return []

    def _restart(self) -> None:
        assert self._kernel is not None
        self._restart_at = None
        self._kernel.kill()
        self._kernel.restart_after_kill()
        self._execute()

    # -- recovery -----------------------------------------------------------------------------------------------------

    def _has_recovered(self, glance: Glance) -> bool:
        if self._restart_at is not None:
            return False
        if glance.status == "completed":
            # A new owner takes the file in one transaction and recovers it in the next; a runner that nobody ends is
            # found all the same, a moment later.
            over = glance.active_runners == 0 or time.monotonic() - self._struck_at > RECOVERY_SECONDS
            served = not self._server_lost or glance.server_epoch > self._at_last_kill.server_epoch
            return self._ended or (served and over)
        return any(line.pid not in self._pids_then for line in self._watch.lines()[-2:])

    def _note_recovery(self) -> None:
        self._recovering = False
        strike = self._result.strikes[-1]
        later = [line.at for line in self._watch.lines() if line.pid not in self._pids_then]
        if later:
            strike.recovered = later[0] - self._struck_at
            if self._begun > self._struck_at:
                self._estimates.learn("boot", max(0.0, later[0] - self._begun))
        self._look(f"after the recovery from kill {len(self._result.strikes)}", None, verified=True)

    def _learn_pace(self) -> None:
        done = [line.at for line in self._watch.lines() if line.what == "done"]
        if len(done) > 5 and len(self._result.strikes) == 1:
            self._estimates.learn("run", (done[-1] - done[0]) / (len(done) - 1) * NODES)

    # -- checks -------------------------------------------------------------------------------------------------------

    def _look(self, when: str, glance: Glance | None, *, verified: bool) -> None:
        record = self._watch.record(verified=verified)
        self._judge(when, record, checks.seen(glance, record) if glance is not None else ())

    def _failure(self, text: str) -> Violation:
        """What went wrong, together with what the file and the nodes say about it."""
        return Violation(text, *checks.always(self._watch.record(verified=True)))

    def _judge(self, when: str, record: Record, more: Iterable[str] = ()) -> None:
        faults = [*checks.always(record), *more]
        for then, earlier in self._records:
            faults += checks.kept(earlier, record, then)
        self._records.append((when, record))
        if faults:
            raise Violation(*(f"{fault} ({when})" for fault in faults))

    def _finish(self) -> None:
        assert self._kernel is not None
        self._kernel.end(self._message, timeout=30)
        self._watch.close()
        self._kernel.run(STOP, timeout=30)
        self._kernel.close()
        self._kernel = None
        left = [f"left over: {text}" for text in self._family.left(5.0)]
        record = self._watch.record(verified=True, live=None)
        ends = checks.at_end(self._cell, record, self._watch.outputs(), record.lines)
        self._judge("at the end", record, [*left, *ends])

    def _clean_up(self) -> None:
        self._watch.close()
        if self._kernel is not None:
            with suppress(Exception):
                self._kernel.kill()
            self._family.end()
            with suppress(Exception):
                self._kernel.close()
            self._kernel = None
        self._family.end()


def seed_of(base: Any, number: int) -> str:
    """The seed of one trial of many."""
    return f"{base}:{number}"
