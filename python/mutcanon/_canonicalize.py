"""The way through: extract, plan, apply.

Most programs need nothing, and find out so by a look at the graph's call targets and at its output
node, whatever their size. The others are planned by the core, graph by graph: the top graph and
each control-flow body.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind
from torch.fx import GraphModule, Node

from mutcanon import _apply
from mutcanon._alias import is_copy, op_facts
from mutcanon._check import is_always, require_right
from mutcanon._core import finding_codes
from mutcanon._extract import (
    MUTATIONS,
    bodies,
    check_signature,
    extract_body,
    extract_program,
    graph_facts,
    output_args,
)
from mutcanon._layout import Layouts
from mutcanon._report import CopyReport, FindingReport, MutationReport, Report, target_names
from mutcanon._torch import PARAMETER_MUTATION, replace_parts, with_parts
from mutcanon.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mutcanon._check import Consumer
    from mutcanon._core import Plan
    from mutcanon._extract import Extract

logger = logging.getLogger(__name__)

Form = Literal["portable", "minimal"]

_KINDS = {
    OutputKind.USER_INPUT_MUTATION: "user_input",
    OutputKind.BUFFER_MUTATION: "buffer",
    PARAMETER_MUTATION: "parameter",
}


def canonicalize(
    ep: ExportedProgram, *, form: Form = "portable", check: bool = False
) -> ExportedProgram:
    """Collapses every copy that is proved redundant.

    Works on programs in functional form, in the ATen or the edge dialect; a program straight from
    `torch.export.export`, which still writes in place, has nothing to collapse. Weights, constants
    and node metadata are shared with the argument.

    Args:
        ep: The program; it is never edited.
        form: "portable" is also right under a stock write-back in signature order. "minimal" keeps
            fewer copies and needs a write-back that orders them, as `mutcanon.module` and
            `mutcanon.executorch` do it.
        check: Have the independent checker compare the result with `ep`, under every write-back
            that the form promises to be right for (see `mutcanon.check`).

    Returns:
        A new program, or the very same object when there is nothing to do.

    Raises:
        InternalError: When the checker objects; please report the message.
        InvalidProgramError: When the signature and the graph disagree.
        UnsupportedError: When `ep` is no exported program or `form` is unknown.

    Example:
        >>> import torch, mutcanon
        >>> class Cache(torch.nn.Module):
        ...     def forward(self, cache, row, i):
        ...         cache.index_copy_(0, i, row)
        ...         return cache.sum()
        >>> args = (torch.zeros(4, 2), torch.ones(1, 2), torch.tensor([1]))
        >>> ep = torch.export.export(Cache(), args)
        >>> for _ in range(3):
        ...     ep = ep.run_decompositions({})
        >>> len(mutcanon.analyze(ep).collapsed)
        2
        >>> mutcanon.analyze(mutcanon.canonicalize(ep)).changes_nothing
        True
    """
    planned = _plan(ep, form)
    _log_decisions(ep, form)
    is_checked = check or is_always()
    if not _changes(planned):
        if is_checked:
            _check(ep, ep, planned, form)
        return ep
    nodes: dict[Node, Node] = {}
    gm = _apply.copy_module(ep.graph_module, nodes)
    modules = dict(zip(_modules(ep.graph_module), _modules(gm), strict=True))
    moved = [p.moved_to(modules[p.extract.gm], nodes) for p in planned]
    signature, calls = _edit(ep, moved)
    result = with_parts(ep, gm, signature, calls)
    if is_checked:
        _check(ep, result, planned, form)
    return result


def canonicalize_(
    ep: ExportedProgram, *, form: Form = "portable", check: bool = False
) -> ExportedProgram:
    """Like `canonicalize`, in place, for programs that the caller owns.

    The generated code of `ep.graph_module` is made anew when the module is next called.

    Args:
        ep: The program; after an error it is as it was.
        form: As for `canonicalize`.
        check: As for `canonicalize`; the result is made and checked aside first.

    Returns:
        `ep`.

    Raises:
        InternalError: When the checker objects; please report the message.
        InvalidProgramError: When the signature and the graph disagree.
        UnsupportedError: When `ep` is no exported program or `form` is unknown.
    """
    if check or is_always():
        canonicalize(ep, form=form, check=True)
    planned = _plan(ep, form)
    _log_decisions(ep, form)
    if _changes(planned):
        replace_parts(ep, *_edit(ep, planned))
    return ep


def analyze(ep: ExportedProgram, *, form: Form = "portable") -> Report:
    """Says what `canonicalize` would do, and why it would do no more.

    Args:
        ep: The program; it is not edited.
        form: As for `canonicalize`.

    Raises:
        InvalidProgramError: When the signature and the graph disagree.
        UnsupportedError: When `ep` is no exported program or `form` is unknown.
    """
    return _report(ep, form, _plan(ep, form, complete=True))


def _log_decisions(ep: ExportedProgram, form: Form) -> None:
    if logger.isEnabledFor(logging.DEBUG):
        for line in str(analyze(ep, form=form)).splitlines():
            logger.debug("%s", line)


@dataclass
class Planned:
    """One graph with its plan; `path` names the body, "" the top graph."""

    path: str
    extract: Extract
    plan: Plan

    def moved_to(self, gm: GraphModule, nodes: dict[Node, Node]) -> Planned:
        """The same for a copy of the module."""
        old = self.extract
        outputs = [nodes[o] if isinstance(o, Node) else o for o in old.outputs]
        extract = type(old)(
            gm,
            old.problem,
            [None if n is None else nodes[n] for n in old.nodes],
            outputs,
            [None if t is None else nodes[t] for t in old.targets],
        )
        return Planned(self.path, extract, self.plan)


def _plan(ep: ExportedProgram, form: str, *, complete: bool = False) -> list[Planned]:
    """Plans the graphs that have something to decide, and the top graph when `complete`."""
    if not isinstance(ep, ExportedProgram):
        raise UnsupportedError(
            f"{type(ep).__name__}: no ExportedProgram; pass the result of torch.export.export",
            code="not_a_program",
        )
    if form not in ("portable", "minimal"):
        raise UnsupportedError(
            f"form {form!r}: neither 'portable' nor 'minimal'", code="unknown_form"
        )
    gm = ep.graph_module
    outputs = output_args(gm)
    check_signature(ep, outputs)
    facts = graph_facts(gm.graph)
    below = [(path, body, graph_facts(body.graph)) for path, body in bodies(gm)]
    opaque_writes = any(f.writers for _, _, f in below)
    layouts = Layouts()
    planned = []
    if complete or facts.copies or not _is_plain(ep, outputs):
        extract = extract_program(ep, facts, outputs, layouts, opaque_writes)
        planned.append(Planned("", extract, _decide(ep, extract, layouts, form)))
    for path, body, found in below:
        if found.copies:
            extract = extract_body(body, found, output_args(body), layouts, opaque_writes)
            planned.append(Planned(path, extract, _decide(ep, extract, layouts, form)))
    return planned


def _is_plain(ep: ExportedProgram, outputs: Sequence[Any]) -> bool:
    """Whether no output of a graph without copies can be in conflict with another or an input."""
    seen: set[Node] = set()
    mutates = False
    for spec, value in zip(ep.graph_signature.output_specs, outputs, strict=True):
        mutation = spec.kind in MUTATIONS
        mutates |= mutation
        if not mutates or not isinstance(value, Node):
            continue
        if value.op != "call_function" or not op_facts(value.target).is_fresh:
            return False
        if value in seen:
            return False
        if mutation:
            seen.add(value)
    return True


def _decide(ep: ExportedProgram, extract: Extract, layouts: Layouts, form: str) -> Plan:
    """Plans, proves what the plan asks for, and plans again until nothing new is proved."""
    problem = extract.problem
    plan = problem.plan(form)
    asked: set[tuple[int, int]] = set()
    while new := [q for q in plan.queries if q not in asked]:
        asked.update(new)
        proved = [q for q in new if layouts.prove(q, ep.range_constraints)]
        if not proved:
            break
        problem = problem.with_equalities(proved)
        plan = problem.plan(form)
    return plan


def _changes(planned: list[Planned]) -> bool:
    return any(not p.plan.changes_nothing for p in planned)


def _check(
    before: ExportedProgram, after: ExportedProgram, planned: Sequence[Planned], form: Form
) -> None:
    """Refuses a result that the independent checker objects to."""
    steps = [
        ("save" if is_save else "write", output)
        for p in planned
        if not p.path
        for is_save, output in p.plan.write_backs
    ]
    consumers: list[Consumer] = ["mutcanon"] if form == "minimal" else ["torch", "executorch"]
    require_right(
        before,
        after,
        consumers,
        steps,
        lambda: "\n".join(p.extract.problem.text() for p in planned),
    )


def _modules(gm: GraphModule) -> list[GraphModule]:
    return [gm, *(body for _, body in bodies(gm))]


def _edit(ep: ExportedProgram, planned: list[Planned]) -> tuple[Any, list[Any]]:
    """Edits the graphs; returns the new signature and module call graph."""
    changing = [p for p in planned if not p.plan.changes_nothing]
    prepared = [
        (
            p,
            _apply.prepare(
                p.extract.gm, p.extract.nodes, p.extract.outputs, p.plan, p.extract.targets
            ),
        )
        for p in changing
    ]
    signature, calls = ep.graph_signature, ep.module_call_graph
    for p, edits in prepared:
        args, renamed = _apply.apply(edits)
        _apply.finish(p.extract.gm)
        if not p.path:
            signature = _apply.new_signature(signature, args, p.plan.order)
            calls = _apply.new_calls(calls, renamed)
        logger.info(
            "%s: %d copies collapsed, %d kept, %d added",
            p.path or "program",
            len(renamed),
            len(p.plan.kept),
            len(p.plan.inserts),
        )
    return signature, calls


def _report(ep: ExportedProgram, form: str, planned: list[Planned]) -> Report:
    copies: list[CopyReport] = []
    for p in planned:
        copies += _copy_reports(p)
    top = planned[0]
    name = target_names(ep.graph_signature)
    steps = tuple(("save" if is_save else "write", name[o]) for is_save, o in top.plan.write_backs)
    hazards = tuple((name[reader], name[writer]) for reader, writer in top.plan.hazards)
    saved, formula = _total([c for c in copies if c.decision == "collapse"])
    return Report(
        form=form,
        copies=tuple(copies),
        mutations=tuple(_mutation_reports(ep, top)),
        write_backs=steps,
        hazards=hazards,
        findings=_finding_reports(ep, top),
        reordered=top.plan.order is not None,
        bytes_saved=saved,
        formula=formula,
    )


def _finding_reports(ep: ExportedProgram, top: Planned) -> tuple[FindingReport, ...]:
    words = {code: (sentence, advice) for code, sentence, advice in finding_codes()}

    names = target_names(ep.graph_signature)

    def name(output: int) -> str:
        return names[output] or f"output {output}"

    return tuple(
        FindingReport(
            code,
            name(output),
            None if other is None else name(other),
            tuple(consumers),
            *words[code],
        )
        for code, output, other, consumers in top.extract.problem.findings()
    )


def _copy_reports(p: Planned) -> list[CopyReport]:
    nodes = p.extract.nodes

    def name(value: int | None) -> str | None:
        node = None if value is None else nodes[value]
        return None if node is None else node.name

    found: dict[int, CopyReport] = {}
    for copy, base in zip(*p.plan.collapsed, strict=True):
        found[copy] = _copy_report(p, nodes[copy], "collapse", name(base), None, "", None)
    for copy, (code, blame, fact) in p.plan.kept:
        found[copy] = _copy_report(p, nodes[copy], "keep", None, code, fact, name(blame))
    reports = [found[i] for i in sorted(found)]
    for output, value, (code, blame, fact) in p.plan.inserts:
        source = nodes[value]
        size, formula = _bytes(source)
        reports.append(
            CopyReport(
                str(output),
                p.path,
                "insert",
                name(value) or "",
                None,
                code,
                fact,
                name(blame),
                size,
                formula,
            )
        )
    return reports


def _copy_report(
    p: Planned,
    node: Node | None,
    decision: str,
    reads: str | None,
    code: str | None,
    fact: str,
    blame: str | None,
) -> CopyReport:
    assert node is not None  # a copy is a node
    size, formula = _bytes(node)
    source = _source(node)
    return CopyReport(
        node.name, p.path, decision, source.name, reads, code, fact, blame, size, formula
    )


def _source(copy: Node) -> Node:
    source = copy.args[1] if len(copy.args) > 1 else copy.kwargs["src"]
    assert isinstance(source, Node)  # checked by the extraction
    return source


def _bytes(node: Node | None) -> tuple[int | None, str]:
    val = None if node is None else node.meta.get("val")
    if not isinstance(val, torch.Tensor):
        return None, ""
    try:
        size = val.numel() * val.element_size()
    except RuntimeError:  # sparse and nested tensors may have no such number
        return None, ""
    return (size, str(size)) if isinstance(size, int) else (None, str(size))


def _total(copies: Sequence[CopyReport]) -> tuple[int | None, str]:
    known = sum(c.bytes for c in copies if c.bytes is not None)
    open_terms: dict[str, int] = {}
    for c in copies:
        if c.bytes is None:
            term = c.formula or "?"
            open_terms[term] = open_terms.get(term, 0) + 1
    if not open_terms:
        return known, str(known)
    terms = [t if n == 1 else f"{n}*({t})" for t, n in open_terms.items()]
    return None, " + ".join([*([str(known)] if known else []), *terms])


def _mutation_reports(ep: ExportedProgram, top: Planned) -> list[MutationReport]:
    nodes = top.extract.nodes
    base_of = {nodes[c]: nodes[b] for c, b in zip(*top.plan.collapsed, strict=True)}
    inserted = {output for output, _, _ in top.plan.inserts}
    names = target_names(ep.graph_signature)
    reports = []
    for i, (spec, value) in enumerate(
        zip(ep.graph_signature.output_specs, top.extract.outputs, strict=True)
    ):
        if spec.kind not in _KINDS or not isinstance(value, Node):
            continue
        new = base_of.get(value) or value
        depth, new_depth = 0, int(i in inserted)
        node = value
        while node.op == "call_function" and is_copy(node.target):
            depth += 1
            new_depth += node not in base_of
            node = _source(node)
        reports.append(
            MutationReport(i, _KINDS[spec.kind], names[i], value.name, new.name, depth, new_depth)
        )
    return reports
