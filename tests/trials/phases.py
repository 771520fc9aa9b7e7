"""What was running when somebody was killed, and when to kill so that everything that can run is hit."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from .cell import NODES
from .record import Glance, Line

PHASES: Final = ("start", "claim", "node", "proposal", "terminal", "recovery", "ended")
WANTED: Final = ("claim", "node", "proposal", "terminal", "recovery")
"""Of these the histogram has to hold enough."""

MEANING: Final = {
    "start": "before the run was claimed",
    "claim": "claimed, its first node not begun",
    "node": "a node's code",
    "proposal": "between a proposal and its answer",
    "terminal": "the run's end",
    "recovery": "recovery from an earlier kill",
    "ended": "after the run's end",
}
_FIRST: Final = {"time": 2, "start": 1, "claim": 3, "node": 3, "proposal": 3, "terminal": 4}
_AGAIN: Final = {"recovery": 7, "node": 1, "proposal": 1, "terminal": 2}
_KILLS: Final = {1: 10, 2: 7, 3: 3}
REPLACED_SECONDS: Final = 0.3
"""About how long a living server needs to replace a runner and its nursery."""

LAST: Final = f"n{NODES - 1:02}"


@dataclass
class Estimates:
    """How long things take here (seconds), learned from trial to trial."""

    claim: float = 0.6
    run: float = 0.8
    boot: float = 0.6

    def learn(self, name: str, seconds: float) -> None:
        setattr(self, name, 0.8 * getattr(self, name) + 0.2 * seconds)


@dataclass(frozen=True)
class Kill:
    """When to kill: at a moment after the cell was begun, or a while after something was seen."""

    target: str
    fraction: float
    delay: float
    node: str
    mode: str = ""


def plan(choice: random.Random) -> list[Kill]:
    """One to three kills."""
    count = choice.choices(list(_KILLS), list(_KILLS.values()))[0]
    return [_kill(choice, _FIRST if number == 0 else _AGAIN) for number in range(count)]


def _kill(choice: random.Random, weights: dict[str, int]) -> Kill:
    target = choice.choices(list(weights), list(weights.values()))[0]
    longest = {"claim": 0.012, "node": 0.010, "proposal": 0.0015, "terminal": 0.006, "recovery": 0.03}.get(target, 0.0)
    return Kill(
        target,
        fraction=choice.random(),
        delay=choice.uniform(0, longest),
        node=f"n{choice.randrange(NODES - 1):02}",
        mode=choice.choice(("time", "epoch", "epoch", "claim", "claim")),
    )


@dataclass(frozen=True)
class Moment:
    """What a kill's time is judged by; `elapsed` and `since_kill` in seconds since the cell began, or somebody died."""

    glance: Glance
    lines: Sequence[Line]
    elapsed: float
    since_kill: float
    recovering: bool
    server_lost: bool
    at_last_kill: Glance


def due(kill: Kill, now: Moment, estimates: Estimates) -> bool:
    """Whether the event that a kill is aimed at has come."""
    if kill.target == "start":
        return now.elapsed >= kill.fraction * estimates.claim
    if kill.target == "time":
        return now.elapsed >= kill.fraction * (estimates.claim + estimates.run * 1.1)
    if kill.target == "claim":
        return now.glance.queue == "starting" or bool(now.lines)
    if kill.target == "terminal":
        return now.glance.status == "completed" or any(
            line.what == "done" and line.node == LAST for line in now.lines[-2:]
        )
    if kill.target == "recovery":
        return _recovery_due(kill, now, estimates)
    what = "begin" if kill.target == "node" else "done"
    return bool(now.lines) and any(line.what == what and line.node >= kill.node for line in now.lines[-3:])


def _recovery_due(kill: Kill, now: Moment, estimates: Estimates) -> bool:
    if not now.recovering:
        return True
    if kill.mode == "claim":
        return now.glance.generation > now.at_last_kill.generation
    if kill.mode == "epoch" and now.server_lost:
        return now.glance.server_epoch > now.at_last_kill.server_epoch
    if not now.server_lost:
        return now.since_kill >= kill.fraction * REPLACED_SECONDS
    return now.elapsed >= kill.fraction * estimates.boot


def stage(now: Glance, at_last_kill: Glance, *, server_lost: bool) -> str:
    """How far a recovery had come."""
    if now.generation > at_last_kill.generation:
        return "claimed again"
    if server_lost and now.server_epoch == at_last_kill.server_epoch:
        return "no server yet"
    return "not claimed yet"


def classify(glance: Glance, lines: Sequence[Line], *, recovering: bool) -> str:
    """What was running, by where the run stood and what its nodes had told when somebody was killed.

    Code that runs ahead of the file counts as a proposal without its answer.
    """
    if recovering:
        return "recovery"
    if glance.run is None or glance.queue == "queued":
        return "start"
    if glance.status == "completed":
        return "terminal" if glance.active_runners else "ended"
    if not lines:
        return "claim"
    if lines[-1].what == "done" and lines[-1].node == LAST:
        return "terminal"
    # A word of a runner before the last one was either committed or died with it.
    own = [line for line in lines if line.pid == lines[-1].pid]
    if own[-1].what == "done" or any(line.what == "done" and line.attempt not in glance.attempts for line in own):
        return "proposal"
    return "node"
