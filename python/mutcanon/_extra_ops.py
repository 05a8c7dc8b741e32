"""In-place forms of the operators that a user adds with `reinplace_extra_ops`.

A pointwise operator gets the memory of its first operand for its result: the out variant that it
has anyway then works in place, and ExecuTorch has a mark for that. Only the plan's own memory can
be shared so, but over a mutated input or buffer the result goes directly to its target in any case.
Any other operator `x` becomes its in-place relative `x_`, since who asks for it has a kernel for
it; one without a relative gets the mark too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import torch
from torch.fx import Node

from mutcanon import _executorch
from mutcanon._alias import aten_op, op_facts
from mutcanon._kernels import Builders, InPlaceForm
from mutcanon._layout import Layouts


def extra_form(ops: Collection[Any]) -> Callable[[Node], InPlaceForm | None]:
    """Finds the in-place form of nodes that call one of the operators.

    Args:
        ops: Operators of the edge dialect.
    """
    layouts = Layouts()

    def find(node: Node) -> InPlaceForm | None:
        if node.target not in ops or not op_facts(node.target).is_fresh:
            return None
        position = next((i for i, a in enumerate(node.args) if isinstance(a, Node)), None)
        over = None if position is None else node.args[position]
        if position is None or not isinstance(over, Node):
            return None
        numbers = [layouts.number(n.meta.get("val")) for n in (node, over)]
        if 0 in numbers or numbers[0] != numbers[1]:
            return None
        is_pointwise = torch.Tag.pointwise in getattr(aten_op(node.target), "tags", ())
        inplace = None if is_pointwise or position else _in_place_op(node.target)
        if inplace is None and (over.op == "placeholder" or not _executorch.plans_shared_memory()):
            return None
        operands = [n for n in node.all_input_nodes if n is not over]
        if not is_pointwise:
            operands += [over for n in node.args[position + 1 :] if n is over]

        def build(builders: Builders) -> Node:
            if inplace is None:
                node.meta["_share_alloc_with_arg_idx"] = position
                return node
            return builders.here.call(inplace, *node.args, val=node.meta["val"], **node.kwargs)

        return InPlaceForm(over, tuple(operands), build)

    return find


def _in_place_op(target: Any) -> Any:
    """The in-place relative in the edge dialect, with the same arguments, or None."""
    op = aten_op(target)
    namespace, _, name = op._schema.name.partition("::")
    if namespace != "aten":
        return None
    packet = getattr(torch.ops.aten, name + "_", None)
    wanted = [a.type for a in op._schema.arguments]
    for overload in packet.overloads() if packet is not None else ():
        arguments = getattr(packet, overload)._schema.arguments
        first = arguments[0].alias_info if arguments else None
        if first is not None and first.is_write and [a.type for a in arguments] == wanted:
            edge = getattr(_executorch.edge_ops().aten, name + "_")
            return getattr(edge, overload)
    return None
