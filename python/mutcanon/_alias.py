"""What an operator may alias and what it writes, read off its schema.

Three kinds of callables occur in a graph. Operators have a schema, in which `Tensor(a)` marks what
may share storage and `Tensor(a!)` what is written; edge operators of ExecuTorch carry the same.
Higher-order operators have none: control flow, functionalized operators and delegates return new
tensors by contract, the others may return what they are given. Anything else, ExecuTorch's
`memory.view` for one, may alias all its arguments.

*Composite* operators are the trap: their schema binds nobody. `aten.dropout` returns its argument
itself in eval mode, `aten.type_as` where there is nothing to convert, and neither says so. They
count as aliasing unless listed below as operators that always allocate, which a test verifies by
running each.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch._ops import HigherOrderOperator, OpOverload
from torch.fx import Node

from mutcanon._torch import is_composite

if TYPE_CHECKING:
    from collections.abc import Iterable

aten = torch.ops.aten

#: Composite operators without alias annotation that allocate their results whatever they are given.
ALLOCATING_COMPOSITES = frozenset(
    {
        aten.linear.default,
        aten.matmul.default,
        aten.scaled_dot_product_attention.default,
        aten.conv1d.default,
        aten.conv2d.default,
        aten.conv3d.default,
        aten.conv1d.padding,
        aten.conv2d.padding,
        aten.conv_transpose1d.default,
        aten.conv_transpose2d.input,
        aten.layer_norm.default,
        aten.rms_norm.default,
        aten.group_norm.default,
        aten.batch_norm.default,
        aten.instance_norm.default,
        aten.softmax.int,
        aten.log_softmax.int,
        aten.max_pool1d.default,
        aten.max_pool2d.default,
        aten.avg_pool1d.default,
        aten.adaptive_avg_pool2d.default,
        aten.one_hot.default,
        aten.outer.default,
        aten.hstack.default,
        aten.vstack.default,
        aten.cosine_similarity.default,
        aten.lstm.input,
        aten.gru.input,
    }
)

#: The same for operators that ExecuTorch registers, by name since it may not be there. The edge
#: dialect's `clone` is among them, and the snapshot of a swap is such a clone.
ALLOCATING_EDGE_OPERATORS = frozenset(
    {
        "dim_order_ops::_clone_dim_order",
        "dim_order_ops::_empty_dim_order",
        "dim_order_ops::_to_dim_order_copy",
    }
)

#: Operators that write into a copy of their first argument and so keep its quantizer (semantics
#: 3.4).
REPRESENTATION_KEEPERS = frozenset(
    {
        aten.copy.default,
        aten.index_put.default,
        aten.index_copy.default,
        aten.index_add.default,
        aten.index_fill.int_Scalar,
        aten.index_fill.int_Tensor,
        aten.masked_fill.Scalar,
        aten.masked_fill.Tensor,
        aten.masked_scatter.default,
        aten.scatter.src,
        aten.scatter.value,
        aten.scatter_add.default,
        aten.slice_scatter.default,
        aten.select_scatter.default,
        aten.diagonal_scatter.default,
        aten.as_strided_scatter.default,
    }
)

#: Higher-order operators whose results never share storage with their operands.
FRESH_HIGHER_ORDER = (
    "associative_scan",
    "auto_functionalized",
    "auto_functionalized_v2",
    "cond",
    "executorch_call_delegate",
    "flex_attention",
    "map_impl",
    "scan",
    "triton_kernel_wrapper_functional",
    "while_loop",
)


@dataclass(frozen=True)
class OpFacts:
    """Alias and mutation facts of one operator.

    Attributes:
        aliases: For each result, the positions of the arguments that it may share storage with.
        written: Positions of the arguments that are written in place.
        may_alias_all: Nothing is known: every result may alias every tensor argument.
        names: Argument names by position, to find keyword arguments.
    """

    aliases: tuple[tuple[int, ...], ...] = ()
    written: tuple[int, ...] = ()
    may_alias_all: bool = False
    names: tuple[str, ...] = ()

    @property
    def is_fresh(self) -> bool:
        """Whether no result may share storage with an argument."""
        return not self.may_alias_all and not any(self.aliases)


_FRESH = OpFacts()
_UNKNOWN = OpFacts(may_alias_all=True)
_known: dict[Any, OpFacts] = {}


def op_facts(target: Any) -> OpFacts:
    """The facts of a call's target; computed once for each."""
    facts = _known.get(target)
    if facts is None:
        facts = _known[target] = _read(target)
    return facts


def aten_op(target: Any) -> Any:
    """The operator that an edge operator wraps; other targets as they are."""
    inner = getattr(target, "_op", None)
    return inner if isinstance(inner, OpOverload) else target


def copy_op(graph_targets: Iterable[Any]) -> Any:
    """`aten.copy` in the dialect of a graph with these call targets."""
    edge = sys.modules.get("executorch.exir.dialects._ops")
    if edge is not None and any(aten_op(t) is not t for t in graph_targets):
        return edge.ops.edge.aten.copy.default
    return aten.copy.default


def is_copy(target: Any) -> bool:
    """Whether the target is the functional `aten.copy`, in the ATen or the edge dialect."""
    return aten_op(target) is aten.copy.default


def _read(target: Any) -> OpFacts:
    op = aten_op(target)
    if isinstance(op, HigherOrderOperator):
        return _FRESH if op.__name__ in FRESH_HIGHER_ORDER else _UNKNOWN
    schema = getattr(op, "_schema", None)
    if schema is None:
        return _UNKNOWN
    arguments = [a.alias_info for a in schema.arguments]
    aliases = tuple(_aliased(r.alias_info, arguments) for r in schema.returns)
    written = tuple(i for i, a in enumerate(arguments) if a is not None and a.is_write)
    names = tuple(a.name for a in schema.arguments)
    says_nothing = not any(aliases) and not written
    allocates = op in ALLOCATING_COMPOSITES or schema.name in ALLOCATING_EDGE_OPERATORS
    unknown = says_nothing and not allocates and isinstance(op, OpOverload) and is_composite(op)
    return OpFacts(() if unknown else aliases, written, unknown, names)


def _aliased(result: Any, arguments: list[Any]) -> tuple[int, ...]:
    if result is None:
        return ()
    sets = result.before_set | result.after_set
    if not sets or "*" in sets:
        # A list, `Tensor(a)[]`, or a wildcard: any argument that takes part in aliasing at all.
        marked = tuple(i for i, a in enumerate(arguments) if a is not None)
        return marked or tuple(range(len(arguments)))
    return tuple(
        i for i, a in enumerate(arguments) if a is not None and sets & (a.before_set | a.after_set)
    )


def written_operand(node: Node) -> Node | None:
    """The operand whose storage a call writes and returns, for one with one result."""
    facts = op_facts(node.target)
    if len(facts.aliases) != 1 or len(facts.written) != 1 or facts.aliases[0] != facts.written:
        return None
    (position,) = facts.written
    # What is written by keyword is an `out`, which is no operand of anybody else.
    operand = node.args[position] if position < len(node.args) else None
    return operand if isinstance(operand, Node) else None
