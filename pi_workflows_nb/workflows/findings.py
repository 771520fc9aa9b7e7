"""What is suspicious about a workflow that could be started: ways that lead nowhere, limits that cannot be kept.

A fault is an error wherever a workflow is checked; a finding is a guess about what its author meant.
"""

from __future__ import annotations

import dis
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import CodeType
from typing import TYPE_CHECKING, Any, Final

from pi_workflows_nb.workflows.human_decisions import HumanDecision
from pi_workflows_nb.workflows.nodes import Action, Agent, Decision, Node, Shell
from pi_workflows_nb.workflows.snapshot import definition_snapshot
from pi_workflows_nb.workflows.waiting_nodes import Sleep, WaitEvent

if TYPE_CHECKING:
    from pi_workflows_nb.workflows.captures import Captures
    from pi_workflows_nb.workflows.compiled import Compiled
    from pi_workflows_nb.workflows.edges import Edge

LEVELS: Final = ("note", "warning")
KINDS: Final = (
    "dead end",
    "missing case",
    "unused case",
    "effect",
    "time-out",
    "step limit",
    "unknown output",
    "captured",
    "secret",
)


@dataclass(frozen=True)
class Finding:
    """One suspicion: `kind` is of KINDS, `place` a node, a mount or a variable, `bytes` the size of a variable."""

    level: str
    kind: str
    place: str
    message: str
    bytes: int | None = None


def find(graph: Compiled, captured: Captures) -> list[Finding]:
    """All that is suspicious about a compiled workflow and what its functions carry along, warnings first."""
    ways = _ways(graph)
    found = [*_dead_ends(graph, ways), *_limits(graph, ways)]
    for name, node in graph.nodes.items():
        edge = graph.edges.get(name)
        if edge is not None:
            found += _cases(name, node, edge)
        found += _times(name, node)
        found += _effects(name, node)
    found += _unknown_outputs(graph)
    found += _captured(captured)
    return sorted(found, key=lambda finding: (-LEVELS.index(finding.level), KINDS.index(finding.kind)))


def _warning(kind: str, place: str, message: str) -> Finding:
    return Finding("warning", kind, place, message)


def _ways(graph: Compiled) -> dict[str, set[str]]:
    """The nodes that may follow each node, through mounts."""
    ways: dict[str, set[str]] = {name: set() for name in graph.nodes}
    for edge in definition_snapshot(graph)["edges"]:
        targets = edge["switch"]["cases"].values() if "switch" in edge else [edge["to"]]
        ways.setdefault(edge["from"], set()).update(targets)
    return ways


def _dead_ends(graph: Compiled, ways: Mapping[str, set[str]]) -> Iterator[Finding]:
    before: dict[str, set[str]] = {}
    for source, targets in ways.items():
        for target in targets:
            before.setdefault(target, set()).add(source)
    finishing = {name for name, targets in ways.items() if not targets}
    waiting = list(finishing)
    while waiting:
        for source in before.get(waiting.pop(), set()) - finishing:
            finishing.add(source)
            waiting.append(source)
    stuck = [name for name in graph.nodes if name not in finishing]
    if stuck:
        shown = ", ".join(repr(name) for name in stuck[:10])
        yield _warning(
            "dead end",
            stuck[0],
            f"from {shown} no way leads to an end of the workflow: the run goes round until max_steps; "
            "lead a case out of the loop",
        )
    for name, node in graph.nodes.items():
        if isinstance(node, Decision | HumanDecision) and not ways[name]:
            yield _warning(
                "dead end",
                name,
                f"no edge leaves {name!r}, and every choice ends the run: add wf.decision_edge({name!r}, {{…}})",
            )


def _limits(graph: Compiled, ways: Mapping[str, set[str]]) -> Iterator[Finding]:
    start = graph.start_at
    while start in graph.mounts:
        start = graph.mounts[start].start
    ends = {name for name, targets in ways.items() if not targets}
    yield from _limit(graph.name, graph.max_steps, _fewest(start, ends, ways))
    for path, mount in graph.mounts.items():
        inside = {name: targets for name, targets in ways.items() if name.startswith(f"{path}/")}
        first = mount.start
        while first in graph.mounts:
            first = graph.mounts[first].start
        doors = {name for name, targets in inside.items() if not targets <= inside.keys() or not targets}
        yield from _limit(path, mount.workflow.max_steps, _fewest(first, doors, inside))


def _limit(place: str, most: int, fewest: int | None) -> Iterator[Finding]:
    if fewest is not None and fewest > most:
        yield _warning(
            "step limit",
            place,
            f"the shortest way through {place!r} has {fewest} steps and max_steps is {most}: no run can complete; "
            f"set max_steps to {fewest} or more",
        )


def _fewest(start: str, ends: set[str], ways: Mapping[str, set[str]]) -> int | None:
    """How many nodes lie on the shortest way from the start to an end, both included; None where there is none."""
    seen, row, count = {start}, [start], 1
    while row:
        if any(name in ends for name in row):
            return count
        row = list({target for name in row for target in ways.get(name, ())} - seen)
        seen.update(row)
        count += 1
    return None


def _cases(name: str, node: Node, edge: Edge) -> Iterator[Finding]:
    path = edge.switch
    if path is None:
        return
    if path == "$result.outcome":
        missing = [outcome for outcome in _outcomes(node) if outcome not in edge.cases]
        unused = [case for case in edge.cases if case not in (*_outcomes(node), "cancelled")]
    elif isinstance(node, Decision) and path in (f"$.{node.field}", f"$output.{node.field}"):
        missing = [choice for choice in node.choices if choice not in edge.cases]
        unused = [case for case in edge.cases if case not in node.choices]
    else:
        flags = {"true", "false"}
        missing = sorted(flags - edge.cases.keys()) if set(edge.cases) <= flags else []
        unused = []
    if missing:
        yield _warning(
            "missing case",
            name,
            f"the edge from {name!r} reads {path} and has no case for {_listed(missing)}, which would fail the run",
        )
    if unused:
        yield _warning(
            "unused case",
            name,
            f"the edge from {name!r} reads {path}, which is never {_listed(unused)}: that way is never taken",
        )


def _outcomes(node: Node) -> tuple[str, ...]:
    if isinstance(node, WaitEvent):
        return ("ok",) if node.timeout is None else ("ok", "timed_out")
    if isinstance(node, Sleep) and node.fn is None:
        return ("ok",)
    return ("ok", "failed") if node.timeout is None else ("ok", "failed", "timed_out")


def _times(name: str, node: Node) -> Iterator[Finding]:
    limit = node.timeout
    if isinstance(node, Shell) and isinstance(node.exec, Mapping):
        own = node.exec.get("timeout")
        if isinstance(own, int | float) and isinstance(limit, int | float) and own > limit:
            yield _warning(
                "time-out",
                name,
                f"the command of {name!r} may take {own:g} s and its node {limit:g} s: the node ends first; "
                f"give the node timeout={own:g} or more",
            )
    if isinstance(node, Agent) and isinstance(limit, int | float) and limit < 1:
        yield _warning("time-out", name, f"no agent answers {name!r} within {limit:g} s; its timeout is in seconds")
    if node.retries is not None and limit is None and all(issubclass(one, TimeoutError) for one in node.retries.on):
        yield _warning(
            "time-out", name, f"{name!r} is tried again after a time-out alone, and has none: give it timeout=<seconds>"
        )


def _effects(name: str, node: Node) -> Iterator[Finding]:
    if isinstance(node, Action) and node.effect.recovery == "manual" and node.retries is not None:
        yield _warning(
            "effect",
            name,
            f"{name!r} has retries, but its effect is manual: once its code has begun it is never tried again; "
            "make it an idempotent_effect or drop the retries",
        )


def _unknown_outputs(graph: Compiled) -> Iterator[Finding]:
    places = [*graph.nodes, *graph.mounts]
    for name, node in graph.nodes.items():
        path = name.rpartition("/")[0]
        known = {place.rpartition("/")[2] for place in places if place.rpartition("/")[0] == path}
        request = None if node.effect is None else node.effect.request
        for function in (node.fn, node.timeout, request):
            for read in sorted(_outputs_read(function) - known):
                yield _warning(
                    "unknown output",
                    name,
                    f"the code of {name!r} reads the output of {read!r}, and there is no such node beside it; "
                    f"there are {_listed(sorted(known)[:20])}",
                )


def _outputs_read(function: Any) -> set[str]:
    code = getattr(function, "__code__", None)
    return set(_read_in(code)) if isinstance(code, CodeType) else set()


def _read_in(code: CodeType) -> Iterator[str]:
    steps = list(dis.get_instructions(code))
    for step, after, then in zip(steps, steps[1:], steps[2:], strict=False):
        if step.argval not in ("outputs", "results") or not step.opname.startswith("LOAD_ATTR"):
            continue
        subscript = after.opname == "LOAD_CONST" and (then.opname == "BINARY_SUBSCR" or then.argrepr == "[]")
        got = after.argval == "get" and then.opname == "LOAD_CONST"
        name = after.argval if subscript else then.argval if got else None
        if isinstance(name, str):
            yield name
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _read_in(constant)


def _captured(captured: Captures) -> Iterator[Finding]:
    for capture in captured.variables:
        users = ", ".join(capture.used_by)
        if capture.secret:
            yield Finding(
                "warning",
                "secret",
                capture.name,
                f"{capture.name} looks like a secret, and what is carried along is stored with each run: read it "
                f'inside the node, as os.environ["{capture.name.upper()}"] (used by {users})',
                capture.bytes,
            )
        else:
            yield Finding("note", "captured", capture.name, f"carried along by {users}", capture.bytes)


def _listed(names: list[str]) -> str:
    return ", ".join(repr(name) for name in names) or "none"
