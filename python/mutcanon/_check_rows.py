"""Operators that write rows of a tensor, in one form.

Lowering says with `index_put_` what was said with `index_copy`, `slice_scatter` or
`select_scatter`, since that is what a runtime has a kernel for, and gives the kernel the arguments
that it wants: one index of rank 1 without negative elements, values of exactly the written shape.
To compare the two, both are read as *rows*: the tensor, the dimension, which rows, and their new
elements in row-major order. Nothing else about operators is interpreted when programs are checked.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch._ops import OpOverload
from torch.fx import Node
from torch.fx.experimental.symbolic_shapes import statically_known_true

if TYPE_CHECKING:
    from collections.abc import Sequence

aten = torch.ops.aten

_INTEGERS = (torch.int64, torch.int32)


def rows_of(node: Node) -> list[Any] | None:
    """The arguments of a call as rows: tensor, dimension, which, elements; None for other calls.

    Which rows: "rows", start, stop and step, or "index" and a node. Elements: "elements" and a node
    whose elements they are in order, or "broadcast", a node and the shape.
    """
    op = _op(node)
    if op not in _ROW_WRITERS:
        return None
    over, dim, which, values, region = _ROW_WRITERS[op](node) or (None, 0, (), None, ())
    if over is None or not isinstance(values, Node):
        return None
    return [over, dim, *which, *_elements(values, region)]


def _index_put(node: Node) -> Any:
    over, indices, values, accumulate = _arguments(node)
    present = [(i, index) for i, index in enumerate(indices) if index is not None]
    if accumulate or len(present) != 1:
        return None
    dim, index = present[0]
    return _by_index(over, dim, index, values)


def _index_copy(node: Node) -> Any:
    over, dim, index, values = _arguments(node)
    shape = _shape(over)
    return _by_index(over, dim % len(shape), index, values) if shape else None


def _by_index(over: Node, dim: int, index: Node, values: Any) -> Any:
    shape, val = _shape(over), index.meta["val"]
    if val.dtype not in _INTEGERS:
        return None
    region = (*shape[:dim], *val.shape, *shape[dim + 1 :])
    return over, dim, _which(index, shape[dim]), values, region


def _slice_scatter(node: Node) -> Any:
    over, values, dim, start, end, step = _arguments(node)
    shape = _shape(over)
    dim %= len(shape)
    if not all(isinstance(n, (int, type(None))) for n in (start, end, step, shape[dim])):
        return None
    rows = range(shape[dim])[start:end:step]
    region = (*shape[:dim], len(rows), *shape[dim + 1 :])
    return over, dim, _range(rows), values, region


def _select_scatter(node: Node) -> Any:
    over, values, dim, index = _arguments(node)
    shape = _shape(over)
    dim %= len(shape)
    if not (isinstance(index, int) and isinstance(shape[dim], int)):
        return None
    row = index % shape[dim]
    return (
        over,
        dim,
        _range(range(row, row + 1)),
        values,
        (*shape[:dim], 1, *shape[dim + 1 :]),
    )


_ROW_WRITERS: dict[Any, Any] = {
    aten.index_put.default: _index_put,
    aten.index_put_.default: _index_put,
    aten.index_put.out: _index_put,
    aten.index_copy.default: _index_copy,
    aten.index_copy_.default: _index_copy,
    aten.index_copy.out: _index_copy,
    aten.slice_scatter.default: _slice_scatter,
    aten.slice_scatter.out: _slice_scatter,
    aten.select_scatter.default: _select_scatter,
    aten.select_scatter.out: _select_scatter,
}


def _which(index: Node, size: Any) -> tuple[Any, ...]:
    """Which rows an index names, in order; a negative one counts from the end."""
    while True:
        op = _op(index)
        if op in (aten.view_copy.default, aten.view.default):
            index = _argument(index, 0)
        elif op in (aten.where.self, aten.where.self_out) and (inner := _wrapped(index, size)):
            index = inner
        elif op in (aten.arange.start_step, aten.arange.start_out):
            bounds = _arguments(index)[:3]
            if all(isinstance(n, int) for n in bounds) and bounds[2] > 0:
                return _range(range(*bounds))
            return "index", index
        else:
            return "index", index


def _wrapped(node: Node, size: Any) -> Node | None:
    """The index i of `where(i < 0, i + size, i)`."""
    condition, shifted, index = (_argument(node, i) for i in range(3))
    if not all(isinstance(n, Node) for n in (condition, shifted, index)):
        return None
    is_negative = _op(condition) in (aten.lt.Scalar, aten.lt.Scalar_out)
    is_shifted = _op(shifted) in (aten.add.Scalar, aten.add.Scalar_out)
    if not (is_negative and is_shifted and isinstance(size, int)):
        return None
    from_end = _arguments(shifted)[:3]
    if _arguments(condition)[:2] == [index, 0] and from_end == [index, size, 1]:
        return index  # type: ignore[no-any-return]
    return None


def _range(rows: range) -> tuple[Any, ...]:
    return "rows", rows.start, rows.stop, rows.step


def _elements(values: Node, region: Sequence[Any]) -> tuple[Any, ...]:
    """The elements of values that broadcast to a region, in order.

    A view has the elements of what it shows, in order; so has a tensor that becomes another one of
    as many elements by broadcasting.
    """
    while statically_known_true(math.prod(_shape(values)) == math.prod(region)):
        op = _op(values)
        if op in (aten.view_copy.default, aten.view.default, aten.view_copy.out):
            values = _argument(values, 0)
        elif op in (aten.expand_copy.default, aten.expand.default, aten.expand_copy.out):
            region = _shape(values)
            values = _argument(values, 0)
        elif _is_memory_view(values):
            values = _argument(values, 0)
        else:
            return "elements", values
    return "broadcast", values, list(region)


def _is_memory_view(node: Node) -> bool:
    from mutcanon._check_facts import facts_of

    return node.op == "call_function" and facts_of(node.target).is_memory_view


def _op(node: Any) -> Any:
    target = node.target if isinstance(node, Node) and node.op == "call_function" else None
    inner = getattr(target, "_op", None)
    return inner if isinstance(inner, OpOverload) else target


def _argument(node: Node, position: int) -> Any:
    return _arguments(node)[position]


def _arguments(node: Node) -> list[Any]:
    """The arguments of a call in the order of its schema."""
    schema = getattr(_op(node), "_schema", None)
    found = list(node.args)
    for argument in schema.arguments[len(found) :] if schema is not None else ():
        default = argument.default_value if argument.has_default_value() else None
        found.append(node.kwargs.get(argument.name, default))
    return found


def _shape(node: Node) -> tuple[Any, ...]:
    return tuple(node.meta["val"].shape)
