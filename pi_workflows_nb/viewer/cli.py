"""The command line: `pi-workflows-nb WORD`.

What a person mistypes is one line on the standard error and exit status 2; what goes wrong is one line and 1.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ..wire.errors import PiWorkflowsError
from .lab import FOLDER
from .printing import DATABASE, JSON, console, print_facts, print_json
from .state_words import state

if TYPE_CHECKING:
    from collections.abc import Sequence

NAME: Final = "pi-workflows-nb"


@click.group(
    name=NAME,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name=NAME, prog_name=NAME)
@click.pass_context
def commands(context: click.Context) -> None:
    """Durable workflows for people who work in notebooks.

    A workflow is a graph of small steps. Each run executes in a process of its own, and every fact about it stands in
    one SQLite file, so that it goes on after a crash where it was.

    \b
    Look at the runs, here in the terminal: pi-workflows-nb [view]
    See it work, here in the terminal:      pi-workflows-nb demo
    Write your own, in JupyterLab:          pi-workflows-nb lab
    In Python:                              import pi_workflows_nb as pw; server = pw.start()
    """  # noqa: D301 - click's mark for lines that stay as they are
    if context.invoked_subcommand is None:
        context.invoke(view)


LIMIT: Final = click.option(
    "--limit", type=click.IntRange(1, 500), default=50, show_default=True, help="How many at most."
)


@commands.command()
@click.argument("run_id", metavar="[RUN_ID]", required=False)
@click.option("--once", is_flag=True, help="Show one snapshot and end; so it is when nobody looks at a terminal.")
@JSON
@LIMIT
@DATABASE
def view(*, run_id: str | None, once: bool, as_json: bool, limit: int, database: Path | None) -> None:
    """The runs, or one of them, as plain text.

    Follows them live until the run has ended, or you press Ctrl-C. Where nobody serves the state file, it is shown as
    it stands.
    """
    from . import asking, live

    path = asking.resolved(database)
    if as_json:
        print_json(asking.runs(path, limit) if run_id is None else [asking.run(path, run_id)])
    elif once or not sys.stdout.isatty():
        console().print(
            live.of_runs(asking.runs(path, limit)) if run_id is None else live.of_run(asking.run(path, run_id))
        )
    else:
        try:
            live.follow(path, run_id, limit, console())
        except KeyboardInterrupt:
            return


@commands.command()
@JSON
@LIMIT
@DATABASE
def runs(*, as_json: bool, limit: int, database: Path | None) -> None:
    """The runs, newest first: a table on a terminal, JSON lines when piped."""
    from . import asking, live

    listed = asking.runs(asking.resolved(database), limit)
    if as_json or not sys.stdout.isatty():
        print_json(listed)
    else:
        console().print(live.of_runs(listed))


@commands.command("resource-managers")
@JSON
@LIMIT
@DATABASE
def resource_managers(*, as_json: bool, limit: int, database: Path | None) -> None:
    """The managed resources of the project in this folder: a table on a terminal, JSON lines when piped."""
    from . import asking, resources

    listed = asking.resources(asking.resolved(database), Path.cwd(), limit)
    if as_json or not sys.stdout.isatty():
        print_json(listed)
    else:
        console().print(resources.of_resources(listed))


@commands.command("resource-manager")
@click.argument("resource_manager", metavar="MANAGER")
@click.argument("key", metavar="KEY")
@JSON
@DATABASE
def resource_manager(*, resource_manager: str, key: str, as_json: bool, database: Path | None) -> None:
    """One managed resource of the project in this folder: what is wanted, what was observed, when it is looked at."""
    from . import asking, resources

    found = asking.resource(asking.resolved(database), Path.cwd(), resource_manager, key)
    if as_json or not sys.stdout.isatty():
        print_json([found])
    else:
        console().print(resources.of_resource(found))


@commands.group()
def server() -> None:
    """The server of a state file, in a process of its own."""


@server.command()
@JSON
@DATABASE
def start(*, as_json: bool, database: Path | None) -> None:
    """Start the server in the background and wait until it is ready.

    It lives until `pi-workflows-nb server stop`, or a signal. One that serves already is left as it is.
    """
    from . import asking, service

    print_facts(service.start(asking.resolved(database)), as_json=as_json)


@server.command()
@JSON
@DATABASE
def status(*, as_json: bool, database: Path | None) -> None:
    """What the server tells of itself: counts and times."""
    from . import asking, service

    print_facts(service.status(asking.resolved(database)), as_json=as_json)


@server.command()
@JSON
@DATABASE
def stop(*, as_json: bool, database: Path | None) -> None:
    """Stop the server, wherever it lives; its runs wait for the next start."""
    from . import asking, service

    print_facts(service.stop(asking.resolved(database)), as_json=as_json)


@server.command()
@DATABASE
def run(*, database: Path | None) -> None:
    """Serve here, in the foreground, until Ctrl-C, SIGTERM or `pi-workflows-nb server stop`."""
    from . import asking, service

    service.run(asking.resolved(database))


@commands.command()
@click.option("--yes", is_flag=True, help="Answer what is asked without asking; so it is when nobody is at the keys.")
@click.option(
    "--database",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Keep everything in this state file; otherwise it is temporary and removed at the end.",
)
def demo(*, yes: bool, database: Path | None) -> None:
    """The quickstart in the terminal, in ten seconds.

    Runs the workflow of the first notebook on the git history of the working folder, or on Python's standard library
    where there is none: its steps as they happen, a question to answer, the facts as tables. Then a second run, whose
    process is killed in the middle, and which goes on after the last step that was written.

    Needs neither a browser nor JupyterLab nor the network.
    """
    from .demo import run_demo

    run_demo(database=database, ask=not yes and sys.stdin.isatty())


@commands.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False), default=FOLDER)
@click.pass_obj
def lab(arguments: Sequence[str] | None, folder: Path) -> None:
    """JupyterLab on the teaching notebooks.

    Copies the notebooks into FOLDER (by default pi-workflows-nb-notebooks, here) and opens them there. A notebook that
    you changed is never overwritten. What stands behind -- goes to JupyterLab:

    \b
    pi-workflows-nb lab
    pi-workflows-nb lab ~/notebooks -- --no-browser --port 8890

    Needs the extra "lab": pip install '.[lab]'
    """  # noqa: D301
    from .lab import open_lab

    open_lab(folder, arguments or ())


commands.add_command(state)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; `arguments` are those of the process unless given. Ends by SystemExit."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    behind: list[str] | None = None
    if "--" in words:
        cut = words.index("--")
        words, behind = words[:cut], words[cut + 1 :]
    try:
        if behind is not None and words[:1] != ["lab"]:
            raise click.UsageError("only `lab` takes words behind --")
        status = commands.main(words, prog_name=NAME, standalone_mode=False, obj=behind)
    except click.UsageError as error:
        said = error.format_message()
        _say(f"{said}{'' if said.endswith(('.', '?')) else '.'} See {_command_of(error)} --help")
        sys.exit(2)
    except PiWorkflowsError as error:
        _say(str(error))
        sys.exit(1)
    except (click.Abort, KeyboardInterrupt):
        _say("stopped")
        sys.exit(1)
    except BrokenPipeError:
        # Whoever read has read enough; nothing more can be said there.
        sys.stdout = None
        sys.exit(1)
    sys.exit(status if isinstance(status, int) else 0)


def _command_of(error: click.UsageError) -> str:
    return NAME if error.ctx is None else error.ctx.command_path


def _say(text: str) -> None:
    click.echo(f"{NAME}: {' '.join(text.split())}", err=True)
