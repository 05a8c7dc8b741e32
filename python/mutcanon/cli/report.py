"""`mutcanon report`: a page about a zoo."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from mutcanon import _batch, _store
from mutcanon.cli import _batch as batch

if TYPE_CHECKING:
    from mutcanon._batch import Outcome


@click.command("report")
@click.option(
    "-o",
    "--output",
    "page",
    metavar="FILE",
    required=True,
    type=click.Path(dir_okay=False),
    help="Where the page goes.",
)
@batch.options
def command(paths: tuple[str, ...], options: batch.Options, page: str) -> None:
    """Make one HTML page about .pt2 archives: a table of all, and a drawing of each.

    PATHS are as for `mutcanon check`. The page needs nothing else, no network either.
    """
    settings = _batch.Settings("check", form=options.form, verify=options.verify)
    items = _store.discover(paths)
    units = [_batch.Unit(item.name, item.path, None, item.size) for item in items]
    outcomes: list[Outcome] = []
    ending = batch.run(units, settings, options, lambda _: None, outcomes.append)
    batch.write_page(page, outcomes, paths)
    # What was found is on the page, and no failure of the command.
    sys.exit(0 if ending.exit_code == batch.EXIT_FOUND else ending.exit_code)
