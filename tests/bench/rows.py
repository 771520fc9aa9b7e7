"""The rows of the speed table: who is measured, and what ratio is to be reached."""

from __future__ import annotations

from dataclasses import dataclass

from .rounds import Contestant

FLOOR = ("tests/bench/floor.py", "{db}")
OURS = ("-m", "tests.bench.ours", "{db}")
LANGGRAPH = ("tests/bench/neighbours/langgraph_sync.py", "{db}")
DBOS = ("tests/bench/neighbours/dbos_wal.py", "{db}")
RESOURCES = ("-m", "tests.bench.resources", "{db}")
RECONCILED = ("-m", "tests.bench.reconciled", "{db}", "{n}")
FLAT = 10**0.05
"""What the cost of one may grow by while their number grows tenfold: an exponent of 1.05."""
TIMED_IMPORT = "import time; s = time.perf_counter(); import {}; print('{{\"value\":', time.perf_counter() - s, '}}')"
SPAWNED = "import pi_workflows_nb.runner.entry, time; print('{\"finished\":', time.monotonic(), '}')"


@dataclass(frozen=True)
class Goal:
    """A ratio to another contestant, and the bound it is to keep, if any."""

    other: str
    bound: float | None = None
    at_most: bool = False

    def verdict(self, ratio: float) -> str:
        if self.bound is None:
            return ""
        reached = ratio <= self.bound if self.at_most else ratio >= self.bound
        return f", to reach {'≤' if self.at_most else '≥'} {self.bound:g}: {'reached' if reached else 'MISSED'}"


@dataclass(frozen=True)
class Row:
    title: str
    name: str
    unit: str
    goals: tuple[Goal, ...] = ()
    limit: float | None = None


def contestants(scale: float) -> dict[str, dict[str, Contestant]]:
    """Groups of contestants that are measured against each other."""

    def number(full: int) -> int:
        return max(10, int(full * scale))

    steps, runs = number(2000), number(200)
    return {
        "steps": {
            "floor": Contestant((*FLOOR, "steps", "{n}"), number(4000)),
            "floor of two commits": Contestant((*FLOOR, "steps", "{n}", "2"), number(4000)),
            "LangGraph sync": Contestant((*LANGGRAPH, "steps", "{n}"), number(1000), environment="langgraph"),
            "DBOS WAL": Contestant((*DBOS, "steps", "{n}"), number(1000), environment="dbos"),
            "one run": Contestant((*OURS, "steps", "{n}"), steps),
            "one run, window 1": Contestant(
                (*OURS, "steps", "{n}"), steps, variables={"PI_WORKFLOWS_NB_RUN_AHEAD": "1"}
            ),
            "eight runs": Contestant((*OURS, "eight", "{n}"), number(1000)),
        },
        "runs": {
            "floor of runs": Contestant((*FLOOR, "runs", "{n}"), number(800)),
            "LangGraph sync, runs": Contestant((*LANGGRAPH, "runs", "{n}"), runs, environment="langgraph"),
            "DBOS WAL, runs": Contestant((*DBOS, "runs", "{n}"), runs, environment="dbos"),
            "runs of five": Contestant((*OURS, "runs", "{n}"), runs),
        },
        "start": {
            "warm start": Contestant((*OURS, "warm", "{n}"), number(40)),
            "spawned Python": Contestant(("-c", SPAWNED)),
            "cold start": Contestant((*OURS, "cold", "1")),
            "LangGraph, cold": Contestant((*LANGGRAPH, "cold", "1"), environment="langgraph"),
        },
        "import": {
            "import": Contestant(("-c", TIMED_IMPORT.format("pi_workflows_nb"))),
            "import of the floor": Contestant(("-c", TIMED_IMPORT.format("asyncio, sqlite3, json"))),
        },
        "resources": {
            "two commits": Contestant((*FLOOR, "steps", "{n}", "2"), number(4000)),
            "claims of 2,000": Contestant((*RESOURCES, "2000", "{n}"), number(1500)),
            "claims of 100,000": Contestant((*RESOURCES, "100000", "{n}"), number(1500)),
            "effects": Contestant((*OURS, "effects", "{n}"), number(1000)),
        },
        "reconciled": {f"one of {count:,}": Contestant(RECONCILED, number(count)) for count in (100, 1000, 10_000)},
        "busy": {
            f"{mode}, {placement}": Contestant((*OURS, mode, placement, "{n}"), number(60))
            for placement in ("thread", "process")
            for mode in ("idle", "beside", "cell", "alone")
        },
        "bytes": {
            "bytes a step": Contestant((*OURS, "bytes", "{n}"), number(1000)),
        },
    }


ROWS = (
    Row("the floor: one FULL commit a step", "floor", "steps/s"),
    Row("two FULL commits a step", "floor of two commits", "steps/s", (Goal("floor"),)),
    Row("LangGraph, durability sync", "LangGraph sync", "steps/s", (Goal("floor"),)),
    Row("DBOS, WAL", "DBOS WAL", "steps/s", (Goal("floor"),)),
    Row(
        "one run in its own process",
        "one run",
        "steps/s",
        (Goal("floor", 0.6), Goal("LangGraph sync", 3), Goal("DBOS WAL", 4)),
    ),
    Row("the same without run-ahead", "one run, window 1", "steps/s", (Goal("floor", 0.2),)),
    Row("eight runs at once, in sum", "eight runs", "steps/s", (Goal("floor", 1.0),)),
    Row("the floor, runs of five steps", "floor of runs", "runs/s"),
    Row("LangGraph, durability sync", "LangGraph sync, runs", "runs/s", (Goal("floor of runs"),)),
    Row("DBOS, WAL", "DBOS WAL, runs", "runs/s", (Goal("floor of runs"),)),
    Row(
        "five-step runs, eight at a time",
        "runs of five",
        "runs/s",
        (Goal("LangGraph sync, runs", 1.5), Goal("DBOS WAL, runs", 2)),
    ),
    Row("spawning Python with a runner's imports", "spawned Python", "ms"),
    Row("server.run called to first node's code", "warm start", "ms", (Goal("spawned Python", 0.15, at_most=True),)),
    Row("LangGraph: cold to the first result", "LangGraph, cold", "ms"),
    Row("cold: import, start, first run finished", "cold start", "ms", (Goal("LangGraph, cold", 0.7, at_most=True),)),
    Row("import asyncio, sqlite3, json", "import of the floor", "ms"),
    Row("import of the package", "import", "ms", (Goal("import of the floor", 1.5, at_most=True),)),
    Row("two FULL commits a step", "two commits", "steps/s"),
    Row("claim + settle of 2,000 resources", "claims of 2,000", "pairs/s", (Goal("two commits", 0.3),)),
    Row(
        "claim + settle of 100,000 resources",
        "claims of 100,000",
        "pairs/s",
        (Goal("two commits", 0.3), Goal("claims of 2,000", 0.8)),
    ),
    Row("effects of actions, reserved and settled", "effects", "effects/s", (Goal("two commits", 0.25),)),
    Row("one of 100 resources, reconciled once", "one of 100", "ms"),
    Row("one of 1,000", "one of 1,000", "ms", (Goal("one of 100", FLAT, at_most=True),)),
    Row("one of 10,000", "one of 10,000", "ms", (Goal("one of 1,000", FLAT, at_most=True),)),
    Row("five runs, the kernel idle", "idle, thread", "steps/s"),
    Row("five runs beside a spinning cell", "beside, thread", "steps/s", (Goal("idle, thread", 0.1),)),
    Row("the spinning cell alone", "alone, thread", "turns/s"),
    Row("the spinning cell beside five runs", "cell, thread", "turns/s", (Goal("alone, thread", 0.88),)),
    Row("five runs, server in a process, idle", "idle, process", "steps/s"),
    Row("the same beside a spinning cell", "beside, process", "steps/s", (Goal("idle, process", 0.7),)),
    Row("the spinning cell beside that process", "cell, process", "turns/s", (Goal("alone, process"),)),
    Row("file bytes per compute step", "bytes a step", "bytes", limit=1536),
)
