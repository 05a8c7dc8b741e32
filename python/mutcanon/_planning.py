"""What a memory plan has to know about in-place results.

ExecuTorch plans memory by the `TensorSpec` in each node's metadata; nodes that share a spec share
memory. It gives an in-place result the spec of what it writes, but while it plans already, so three
things come out wrong: the readers of a result do not keep the memory alive, a view of the result
looks at the spec that the result had before, and the output node reserves memory for that spec too.
Here the specs are put in order first, whatever `MemoryPlanningPass` comes after.

A copy that only moves a fresh result to its target goes here as well: the operator before it gets
the target's memory for its `out`.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from torch.fx import Node

from mutcanon import _executorch
from mutcanon._alias import written_operand
from mutcanon._write_back import DIRECT
from mutcanon.errors import UnsupportedError

if TYPE_CHECKING:
    from torch.fx import Graph, GraphModule


class PlanningPass:
    """A memory planning pass that runs after the specs were put in order; the rest is the inner's.

    Args:
        inner: The user's pass.
    """

    def __init__(self, inner: Any) -> None:
        object.__setattr__(self, "inner", inner)

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "inner"), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.inner, name, value)

    def __call__(self, graph_module: GraphModule) -> Any:
        """For passes without `run`."""
        return self.run(graph_module)

    def run(self, graph_module: GraphModule, graph_signature: Any = None) -> Any:
        """For passes that take the signature."""
        settle_specs(graph_module, plans_outputs=getattr(self.inner, "alloc_graph_output", True))
        if hasattr(self.inner, "run"):
            return self.inner.run(graph_module, graph_signature)
        return self.inner(graph_module)


def settle_specs(gm: GraphModule, *, plans_outputs: bool = True) -> None:
    """Gives each in-place result the spec of what it writes, and has its readers read that.

    Args:
        gm: A module in the form that is about to be planned.
        plans_outputs: Whether the plan gives outputs memory. Where it does not, it must not take
            the state that is returned for one of them, so its spec stays off the output node.
    """
    graph = gm.graph
    require_current(graph)
    for node in list(graph.nodes):
        if node.meta.get(DIRECT):
            _join(node)
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        written = written_operand(node)
        if written is not None:
            node.meta["spec"] = written.meta["spec"]
            # The planner does not see in-place nodes as operands.
            node.replace_all_uses_with(
                written, lambda user: user.op != "output" or not plans_outputs
            )
        elif _executorch.is_view(node):
            (base, *_) = node.all_input_nodes
            _executorch.rebase_view(node.meta["spec"], base.meta["spec"])
    if plans_outputs:
        output = graph.output_node()
        args: Any = output.args[0]
        specs = output.meta["spec"]
        found = [
            a.meta["spec"] if isinstance(a, Node) else s for a, s in zip(args, specs, strict=True)
        ]
        output.meta["spec"] = type(specs)(found)
    gm.recompile()


def require_current(graph: Graph) -> None:
    """Refuses a graph in which somebody reads a value that was overwritten by then.

    We made none, but passes of the config ran in between. One that removes a clone, for example,
    must know that the graph it sees writes in place.

    Raises:
        UnsupportedError: When such a pass has changed what is read.
    """
    storage: dict[Node, Node] = {}
    writes: dict[Node, int] = {}
    version: dict[Node, int] = {}
    for node in graph.nodes:
        written = written_operand(node) if node.op == "call_function" else None
        for operand in node.all_input_nodes:
            if version[operand] < writes.get(storage[operand], 0):
                raise UnsupportedError(
                    f"{node.name} reads {operand.name}, which was overwritten by then: a pass of "
                    "ExecutorchBackendConfig.passes changed what is read; run it before, by "
                    "EdgeProgramManager.transform, or pass reinplace=False",
                    code="overwritten_value",
                )
        if written is not None:
            writes[storage[written]] = writes.get(storage[written], 0) + 1
        base = node.all_input_nodes[0] if _executorch.is_view(node) else written
        storage[node] = node if base is None else storage[base]
        version[node] = writes.get(storage[node], 0)


def _join(copy: Node) -> None:
    """Has the copy's source computed in its target, where it is an operator that takes an `out`."""
    target: Any = copy.args[0]
    source: Any = copy.args[1]
    old, new = source.meta.get("spec"), target.meta["spec"]
    if not _executorch.may_share_memory(old, new):
        return
    place: Any = source.kwargs.get("out") if source.op == "call_function" else None
    if source.target is operator.getitem:
        call, index = source.args
        if not _executorch.is_delegate_call(call):
            return
        specs = list(call.meta["spec"])
        specs[index] = new
        call.meta["spec"] = tuple(specs)
        for part in call.users:
            if part.target is operator.getitem and part.args[1] == index:
                part.meta["spec"] = new
    elif not (_executorch.is_allocation(place) and len(place.users) == 1):
        return
    source.meta["spec"] = new
    copy.replace_all_uses_with(source)
    copy.graph.erase_node(copy)
