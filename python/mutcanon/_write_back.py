"""An edge program's mutations carried out: in place where the plan says so, by copies elsewhere.

ExecuTorch has two passes for that. One computes `index_put` in place and does not count the outputs
among the readers; the other appends the copies in an order of its own, names outputs wrongly when
some are in place, takes any placeholder for the right one and skips parameters. Both find nothing
left to do in what we return, so they stay where they are.

The order of everything comes from the core (`Flow.schedule`); this file only builds nodes.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.export.graph_signature import (
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
)
from torch.fx import Node

from mutcanon import _apply
from mutcanon._canonicalize import canonicalize
from mutcanon._cond_results import keep_apart
from mutcanon._custom_ops import MutatedArgument, mutated_arguments
from mutcanon._extract import output_args
from mutcanon._flow import extract_flow
from mutcanon._kernels import Builders
from mutcanon._nodes import NodeBuilder
from mutcanon._torch import PARAMETER_MUTATION, with_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from torch.export import ExportedProgram
    from torch.export.graph_signature import ExportGraphSignature
    from torch.fx import Graph

    from mutcanon._flow import Candidate, FlowExtract
    from mutcanon._kernels import InPlaceForm

logger = logging.getLogger(__name__)

aten = torch.ops.aten

#: On a `copy_` whose source may be computed in its target. The memory plan sees to it, since only
#: there an operator has a place for its result.
DIRECT = "mutcanon_direct"


@dataclass(frozen=True)
class InPlaceReport:
    """What became of one node that could have been computed in place.

    Attributes:
        node: Its name.
        over: The name of what it would overwrite; None where no kernel takes it.
        code: "in_place", "direct" (computed into its target), "left_out" (a copy that changes
            nothing), or the reason why not.
        fact: The node to blame, or the fact that was missing.
    """

    node: str
    over: str | None
    code: str
    fact: str = ""


def report_in_place(ep: ExportedProgram) -> list[InPlaceReport]:
    """Says of each node of an edge program whether it will be computed in place, or why not."""
    minimal = canonicalize(ep, form="minimal")
    extract = extract_flow(minimal, reinplace=True)
    verdicts, _, left_out = extract.flow.schedule()
    return _reports(extract, verdicts, left_out)


def carry_out(
    ep: ExportedProgram,
    *,
    reinplace: bool,
    drop_outputs: bool = False,
    state_parameters: Collection[str] = (),
    extra_form: Callable[[Node], InPlaceForm | None] = lambda node: None,
) -> ExportedProgram:
    """The program with its mutations in the graph.

    Args:
        ep: An edge program; it is not edited.
        reinplace: Whether operators may be computed in place.
        drop_outputs: Whether mutated user inputs are to be no outputs any more.
        state_parameters: Parameters that some method mutates; they become buffers that start with
            their value, since ExecuTorch has no other state.
        extra_form: The in-place form of operators that the user added.

    Returns:
        A new program; its weights are shared.
    """
    own = _own_copy(ep)
    extract = extract_flow(own, reinplace=reinplace, extra_form=extra_form)
    verdicts, steps, left_out = extract.flow.schedule()
    for report in _reports(extract, verdicts, left_out):
        logger.debug("%s over %s: %s %s", report.node, report.over, report.code, report.fact)

    editor = _Editor(extract)
    editor.compute_in_place([code == "in_place" for code, _ in verdicts])
    editor.write_back(steps)
    editor.leave_out(left_out)
    graph = own.graph_module.graph
    graph.output_node().args = (tuple(editor.outputs),)
    keep_apart(own.graph_module)
    outputs = output_args(own.graph_module)
    old = own.graph_signature
    signature = _signature(old, outputs, drop_outputs, state_parameters)
    kept = [
        value
        for value, spec in zip(outputs, old.output_specs, strict=True)
        if not (drop_outputs and spec.kind is OutputKind.USER_INPUT_MUTATION)
    ]
    graph.output_node().args = (tuple(kept),)
    _start_from_values(graph, signature, state_parameters)
    return with_parts(own, own.graph_module, signature, own.module_call_graph)


def _own_copy(ep: ExportedProgram) -> ExportedProgram:
    """The minimal form of the program with a graph of its own."""
    minimal = canonicalize(ep, form="minimal")
    if minimal is not ep:
        return minimal
    gm = _apply.copy_module(ep.graph_module, {})
    return with_parts(ep, gm, ep.graph_signature, ep.module_call_graph)


def _start_from_values(
    graph: Graph, signature: ExportGraphSignature, state_parameters: Collection[str]
) -> None:
    """Has ExecuTorch store the first value of what was a parameter."""
    names = {s.arg.name for s in signature.input_specs if s.target in state_parameters}
    for node in graph.find_nodes(op="placeholder"):
        if node.name in names:
            node.meta["et_init_buffer"] = True


def _reports(
    extract: FlowExtract, verdicts: list[tuple[str, int | None]], left_out: list[bool]
) -> list[InPlaceReport]:
    reports = [InPlaceReport(n.name, None, "kernel", fact) for n, fact in extract.refused]
    for candidate, (code, blame) in zip(extract.candidates, verdicts, strict=True):
        fact = "" if blame is None else extract.nodes[blame].name
        if code == "in_place" and candidate.form is None and candidate.argument is None:
            code = "direct"
        reports.append(InPlaceReport(candidate.node.name, candidate.over.name, code, fact))
    for node, is_left_out in zip(extract.identities, left_out, strict=True):
        if is_left_out:
            (operand,) = node.all_input_nodes
            reports.append(InPlaceReport(node.name, operand.name, "left_out"))
    return reports


class _Editor:
    """Edits the graph of an extract, and keeps up with the nodes that it replaces."""

    def __init__(self, extract: FlowExtract) -> None:
        self._extract = extract
        self._replaced: dict[Node, Node] = {}
        #: The output node's new arguments.
        self.outputs = list(extract.outputs)

    def compute_in_place(self, decided: list[bool]) -> None:
        """Makes the decided nodes write in place; a custom operator gets clones where not."""
        made: dict[tuple[Node, Any], Node] = {}
        for candidate, is_in_place in zip(self._extract.candidates, decided, strict=True):
            if candidate.argument is not None:
                if not is_in_place:
                    _clone_before(candidate.argument)
            elif is_in_place and candidate.form is not None:
                self._replace(candidate.node, candidate.form, made)
            elif is_in_place:
                self._copy_direct(candidate)

    def _replace(self, node: Node, form: InPlaceForm, made: dict[tuple[Node, Any], Node]) -> None:
        new = form.build(Builders(NodeBuilder(node), _after, made))
        if new is not node:
            node.replace_all_uses_with(new)
            node.graph.erase_node(node)
            self.outputs = [new if o is node else o for o in self.outputs]
            self._replaced[node] = new

    def _copy_direct(self, candidate: Candidate) -> None:
        """A copy right behind the result, which the memory plan makes one with it.

        Whoever comes after it reads the target, so the program means the same if it does not.
        """
        target, result = candidate.over, candidate.result
        written = _after(result).call(aten.copy_.default, target, result, val=target.meta["val"])
        written.meta[DIRECT] = True
        result.replace_all_uses_with(
            written, lambda user: user is not written and user.op != "output"
        )
        i = self._extract.targets.index(target)
        if self.outputs[i] is result:
            self.outputs[i] = written

    def write_back(self, steps: list[tuple[int, bool, int]]) -> None:
        """Carries out the steps of the schedule."""
        nodes, targets = self._extract.nodes, self._extract.targets
        value_of = list(self.outputs)
        for before, is_save, i in steps:
            anchor = nodes[before] if before < len(nodes) else nodes[0].graph.output_node()
            builder = NodeBuilder(value_of[i], self._replaced.get(anchor, anchor))
            if is_save:
                value_of[i] = builder.call(aten.clone.default, value_of[i])
                if targets[i] is None:
                    self.outputs[i] = value_of[i]
            else:
                target = targets[i]
                assert target is not None  # only mutations are written
                self.outputs[i] = builder.call(
                    aten.copy_.default, target, value_of[i], val=target.meta["val"]
                )

    def leave_out(self, decided: list[bool]) -> None:
        """Has the readers of a copy read what it copies."""
        for node, is_left_out in zip(self._extract.identities, decided, strict=True):
            if is_left_out:
                (operand,) = node.all_input_nodes
                node.replace_all_uses_with(operand)
                node.graph.erase_node(node)


def _clone_before(argument: MutatedArgument) -> None:
    # The argument as it is now: the one of the plan may be in place itself by this time.
    (now,) = (a for a in mutated_arguments(argument.call) if _key(a) == _key(argument))
    argument.replace(NodeBuilder(argument.call).call(aten.clone.default, now.value))


def _key(argument: MutatedArgument) -> tuple[str, int | None]:
    return argument.name, argument.index


def _after(node: Node) -> NodeBuilder:
    """A builder right after a node, or after all placeholders."""
    following = node.next
    while following.op == "placeholder":
        following = following.next
    return NodeBuilder(node, following)


def _signature(
    signature: ExportGraphSignature,
    outputs: list[Any],
    drop_outputs: bool,
    state_parameters: Collection[str],
) -> ExportGraphSignature:
    """The signature after the edit: names are those of the output arguments."""
    new = _apply.new_signature(signature, outputs, None)
    new.output_specs = [
        OutputSpec(
            OutputKind.BUFFER_MUTATION if spec.kind is PARAMETER_MUTATION else spec.kind,
            spec.arg,
            spec.target,
        )
        for spec in new.output_specs
        if not (drop_outputs and spec.kind is OutputKind.USER_INPUT_MUTATION)
    ]
    new.input_specs = [
        InputSpec(InputKind.BUFFER, s.arg, s.target, persistent=True)
        if s.kind is InputKind.PARAMETER and s.target in state_parameters
        else s
        for s in signature.input_specs
    ]
    return new
