"""The private names of torch that mutcanon uses, in one place.

Checked on torch 2.13.0. `tests/test_torch_names.py` fails when one of them moves; everything else
goes through public names or degrades: a graph without the side table is walked instead.
"""

from __future__ import annotations

import copy
import inspect
from importlib import import_module
from typing import TYPE_CHECKING, Any

import torch
from torch.export.graph_signature import OutputKind
from torch.fx._lazy_graph_module import _LazyGraphModule

from mutcanon._patch import Site
from mutcanon.errors import VersionError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch.export import ExportedProgram
    from torch.export.exported_program import ModuleCallEntry
    from torch.export.graph_signature import ExportGraphSignature
    from torch.fx import Graph, GraphModule, Node

_COMPOSITE = "CompositeImplicitAutograd"

# Of torch 2.10 and newer. Without it None, which no output's kind is.
PARAMETER_MUTATION: OutputKind | None = getattr(OutputKind, "PARAMETER_MUTATION", None)


def call_targets(graph: Graph) -> Iterable[Any]:
    """The distinct targets of the graph's calls, without a walk where torch allows."""
    table = getattr(getattr(graph, "_find_nodes_lookup_table", None), "table", None)
    if table is None:
        return {n.target for n in graph.nodes if n.op == "call_function"}
    return [target for (op, target), nodes in table.items() if op == "call_function" and nodes]


def is_composite(op: torch._ops.OpOverload) -> bool:
    """Whether the operator is a composition of others, so that its schema binds nobody."""
    name = op.name()  # type: ignore[no-untyped-call]
    return torch._C._dispatch_has_kernel_for_dispatch_key(name, _COMPOSITE)


def erase_nodes(graph: Graph, nodes: Iterable[Node]) -> None:
    """`graph.erase_node` for many calls, each without readers by the time it is its turn.

    That method costs as much as all the rest of a collapse, nearly all of it for looking up anew
    what is the same for every node.
    """
    hooks = getattr(graph.owning_module, "_erase_node_hooks", None)
    table = getattr(getattr(graph, "_find_nodes_lookup_table", None), "table", None)
    if hooks or table is None:
        for node in nodes:
            graph.erase_node(node)
        return
    by_target: dict[Any, Any] = {}
    count = 0
    for node in nodes:
        if node.users:
            raise RuntimeError(f"{node.name} still has readers")
        target = node.target
        calls = by_target.get(target)
        if calls is None:
            calls = by_target[target] = table[(node.op, target)]
        del calls[node]
        node._remove_from_list()
        object.__setattr__(node, "_erased", True)
        node._update_args_kwargs((), {})
        count += 1
    graph._len -= count


def new_graph_module(root: GraphModule, graph: Graph) -> GraphModule:
    """A graph module whose code is generated on demand: that costs more than our whole pass."""
    gm = _LazyGraphModule(root, graph, type(root).__name__)
    gm.meta.update(root.meta)
    return gm


def mark_stale(gm: GraphModule) -> None:
    """Puts off code generation, for a graph that was edited in place, until the module is called.

    `GraphModule.__new__` gives each instance a class of its own, so this reaches no other module.
    """
    if isinstance(gm, _LazyGraphModule):
        gm.recompile()
        return
    cls = type(gm)

    # To free the code of a large graph takes longer than our whole pass, so it stays until then.
    def forward(self: GraphModule, *args: Any, _stale: Any = cls.forward, **kwargs: Any) -> Any:
        self.recompile()
        return self(*args, **kwargs)

    cls.forward = forward


def with_parts(
    ep: ExportedProgram,
    gm: GraphModule,
    signature: ExportGraphSignature,
    calls: list[ModuleCallEntry],
) -> ExportedProgram:
    """A shallow copy with these parts; the constructor would verify and compile it all again."""
    new = copy.copy(ep)
    new._graph_module = gm
    new._graph_signature = signature
    new._module_call_graph = calls
    return new


def replace_parts(
    ep: ExportedProgram,
    signature: ExportGraphSignature,
    calls: list[ModuleCallEntry],
) -> None:
    """Gives the program another signature and call graph."""
    ep._graph_signature = signature
    ep._module_call_graph = calls


def insert_copy_site() -> Site:
    """The function of torch that appends the writes of an unlifted program."""
    return _site(
        "torch.export._unlift",
        "_insert_copy_for_mutations",
        ("gm", "mutated_outputs", "unlifted_name_to_node", "input_name_to_node"),
    )


def copy_removal_site() -> Site:
    """The function of torch that removes copies of buffers after a decomposition."""
    module = "torch.export.exported_program"
    names = ("_remove_unnecessary_copy_op_pass", "_remove_unneccessary_copy_op_pass")
    # The second is how torch before 2.10 spells it.
    name = next((name for name in names if hasattr(import_module(module), name)), names[0])
    return _site(module, name, ("gm", "new_graph_signature"))


def run_decompositions_site() -> Site:
    """`ExportedProgram.run_decompositions`: public, but replaced while others lower a program."""
    return _method_site("run_decompositions")


def module_site() -> Site:
    """`ExportedProgram.module`, likewise."""
    return _method_site("module")


def _method_site(name: str) -> Site:
    from torch.export import ExportedProgram

    def is_known(value: Any) -> bool:
        # torch wraps it, so it is known by the module that its code belongs to.
        return (
            inspect.isfunction(value)
            and value.__name__ == name
            and value.__globals__["__name__"] == ExportedProgram.__module__
        )

    return Site(ExportedProgram, name, is_known)


def _site(module: str, name: str, parameters: tuple[str, ...]) -> Site:
    owner = import_module(module)

    def is_known(value: Any) -> bool:
        return (
            inspect.isfunction(value)
            and not hasattr(value, "__wrapped__")
            and (value.__module__, value.__name__) == (module, name)
            and tuple(inspect.signature(value).parameters) == parameters
        )

    if not hasattr(owner, name):
        raise VersionError(
            f"{module}.{name} is not in torch {torch.__version__}: use a version that mutcanon was "
            "tested with (2.13), or a newer mutcanon",
            code="moved_name",
        )
    return Site(owner, name, is_known)
