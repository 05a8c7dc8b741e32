"""`mutcanon verify`: whether one archive is a right rewrite of another."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from mutcanon import archive
from mutcanon.cli import output
from mutcanon.errors import InvalidProgramError


@click.command("verify")
@click.argument("before", type=click.Path(exists=True, dir_okay=False))
@click.argument("after", type=click.Path(exists=True, dir_okay=False))
@click.option(
    "--certificate",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="Also check what FILE, written by `mutcanon rewrite --certificate`, claims.",
)
@click.option(
    "--form",
    type=click.Choice(["portable", "minimal"]),
    help="Consumers that AFTER has to be right for: all, or mutcanon's own write-back. "
    "The certificate's, or portable.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    before: str, after: str, certificate: str | None, form: archive.Form | None, *, as_json: bool
) -> None:
    """Prove that the archive AFTER means what BEFORE means.

    Neither torch nor the planner has a part in it. Exit code 0 when it is right, 1 when there is an
    objection, 2 when an archive or the certificate cannot be understood.
    """
    claims = None if certificate is None else _claims(certificate)
    result = archive.verify(before, after, claims, form=form)
    if as_json:
        fields = {
            "schema_version": 1,
            "is_right": result.is_right,
            "models": [asdict(model) for model in result.models],
            "certificate": result.certificate,
        }
        click.echo(json.dumps(fields))
    else:
        for model in result.models:
            _show(model)
    sys.exit(0 if result.is_right else 1)


def _show(model: archive.ModelVerdict) -> None:
    lines = [f"objection: {remark}" for remark in model.objections]
    lines += [f"warning: {remark}" for remark in model.warnings]
    verdict = "wrong" if model.objections else "right"
    for line in [f"{model.model}: {verdict}", *(f"  {line}" for line in lines)]:
        output().print(line, markup=False, soft_wrap=True)


def _claims(path: str) -> dict[str, Any]:
    try:
        claims = json.loads(Path(path).read_bytes())
    except ValueError as error:
        raise InvalidProgramError(f"{path}: no JSON: {error}", code="bad_json") from error
    if not isinstance(claims, dict):
        raise InvalidProgramError(f"{path}: no certificate", code="bad_json")
    return claims
