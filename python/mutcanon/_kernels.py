"""Operators that ExecuTorch can compute in place, and what its kernels demand.

The portable runtime has one kernel that writes a part of a tensor in place, `index_put_`. It copies
rows and takes less than `index_put.out` does: one index tensor of rank 1 without negative indices,
values of exactly the shape that is written, no accumulation, default dim order. Everything else
that writes rows can be said with it. Where an argument is not what the kernel wants it is made so,
at the cost of an operation on the rows or the index, never on the whole tensor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Node
from torch.fx.experimental.symbolic_shapes import statically_known_true

from mutcanon import _executorch
from mutcanon._alias import aten_op

if TYPE_CHECKING:
    from mutcanon._nodes import NodeBuilder

    Build = Callable[["Builders"], Node]

aten = torch.ops.aten


@dataclass(frozen=True)
class InPlaceForm:
    """How a node would be computed in place.

    Attributes:
        over: The operand that would be overwritten.
        operands: What is read while that happens, so it must not share the storage.
        build: Makes the in-place node.
    """

    over: Node
    operands: tuple[Node, ...]
    build: Build


class Refused(Exception):  # noqa: N818 - it ends an attempt, and nobody sees it as an error
    """The kernel cannot do it; the message is the fact that is missing."""


@dataclass
class Builders:
    """Where an in-place node is built.

    Attributes:
        here: Inserts before the node that is replaced.
        after: Inserts right after a given node.
        made: Indices that were made non-negative before, by index and size of the dimension.
    """

    here: NodeBuilder
    after: Callable[[Node], NodeBuilder]
    made: dict[tuple[Node, Any], Node]


def in_place_form(node: Node, constant: Callable[[Node], torch.Tensor | None]) -> Any:
    """The form in which the node writes over its first operand.

    Args:
        node: A call.
        constant: The value of a node that is known, or None.

    Returns:
        An `InPlaceForm`, or None when the operator has no such form.

    Raises:
        Refused: When it has one that the kernel does not take.
    """
    describe = _ROW_WRITERS.get(aten_op(node.target))
    if describe is None:
        return None
    return _row_form(node, describe, constant)


@dataclass(frozen=True)
class _Rows:
    """Rows of a tensor that are written.

    Attributes:
        over: The tensor.
        values: What is written; it broadcasts to the rows.
        dim: The dimension that is indexed.
        index: The index tensor, or the indices themselves.
        is_checked: Whether negative indices cannot occur.
    """

    over: Node
    values: Node
    dim: int
    index: Node | range
    is_checked: bool = False


def _row_form(
    node: Node,
    describe: Callable[[Node], _Rows],
    constant: Callable[[Node], torch.Tensor | None],
) -> InPlaceForm:
    rows = describe(node)
    over, values = rows.over.meta["val"], rows.values.meta["val"]
    if over.dtype != values.dtype:
        raise Refused(f"values are {values.dtype}, the tensor is {over.dtype}")
    if over.dim() == 0:
        raise Refused("the tensor has no dimension")
    if not (_executorch.has_default_dim_order(over) and _executorch.has_default_dim_order(values)):
        raise Refused("a dim order that is not the default")
    index_shape = _index_shape(rows.index)
    before, after = over.shape[: rows.dim], over.shape[rows.dim + 1 :]
    region = (*before, *index_shape, *after)
    length = index_shape[0] if len(index_shape) == 1 else math.prod(index_shape)
    exact = (*before, length, *after)
    is_exact = _same_sizes(values.shape, exact)
    if not is_exact and not _is_static((*values.shape, *exact)):
        raise Refused(f"values of shape {tuple(values.shape)} are not proved to be {exact}")
    index = rows.index
    size = over.shape[rows.dim]
    is_safe = isinstance(index, range) or rows.is_checked or _is_non_negative(index, constant)
    if not is_safe and not isinstance(size, int):
        raise Refused("an index that may be negative, in a dimension whose size is symbolic")

    def build(builders: Builders) -> Node:
        ops = _executorch.edge_ops().aten
        rows = describe(node)  # by now operands may be in place themselves
        new_values = rows.values
        if not is_exact:
            if math.prod(values.shape) != math.prod(region):
                new_values = builders.here.call(
                    ops.expand_copy.default, new_values, [int(d) for d in region]
                )
            if tuple(new_values.meta["val"].shape) != exact:
                new_values = builders.here.call(
                    ops.view_copy.default, new_values, [int(d) for d in exact]
                )
        new_index = _build_index(builders, rows.index, length, size, is_safe)
        indices = [None] * rows.dim + [new_index]
        val = node.meta["val"]
        return builders.here.call(ops.index_put_.default, rows.over, indices, new_values, val=val)

    operands = (rows.values, *((index,) if isinstance(index, Node) else ()))
    return InPlaceForm(rows.over, operands, build)


def _build_index(
    builders: Builders, index: Node | range, length: Any, size: Any, is_safe: bool
) -> Node:
    ops = _executorch.edge_ops().aten
    if isinstance(index, range):
        return builders.here.call(
            ops.arange.start_step, index.start, index.stop, index.step, dtype=torch.int64
        )
    made = builders.made.get((index, size))
    if made is not None:
        return made
    new = index
    after = builders.after(index)
    if index.meta["val"].dim() != 1:
        new = after.call(ops.view_copy.default, new, [int(length)])
    if not is_safe:
        # The kernel refuses -1, which the functional one takes for the last row.
        is_negative = after.call(ops.lt.Scalar, new, 0)
        from_end = after.call(ops.add.Scalar, new, size)
        new = after.call(ops.where.self, is_negative, from_end, new)
    builders.made[index, size] = new
    return new


def _index_shape(index: Node | range) -> tuple[Any, ...]:
    if isinstance(index, range):
        return (len(index),)
    val = index.meta["val"]
    if val.dtype not in (torch.int64, torch.int32):
        raise Refused(f"an index of {val.dtype}")
    shape = tuple(val.shape)
    if len(shape) != 1 and not _is_static(shape):
        raise Refused("an index of rank other than 1 whose size is symbolic")
    return shape


def _index_put(node: Node) -> _Rows:
    over, indices, values, accumulate = _arguments(node)
    present = [i for i, index in enumerate(indices) if index is not None]
    if accumulate:
        raise Refused("values are accumulated")
    if len(present) != 1:
        raise Refused(f"{len(present)} index tensors")
    return _Rows(over, values, present[0], indices[present[0]])


def _index_copy(node: Node) -> _Rows:
    over, dim, index, values = _arguments(node)
    # index_copy itself takes no negative index.
    return _Rows(over, values, _dim(over, dim), index, is_checked=True)


def _slice_scatter(node: Node) -> _Rows:
    over, values, dim, start, end, step = _arguments(node)
    dim = _dim(over, dim)
    size = over.meta["val"].shape[dim]
    if not all(isinstance(n, (int, type(None))) for n in (start, end, step, size)):
        raise Refused("a slice whose bounds are symbolic")
    return _Rows(over, values, dim, range(size)[start:end:step])


def _select_scatter(node: Node) -> _Rows:
    over, values, dim, index = _arguments(node)
    dim = _dim(over, dim)
    size = over.meta["val"].shape[dim]
    if not (isinstance(index, int) and isinstance(size, int)):
        raise Refused("an index that is symbolic")
    index %= size
    return _Rows(over, values, dim, range(index, index + 1))


_ROW_WRITERS: dict[Any, Callable[[Node], _Rows]] = {
    aten.index_put.default: _index_put,
    aten.index_copy.default: _index_copy,
    aten.slice_scatter.default: _slice_scatter,
    aten.select_scatter.default: _select_scatter,
}


def _arguments(node: Node) -> list[Any]:
    """All arguments in the schema's order."""
    found = list(node.args)
    for argument in aten_op(node.target)._schema.arguments[len(found) :]:
        default = argument.default_value if argument.has_default_value() else None
        found.append(node.kwargs.get(argument.name, default))
    return found


def _dim(node: Node, dim: int) -> int:
    return int(dim % node.meta["val"].dim())


def _is_static(sizes: Sequence[Any]) -> bool:
    return all(isinstance(d, int) for d in sizes)


def _same_sizes(a: Sequence[Any], b: Sequence[Any]) -> bool:
    return len(a) == len(b) and all(
        statically_known_true(x == y) for x, y in zip(a, b, strict=True)
    )


_KEEP_SIGN = frozenset(
    {
        aten.view_copy.default,
        aten.unsqueeze_copy.default,
        aten.squeeze_copy.dims,
        aten.expand_copy.default,
        aten.slice_copy.Tensor,
        aten.select_copy.int,
    }
)


def _is_non_negative(index: Node, constant: Callable[[Node], torch.Tensor | None]) -> bool:
    """Whether no element can be negative, as far as that can be told without a guard."""
    while True:
        value = constant(index)
        if value is not None:
            return bool((value >= 0).all())
        op = aten_op(index.target) if index.op == "call_function" else None
        operands: Any = index.args
        if op is aten.arange.start_step:
            bounds = (operands[0], operands[2] if len(operands) > 2 else 1)
            return all(statically_known_true(n >= 0) for n in bounds)
        keeps_sign = op in _KEEP_SIGN or _executorch.is_clone(op)
        if not keeps_sign or not isinstance(operands[0], Node):
            return False
        index = operands[0]
