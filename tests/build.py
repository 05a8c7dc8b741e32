"""Builds exported programs by hand, node by node, for what torch.export does not produce."""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.export import ExportedProgram
from torch.export.exported_program import ModuleCallEntry, ModuleCallSignature
from torch.export.graph_signature import (
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    TensorArgument,
)
from torch.fx import Graph, Node
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils import _pytree as pytree

aten = torch.ops.aten

KINDS = {
    "user": (InputKind.USER_INPUT, OutputKind.USER_INPUT_MUTATION),
    "buffer": (InputKind.BUFFER, OutputKind.BUFFER_MUTATION),
    "parameter": (InputKind.PARAMETER, getattr(OutputKind, "PARAMETER_MUTATION", None)),
}


class Builder:
    """A graph under construction; values are computed under a fake mode, or given.

    Parameters and buffers have to be added before user inputs.
    """

    def __init__(self) -> None:
        self.graph = Graph()
        self.shapes = ShapeEnv()
        self.mode = FakeTensorMode(shape_env=self.shapes, allow_non_fake_inputs=True)
        self.kinds: dict[Node, str] = {}
        self.state: dict[str, Any] = {}

    def input(self, name: str, *sizes: Any, kind: str = "user", **options: Any) -> Node:
        """An input of new data; sizes may be symbolic."""
        if kind != "user":
            value = torch.ones(*sizes, **options)
            is_parameter = kind == "parameter"
            self.state[name] = torch.nn.Parameter(value, False) if is_parameter else value
        return self.given(name, self.fake(*sizes, **options), kind)

    def given(self, name: str, val: Any, kind: str = "user") -> Node:
        """An input whose metadata is this very value."""
        node = self.graph.placeholder(name)
        node.meta["val"] = val
        self.kinds[node] = kind
        return node

    def size(self, hint: int) -> torch.SymInt:
        """A new symbolic size of which nothing is known but that it is not negative."""
        size = self.shapes.create_unbacked_symint()
        torch._check(size >= 0)
        return size

    def fake(self, *sizes: Any, **options: Any) -> torch.Tensor:
        """Metadata of a tensor."""
        with self.mode:
            return torch.empty(*sizes, **options)

    def call(self, op: Any, /, *args: Any, val: Any = None, **kwargs: Any) -> Node:
        """A call, named after its operator; its value is computed unless it is given."""
        name = getattr(op, "_opname", op.__name__)
        node = self.graph.create_node("call_function", op, args, kwargs, name)
        if val is None:
            given = torch.fx.node.map_arg((args, kwargs), lambda n: n.meta["val"])
            with self.mode:
                val = op(*given[0], **given[1])
        node.meta["val"] = val
        return node

    def copy(self, destination: Node, source: Node, **options: Any) -> Node:
        return self.call(aten.copy.default, destination, source, **options)

    def program(
        self,
        mutations: dict[Node, Node] | None = None,
        outputs: tuple[Any, ...] = (),
        ranges: dict[Any, Any] | None = None,
    ) -> ExportedProgram:
        """The program: target -> value for each mutation, then the user outputs."""
        mutations = mutations or {}
        self.graph.output((*mutations.values(), *outputs))
        users = [n for n, kind in self.kinds.items() if kind == "user"]
        signature = ExportGraphSignature(
            [
                InputSpec(
                    KINDS[kind][0],
                    TensorArgument(name=node.name),
                    None if kind == "user" else node.name,
                    True if kind == "buffer" else None,
                )
                for node, kind in self.kinds.items()
            ],
            [
                OutputSpec(
                    KINDS[self.kinds[target]][1], TensorArgument(name=value.name), target.name
                )
                for target, value in mutations.items()
            ]
            + [
                OutputSpec(OutputKind.USER_OUTPUT, TensorArgument(name=o.name), None)
                for o in outputs
            ],
        )
        in_spec = pytree.tree_structure((tuple(0 for _ in users), {}))
        out_spec = pytree.tree_structure(tuple(0 for _ in outputs))
        top = ModuleCallSignature([], [], in_spec, out_spec, [n.name for n in users])
        return ExportedProgram(
            torch.nn.Module(),
            self.graph,
            signature,
            self.state,
            ranges or {},
            [ModuleCallEntry("", top)],
        )
