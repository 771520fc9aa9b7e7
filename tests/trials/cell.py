"""What the kernel of a trial executes: one cell that starts, or adopts, a run of 30 nodes and waits for its end.

What each node does is told in a file beside the state file, one line before its work and one after it, so that the
file's word can be compared with something that knows nothing of it. An action writes its idempotency key into a ledger
unless the key stands there.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

NODES: Final = 30
NAMES: Final = tuple(f"n{index:02}" for index in range(NODES))
MODULUS: Final = 1_000_003
SHELLS: Final = frozenset({7, 17, 27})
ACTIONS: Final = frozenset(index for index in range(NODES) if index % 5 in (2, 4) and index != NODES - 1) | SHELLS
FAILS_FIRST: Final = frozenset({6, 24})
LARGE: Final = frozenset({13})
LARGE_BYTES: Final = 400_000
"""More than a frame carries inline."""

_BODY: Final = """
import asyncio, json, os, random, time
import pi_workflows_nb as pw


def tell(what, node, number, attempt, run):
    line = json.dumps([what, node, number, attempt, os.getpid(), run, time.monotonic()]) + "\\n"
    file = os.open(EXECUTIONS, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, line.encode())
    os.close(file)


def charge(key):
    file = os.open(LEDGER, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
    held = os.read(file, 1 << 20).decode().split()
    if key not in held:
        os.write(file, (key + "\\n").encode())
    os.fsync(file)
    os.close(file)


def value_of(ctx, index):
    before = ctx.outputs[f"n{index - 1:02}"]["value"] if index else ctx.input["seed"]
    made = {"value": (before * 31 + index) % MODULUS}
    if index in LARGE:
        made["text"] = "x" * LARGE_BYTES
    return made


def node(index):
    def work(ctx):
        tell("begin", ctx.node_id, ctx.attempt_number, ctx.attempt_id, ctx.run_id)
        made = value_of(ctx, index)
        if index in ACTIONS:
            charge(ctx.effect.idempotency_key)
            if index % 5 == 4:
                ctx.publish_update("note", "charged", {"node": ctx.node_id})
        if index in FAILS_FIRST and ctx.attempt_number == 1:
            raise ConnectionError("the first try")
        if index % 4 == 3:
            print("node", index)
        time.sleep(random.uniform(0, 0.015))
        tell("done", ctx.node_id, ctx.attempt_number, ctx.attempt_id, ctx.run_id)
        return made

    async def work_async(ctx):
        await asyncio.sleep(0)
        return work(ctx)

    return work_async if index % 6 == 5 else work


COMMAND = 'grep -qxF -- "$1" "$2" 2>/dev/null || { echo "$1" >> "$2"; sync "$2"; }; sleep 0.01'


def shell(index):
    made = {}

    def command(ctx):
        made["told"] = (ctx.node_id, ctx.attempt_number, ctx.attempt_id, ctx.run_id)
        made["output"] = value_of(ctx, index)
        tell("begin", *made["told"])
        return {"command": "sh", "args": ["-c", COMMAND, "sh", ctx.effect.idempotency_key, LEDGER]}

    def parse(result):
        tell("done", *made["told"])
        return made["output"]

    return command, parse


wf = pw.Workflow("trial", start_at="n00", max_steps=100)
for index in range(NODES):
    name, effect = f"n{index:02}", pw.idempotent_effect("ledger.append")
    retries = pw.retry(times=3, backoff=(0.01, 1, 1), on=(ConnectionError,)) if index in FAILS_FIRST else None
    if index in SHELLS:
        command, parse = shell(index)
        wf.shell(command, name=name, effect=effect, parse=parse)
    elif index in ACTIONS:
        wf.action(node(index), name=name, effect=effect, retries=retries)
    else:
        wf.compute(node(index), name=name, retries=retries)
    if index:
        wf.edge(f"n{index - 1:02}", name)

try:
    server = pw.start(database=DATABASE, project=FOLDER, server=PLACEMENT)
    run = server.run(wf, {"seed": SEED}, key="trial")
    run.wait()
    outcome = {"run": run.id, "status": run.status}
    outcome["output"] = run.output if run.status == "completed" else None
except BaseException as error:
    outcome = {"error": type(error).__name__, "text": str(error)}
with open(OUTCOME + ".part", "w") as file:
    json.dump(outcome, file)
os.replace(OUTCOME + ".part", OUTCOME)
"""

STOP: Final = "server.stop()"


@dataclass(frozen=True)
class Cell:
    """The cell of one trial; `fault` names a fault to plant before anything is imported, for trying the checks."""

    folder: Path
    placement: str
    seed: int
    fault: str | None = None

    @property
    def database(self) -> Path:
        return self.folder / "s.sqlite"

    @property
    def executions(self) -> Path:
        return self.folder / "executions"

    @property
    def ledger(self) -> Path:
        return self.folder / "ledger"

    def outcome(self, turn: int) -> Path:
        """Where the cell tells how it ended when it is executed for the `turn`th time."""
        return self.folder / f"outcome-{turn}.json"

    def text(self, turn: int) -> str:
        names: dict[str, Any] = {
            "FOLDER": str(self.folder),
            "DATABASE": str(self.database),
            "EXECUTIONS": str(self.executions),
            "LEDGER": str(self.ledger),
            "OUTCOME": str(self.outcome(turn)),
            "PLACEMENT": self.placement,
            "SEED": self.seed,
            "NODES": NODES,
            "MODULUS": MODULUS,
            "ACTIONS": ACTIONS,
            "SHELLS": SHELLS,
            "FAILS_FIRST": FAILS_FIRST,
            "LARGE": LARGE,
            "LARGE_BYTES": LARGE_BYTES,
        }
        lines = [f"{name} = {value!r}" for name, value in names.items()]
        if self.fault is not None:
            root = Path(__file__).parent.parent.parent
            lines += [
                f"import sys; sys.path.insert(0, {str(root)!r})",
                f"from tests.trials import faults; faults.plant({self.fault!r})",
            ]
        return "\n".join(lines) + _BODY

    def value(self, index: int) -> dict[str, Any]:
        """What the node of that index has to give."""
        value = self.seed
        for at in range(index + 1):
            value = (value * 31 + at) % MODULUS
        return {"text": "x" * LARGE_BYTES, "value": value} if index in LARGE else {"value": value}
