"""`mutcanon verify`: whether one archive is a right rewrite of another, by the checker alone."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mutcanon import archive
from mutcanon.cli import fail, output

if TYPE_CHECKING:
    from mutcanon.archive import Verification

#: Version of what `--json` prints; a field may be added in a minor release.
SCHEMA_VERSION = 1


@click.command("verify")
@click.argument("before", type=click.Path(exists=True, dir_okay=False))
@click.argument("after", type=click.Path(exists=True, dir_okay=False))
@click.option(
    "--certificate",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="What is claimed of the two, as `rewrite --certificate` wrote it.",
)
@click.option(
    "--form",
    type=click.Choice(["portable", "minimal"]),
    default="portable",
    show_default=True,
    help="What was asked for; a certificate knows it.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
def command(before: str, after: str, certificate: str | None, form: Any, *, as_json: bool) -> None:
    """Prove that AFTER is a right rewrite of BEFORE.

    Neither torch nor the planner that made the rewrite takes part. Exit code 1 when it is not
    proved.
    """
    claims = None if certificate is None else _read(certificate)
    found = archive.verify(before, after, form=form, certificate=claims)
    if as_json:
        fields = {"schema_version": SCHEMA_VERSION, "is_right": found.is_right}
        click.echo(json.dumps({**fields, **dataclasses.asdict(found)}))
    else:
        for line in _lines(found):
            output().print(line, markup=False, soft_wrap=True)
    sys.exit(0 if found.is_right else 1)


def _read(path: str) -> dict[str, Any]:
    try:
        claims = json.loads(Path(path).read_bytes())
    except ValueError as error:
        fail(f"{path}: no certificate: {error}")
    if not isinstance(claims, dict):
        fail(f"{path}: no certificate: a JSON object is needed")
    return claims


def _lines(found: Verification) -> list[str]:
    lines = []
    for model, certified in zip(found.models, found.certificate["models"], strict=True):
        gone, added = len(certified["collapsed"]), len(certified["added"])
        verdict = "not proved right" if model.objections else "proved right"
        lines.append(f"{model.model}: {verdict}; copies gone: {gone}, added: {added}")
        lines += [f"  {o.message} [{o.code}]" for o in model.objections]
        lines += [f"  if two inputs are one tensor: {w.message} [{w.code}]" for w in model.warnings]
    return lines
