"""`mutcanon explain`: the report of a stored program."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from mutcanon.cli import fail, messages, require_torch

if TYPE_CHECKING:
    from mutcanon._canonicalize import Form


@click.command("explain")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--form",
    type=click.Choice(["portable", "minimal"]),
    default="portable",
    show_default=True,
    help="portable: right whatever writes back; minimal: for a write-back that orders its copies.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as one JSON object.")
def command(file: Path, form: Form, *, as_json: bool) -> None:
    """Say which copies of FILE (.pt2) go, which stay, and why."""
    require_torch("torch")
    import torch

    import mutcanon

    messages().print(f"loading {file}", style="dim", markup=False)
    try:
        program = torch.export.load(file)
    except Exception as error:
        fail(f"{file}: torch cannot load it: {error}")
    report = mutcanon.analyze(program, form=form)
    click.echo(report.to_json() if as_json else str(report))
