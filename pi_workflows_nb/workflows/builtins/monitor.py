"""`monitor`: an agent looks at something again and again, and acts, waits or stops.

Each check observes first. Evidence that was acted on is not acted on again before it changes, whatever is decided. The
last check that is allowed ends the watch.
"""

import hashlib
import json
import math
from typing import Any

import pi_workflows_nb as pw

MOST_CHECKS = 1000
STEPS_A_CHECK = 6


def _input(given: Any) -> dict[str, Any]:
    given = {"goal": given} if isinstance(given, str) else given
    if not isinstance(given, dict) or not isinstance(given.get("goal"), str) or not given["goal"].strip():
        raise ValueError("give what to watch and for what, as {'goal': '…', 'interval': 300, 'maxChecks': 100}")
    if unknown := sorted(given.keys() - {"goal", "interval", "maxChecks"}):
        raise ValueError(f"there is no {unknown[0]!r}; the fields are goal, interval (seconds) and maxChecks")
    interval, most = given.get("interval", 300), given.get("maxChecks", 100)
    if isinstance(interval, bool) or not isinstance(interval, int | float) or not 0 <= interval <= 86400 * 365:
        raise ValueError(f"interval is a number of seconds from 0 to a year, not {interval!r}")
    if isinstance(most, bool) or not isinstance(most, int) or not 1 <= most <= MOST_CHECKS:
        raise ValueError(f"maxChecks is a whole number from 1 to {MOST_CHECKS}, not {most!r}")
    return {"goal": given["goal"], "interval": interval, "maxChecks": most}


def _observation(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict) or value.get("evidence") is None:
        raise ValueError("answer with what was seen, as {'evidence': …, 'tracks': [{'label': '…', 'completed': 3}]}")
    tracks = value.get("tracks", [])
    if not isinstance(tracks, list) or not all(isinstance(track, dict) and track.get("label") for track in tracks):
        raise ValueError("tracks is a list of objects, each with a label and counts")
    if len(tracks) > 20:
        raise ValueError("give at most 20 tracks")
    return {"evidence": value["evidence"], "tracks": tracks}


def _title(given: dict[str, Any], _: str) -> str:
    return f"Monitor: {given['goal'][:100]}"


workflow = pw.Workflow(
    "monitor",
    start_at="observe",
    input=_input,
    title=_title,
    exits={"stopped": pw.exit("report")},
    max_steps=STEPS_A_CHECK * MOST_CHECKS,
)


@workflow.agent(
    name="observe",
    expected_output='{"evidence": …, "tracks": [{"label": "…", "completed": 3, "total": 10, "unit": "files"}]}',
    validate=_observation,
)
async def _observe(ctx: pw.Context) -> str:
    done = ctx.outputs.get("compare", {"check": 0})["check"]
    await ctx.publish_update("progress", "checks", _track("checks", done, ctx.input["maxChecks"], "checks"))
    return (
        f"Observe, and change nothing: {ctx.input['goal']}\nGive the facts that a decision to act would rest on as "
        "`evidence`, without times and other things that differ at each look; and, where something is under way, how "
        "far it is as `tracks`."
    )


@workflow.compute(name="compare")
def _compare(ctx: pw.Context) -> dict[str, Any]:
    before, results = ctx.outputs.get("compare"), ctx.results
    canonical = json.dumps(ctx.outputs["observe"]["evidence"], sort_keys=True, ensure_ascii=False)
    acted_on = actions = None
    if before is not None:
        acted = "act" in results and results["act"]["index"] > results["compare"]["index"]
        acted_on = before["digest"] if acted else before["actedOn"]
        actions = before["actions"] + acted
    return {
        "check": 1 if before is None else before["check"] + 1,
        "digest": hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest(),
        "actedOn": acted_on,
        "actions": actions or 0,
    }


@workflow.decision(
    name="decide",
    choices={
        "act": "what was seen asks for something to be done now",
        "wait": "there is nothing to do before another look",
        "stop": "the goal is reached, or can no longer be",
    },
)
async def _decide(ctx: pw.Context) -> str:
    for number, track in enumerate(ctx.outputs["observe"]["tracks"]):
        progress = _track(track["label"], track.get("completed"), track.get("total"), track.get("unit"))
        await ctx.publish_update("progress", f"track-{number + 1}", progress)
    seen = json.dumps(ctx.outputs["observe"]["evidence"], ensure_ascii=False)
    acted = "\nIt was acted on already, and has not changed since." if _is_unchanged(ctx) else ""
    return f"Goal: {ctx.input['goal']}\nCheck {ctx.outputs['compare']['check']} saw: {seen}{acted}\nAct, wait or stop?"


@workflow.compute(name="choose")
def _choose(ctx: pw.Context) -> dict[str, str]:
    choice = ctx.outputs["decide"]["route"]
    if choice == "act" and _is_unchanged(ctx):
        choice = "wait"
    return _or_stop(ctx) if choice == "wait" else {"route": choice, "reason": "decided"}


@workflow.agent(name="act", expected_output='{"did": "…"}')
def _act(ctx: pw.Context) -> str:
    seen = json.dumps(ctx.outputs["observe"]["evidence"], ensure_ascii=False)
    return f"Goal: {ctx.input['goal']}\nSeen: {seen}\nDo what this asks for, once, and say what was done."


@workflow.compute(name="go_on")
def _go_on(ctx: pw.Context) -> dict[str, str]:
    return _or_stop(ctx)


workflow.sleep("rest", lambda ctx: ctx.input["interval"])


@workflow.compute(name="report")
def _report(ctx: pw.Context) -> dict[str, Any]:
    compared, results = ctx.outputs["compare"], ctx.results
    acted = "act" in results and results["act"]["index"] > results["compare"]["index"]
    ended_by = ctx.outputs["go_on"] if acted else ctx.outputs["choose"]
    return {
        "checks": compared["check"],
        "actions": compared["actions"] + acted,
        "evidence": ctx.outputs["observe"]["evidence"],
        "reason": ended_by["reason"],
    }


def _is_unchanged(ctx: pw.Context) -> bool:
    compared = ctx.outputs["compare"]
    return bool(compared["digest"] == compared["actedOn"])


def _or_stop(ctx: pw.Context) -> dict[str, str]:
    if ctx.outputs["compare"]["check"] >= ctx.input["maxChecks"]:
        return {"route": "stop", "reason": "maxChecks"}
    return {"route": "wait", "reason": "decided"}


def _is_count(count: Any) -> bool:
    return isinstance(count, int | float) and not isinstance(count, bool) and math.isfinite(count) and count >= 0


def _track(label: Any, completed: Any, total: Any, unit: Any) -> dict[str, Any]:
    """Progress of version 1, of what an agent said: counts that are none are left out."""
    track: dict[str, Any] = {"schema": pw.PROGRESS, "status": "running", "label": str(label)[:200]}
    track |= {name: count for name, count in (("completed", completed), ("total", total)) if _is_count(count)}
    if track.keys() & {"completed", "total"}:
        track["unit"] = str(unit or "items")[:32]
    return track


workflow.edge("observe", "compare")
workflow.edge("compare", "decide")
workflow.edge("decide", "choose")
workflow.switch("choose", "$.route", {"act": "act", "wait": "rest", "stop": "report"})
workflow.edge("act", "go_on")
workflow.switch("go_on", "$.route", {"wait": "rest", "stop": "report"})
workflow.edge("rest", "observe")
