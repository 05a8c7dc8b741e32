"""Drawings of a report: for the terminal, Graphviz, Mermaid, notebooks, and Model Explorer.

All show the chains of `_chains`. What goes is crossed out, what stays has its reason.
"""

from __future__ import annotations

import html
import itertools
import json
from typing import TYPE_CHECKING, Any

from mutcanon._chains import Chain, chains, name, others, reason

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mutcanon._report import CopyReport, Report

_MARK = {"collapse": "✗", "keep": "●", "insert": "+"}
#: For Graphviz, Mermaid and Model Explorer: what goes, stays, is new.
_COLOR = {"collapse": "#c9ced6", "keep": "#f2b84b", "insert": "#6fbf8b"}


def text(report: Report) -> str:
    """Lines for a terminal."""
    drawn = chains(report)
    width = min(max((len(c.target) for c in drawn), default=0), 40)
    lines = [report.headline]
    for chain in drawn:
        path = [f"{_MARK[c.decision]} {name(c)}" for c in chain.copies]
        lines.append(f"  {chain.target:<{width}} ◂─ " + " ◂─ ".join([*path, chain.producer]))
        lines += [f"  {'':<{width}}    {note}" for note in _notes(chain)]
    lines += [f"  {_MARK[c.decision]} {name(c)}{_because(c)}" for c in others(report)]
    if report.hazards:
        order = ", ".join(f"{step} {target}" for step, target in report.write_backs)
        lines.append(f"  order: {order}")
    for finding in report.findings:
        lines.append(f"  ! {finding.code}: {finding.sentence} ({', '.join(finding.consumers)})")
        lines.append(f"    {finding.output}: {finding.advice}")
    if any(c.decision == "collapse" for c in report.copies):
        lines.append("  ✗ goes   ● stays   + is added")
    return "\n".join(lines)


def graphviz(report: Report) -> str:
    """A graph in Graphviz's language; targets left, producers right."""
    lines = ["digraph mutations {", "  rankdir=RL; node [shape=box, fontname=Helvetica];"]
    for node, label, kind in _nodes(report):
        style = f', style=filled, fillcolor="{_COLOR[kind]}"' if kind in _COLOR else ""
        shape = ", shape=cylinder" if kind == "target" else ""
        lines.append(f"  {node} [label={_quoted(label)}{style}{shape}];")
    lines += [f"  {source} -> {reader};" for source, reader in _edges(report)]
    lines += [
        f"  {reader} -> {writer} [style=dashed, constraint=false, label=reads];"
        for reader, writer in _reads(report)
    ]
    return "\n".join([*lines, "}"])


def mermaid(report: Report) -> str:
    """The same for Mermaid."""
    lines = ["flowchart RL"]
    for node, label, kind in _nodes(report):
        shape = f"[({_escaped(label)})]" if kind == "target" else f"[{_escaped(label)}]"
        lines.append(f"  {node}{shape}" + (f":::{kind}" if kind in _COLOR else ""))
    lines += [f"  {source} --> {reader}" for source, reader in _edges(report)]
    lines += [f"  {reader} -. reads .-> {writer}" for reader, writer in _reads(report)]
    lines += [f"  classDef {kind} fill:{color},color:#000" for kind, color in _COLOR.items()]
    return "\n".join(lines)


def fragment(report: Report) -> str:
    """HTML for a notebook: self-contained, in the notebook's own colors."""
    rows = []
    for chain in chains(report):
        parts = "".join(f" ◂ {_chip(c)}" for c in chain.copies)
        notes = "".join(f"<div>{html.escape(note)}</div>" for note in _notes(chain))
        rows.append(
            f"<tr><td style='text-align:left'><b>{html.escape(chain.target)}</b></td>"
            f"<td style='text-align:left'>{parts} ◂ <code>{html.escape(chain.producer)}</code>"
            f"<small>{notes}</small></td></tr>"
        )
    rest = "".join(f"<div>{_chip(c)}{html.escape(_because(c))}</div>" for c in others(report))
    found = "".join(
        f"<div><b>{html.escape(f.code)}</b> of {html.escape(f.output)}: "
        f"{html.escape(f.sentence)}; {html.escape(f.advice)}</div>"
        for f in report.findings
    )
    head = html.escape(report.headline)
    return f"<div><div>{head}</div><table>{''.join(rows)}</table>{rest}{found}</div>"


def model_explorer(report: Report) -> str:
    """Node data that Model Explorer lays over the graph of the program as it was.

    Its graph of an exported program is called "graph", and its nodes have the names of torch's. The
    value of a node is the number of bytes that the copy writes in a call.
    """
    results = {
        c.node: {"value": c.bytes or 0, "bgColor": _COLOR[c.decision]}
        for c in report.copies
        if c.decision != "insert" and not c.graph
    }
    results |= {
        chain.producer: {"value": 0, "bgColor": _COLOR["insert"]}
        for chain in chains(report)
        if chain.copies and chain.producer not in results
    }
    return json.dumps({"graph": {"name": "mutcanon", "results": results}}, indent=2)


def _nodes(report: Report) -> Iterator[tuple[str, str, str]]:
    """Identifier, label and kind of all that is drawn."""
    for i, chain in enumerate(chains(report)):
        yield f"t{i}", chain.target, "target"
        for k, copy in enumerate(chain.copies):
            yield f"c{i}_{k}", name(copy) + _because(copy), copy.decision
        yield f"p{i}", chain.producer, "producer"


def _edges(report: Report) -> Iterator[tuple[str, str]]:
    """What is read, and by what."""
    for i, chain in enumerate(chains(report)):
        copies = [f"c{i}_{k}" for k in range(len(chain.copies))]
        for reader, source in itertools.pairwise([f"t{i}", *copies, f"p{i}"]):
            yield source, reader


def _reads(report: Report) -> Iterator[tuple[str, str]]:
    """Targets whose new value lies in the storage of another one, and that one."""
    index = {chain.target: f"t{i}" for i, chain in enumerate(chains(report))}
    for reader, writer in report.hazards:
        if reader in index and writer in index:
            yield index[reader], index[writer]


def _notes(chain: Chain) -> Iterator[str]:
    for copy in chain.copies:
        if copy.decision != "collapse":
            yield f"{name(copy)}{_because(copy)}"
    if chain.reads:
        yield f"is written before {', '.join(chain.reads)}, whose old value it reads"
    if chain.is_saved:
        yield "goes to a temporary first: a ring"
    if chain.findings:
        yield f"stock gets it wrong: {', '.join(chain.findings)}"


def _because(copy: CopyReport) -> str:
    if copy.decision == "collapse":
        return ""
    return f" {'stays' if copy.decision == 'keep' else 'is needed'}: {reason(copy)}"


def _chip(copy: CopyReport) -> str:
    style = f"background:{_COLOR[copy.decision]};color:#000;padding:0 .4em;border-radius:.3em"
    label = html.escape(name(copy))
    inner = f"<s>{label}</s>" if copy.decision == "collapse" else label
    return f"<code style='{style}'>{inner}</code>"


def _quoted(label: str) -> str:
    escaped = label.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + escaped.replace("\n", "\\n").replace("\r", "") + '"'


def _escaped(label: str) -> str:
    """A label in Mermaid, where entities stand for what would end it."""
    safe = "".join(c if c.isalnum() or c in " _.-:/" else f"#{ord(c)};" for c in label)
    return f'"{safe}"'


def escaped_json(data: Any) -> str:
    """JSON that can stand in a script element, whatever the strings in it are."""
    plain = json.dumps(data, ensure_ascii=True, separators=(",", ":"))
    return plain.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
