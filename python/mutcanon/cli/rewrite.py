"""`mutcanon rewrite`: archives without redundant copies."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from mutcanon import _batch, _journal, _store
from mutcanon.cli import _batch as batch
from mutcanon.cli import output
from mutcanon.cli._describe import change_lines

if TYPE_CHECKING:
    from mutcanon._batch import Outcome
    from mutcanon._store import Item


@click.command("rewrite")
@click.option(
    "-o",
    "--output",
    "directory",
    metavar="DIR",
    type=click.Path(),
    help="Where the results go.",
)
@click.option("--in-place", is_flag=True, help="Replace the files themselves.")
@click.option("--dry-run", is_flag=True, help="Write nothing; list what would be rewritten.")
@click.option(
    "--check",
    is_flag=True,
    help="Have the independent checker compare each result with its source.",
)
@click.option(
    "--certificate",
    is_flag=True,
    help="Also write NAME.certificate.json beside each result: what went, and why.",
)
@click.option(
    "--embed-certificate",
    "embed",
    is_flag=True,
    help="Also put the certificate into each archive that is written, below extra/.",
)
@batch.report_option
@batch.options
def command(
    paths: tuple[str, ...],
    options: batch.Options,
    directory: str | None,
    *,
    in_place: bool,
    dry_run: bool,
    check: bool,
    certificate: bool,
    embed: bool,
    page: str | None,
) -> None:
    """Write .pt2 archives in canonical form: without copies that are proved redundant.

    PATHS are files, directories (searched for *.pt2), patterns, and URLs that fsspec knows (s3://,
    gs://, hf://, memory://). Torch is not needed, and weights are copied as they are.

    Each file is replaced as a whole or not at all. With -o, what needs nothing is copied, and a
    second run skips what is done: by content, told by a journal in DIR/.mutcanon. In place, what
    needs nothing is not touched, and that is how a second run skips it.
    """
    if (directory is None) is not in_place:
        raise click.UsageError("either -o DIR or --in-place is needed")
    settings = _batch.Settings(
        "rewrite",
        form=options.form,
        verify=options.verify,
        check=check,
        certificate=certificate,
        embed=embed,
        dry_run=dry_run,
    )
    if directory is None:
        units = [_in_place(item) for item in _store.discover(paths)]
    else:
        directory = _store.plain(directory)
        units = _units(_store.discover(paths), directory)
        if options.journal is None:
            options = options.with_journal(_store.join(directory, _journal.DIRECTORY))

    def show(outcome: Outcome) -> None:
        if outcome.status == "would_rewrite":
            for line in change_lines(outcome):
                output().print(line, markup=False, soft_wrap=True)

    outcomes: list[Outcome] = []
    ending = batch.run(units, settings, options, show, outcomes.append if page else None)
    if page is not None:
        batch.write_page(page, outcomes, paths)
    sys.exit(ending.exit_code)


def _in_place(item: Item) -> _batch.Unit:
    return _batch.Unit(item.name, item.path, item.path, item.size)


def _units(items: list[Item], directory: str) -> list[_batch.Unit]:
    is_archive = directory.lower().endswith(_store.SUFFIX) or os.path.exists(directory)
    if is_archive and not os.path.isdir(directory):
        raise click.UsageError(f"-o {directory}: results go to a directory")
    units: dict[str, _batch.Unit] = {}
    for item in items:
        target = _store.join(directory, item.name)
        if _store.is_same(item.path, target):
            raise click.UsageError(f"{item.path} would replace itself: use --in-place for that")
        if _store.is_below(item.path, directory):
            continue  # the result of an earlier run, where results go to a part of the zoo
        if target in units:
            raise click.UsageError(
                f"{units[target].source} and {item.path} would both become {target}: "
                "give the directory that holds both, or quote the pattern"
            )
        units[target] = _batch.Unit(item.name, item.path, target, item.size)
    if not units:
        raise click.UsageError(f"-o {directory}: it holds all that there is to rewrite")
    return list(units.values())
