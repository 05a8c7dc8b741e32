"""The command line: `mutcanon COMMAND`.

Results go to stdout, messages to stderr. Exit codes: 0, done or nothing to do; 1, a check found
something; 2, wrong usage or a failure. Each command is a module of this package that is imported
when it is called for, so that help and usage errors come at once and need no torch.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from typing import TYPE_CHECKING, Any, NoReturn

import click

from mutcanon import __version__
from mutcanon.errors import MutcanonError

if TYPE_CHECKING:
    from rich.console import Console

EXIT_FAILURE = 2

#: Each command with the line that `mutcanon --help` shows for it.
COMMANDS = {
    "check": "Find stored programs that would change or that stock consumers get wrong.",
    "demo": "Show on a small decoder what mutcanon changes.",
    "explain": "Say of a stored program which copies go, which stay, and why.",
    "report": "Make a page about stored programs.",
    "rewrite": "Write stored programs without redundant copies.",
    "verify": "Prove that a rewritten program still means the same, without the planner.",
}


class _Commands(click.Group):
    """The group that imports a command on first use and turns our errors into messages."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"mutcanon.cli.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        # From the table: click's own would import every command for its first line.
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except MutcanonError as error:
            fail(str(error))
        except OSError as error:
            if error.filename is None:
                raise  # a pipe that nobody reads any more, for one, is click's business
            fail(f"{error.filename}: {error.strerror} [io]")


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="%(prog)s %(version)s")
def main() -> None:
    """Make mutation in exported PyTorch programs right and free."""
    if not sys.warnoptions:
        # torch and ExecuTorch warn each other about their future; our users can do nothing about
        # it.
        warnings.simplefilter("ignore", FutureWarning)


def fail(message: str) -> NoReturn:
    """Ends the command with a message on stderr."""
    click.echo(f"error: {message}", err=True)
    sys.exit(EXIT_FAILURE)


def output() -> Console:
    """Where results go. Rich leaves out colours for files, pipes and NO_COLOR."""
    from rich.console import Console

    return Console(highlight=False)


def messages() -> Console:
    """Where progress and remarks go."""
    from rich.console import Console

    return Console(stderr=True, highlight=False)


def require_torch(extra: str) -> None:
    """Ends the command, and says what to install, where torch is missing."""
    try:
        importlib.import_module("torch")
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        fail(f"torch is not installed; install it with: pip install 'mutcanon[{extra}]'")
