"""Plan -> graph and signature.

Edits are local: each collapsed copy is unlinked from its readers and erased, and the output node is
rewritten once (`replace_all_uses_with` on it would be quadratic). Everything that can fail is
prepared before the first edit, so an error leaves the program as it was.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.export.exported_program import ModuleCallEntry
from torch.export.graph_signature import ExportGraphSignature, OutputSpec, TensorArgument
from torch.fx import Graph, GraphModule, Node

from mutcanon._alias import copy_op, op_facts
from mutcanon._torch import call_targets, erase_nodes, mark_stale, new_graph_module

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mutcanon._core import Plan

_INHERITED = ("stack_trace", "nn_module_stack", "source_fn_stack", "torch_fn", "debug_handle")


@dataclass
class Prepared:
    """The edits of one graph, ready to be made.

    Attributes:
        gm: The module whose graph is edited.
        nodes: The node of each value of the plan.
        outputs: The output node's arguments before.
        plan: The plan.
        inserts: For each output that gets a new copy, the copied node and the copy's metadata.
    """

    gm: GraphModule
    nodes: Sequence[Node | None]
    outputs: list[Any]
    plan: Plan
    inserts: list[tuple[int, Node, Node, dict[str, Any]]]


def prepare(
    gm: GraphModule,
    nodes: Sequence[Node | None],
    outputs: list[Any],
    plan: Plan,
    targets: Sequence[Node | None],
) -> Prepared:
    """Does what can fail.

    Args:
        gm: The module whose graph is to be edited.
        nodes: The node of each value.
        outputs: The output node's arguments.
        plan: The plan.
        targets: For each output its mutation target, or None.
    """
    inserts = []
    for output, value, _ in plan.inserts:
        source = nodes[value]
        assert source is not None  # the value of an output is a node
        destination = targets[output] or source
        inserts.append((output, destination, source, _copy_meta(destination, source)))
    return Prepared(gm, nodes, outputs, plan, inserts)


def _copy_meta(destination: Node, source: Node) -> dict[str, Any]:
    meta = {k: source.meta[k] for k in _INHERITED if k in source.meta}
    val = destination.meta.get("val")
    if isinstance(val, torch.Tensor):
        mode = getattr(val, "fake_mode", None)
        if mode is None:
            meta["val"] = torch.empty_like(val)
        else:
            with mode:
                meta["val"] = torch.empty_strided(
                    val.shape, val.stride(), dtype=val.dtype, device=val.device
                )
    return meta


def apply(prepared: Prepared) -> tuple[list[Any], dict[str, str]]:
    """Edits the graph.

    Returns:
        The new output arguments, and the new name of each value that is gone.
    """
    graph, nodes, plan = prepared.gm.graph, prepared.nodes, prepared.plan
    copies, bases = plan.collapsed
    base_of: dict[Node, Node] = {nodes[c]: nodes[b] for c, b in zip(copies, bases, strict=True)}  # type: ignore[misc]
    output = graph.output_node()
    for collapsed, base in base_of.items():
        # The output node is rewritten below, and a collapsed reader is erased.
        others = [u for u in collapsed.users if u is not output and u not in base_of]
        for user in others:
            user.replace_input_with(collapsed, base)
    args = [base_of.get(a, a) if isinstance(a, Node) else a for a in prepared.outputs]
    new_copy = copy_op(call_targets(graph))
    for i, destination, source, meta in prepared.inserts:
        with graph.inserting_before(output):
            node = graph.call_function(new_copy, (destination, source))
        node.meta.update(meta)
        args[i] = node
    if plan.order is not None:
        moved = [args[i] for i in plan.order]
        for position, value in zip(sorted(plan.order), moved, strict=True):
            args[position] = value
    _set_output(output, args)
    _erase(graph, base_of)
    return args, {c.name: b.name for c, b in base_of.items()}


def _set_output(output: Node, args: list[Any]) -> None:
    old = output.args[0]
    if not isinstance(old, (tuple, list)):
        output.args = (args[0],)
    elif isinstance(old, tuple):
        output.args = (tuple(args),)
    else:
        output.args = (args,)


def _erase(graph: Graph, collapsed: dict[Node, Node]) -> None:
    """Erases the collapsed copies, readers first, and what only they read."""
    # A destination may have been computed for the copy alone; sources are read by others now.
    orphans = {d: None for c in collapsed if (d := c.all_input_nodes[0]).op == "call_function"}
    # Copies stand in graph order, so each comes after its readers here.
    erase_nodes(graph, reversed(collapsed))
    while orphans:
        node, _ = orphans.popitem()
        if node not in collapsed and not node.users and _is_removable(node):
            operands = node.all_input_nodes
            graph.erase_node(node)
            orphans.update(dict.fromkeys(operands))


def _is_removable(node: Node) -> bool:
    """Whether a call without readers can go: nothing impure is ever removed (semantics 4.7)."""
    return node.op == "call_function" and not op_facts(node.target).written and not node.is_impure()


def new_signature(
    signature: ExportGraphSignature,
    args: Sequence[Any],
    order: Sequence[int] | None,
) -> ExportGraphSignature:
    """The signature whose output i names node i, its mutation outputs in the plan's order."""
    specs = list(signature.output_specs)
    if order is not None:
        moved = [specs[i] for i in order]
        for position, spec in zip(sorted(order), moved, strict=True):
            specs[position] = spec
    named = [
        OutputSpec(spec.kind, TensorArgument(name=value.name), spec.target)
        if isinstance(value, Node)
        and isinstance(spec.arg, TensorArgument)
        and spec.arg.name != value.name
        else spec
        for spec, value in zip(specs, args, strict=True)
    ]
    new = copy.copy(signature)
    new.output_specs = named
    return new


def new_calls(calls: list[ModuleCallEntry], renamed: Mapping[str, str]) -> list[ModuleCallEntry]:
    """The module call graph without the names of collapsed copies; other entries are shared."""

    def rename(arguments: list[Any]) -> list[Any]:
        return [
            TensorArgument(name=renamed[a.name])
            if isinstance(a, TensorArgument) and a.name in renamed
            else a
            for a in arguments
        ]

    result = []
    for entry in calls:
        old = entry.signature
        if old is not None and any(
            getattr(a, "name", None) in renamed for a in (*old.inputs, *old.outputs)
        ):
            changed = copy.copy(old)
            changed.inputs, changed.outputs = rename(old.inputs), rename(old.outputs)
            entry = ModuleCallEntry(entry.fqn, changed)
        result.append(entry)
    return result


def copy_module(gm: GraphModule, nodes: dict[Node, Node]) -> GraphModule:
    """A copy of a graph module and its bodies that shares all tensors and metadata values.

    Args:
        gm: The module.
        nodes: Receives the new node for each old one, bodies included.
    """
    graph = Graph()
    old_output = gm.graph.output_node()
    here: dict[Node, Node] = {}
    result = graph.graph_copy(gm.graph, here)
    output = graph.output(result)
    output.meta = copy.copy(old_output.meta)
    output.name = old_output.name
    here[old_output] = output
    nodes.update(here)
    new = new_graph_module(gm, graph)
    done: dict[str, None] = {}
    for node in gm.graph.find_nodes(op="get_attr"):
        target = str(node.target)
        if target in done:
            continue
        done[target] = None
        body = _attribute(gm, target)
        if isinstance(body, GraphModule):
            prefix, _, name = target.rpartition(".")
            setattr(new.get_submodule(prefix), name, copy_module(body, nodes))
    return new


def _attribute(gm: GraphModule, path: str) -> Any:
    value: Any = gm
    for part in path.split("."):
        value = getattr(value, part)
    return value


def finish(gm: GraphModule) -> None:
    """Puts the module's generated code off until somebody calls it."""
    mark_stale(gm)
