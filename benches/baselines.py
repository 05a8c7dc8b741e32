"""What one would write by hand in an afternoon: two plain passes that the benches compare with.

Both look at layouts only. Neither is sound: no alias, no shared value, no user output is
considered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.export.graph_signature import OutputKind
from torch.fx import Node
from torch.fx.experimental.symbolic_shapes import statically_known_true

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from torch.export import ExportedProgram

COPY = torch.ops.aten.copy.default


def whole_graph(program: ExportedProgram) -> None:
    """As passes are usually written: visit every node, replace uses, remove dead code, lint."""
    renamed: dict[str, str] = {}
    for node in program.graph.nodes:
        if is_copy(node) and has_same_layout(node, node.args[1]):
            node.replace_all_uses_with(node.args[1])
            renamed[node.name] = node.args[1].name
    for spec in program.graph_signature.output_specs:
        while spec.arg.name in renamed:
            spec.arg.name = renamed[spec.arg.name]
    program.graph.eliminate_dead_code()
    program.graph.lint()


def signature_driven(program: ExportedProgram) -> None:
    """Walk back from the mutation outputs; edit the output node once; erase what is dead."""
    (outputs,) = program.graph.output_node().args
    changed, dead = list(outputs), []
    for i, spec in enumerate(program.graph_signature.output_specs):
        if spec.kind is OutputKind.USER_INPUT_MUTATION:
            while is_copy(changed[i]) and has_same_layout(changed[i], changed[i].args[1]):
                dead.append(changed[i])
                changed[i] = changed[i].args[1]
    edit(program, changed, dead)


def edit(program: ExportedProgram, outputs: Sequence[Node], dead: Iterable[Node]) -> None:
    """What no pass can do without: new outputs with their names, and the dead copies erased."""
    program.graph.output_node().args = (tuple(outputs),)
    for spec, node in zip(program.graph_signature.output_specs, outputs, strict=True):
        spec.arg.name = node.name
    for node in dead:
        program.graph.erase_node(node)


def is_copy(node: Node) -> bool:
    """Whether the node is a functional copy."""
    return node.op == "call_function" and node.target is COPY


def has_same_layout(a: Node, b: Node) -> bool:
    """Whether type, device, sizes and strides agree."""
    x, y = a.meta.get("val"), b.meta.get("val")
    return (
        isinstance(x, torch.Tensor)
        and isinstance(y, torch.Tensor)
        and x.dtype == y.dtype
        and x.device == y.device
        and _are_equal(x.shape, y.shape)
        and _are_equal(x.stride(), y.stride())
    )


def _are_equal(a: Sequence[int], b: Sequence[int]) -> bool:
    return len(a) == len(b) and all(
        statically_known_true(x == y) for x, y in zip(a, b, strict=True)
    )
