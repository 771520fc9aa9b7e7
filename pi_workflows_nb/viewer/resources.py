"""Managed resources as plain text for a terminal."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pandas as pd
from rich import box
from rich.table import Table
from rich.text import Text

STYLES = {"true": "green", "false": "bold red", "unknown": "yellow"}


def of_resources(listed: Iterable[dict[str, Any]]) -> Table:
    """The resources as a table without lines, by manager and key."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("manager", "key", "generation", "conditions", "finalizers"):
        table.add_column(name, justify="right" if name == "generation" else "left")
    for one in listed:
        generation = str(one["generation"])
        if one["observedGeneration"] != one["generation"]:
            generation += f" (seen {one['observedGeneration']})"
        finalizers = ", ".join(one["finalizers"])
        table.add_row(
            Text(one["resourceManager"]),
            Text(one["key"]),
            generation,
            _conditions(one["conditions"]),
            Text(finalizers if one["deletionTimestamp"] is None else f"deleting {finalizers}".strip()),
        )
    return table


def of_resource(found: dict[str, Any]) -> Table:
    """One resource, a fact a line."""
    table = Table.grid(padding=(0, 2))
    queue = found["queue"]
    facts: list[tuple[str, Text]] = [
        ("manager", Text(found["resourceManager"])),
        ("key", Text(found["key"])),
        ("uid", Text(found["uid"])),
        ("generation", Text(f"{found['generation']}, observed {found['observedGeneration']}")),
        ("version", Text(str(found["resourceVersion"]))),
        ("spec", Text(json.dumps(found["spec"], ensure_ascii=False))),
        ("status", Text(json.dumps(found["status"]["resourceManagerStatus"], ensure_ascii=False))),
    ]
    for one in found["status"]["conditions"]:
        status = _word(one["status"])
        said = f" ({one['reason']})" + (f": {one['message']}" if "message" in one else "")
        facts.append((one["type"], Text.assemble((status, STYLES[status]), said)))
    facts += [
        ("finalizers", Text(", ".join(found["finalizers"]))),
        ("deletion wanted", _moment(found["deletionTimestamp"])),
        ("next pass", Text("now" if queue["held"] else "") or _moment(queue["availableAt"])),
        ("errors in a row", Text(str(queue["consecutiveErrors"] or ""))),
        ("last error", Text(queue["error"] or "")),
    ]
    for name, value in facts:
        if value:
            table.add_row(Text(name, style="dim"), value)
    return table


def _conditions(conditions: dict[str, Any]) -> Text:
    words = [(f"{name} {_word(status)}", STYLES[_word(status)]) for name, status in conditions.items()]
    return Text(", ").join(Text(word, style) for word, style in words)


def _word(status: Any) -> str:
    return "unknown" if status == "unknown" else "true" if status else "false"


def _moment(milliseconds: int | None) -> Text:
    return Text("" if milliseconds is None else f"{pd.Timestamp(milliseconds, unit='ms'):%Y-%m-%d %H:%M:%S} UTC")
