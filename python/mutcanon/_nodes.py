"""New nodes with the metadata that later passes expect."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import Node
from torch.fx.node import map_arg

if TYPE_CHECKING:
    from torch.fx import Graph

_INHERITED = ("stack_trace", "nn_module_stack", "source_fn_stack", "torch_fn", "debug_handle")


class NodeBuilder:
    """Inserts calls that take their origin from one node.

    Args:
        origin: The node whose traces and debug handle the new ones inherit.
        before: Where the new nodes go; the origin's place if None.
    """

    def __init__(self, origin: Node, before: Node | None = None) -> None:
        self._origin = origin
        self._before = before or origin

    @property
    def graph(self) -> Graph:
        """The graph that is built on."""
        return self._before.graph

    def call(self, op: Any, *args: Any, val: Any = None, **kwargs: Any) -> Node:
        """A call; its value's metadata is `val`, or found by running the operator on fakes."""
        with self.graph.inserting_before(self._before):
            node = self.graph.call_function(op, args, kwargs)
        meta = self._origin.meta
        node.meta.update({k: meta[k] for k in _INHERITED if k in meta})
        node.meta["val"] = self._run(op, args, kwargs) if val is None else val
        return node

    def _run(self, op: Any, args: Any, kwargs: Any) -> Any:
        fakes = map_arg((args, kwargs), lambda n: n.meta["val"])
        with _fake_mode(self._origin), torch.no_grad():
            return op(*fakes[0], **fakes[1])


def _fake_mode(node: Node) -> Any:
    """The fake mode of the node's value or of an operand's."""
    for n in (node, *node.all_input_nodes):
        val = n.meta.get("val")
        if isinstance(val, FakeTensor):
            return val.fake_mode
    return nullcontext()
