"""One line for what a program needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mutcanon.cli._summary import readable

if TYPE_CHECKING:
    from mutcanon._batch import Outcome


def change_lines(outcome: Outcome) -> list[str]:
    """What would change in a file: a line for each program."""
    described = [(label(outcome, model), changes(model)) for model in outcome.models]
    return [f"{where}: {words}" for where, words in described if words]


def label(outcome: Outcome, model: dict[str, Any]) -> str:
    """The file, and which of its programs; torch calls the only one of a file "model"."""
    return outcome.source if model["model"] == "model" else f"{outcome.source} [{model['model']}]"


def changes(model: dict[str, Any]) -> str:
    """What would change in a program, in a few words; nothing where nothing would."""
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
    """What stock consumers get wrong about a file's programs: two lines for each finding."""
    lines = []
    for model in outcome.models:
        nodes = {m["target"]: m["value"] for m in model["report"]["mutations"]}
        for finding in model["report"]["findings"]:
            output, other = finding["output"], finding["other"]
            where = _node(output, nodes) + (f" because of {_node(other, nodes)}" if other else "")
            consumers = ", ".join(finding["consumers"])
            lines += [
                f"{label(outcome, model)}: {finding['code']} of {where} in {consumers}",
                f"    {finding['sentence']}; {finding['advice']}",
            ]
    return lines


def _node(output: str, nodes: dict[str, str]) -> str:
    """A target, with the node that becomes it."""
    return f"{output} <- {nodes[output]}" if output in nodes else output
