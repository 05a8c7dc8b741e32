"""Results of control flow that are still needed when the next control flow begins.

ExecuTorch plans the memory of all bodies at one place, since only one of them runs at a time, and
leaves a result where the body has put it. The next body to run overwrites it, so a result that is
needed longer is copied into memory of its own first.
"""

from __future__ import annotations

import itertools
import operator

import torch
from torch._ops import HigherOrderOperator
from torch.fx import GraphModule, Node

from mutcanon._extract import bodies
from mutcanon._flow import aliased
from mutcanon._nodes import NodeBuilder


def keep_apart(gm: GraphModule) -> None:
    """Copies each result of control flow that is read when, or after, other control flow runs.

    Args:
        gm: A module; it is edited, and so are the bodies in it.
    """
    for module in (gm, *(body for _, body in bodies(gm))):
        _keep_apart(module)


def _keep_apart(gm: GraphModule) -> None:
    nodes = list(gm.graph.nodes)
    calls = [i for i, n in enumerate(nodes) if n.op == "call_function" and _has_body(n, gm)]
    if len(calls) < 2:
        return
    last_read = _last_reads(nodes)
    for call, following in itertools.pairwise([*calls, len(nodes)]):
        for result in _results(nodes[call]):
            if last_read[result] >= following:
                _copy(result)
    gm.recompile()


def _has_body(call: Node, gm: GraphModule) -> bool:
    """Whether the call runs graphs of its own; a functionalized operator does not."""
    return isinstance(call.target, HigherOrderOperator) and any(
        n.op == "get_attr" and isinstance(getattr(gm, str(n.target), None), GraphModule)
        for n in call.all_input_nodes
    )


def _last_reads(nodes: list[Node]) -> dict[Node, int]:
    """When each node's storage is last read, be it through a view."""
    place = {node: i for i, node in enumerate(nodes)}
    last: dict[Node, int] = {}
    for node in reversed(nodes):
        reads = [place[user] for user in node.users]
        reads += [last[user] for user in node.users if node in (aliased(user) or ())]
        last[node] = max(reads, default=place[node])
    return last


def _results(call: Node) -> list[Node]:
    parts = [user for user in call.users if user.target is operator.getitem]
    found = parts if isinstance(call.meta.get("val"), (list, tuple)) else [call]
    return [n for n in found if isinstance(n.meta.get("val"), torch.Tensor)]


def _copy(result: Node) -> None:
    clone = NodeBuilder(result, result.next).call(torch.ops.aten.clone.default, result)
    result.replace_all_uses_with(clone, lambda user: user is not clone)
