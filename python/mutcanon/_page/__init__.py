"""The page of a zoo: one HTML file with everything in it, for people without mutcanon too.

`build` puts the outcomes of a batch as JSON into `page.html`, next to `page.css` and `page.js`. The
script draws what is looked at, so thousands of models cost as much as their JSON.
"""

from __future__ import annotations

from dataclasses import asdict
from importlib import resources
from typing import TYPE_CHECKING, Any

from mutcanon import __version__, archive
from mutcanon._chains import chains, name, others, reason
from mutcanon._drawing import escaped_json

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mutcanon._batch import Outcome
    from mutcanon._report import CopyReport


def build(outcomes: Iterable[Outcome], title: str) -> str:
    """The page.

    Args:
        outcomes: Of `check` or `rewrite`, in the order of the files.
        title: What was looked at.
    """
    data = {"version": __version__, "title": title, "rows": [r for o in outcomes for r in _rows(o)]}
    page = _file("page.html")
    for mark, contents in (
        ("/*css*/", _file("page.css")),
        ("/*js*/", _file("page.js")),
        ("/*data*/", escaped_json(data)),
    ):
        page = page.replace(mark, contents)
    return page


def _file(file: str) -> str:
    return resources.files(__name__).joinpath(file).read_text("utf-8")


def _rows(outcome: Outcome) -> Iterable[dict[str, Any]]:
    common = {"file": outcome.name, "status": outcome.status, "seconds": outcome.seconds}
    if not outcome.models:
        message = outcome.message.removeprefix(f"{outcome.source}: ")
        yield {**common, "model": "", "message": message, "kind": outcome.kind}
        return
    for model in outcome.models:
        report = archive.read_report(model["report"])
        yield {
            **common,
            "model": "" if model["model"] == "model" else model["model"],
            "before": model["copies_before"],
            "after": model["copies_after"],
            "saved": report.bytes_saved,
            "formula": report.formula,
            "findings": [asdict(finding) for finding in report.findings],
            "chains": [
                {
                    "kind": chain.kind,
                    "target": chain.target,
                    "producer": chain.producer,
                    "copies": [_copy(copy) for copy in chain.copies],
                    "place": chain.place,
                    "saved": chain.is_saved,
                    "reads": chain.reads,
                    "findings": chain.findings,
                }
                for chain in chains(report)
            ],
            "others": [_copy(copy) for copy in others(report)],
            "ordered": bool(report.hazards),
        }


def _copy(copy: CopyReport) -> dict[str, Any]:
    return {"name": name(copy), "decision": copy.decision, "reason": reason(copy)}
