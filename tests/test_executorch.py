"""The drop-in, on every path that leads to an edge program."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from torch import nn

import mutcanon
from mutcanon._alias import is_copy

pytestmark = pytest.mark.executorch

exir = pytest.importorskip("executorch.exir")
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner  # noqa: E402
from executorch.exir.backend.partitioner import (  # noqa: E402
    DelegationSpec,
    Partitioner,
    PartitionResult,
)

import mutcanon.executorch as drop_in  # noqa: E402
from mutcanon import _executorch  # noqa: E402
from mutcanon.errors import VersionError  # noqa: E402
from pte import check_pte, config, mutated_inputs  # noqa: E402

aten = torch.ops.aten
has_program_passes = _executorch.program_pass() is not object
needs_program_passes = pytest.mark.skipif(
    not has_program_passes, reason="passes over programs came with executorch 1.4"
)


class Cache(nn.Module):
    """A key cache as an input, one row written a step."""

    def forward(self, cache: torch.Tensor, x: torch.Tensor, pos: torch.Tensor) -> torch.Tensor:
        cache.index_copy_(1, pos, x)
        return cache.sum(1)


class ConvState(nn.Module):
    """A sliding window: its new state is a slice, strided in ATen and contiguous in edge."""

    def forward(self, state: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        h = torch.cat([state, x], -1)
        state.copy_(h[..., 1:])
        return h.sum(-1)


class TwoUpdates(nn.Module):
    def forward(self, cache: torch.Tensor, x: torch.Tensor, pos: torch.Tensor) -> torch.Tensor:
        cache.index_copy_(1, pos, x)
        cache.index_copy_(1, pos + 1, x * 2)
        return cache.sum(1)


class Cast(nn.Module):
    """The one copy that must stay: it rounds."""

    def forward(self, state: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        state.copy_(x * 1.5)
        return state + 1


class KeepOps(Partitioner):  # type: ignore[misc]
    """Delegates nothing, but keeps an operator by a filter: the EDGE_DO_NOT_DECOMP path."""

    def __init__(self) -> None:
        super().__init__()
        self.delegation_spec = DelegationSpec("none", [])

    def partition(self, exported_program: Any) -> PartitionResult:
        return PartitionResult(tagged_exported_program=exported_program, partition_tags={})

    def ops_to_not_decompose(self, ep: Any) -> Any:
        return [aten.hardsigmoid.default], lambda node: True


def cache_inputs(step: int) -> tuple[Any, ...]:
    return torch.zeros(1, 5, 4), torch.randn(1, 1, 4), torch.tensor([step])


def conv_inputs(step: int) -> tuple[Any, ...]:
    return torch.zeros(1, 2, 3), torch.randn(1, 2, 1)


def cast_inputs(step: int) -> tuple[Any, ...]:
    return torch.zeros(3, dtype=torch.half), torch.randn(3)


PATHS: dict[str, dict[str, Any]] = {
    "to_edge": {},
    "portable": {},
    "xnnpack": {"partitioner": [XnnpackPartitioner()]},
    "keep_ops": {"partitioner": [KeepOps()]},
    "two_partitioners": {"partitioner": [KeepOps(), XnnpackPartitioner()]},
    "preserved": {
        "compile_config": exir.EdgeCompileConfig(preserve_ops=[aten.hardsigmoid.default])
    },
}


def lower(path: str, ep: Any, library: Any = drop_in) -> Any:
    if path == "to_edge":
        return library.to_edge(ep)
    return library.to_edge_transform_and_lower(ep, **PATHS[path])


def copies(program: Any) -> int:
    return sum(is_copy(n.target) for n in program.graph.nodes)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("module", "inputs", "left"),
    [
        (Cache, cache_inputs, 0),
        (ConvState, conv_inputs, 0),
        (TwoUpdates, cache_inputs, 0),
        (Cast, cast_inputs, 1),
    ],
    ids=lambda v: getattr(v, "__name__", str(v)),
)
def test_every_path_leaves_the_fewest_copies(
    module: Any, inputs: Any, left: int, path: str
) -> None:
    ep = torch.export.export(module(), inputs(0))
    before = str(ep)
    edge = lower(path, ep)
    program = edge.exported_program()
    assert copies(program) == left
    assert str(ep) == before, "the caller's program was edited"
    assert mutcanon.canonicalize(program) is program
    check_pte(module(), inputs, edge.to_executorch(config()), mutated_inputs(program))


def test_stock_leaves_copies_that_we_remove() -> None:
    ep = torch.export.export(Cache(), cache_inputs(0))
    assert copies(lower("xnnpack", ep, exir).exported_program()) > 0
    assert copies(lower("xnnpack", ep).exported_program()) == 0


def test_index_copy_kept_by_preserve_ops() -> None:
    ep = torch.export.export(Cache(), cache_inputs(0))
    keep = exir.EdgeCompileConfig(preserve_ops=[aten.index_copy.default])
    program = drop_in.to_edge_transform_and_lower(ep, compile_config=keep).exported_program()
    assert any(
        "index_copy" in n.target.name() for n in program.graph.nodes if hasattr(n.target, "name")
    )
    assert copies(program) == 0


def test_several_methods() -> None:
    eps = {
        "first": torch.export.export(Cache(), cache_inputs(0)),
        "second": torch.export.export(ConvState(), conv_inputs(0)),
    }
    edge = drop_in.to_edge_transform_and_lower(eps, partitioner={"first": [XnnpackPartitioner()]})
    assert edge.methods == {"first", "second"}
    assert [copies(edge.exported_program(m)) for m in sorted(edge.methods)] == [0, 0]


def test_dynamic_batch() -> None:
    batch = torch.export.Dim("batch", min=1, max=8)

    class Add(nn.Module):
        def forward(self, a: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
            a.add_(x)
            return a * 2

    args = (torch.zeros(4, 3), torch.ones(4, 3))
    ep = torch.export.export(Add(), args, dynamic_shapes=({0: batch}, {0: batch}))
    assert copies(drop_in.to_edge_transform_and_lower(ep).exported_program()) == 0


def test_etrecord() -> None:
    ep = torch.export.export(Cache(), cache_inputs(0))
    edge = drop_in.to_edge_transform_and_lower(ep, generate_etrecord=True)
    assert copies(edge.exported_program()) == 0
    assert edge.to_executorch().get_etrecord() is not None


@needs_program_passes
def test_transform_passes_still_run() -> None:
    ran: list[bool] = []

    class Watch(drop_in.CanonicalizeMutations):  # type: ignore[misc]
        def call(self, exported_program: Any) -> Any:
            result = super().call(exported_program)
            ran.append(result.modified)
            return result

    ep = torch.export.export(Cache(), cache_inputs(0))
    edge = drop_in.to_edge_transform_and_lower(ep, transform_passes=[Watch()])
    assert ran == [False], "the drop-in had left something to do"
    assert copies(edge.exported_program()) == 0


@pytest.mark.skipif(has_program_passes, reason="the pass exists")
def test_where_there_are_no_such_passes_ours_says_so() -> None:
    with pytest.raises(VersionError, match="ExportedProgramPassBase"):
        drop_in.CanonicalizeMutations()


@needs_program_passes
def test_the_pass_is_pure_and_honest() -> None:
    edge = exir.to_edge_transform_and_lower(torch.export.export(Cache(), cache_inputs(0)))
    program = edge.exported_program()
    before = str(program)
    first = drop_in.CanonicalizeMutations()(program)
    assert first.modified
    assert str(program) == before
    again = drop_in.CanonicalizeMutations()(first.exported_program)
    assert not again.modified
    assert again.exported_program is first.exported_program


@needs_program_passes
def test_the_pass_in_the_hands_of_executorch() -> None:
    edge = exir.to_edge_transform_and_lower(torch.export.export(Cache(), cache_inputs(0)))
    assert copies(edge.exported_program()) > 0
    passes = [drop_in.CanonicalizeMutations()]
    assert copies(edge.transform(passes).exported_program()) == 0
    from executorch.exir.pass_manager import ExportedProgramPassManager

    managed = ExportedProgramPassManager(passes)(edge.exported_program())
    assert managed.modified
    assert copies(managed.exported_program) == 0


@pytest.mark.parametrize("name", ["to_edge", "to_edge_transform_and_lower"])
def test_signatures_are_executorchs(name: str) -> None:
    hidden = getattr(exir, name).__closure__[0].cell_contents
    want = [(p.name, p.default) for p in inspect.signature(hidden).parameters.values()]
    ours = inspect.signature(getattr(drop_in, name)).parameters.values()
    assert [(p.name, p.default) for p in ours if p.kind is not p.VAR_KEYWORD] == want


def test_an_unknown_option_is_executorchs_error() -> None:
    ep = torch.export.export(Cache(), cache_inputs(0))
    with pytest.raises(TypeError, match="no_such_option"):
        drop_in.to_edge(ep, no_such_option=1)
