"""One line for what a program needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mutcanon.cli._summary import readable

if TYPE_CHECKING:
    from mutcanon._batch import Outcome


def change_lines(outcome: Outcome) -> list[str]:
    """What would change in a file: a line for each program."""
    lines = []
    for model in outcome.models:
        if changes := _changes(model):
            lines.append(f"{label(outcome, model)}: {changes}")
    return lines


def label(outcome: Outcome, model: dict[str, Any]) -> str:
    """The file, and which of its programs where it has several."""
    return f"{outcome.source} [{model['model']}]" if len(outcome.models) > 1 else outcome.source


def _changes(model: dict[str, Any]) -> str:
    report = model["report"]
    decisions = [copy["decision"] for copy in report["copies"]]
    gone, added = decisions.count("collapse"), decisions.count("insert")
    parts = []
    if gone:
        parts.append(f"{gone} of {model['copies_before']} copies are redundant ({_saved(report)})")
    if added:
        parts.append(f"{added} {'copy is' if added == 1 else 'copies are'} missing")
    if report["reordered"]:
        parts.append("write-backs change places")
    return ", ".join(parts)


def _saved(report: dict[str, Any]) -> str:
    saved = report["bytes_saved"]
    return f"{report['formula']} bytes a call" if saved is None else f"{readable(saved)} a call"


def finding_lines(outcome: Outcome) -> list[str]:
    """What stock consumers get wrong about a file's programs."""
    return []
