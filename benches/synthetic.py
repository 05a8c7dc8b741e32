"""Programs of any size for the benches.

A synthetic program has many nodes, some mutated inputs, and under each mutation output an
`index_put` with a chain of copies, as repeated `run_decompositions` leave it. It is put together by
hand: to export and decompose a million nodes would take hours. `tests/test_benches.py` checks that
it means what an exported one means.
"""

from __future__ import annotations

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
from torch.utils import _pytree as pytree

from mutcanon import _torch

aten = torch.ops.aten
CACHE, ROW = (1, 8, 128, 64), (1, 8, 1, 64)
_BODY = (aten.add.Tensor, aten.mul.Tensor, aten.relu.default)
#: Distinct fake tensors are shared by this many nodes, or a million nodes would not fit into
#: memory.
_POOL = 64


def synthetic(nodes: int, targets: int, depth: int) -> ExportedProgram:
    """About `nodes` nodes and `targets` mutated inputs, each under a chain of `depth` copies."""
    graph, new = Graph(), _Vals()
    x = _with_val(graph.placeholder("x"), new(ROW))
    position = _with_val(graph.placeholder("position"), new((1,), torch.int64))
    caches = [_with_val(graph.placeholder(f"cache_{i}"), new(CACHE)) for i in range(targets)]
    body = max(1, (nodes - 3 - targets * (2 + depth)) // targets)
    h = previous = x
    values: list[Node] = []
    for cache in caches:
        for i in range(body):
            op = _BODY[i % len(_BODY)]
            args = (h,) if op is aten.relu.default else (h, previous)
            previous, h = h, _with_val(graph.call_function(op, args), new(ROW))
        args = (cache, [None, None, position], h)
        values.append(_with_val(graph.call_function(aten.index_put.default, args), new(CACHE)))
    graph.output((*values, h))
    inputs = [
        InputSpec(InputKind.USER_INPUT, TensorArgument(name=n.name), None)
        for n in (x, position, *caches)
    ]
    outputs = [
        OutputSpec(OutputKind.USER_INPUT_MUTATION, TensorArgument(name=v.name), c.name)
        for v, c in zip(values, caches, strict=True)
    ]
    outputs.append(OutputSpec(OutputKind.USER_OUTPUT, TensorArgument(name=h.name), None))
    program = _program(graph, ExportGraphSignature(inputs, outputs))
    add_copies(program, depth)
    return program


class _Vals:
    """Fake tensors in turn, from a small pool for each type."""

    def __init__(self) -> None:
        self._mode = FakeTensorMode()
        self._pools: dict[object, list[torch.Tensor]] = {}
        self._taken = 0

    def __call__(self, shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> torch.Tensor:
        pool = self._pools.setdefault((shape, dtype), [])
        if len(pool) < _POOL:
            with self._mode:
                pool.append(torch.empty(shape, dtype=dtype))
        self._taken += 1
        return pool[self._taken % len(pool)]


def _with_val(node: Node, val: torch.Tensor) -> Node:
    node.meta["val"] = val
    return node


def add_copies(program: ExportedProgram, depth: int) -> list[Node]:
    """Puts `depth` more copies on every mutation output, as so many decompositions do.

    Returns:
        The copies; each stands before what it copies.
    """
    copies: list[Node] = []
    graph, signature = program.graph, program.graph_signature
    output = graph.output_node()
    (outputs,) = output.args
    changed = list(outputs)
    targets = {n.name: n for n in graph.find_nodes(op="placeholder")}
    with graph.inserting_before(output):
        for i, spec in enumerate(signature.output_specs):
            if spec.kind is not OutputKind.USER_INPUT_MUTATION:
                continue
            for _ in range(depth):
                copy = graph.call_function(aten.copy.default, (targets[spec.target], changed[i]))
                copy.meta["val"] = changed[i].meta["val"]
                changed[i] = copy
                copies.append(copy)
            spec.arg.name = changed[i].name
    output.args = (tuple(changed),)
    return copies[::-1]


def count_copies(program: ExportedProgram) -> int:
    """The functional copies of the program's top graph."""
    return len(program.graph.find_nodes(op="call_function", target=aten.copy.default, sort=False))


def _program(graph: Graph, signature: ExportGraphSignature) -> ExportedProgram:
    # The constructor of ExportedProgram compiles and verifies for minutes at this size; a small
    # program lends everything but the graph.
    lender = torch.export.export(torch.nn.Identity(), (torch.zeros(1),))
    _, in_spec = pytree.tree_flatten((tuple(range(len(signature.input_specs))), {}))
    _, out_spec = pytree.tree_flatten(0)
    call = ModuleCallSignature(
        [spec.arg for spec in signature.input_specs],
        [signature.output_specs[-1].arg],
        in_spec,
        out_spec,
    )
    gm = _torch.new_graph_module(lender.graph_module, graph)
    return _torch.with_parts(lender, gm, signature, [ModuleCallEntry("", call)])
