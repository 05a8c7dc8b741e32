"""Real models: no redundant copy is left in the ATen or the edge graph, every result is eager's.

`ZOO` says what may be left. The state of a convolution is a slice of a longer tensor: its copy
changes the strides in ATen and nothing in the edge dialect, where a slice is a contiguous copy.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import pytest
import torch
from torch.export.graph_signature import InputKind, OutputKind
from torch.utils import _pytree as pytree

import mutcanon
import oracle
from conftest import need
from zoo_models import MODELS

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

DEPTHS = (1, 2, 3)


@dataclasses.dataclass(frozen=True)
class Facts:
    """What is known about a model.

    Attributes:
        strides: Copies that change strides, left in the ATen graph.
        edge: Copies that are left in the edge graph.
        exported: Tolerance between eager and what torch.export.export makes of it.
        lowered: Tolerance between eager and the .pte, whose kernels are other ones.
        moved: Bytes that the .pte copies in a step for its mutations, counters of a number each
            left out: with portable kernels, and with XNNPACK. 0 wherever rows of a cache are
            written; what is left is state that is new as a whole in each step.
    """

    strides: int = 0
    edge: int = 0
    exported: float = 0.0
    lowered: float = 1e-5
    moved: tuple[int, int] = (0, 0)


ZOO = {
    "llama_inputs": Facts(),
    "llama_inputs_batch": Facts(),
    "llama_inputs_bf16": Facts(),
    "llama_inputs_sdpa": Facts(exported=1e-6),
    "llama_inputs_large": Facts(),
    "llama_static_cache_pytree": Facts(),
    "gpt2_inputs": Facts(),
    "gemma2_inputs": Facts(moved=(1024, 1024)),  # windows that move on, made from themselves
    "lfm2_inputs": Facts(strides=1),
    "mamba_inputs": Facts(strides=2, moved=(0, 4096)),
    "mamba2_inputs": Facts(strides=2, moved=(4096, 4096)),
    "jamba_inputs": Facts(strides=1, moved=(0, 2048)),
    "falcon_h1_inputs": Facts(strides=2, moved=(2048, 2048)),
    "t5_inputs": Facts(),
    "whisper_inputs": Facts(),
    "rwkv_inputs": Facts(strides=10),
    "et_llama_inputs": Facts(),
    "et_lfm2_inputs": Facts(strides=1),
    "et_qwen3_5_inputs": Facts(strides=1),
    "silero_vad_inputs": Facts(moved=(1024, 0)),
    "et_lstm_inputs": Facts(moved=(960, 0)),
}
NOTHING_TO_COLLAPSE = (
    "et_static_attention",
    "silero_vad",
    "resnet_bn",
    "lfm2_buffers",
    "mamba_buffers",
    "et_llama_buffers",
)


class Subject:
    """A model with its export and its eager trace, made once for all of its tests."""

    def __init__(self, name: str) -> None:
        need("executorch" if name.startswith(("et_", "silero")) else "transformers")
        self.name, self.facts = name, ZOO.get(name, Facts())
        with torch.no_grad():
            self.model = MODELS[name]()
            # A module of its own, since eager steps change what export would see.
            self.trace = oracle.eager(MODELS[name]().module, self.model.arguments)
            args, kwargs = self.model.arguments(0)
            shapes = self.model.dynamic_shapes
            self.exported = torch.export.export(
                self.model.module, args, kwargs, dynamic_shapes=shapes, strict=False
            )

    @functools.cached_property
    def reference(self) -> oracle.Trace:
        """The exported program itself: bit-identical to eager, or as near as export comes."""
        return self.interpret(self.exported)

    @functools.cached_property
    def decomposed(self) -> list[torch.export.ExportedProgram]:
        programs = [self.exported]
        with torch.no_grad():
            for _ in DEPTHS:
                programs.append(programs[-1].run_decompositions({}))
        return programs

    def interpret(self, ep: torch.export.ExportedProgram) -> oracle.Trace:
        return oracle.interpret(ep, self.model.arguments, self.trace.mutated)


@pytest.fixture(scope="module", params=ZOO)
def positive(request):
    return Subject(request.param)


@pytest.fixture(scope="module", params=NOTHING_TO_COLLAPSE)
def negative(request):
    return Subject(request.param)


def test_export_is_eager(positive):
    assert oracle.difference(positive.trace, positive.reference, positive.facts.exported) == ""


@pytest.mark.parametrize("depth", DEPTHS)
def test_aten_graph_keeps_no_redundant_copy(positive, depth):
    ep = positive.decomposed[depth]
    before = oracle.fingerprint(ep)
    result = mutcanon.canonicalize(ep)
    left = oracle.copies(result)
    assert not any(oracle.changes_nothing(copy) for copy in left)
    assert len(left) == positive.facts.strides
    assert {copy.code for copy in mutcanon.analyze(ep).kept} <= {"strides"}
    assert not mutcanon.analyze(ep).inserted
    assert oracle.fingerprint(ep) == before
    assert mutcanon.canonicalize(result) is result
    oracle.require_invariants(ep, result)
    assert oracle.difference(positive.reference, positive.interpret(result)) == ""


def test_portable_is_right_under_a_stock_write_back(positive):
    result = mutcanon.canonicalize(positive.decomposed[3])
    got = oracle.unlifted(result, positive.model.arguments, positive.trace.mutated)
    assert oracle.difference(positive.reference, got) == ""


def test_minimal_is_right(positive):
    result = mutcanon.canonicalize(positive.decomposed[3], form="minimal")
    assert oracle.count_copies(result) == positive.facts.strides
    assert oracle.difference(positive.reference, positive.interpret(result)) == ""


def test_in_place_is_right(positive):
    with torch.no_grad():
        ep = positive.decomposed[2].run_decompositions({})
    assert mutcanon.canonicalize_(ep) is ep
    assert oracle.count_copies(ep) == positive.facts.strides
    oracle.require_invariants(positive.decomposed[3], ep, same_metadata=False)
    assert oracle.difference(positive.reference, positive.interpret(ep)) == ""


@pytest.mark.executorch
@pytest.mark.parametrize("partitioner", ["none", "xnnpack"])
def test_pte_is_eager(positive, partitioner):
    edge = lower(positive.exported, partitioner)
    program = edge.exported_program()
    left = oracle.copies(program)
    assert not any(oracle.changes_nothing(copy) for copy in left)
    assert len(left) == positive.facts.edge
    assert mutcanon.canonicalize(program) is program
    for own in (True, False):
        for reinplace in (False, True):
            got = run_pte(positive, edge, own=own, reinplace=reinplace)
            assert oracle.difference(positive.trace, got, positive.facts.lowered) == ""
    assert moved(edge) == positive.facts.moved[partitioner == "xnnpack"]


@pytest.mark.parametrize("depth", (0, *DEPTHS))
def test_nothing_to_collapse(negative, depth):
    ep = negative.decomposed[depth]
    for form in ("portable", "minimal"):
        assert mutcanon.canonicalize(ep, form=form) is ep
        assert mutcanon.canonicalize_(ep, form=form) is ep
        assert mutcanon.analyze(ep, form=form).changes_nothing


def lower(ep: torch.export.ExportedProgram, partitioner: str) -> Any:
    """The edge program, through the drop-in."""
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import EdgeCompileConfig

    from mutcanon.executorch import to_edge_transform_and_lower

    with torch.no_grad():
        return to_edge_transform_and_lower(
            ep,
            partitioner=[XnnpackPartitioner()] if partitioner == "xnnpack" else None,
            compile_config=EdgeCompileConfig(_check_ir_validity=False),
        )


def emit(edge: Any, *, own: bool, reinplace: bool) -> Any:
    """The ExecuTorch program; `own` leaves the memory of inputs to the caller."""
    from executorch.exir import ExecutorchBackendConfig
    from executorch.exir.passes import MemoryPlanningPass

    planning = MemoryPlanningPass(alloc_graph_input=not own)
    config = ExecutorchBackendConfig(memory_planning_pass=planning)
    return edge.to_executorch(config, reinplace=reinplace)


def moved(edge: Any) -> int:
    """Bytes that copies and functional row writes of the program move."""
    graph = emit(edge, own=True, reinplace=True).exported_program().graph
    names = {"aten::copy", "aten::copy_", "aten::index_put", "aten::index_copy"}
    calls = [n for n in graph.nodes if getattr(n.target, "_schema", None) is not None]
    # Of a dynamic size this is the upper bound.
    sizes = [n.meta["spec"].allocated_memory for n in calls if n.target._schema.name in names]
    return sum(size for size in sizes if size > 16)  # memory comes in units of 16 bytes


def run_pte(subject: Subject, edge: Any, *, own: bool, reinplace: bool) -> oracle.Trace:
    """Runs the .pte; where inputs are planned, the new state is among the outputs."""
    from executorch.extension.pybindings.portable_lib import _load_for_executorch_from_buffer

    # The runtime reads the program's own bytes, which must outlive it.
    buffer = emit(edge, own=own, reinplace=reinplace).buffer
    method = _load_for_executorch_from_buffer(buffer)
    signature = edge.exported_program().graph_signature
    inputs = [s.arg.name for s in signature.input_specs if s.kind == InputKind.USER_INPUT]
    targets = [
        inputs.index(s.target)
        for s in signature.output_specs
        if s.kind == OutputKind.USER_INPUT_MUTATION
    ]
    assert set(targets) == subject.trace.mutated

    def call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        flat = pytree.tree_leaves((args, kwargs))
        results = method.run_method("forward", tuple(flat))
        if not own:
            for target, new in zip(targets, results, strict=False):
                flat[target].copy_(new)
        return results[len(targets) :]

    steps = oracle.run(call, subject.model.arguments, 3, subject.trace.mutated)
    return oracle.Trace(steps, subject.trace.mutated)
