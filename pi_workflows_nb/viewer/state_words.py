"""The words behind `pi-workflows-nb state`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from .printing import DATABASE, JSON, print_facts, print_json


class _Moment(click.ParamType):  # type: ignore[type-arg]
    name = "timestamp"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        from .state import moment

        try:
            return moment(str(value))
        except (OverflowError, ValueError):
            self.fail(
                f"{value!r} is no moment: give an ISO time such as 2026-01-31T12:00Z, or an age such as 30d", param, ctx
            )


@click.group()
def state() -> None:
    """The state file: what it holds, whether it is sound, its copies, and letting old runs leave."""


@state.command()
@JSON
@DATABASE
def status(*, as_json: bool, database: Path | None) -> None:
    """Counts and sizes of the file; no ids, paths, prompts or outputs."""
    from . import asking
    from .state import status as status_of

    print_facts(status_of(asking.resolved(database)), as_json=as_json)


@state.command()
@click.argument("inactive", metavar="[INACTIVE_BACKUP]", type=click.Path(path_type=Path), required=False)
@JSON
@DATABASE
def verify(*, inactive: Path | None, as_json: bool, database: Path | None) -> None:
    """Check pages, references, digests and every rule about what the file tells; nothing is repaired.

    Without INACTIVE_BACKUP the active file is checked, by its server where one lives. Exit status 1 when something is
    wrong; what is only unusual, as in a file of the original, is a warning.
    """
    from . import asking
    from .state import check

    found = check(asking.resolved(database), inactive)
    if as_json or not sys.stdout.isatty():
        print_json([*found["findings"], {"errors": found["errors"], "warnings": found["warnings"]}])
    else:
        for one in found["findings"]:
            click.echo(
                f"{one['severity']}: {one['rule']}: {one['table']} {one['id']}: {one['what_is']}; should be"
                f" {one['what_should_be']}"
            )
        click.echo(f"{found['errors']} errors, {found['warnings']} warnings")
    if found["errors"]:
        sys.exit(1)


@state.command()
@click.argument("destination", type=click.Path(path_type=Path))
@JSON
@DATABASE
def backup(*, destination: Path, as_json: bool, database: Path | None) -> None:
    """Copy the file to DESTINATION, which must not exist, and check the copy. Runs go on meanwhile."""
    from . import asking
    from .state import copy

    print_facts(copy(asking.resolved(database), destination), as_json=as_json)


@state.command()
@click.option("--before", type=_Moment(), required=True, help="What ended before: an ISO time, or an age such as 30d.")
@click.option("--dry-run", is_flag=True, help="Only say what would leave, and what keeps the rest.")
@click.option("--backup", "where", metavar="ABSOLUTE_PATH", help="Where the file is copied to first.")
@click.option("--apply", is_flag=True, help="Let it leave.")
@JSON
@DATABASE
def prune(*, before: int, dry_run: bool, where: str | None, apply: bool, as_json: bool, database: Path | None) -> None:
    """Let runs that ended long ago leave the file, with all that is their own.

    \b
    pi-workflows-nb state prune --before 30d --dry-run
    pi-workflows-nb state prune --before 2026-01-01 --backup /backups/state.sqlite --apply

    A run leaves with everything that continues or restarts it, when nothing needs it any more. The copy is made and
    checked before anything changes; then the file and its log shrink.
    """  # noqa: D301
    from . import asking
    from .state import prune as pruned

    if dry_run == apply or (where is None) != dry_run:
        raise click.UsageError("give either --dry-run, or --backup ABSOLUTE_PATH --apply")
    if where is not None and not Path(where).is_absolute():
        raise click.UsageError(f"--backup {where}: give an absolute path")
    print_facts(pruned(asking.resolved(database), before, where, apply=apply), as_json=as_json)
