"""How the command line prints, and the options that its words share: tables for people, JSON lines for machines."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from rich.console import Console

DATABASE: Final = click.option(
    "--database",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="The state file, when it is not the default one.",
)
JSON: Final = click.option("--json", "as_json", is_flag=True, help="JSON lines, also on a terminal.")


def console() -> Console:
    """Where tables go."""
    from rich.console import Console

    # What is piped is not folded at the width of nobody's terminal.
    return Console(highlight=False, width=None if sys.stdout.isatty() else 200)


def print_json(values: list[dict[str, Any]]) -> None:
    """A line each."""
    for value in values:
        click.echo(json.dumps(value))


def print_facts(facts: dict[str, Any], *, as_json: bool) -> None:
    """One JSON line, or on a terminal a line a fact."""
    if as_json or not sys.stdout.isatty():
        print_json([facts])
        return
    width = max(18, *(len(name) for name in facts))
    for name, value in facts.items():
        click.echo(f"{name:<{width}} {_text(value)}")


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_text(one)}" for name, one in value.items()) or "none"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
