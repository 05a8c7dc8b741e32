"""Who is mutated, by what, through which copies: what every drawing of a report shows.

A chain begins at a target and leads through the copies of its new value to the node that makes it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mutcanon._report import CopyReport, Report


@dataclass(frozen=True)
class Chain:
    """One mutation.

    Attributes:
        kind: "user_input", "buffer" or "parameter".
        target: What is mutated.
        copies: The copies from the target to the producer, in this order; an added one comes first.
        producer: The node whose result is written, or the input whose value it is.
        place: When the target is written, counted from 1; None where the report has no order.
        is_saved: Whether its new value goes to a temporary first, as one of each ring does.
        reads: Targets in whose storage the new value may lie, which therefore are written later.
        findings: Codes of what stock consumers get wrong about it.
    """

    kind: str
    target: str
    copies: tuple[CopyReport, ...]
    producer: str
    place: int | None
    is_saved: bool
    reads: tuple[str, ...]
    findings: tuple[str, ...]


def chains(report: Report) -> tuple[Chain, ...]:
    """The mutations of a report, in the order of the outputs."""
    by_node = {c.node: c for c in report.copies if not c.graph and c.decision != "insert"}
    added = {c.node: c for c in report.copies if not c.graph and c.decision == "insert"}
    written = [target for step, target in report.write_backs if step == "write"]
    saved = {target for step, target in report.write_backs if step == "save"}
    found = []
    for m in report.mutations:
        copies = [added[str(m.output)]] if str(m.output) in added else []
        value = m.value
        while value in by_node and by_node[value] not in copies:
            copies.append(by_node[value])
            value = by_node[value].source
        found.append(
            Chain(
                m.kind,
                m.target,
                tuple(copies),
                value,
                written.index(m.target) + 1 if m.target in written else None,
                m.target in saved,
                tuple(writer for reader, writer in report.hazards if reader == m.target),
                tuple(f.code for f in report.findings if f.output == m.target),
            )
        )
    return tuple(found)


def others(report: Report) -> tuple[CopyReport, ...]:
    """The copies that lie on no chain: inside control flow, or read by other nodes alone."""
    on_a_chain = {id(c) for chain in chains(report) for c in chain.copies}
    return tuple(c for c in report.copies if id(c) not in on_a_chain)


def reason(copy: CopyReport) -> str:
    """Why a copy stays or is added, in words."""
    words = copy.code or ""
    if copy.blame:
        words += f" ({copy.blame})"
    return f"{words}: {copy.fact}" if copy.fact else words


def name(copy: CopyReport) -> str:
    """What a copy is called; one that is added has no name yet."""
    if copy.decision == "insert":
        return "new copy"
    return f"{copy.graph}{copy.node}" if copy.graph else copy.node
