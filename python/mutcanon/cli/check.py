"""`mutcanon check`: which archives would change, and which are wrong for those who read them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from mutcanon import _batch, _store
from mutcanon._repro import CONSUMERS, write_tests
from mutcanon.cli import _batch as batch
from mutcanon.cli import output
from mutcanon.cli._describe import change_lines, finding_lines
from mutcanon.cli._sarif import Log

if TYPE_CHECKING:
    from mutcanon._batch import Outcome


@click.command("check")
@click.option(
    "--repro",
    metavar="DIR",
    type=click.Path(file_okay=False),
    help="Write a small test to DIR for each finding, which fails.",
)
@click.option(
    "--sarif",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="Write a SARIF log to FILE, for code-scanning pages.",
)
@click.option(
    "--consumer",
    "consumers",
    multiple=True,
    type=click.Choice(list(CONSUMERS)),
    help="Only what this one gets wrong; may be given several times.",
)
@batch.options
def command(
    paths: tuple[str, ...],
    options: batch.Options,
    repro: str | None,
    sarif: str | None,
    consumers: tuple[str, ...],
) -> None:
    """Find .pt2 archives that would change or that stock consumers get wrong.

    PATHS are files, directories (searched for *.pt2), patterns, and URLs that fsspec knows (s3://,
    gs://, hf://, memory://). Nothing is written, torch is not needed. Exit code 1 when something
    was found.
    """
    settings = _batch.Settings(
        "check", form=options.form, verify=options.verify, consumers=consumers
    )
    items = _store.discover(paths)
    units = [_batch.Unit(item.name, item.path, None, item.size) for item in items]

    def show(outcome: Outcome) -> None:
        for line in [*change_lines(outcome), *finding_lines(outcome)]:
            output().print(line, markup=False, soft_wrap=True)

    log = Log() if sarif is not None else None

    def note(outcome: Outcome) -> None:
        if repro is not None:
            write_tests(outcome, repro)
        if log is not None:
            log.add(outcome)

    ending = batch.run(units, settings, options, show, note)
    if log is not None and sarif is not None:
        log.write(sarif, is_whole=ending.is_whole)
    sys.exit(ending.exit_code)
