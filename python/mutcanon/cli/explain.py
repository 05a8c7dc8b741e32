"""`mutcanon explain`: what would become of one stored program, as text or as a drawing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from mutcanon import _drawing, _store, archive
from mutcanon.cli import fail

if TYPE_CHECKING:
    from collections.abc import Callable

    from mutcanon._report import Report
    from mutcanon.archive import Form, ModelReport

FORMATS: dict[str, Callable[[Report], str]] = {
    "text": _drawing.text,
    "json": lambda report: report.to_json(),
    "graphviz": _drawing.graphviz,
    "mermaid": _drawing.mermaid,
}


@click.command("explain")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--model", metavar="NAME", help="Which program, where FILE holds several.")
@click.option(
    "--form",
    type=click.Choice(["portable", "minimal"]),
    default="portable",
    show_default=True,
    help="portable: right whatever writes back; minimal: for a write-back that orders its copies.",
)
@click.option(
    "--format",
    "shape",
    type=click.Choice(list(FORMATS)),
    default="text",
    show_default=True,
    help="How it is shown.",
)
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@click.option(
    "--model-explorer",
    "node_data",
    metavar="OUT",
    type=click.Path(dir_okay=False),
    help="Write node data to OUT, which Model Explorer lays over the graph of FILE.",
)
def command(
    file: Path, model: str | None, form: Form, shape: str, node_data: str | None, *, as_json: bool
) -> None:
    """Say which copies of FILE (.pt2) go, which stay, and why."""
    report = archive.analyze(file, form=form)
    if report.kind != "exported_program":
        fail(f"{file}: {report.summary}")
    chosen = [m for m in report.models if model in (None, m.model)]
    if not chosen:
        fail(f"{file}: no program {model}; it holds {_names(report.models)}")
    shape = "json" if as_json else shape
    if len(chosen) > 1 and (shape != "text" or node_data is not None):
        fail(f"{file}: several programs: choose one by --model: {_names(report.models)}")
    for i, found in enumerate(chosen):
        if len(chosen) > 1:
            click.echo(f"{chr(10) if i else ''}{found.model}")
        click.echo(FORMATS[shape](found.report))
    if node_data is not None:
        _store.write_text(node_data, _drawing.model_explorer(chosen[0].report) + "\n")


def _names(models: tuple[ModelReport, ...]) -> str:
    return ", ".join(m.model for m in models)
