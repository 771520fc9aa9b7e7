"""What must hold, at every moment and at the end, however often and whoever was killed. Each check tells its faults."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

from .cell import ACTIONS, NAMES, Cell
from .record import Glance, Line, Record

ACTION_NAMES = frozenset(NAMES[index] for index in ACTIONS)


def always(record: Record) -> Iterator[str]:
    """What a record shows by itself."""
    for finding in record.findings:
        yield (
            f"verify: {finding.rule}: {finding.table} {finding.id} is {finding.what_is},"
            f" should be {finding.what_should_be}"
        )
    yield from _runs(record)
    yield from _steps(record)
    yield from _executions(record)
    yield from _effects(record)
    yield from _claims(record)
    yield from _servers(record)


def _runs(record: Record) -> Iterator[str]:
    if len(record.runs) > 1:
        yield f"run: the key started {len(record.runs)} runs"


def _steps(record: Record) -> Iterator[str]:
    nodes = [step.node for step in record.steps]
    if nodes != list(NAMES[: len(nodes)]):
        yield f"steps: they are not the nodes in their order, each once: {' '.join(nodes)}"


def _executions(record: Record) -> Iterator[str]:
    """Nothing that is committed is executed again, nobody executes after a successor, nothing starts too early."""
    newest = {line.node: line.attempt for line in record.lines if line.what == "begin"}
    told = {line.attempt for line in record.lines if line.what == "done"}
    for step in record.steps:
        if step.attempt not in told:
            yield f"executions: step {step.index} ({step.node}) was committed, but its attempt was never done"
        elif newest[step.node] != step.attempt:
            yield f"executions: {step.node} began again after the attempt that is committed as step {step.index}"
    seen: list[int] = []
    for line in record.lines:
        if line.pid not in seen:
            seen.append(line.pid)
        elif line.pid != seen[-1]:
            yield f"executions: process {line.pid} executed {line.node} though process {seen[-1]} had taken over"
            break
    steps = {step.node for step in record.steps}
    reserved = {effect.key.split(":")[-2] for effect in record.effects}
    for name in sorted({line.node for line in record.lines[: record.early] if line.what == "begin"} & ACTION_NAMES):
        missing = [before for before in NAMES[: NAMES.index(name)] if before not in steps]
        if missing:
            yield f"executions: action {name} began though {missing[0]} is not committed"
        if name not in reserved:
            yield f"executions: action {name} began though its effect is not recorded"


def _effects(record: Record) -> Iterator[str]:
    for key, count in Counter(record.ledger).items():
        if count > 1:
            yield f"ledger: {key} stands there {count} times"
    recorded = Counter(effect.key for effect in record.effects)
    for key in record.ledger:
        if key not in recorded:
            yield f"ledger: {key} stands there, but no effect is recorded under it"
    for key, count in recorded.items():
        if count > 1:
            yield f"effects: {key} is recorded {count} times"
    for effect in record.effects:
        if effect.applied != (effect.status == "applied"):
            yield f"effects: {effect.key} is {effect.status}, with {effect.applied} tries that applied it"


def _claims(record: Record) -> Iterator[str]:
    claimed = [event.generation or 0 for event in record.events if event.type == "lease.claimed"]
    if claimed != list(range(1, len(claimed) + 1)):
        yield f"claims: each has to have the next generation, these had {claimed}"
    held = [event.generation for event in record.events if event.generation is not None]
    for before, after in pairwise(held):
        if after < before:
            yield f"claims: an event of generation {before} was followed by one of generation {after}"
            break
    generations = [runner.generation for runner in record.runners]
    if any(after <= before for before, after in pairwise(generations)):
        yield f"claims: the runners had the generations {generations}"


def _servers(record: Record) -> Iterator[str]:
    """At most one server writes: nothing of an older one follows something of a newer one."""
    epochs = [runner.server_epoch for runner in record.runners]
    if any(after < before for before, after in pairwise(epochs)):
        yield f"servers: the runners were started by the epochs {epochs}"
    seen: list[str] = []
    for event in record.events:
        if event.server is None or (seen and event.server == seen[-1]):
            continue
        if event.server in seen:
            yield f"servers: event {event.seq} is of {event.server}, after events of {seen[-1]}"
            break
        seen.append(event.server)


def kept(before: Record, after: Record, when: str) -> Iterator[str]:
    """Whatever stood in the file, or was told, at one moment stands there at a later one."""
    pairs: Sequence[tuple[str, Sequence[Any], Sequence[Any]]] = (
        ("step", before.steps, after.steps),
        ("event", before.events, after.events),
        ("runner", [runner[:3] for runner in before.runners], [runner[:3] for runner in after.runners]),
        ("ledger line", before.ledger, after.ledger),
    )
    for what, earlier, later in pairs:
        for index, one in enumerate(earlier):
            if index >= len(later) or later[index] != one:
                yield f"lost: {what} {index} was {one} {when}, and is {later[index] if index < len(later) else 'gone'}"
                break
    results = {effect.key: effect for effect in after.effects}
    for effect in before.effects:
        if effect.status == "applied" and results.get(effect.key) != effect:
            yield f"lost: an applied effect was {effect} {when}, and is {results.get(effect.key)}"


def seen(glance: Glance, after: Record) -> Iterator[str]:
    """Steps that were visible right before a kill are there right after it."""
    there = {step.attempt for step in after.steps}
    for attempt in sorted(glance.attempts - there):
        yield f"lost: the step of attempt {attempt} was visible before a kill, and was gone right after it"


def at_end(cell: Cell, record: Record, outputs: Sequence[Any], lines: Iterable[Line]) -> Iterator[str]:
    """What a run that completed has to leave."""
    if [(status, queue) for _, status, queue in record.runs] != [("completed", "done")]:
        yield f"end: the runs are {record.runs}"
    if len(record.steps) != len(NAMES):
        yield f"end: {len(record.steps)} steps are committed"
    for index, output in enumerate(outputs):
        if output != cell.value(index):
            yield f"end: step {index} gave {str(output)[:80]}, not {str(cell.value(index))[:80]}"
            break
    if {line.node for line in lines} != set(NAMES):
        yield "end: not every node was executed"
    effects = {effect.key.split(":")[-2]: effect for effect in record.effects}
    if set(effects) != ACTION_NAMES or len(effects) != len(record.effects):
        yield f"end: effects are recorded for {sorted(effects)}"
    for name, effect in effects.items():
        if (effect.status, effect.applied) != ("applied", 1):
            yield f"end: the effect of {name} is {effect.status}, applied {effect.applied} times"
    if sorted(record.ledger) != sorted(effect.key for effect in record.effects):
        yield "end: the ledger does not hold each key once"
    active = [runner for runner in record.runners if runner.status in ("starting", "ready", "running")]
    if active:
        yield f"end: runners are recorded as active: {active}"
    if record.server_id is not None:
        yield "end: a server is recorded as the owner of the file though it was stopped"
