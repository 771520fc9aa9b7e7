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
    See it work, here in the terminal:      pi-workflows-nb demo
    Write your own, in JupyterLab:          pi-workflows-nb lab
    In Python:                              import pi_workflows_nb as pw; server = pw.start()
    """  # noqa: D301 - click's mark for lines that stay as they are
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


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
