"""The first public rule for these copies, ExecuTorch's pull request 23583, and what it left open.

That rule removed `copy(dst, index_put(dst, ...))` of user inputs. Its tests have their like here,
and so have the cases that its review found missing: other producers, `index_copy` kept by
`preserve_ops`, two updates of one input, a copy of a copy, dynamic sizes, another tensor's update,
casts, exact counts, and every path that a partitioner takes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import mutcanon
import oracle
from cases._case import rand

aten = torch.ops.aten

CACHE = (1, 6, 4)


@dataclasses.dataclass(frozen=True)
class Program:
    """A forward with its inputs, and the copies that must be left of it."""

    forward: Callable[..., Any]
    inputs: Callable[[int], tuple[Any, ...]]
    left: int = 0
    dynamic_shapes: Any = None

    def module(self) -> nn.Module:
        made = type(self.forward.__name__, (nn.Module,), {"forward": staticmethod(self.forward)})()
        return made.eval()

    def arguments(self, step: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return self.inputs(step), {}

    def export(self) -> torch.export.ExportedProgram:
        args, _ = self.arguments(0)
        return torch.export.export(self.module(), args, dynamic_shapes=self.dynamic_shapes)


def cache_and_row(step):
    return torch.zeros(CACHE), rand(step, 1, 1, 4), torch.tensor([step])


def two_caches_and_row(step):
    return torch.zeros(CACHE), torch.ones(CACHE), rand(step, 1, 1, 4), torch.tensor([step])


def state_and_x(step):
    return rand(step, 3), rand(step, 3, salt=1)


# Producers: whatever computes the new value, the copy above it goes.


def index_put(k, v, i):
    aten.index_put_(k, [None, i], v)
    return k.sum(1)


def index_put_accumulate(k, v, i):
    aten.index_put_(k, [None, i], v, True)
    return k.sum(1)


def index_copy(k, v, i):
    k.index_copy_(1, i, v)
    return k.sum(1)


def index_add(k, v, i):
    k.index_add_(1, i, v)
    return k.sum(1)


def slice_assignment(k, v, i):
    k[:, 2:3] = v
    return k.sum(1) + i


def select_assignment(k, v, i):
    k[:, 2] = v[:, 0]
    return k.sum(1) + i


def scatter(k, v, i):
    k.scatter_(1, i.view(1, 1, 1).expand(1, 1, 4), v)
    return k.sum(1)


def masked_fill(k, v, i):
    k.masked_fill_(v > 0, 7.0)
    return k.sum(1) + i


def arithmetic(k, v, i):
    k.mul_(0.5).add_(v)
    return k.sum(1) + i


def roll(k, v, i):
    k.copy_(torch.cat([k[:, 1:], v], 1))
    return k.sum(1) + i


def where(k, v, i):
    k.copy_(torch.where(k > 0, k, v))
    return k.sum(1) + i


def filled(k, v, i):
    k.zero_()
    return v + i


# Several updates and several tensors.


def two_updates_of_one_input(k, v, i):
    k.index_copy_(1, i, v)
    k.index_copy_(1, i + 1, v * 2)
    return k.sum(1)


def reads_between_updates(k, v, i):
    k.index_copy_(1, i, v)
    middle = k.sum(1)
    k.index_copy_(1, i + 1, v * 2)
    return middle, k.sum(1)


def reads_the_old_value(k, v, i):
    old = k.sum(1)
    k.index_copy_(1, i, v)
    return old, k.sum(1)


def keys_and_values(k, w, v, i):
    k.index_copy_(1, i, v)
    w.index_copy_(1, i, v * 2)
    return (k * w).sum(1)


def another_tensors_update(k, w, v, i):
    """w becomes an update of k: the destination of the copy is not what index_put reads."""
    w.copy_(aten.index_put(k, [None, i], v))
    return w.sum(1)


def each_the_others_update(k, w, v, i):
    new_k = aten.index_put(w, [None, i], v)
    new_w = aten.index_put(k, [None, i], v)
    k.copy_(new_k)
    w.copy_(new_w)
    return k.sum(1) - w.sum(1)


def copy_of_copy(k, w, v, i):
    k.index_copy_(1, i, v)
    t = torch.empty(CACHE)
    t.copy_(k)
    w.copy_(t * 2)
    return w.sum(1)


def copies_in_a_row(a, x):
    a.copy_(x)
    a.copy_(a + x)
    a.copy_(a * 2)
    return a + 1


def unmutated_neighbour(k, w, v, i):
    k.index_copy_(1, i, v)
    return (k + w).sum(1)


def also_returned(k, v, i):
    k.index_copy_(1, i, v)
    return k


# Copies that must stay.


def cast(a, x):
    a.copy_(x)
    return a + 1


def cast_of_an_update(a, x, i):
    a.copy_(x.index_copy(0, i, x[:1]))
    return a + 1


def broadcast(a, x):
    a.copy_(x)
    return a + 1


def transposed(a, x):
    a.copy_(x.t())
    return a + 1


def same_update_to_two(k, w, v, i):
    new = aten.index_put(k, [None, i], v)
    k.copy_(new)
    w.copy_(new)
    return k.sum(1) - w.sum(1)


def dynamic_rows(a, x):
    a.mul_(x)
    return a.sum(0)


def dynamic_prompt(k, x, i):
    k.index_copy_(1, i, x)
    return k.sum(1)


ROWS = torch.export.Dim("rows", min=2, max=16)
PROMPT = torch.export.Dim("prompt", min=1, max=4)

PRODUCERS = (
    index_put,
    index_put_accumulate,
    index_copy,
    index_add,
    slice_assignment,
    select_assignment,
    scatter,
    masked_fill,
    arithmetic,
    roll,
    where,
    filled,
    two_updates_of_one_input,
    reads_between_updates,
    reads_the_old_value,
    also_returned,
)
ON_TWO_CACHES = (
    keys_and_values,
    another_tensors_update,
    each_the_others_update,
    copy_of_copy,
    unmutated_neighbour,
)

PROGRAMS = {
    **{f.__name__: Program(f, cache_and_row) for f in PRODUCERS},
    **{f.__name__: Program(f, two_caches_and_row) for f in ON_TWO_CACHES},
    "copies_in_a_row": Program(copies_in_a_row, state_and_x),
    "same_update_to_two": Program(same_update_to_two, two_caches_and_row, left=1),
    "cast": Program(cast, lambda s: (torch.zeros(3).half(), rand(s, 3)), left=1),
    "cast_of_an_update": Program(
        cast_of_an_update, lambda s: (torch.zeros(3).half(), rand(s, 3), torch.tensor([1])), left=1
    ),
    "broadcast": Program(broadcast, lambda s: (torch.zeros(2, 3), rand(s, 3)), left=1),
    "transposed": Program(transposed, lambda s: (torch.zeros(2, 3), rand(s, 3, 2)), left=1),
    "dynamic_rows": Program(
        dynamic_rows,
        lambda s: (rand(s, 3 + s % 2, 2), rand(s, 3 + s % 2, 2, salt=1)),
        dynamic_shapes=({0: ROWS}, {0: ROWS}),
    ),
    "dynamic_prompt": Program(
        dynamic_prompt,
        lambda s: (torch.zeros(CACHE), rand(s, 1, 2 - s % 2, 4), torch.arange(s, s + 2 - s % 2)),
        dynamic_shapes=({}, {1: PROMPT}, {0: PROMPT}),
    ),
}


@pytest.mark.parametrize("form", ["portable", "minimal"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_decomposed_three_times(name, form):
    program = PROGRAMS[name]
    trace = oracle.eager(program.module(), program.arguments)
    ep = program.export()
    for _ in range(3):
        ep = ep.run_decompositions({})
    before = oracle.fingerprint(ep)
    result = mutcanon.canonicalize(ep, form=form)
    assert oracle.count_copies(result) == program.left
    assert (
        oracle.difference(trace, oracle.interpret(result, program.arguments, trace.mutated)) == ""
    )
    oracle.require_invariants(ep, result)
    assert oracle.fingerprint(ep) == before
    assert mutcanon.canonicalize(result, form=form) is result
    if form == "portable":
        got = oracle.unlifted(result, program.arguments, trace.mutated)
        assert oracle.difference(trace, got) == ""


def test_counts_grow_by_one_a_decomposition_and_collapse_to_none():
    ep = PROGRAMS["keys_and_values"].export()
    counts = []
    for _ in range(4):
        ep = ep.run_decompositions({})
        counts.append((oracle.count_copies(ep), oracle.count_copies(mutcanon.canonicalize(ep))))
    assert counts == [(0, 0), (2, 0), (4, 0), (6, 0)]


def test_decomposing_a_canonical_program_starts_afresh():
    ep = PROGRAMS["keys_and_values"].export().run_decompositions({})
    for _ in range(3):
        ep = ep.run_decompositions({})
        assert oracle.count_copies(ep) == 2
        ep = mutcanon.canonicalize(ep)
        assert oracle.count_copies(ep) == 0


def test_without_mutation_there_is_nothing_to_do():
    class Plain(nn.Module):
        def forward(self, x):
            return x * 2

    ep = torch.export.export(Plain(), (torch.ones(3),)).run_decompositions({})
    assert mutcanon.canonicalize(ep) is ep


# Every path to an edge program.

LOWERED = (
    "index_put",
    "index_copy",
    "roll",
    "two_updates_of_one_input",
    "another_tensors_update",
    "same_update_to_two",
    "copy_of_copy",
    "cast",
    "broadcast",
    "transposed",
    "dynamic_rows",
)
# A transposed source is a strided view in ATen, and a contiguous copy in the edge dialect.
LEFT_IN_EDGE = {"transposed": 0}


def keep_ops_partitioner():
    """Delegates nothing, but keeps an operator by a filter: the EDGE_DO_NOT_DECOMP path."""
    from executorch.exir.backend.partitioner import DelegationSpec, Partitioner, PartitionResult

    class KeepOps(Partitioner):
        def __init__(self):
            super().__init__()
            self.delegation_spec = DelegationSpec("none", [])

        def partition(self, exported_program):
            return PartitionResult(tagged_exported_program=exported_program, partition_tags={})

        def ops_to_not_decompose(self, ep):
            return [aten.hardsigmoid.default], lambda node: True

    return KeepOps()


def lower(ep: torch.export.ExportedProgram, path: str) -> Any:
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import EdgeCompileConfig

    from mutcanon.executorch import to_edge_transform_and_lower

    partitioner = {"xnnpack": [XnnpackPartitioner()], "keep_ops": [keep_ops_partitioner()]}
    keep = [aten.index_copy.default] if path == "preserve_ops" else []
    config = EdgeCompileConfig(_check_ir_validity=False, preserve_ops=keep)
    return to_edge_transform_and_lower(
        ep, partitioner=partitioner.get(path), compile_config=config
    ).exported_program()


@pytest.mark.executorch
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", ["none", "xnnpack", "keep_ops", "preserve_ops"])
@pytest.mark.parametrize("name", LOWERED)
def test_lowered(name, path):
    program = PROGRAMS[name]
    edge = lower(program.export(), path)
    assert oracle.count_copies(edge) == LEFT_IN_EDGE.get(name, program.left)
    assert mutcanon.canonicalize(edge) is edge
    if path == "preserve_ops" and "index_copy" in name:
        assert any("index_copy" in str(node.target) for node in edge.graph.nodes)
    if path != "xnnpack":  # a delegate does not run in torch
        trace = oracle.eager(program.module(), program.arguments)
        got = oracle.unlifted(edge, program.arguments, trace.mutated)
        assert oracle.difference(trace, got, tolerance=1e-6) == ""
