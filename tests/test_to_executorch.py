"""`to_executorch` under every config that bears on mutation."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mutcanon.errors import MutcanonError

pytestmark = [pytest.mark.executorch, pytest.mark.filterwarnings("ignore")]

exir = pytest.importorskip("executorch.exir")
from executorch.exir.backend.backend_details import BackendDetails, PreprocessResult  # noqa: E402
from executorch.exir.backend.partitioner import (  # noqa: E402
    DelegationSpec,
    Partitioner,
    PartitionResult,
)
from executorch.exir.backend.utils import tag_mutated_buffer  # noqa: E402
from executorch.exir.dialects._ops import ops  # noqa: E402
from executorch.exir.pass_base import PassResult  # noqa: E402
from executorch.exir.passes import MemoryPlanningPass  # noqa: E402
from executorch.exir.passes.init_mutable_pass import InitializedMutableBufferPass  # noqa: E402
from executorch.extension.pybindings.portable_lib import (  # noqa: E402
    _load_for_executorch_from_buffer,
)

import mutcanon.executorch as drop_in  # noqa: E402
from mutcanon import _executorch  # noqa: E402
from pte import calls, check_pte, config, mutated_inputs  # noqa: E402


class Row(nn.Module):
    def forward(self, cache: Tensor, at: Tensor, row: Tensor) -> Tensor:
        cache.index_copy_(0, at, row)
        return cache * 2


def rows(step: int) -> tuple[Tensor, ...]:
    return torch.arange(8.0).view(4, 2), torch.tensor([step]), torch.randn(1, 2)


def lower(module: nn.Module = Row(), inputs: Any = rows) -> Any:  # noqa: B008
    return drop_in.to_edge_transform_and_lower(torch.export.export(module, inputs(0)))


def planned(program: Any) -> int:
    return sum(program.executorch_program.execution_plan[0].non_const_buffer_sizes)


# Managers


def test_a_manager_can_be_used_again() -> None:
    edge = lower()
    before = str(edge.exported_program())
    for own in (True, False, True):
        program = edge.to_executorch(config(own=own))
        check_pte(Row(), rows, program, [0], own=own)
    assert str(edge.exported_program()) == before


def test_managers_stay_ours() -> None:
    edge = lower()
    assert isinstance(edge, drop_in.EdgeProgramManager)
    assert isinstance(edge, exir.EdgeProgramManager)
    assert isinstance(edge.transform([]), drop_in.EdgeProgramManager)
    assert isinstance(drop_in.to_edge(torch.export.export(Row(), rows(0))), type(edge))


@pytest.mark.parametrize("lowered_by", [exir.to_edge, exir.to_edge_transform_and_lower])
def test_a_manager_made_elsewhere(lowered_by: Any) -> None:
    edge = lowered_by(torch.export.export(Row(), rows(0)))
    program = drop_in.to_executorch(edge, config())
    check_pte(Row(), rows, program, [0])


@pytest.mark.parametrize("own", [False, True])
def test_a_program_that_somebody_made_to_write_in_place(own: bool) -> None:
    reinplace = pytest.importorskip("executorch.exir.passes.reinplace")
    edge = drop_in.to_edge(torch.export.export(Row(), rows(0)))
    reinplace.reinplace_pass(edge.exported_program())
    assert any("index_put_" in str(n.target) for n in edge.exported_program().graph.nodes)
    program = edge.to_executorch(config(own=own))
    check_pte(Row(), rows, program, [0], own=own)
    assert calls(program)["aten::copy_"] == 0


@pytest.mark.parametrize("own", [False, True])
def test_names_of_outputs_that_nobody_kept_up(own: bool) -> None:
    edge = lower()
    specs = edge.exported_program().graph_signature.output_specs
    for spec in specs:
        spec.arg.name = f"old_{spec.arg.name}"
    old = str(specs)
    check_pte(Row(), rows, edge.to_executorch(config(own=own)), [0], own=own)
    assert str(specs) == old


def test_the_default_config() -> None:
    check_pte(Row(), rows, lower().to_executorch(), [0])


def test_a_program_without_mutation() -> None:
    class Plain(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * 2

    edge = lower(Plain(), lambda step: (torch.randn(3),))
    check_pte(Plain(), lambda step: (torch.randn(3),), edge.to_executorch(), [])


def test_several_methods() -> None:
    class Add(nn.Module):
        def forward(self, total: Tensor, x: Tensor) -> Tensor:
            total.add_(x)
            return total * 3

    args = (torch.zeros(3), torch.ones(3))
    eps = {"row": torch.export.export(Row(), rows(0)), "add": torch.export.export(Add(), args)}
    edge = drop_in.to_edge_transform_and_lower(eps)
    assert edge.methods == {"row", "add"}
    buffer = edge.to_executorch(config(own=True)).buffer
    runtime = _load_for_executorch_from_buffer(buffer)
    total, result = runtime.run_method("add", args)
    assert torch.equal(args[0], torch.ones(3))
    assert torch.equal(total, torch.ones(3))
    assert torch.equal(result, torch.full((3,), 3.0))
    cache, at, row = rows(1)
    runtime.run_method("row", (cache, at, row))
    assert torch.equal(cache[1], row[0])


# Memory planning


def test_a_planning_pass_of_the_users_own_is_kept() -> None:
    class Mine(MemoryPlanningPass):  # type: ignore[misc]
        ran = 0

        def run(self, graph_module: Any, graph_signature: Any = None) -> Any:
            Mine.ran += 1
            assert graph_signature is not None
            return super().run(graph_module, graph_signature)

    mine = Mine(alloc_graph_input=False)
    options = exir.ExecutorchBackendConfig(memory_planning_pass=mine, run_reinplace_pass=True)
    program = lower().to_executorch(options)
    assert Mine.ran == 1
    assert mine.enable_non_cpu_memory_planning == options.enable_non_cpu_memory_planning
    assert options.memory_planning_pass is mine
    assert options.run_reinplace_pass
    check_pte(Row(), rows, program, [0], own=True)


def test_a_planning_pass_for_each_method() -> None:
    eps = {name: torch.export.export(Row(), rows(0)) for name in ("own", "planned")}
    options = exir.ExecutorchBackendConfig(
        memory_planning_pass={"own": MemoryPlanningPass(alloc_graph_input=False)}
    )
    program = drop_in.to_edge_transform_and_lower(eps).to_executorch(options)
    runtime = _load_for_executorch_from_buffer(program.buffer)
    for method, changed in (("own", True), ("planned", False)):
        cache, at, row = rows(1)
        new, *_ = runtime.run_method(method, (cache, at, row))
        assert torch.equal(new[1], row[0])
        assert torch.equal(cache[1], row[0]) == changed


@pytest.mark.parametrize("own_inputs", [False, True])
@pytest.mark.parametrize("own_outputs", [False, True])
def test_memory_of_inputs_and_outputs(own_inputs: bool, own_outputs: bool) -> None:
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(2))

        def forward(self, cache: Tensor, at: Tensor, row: Tensor) -> tuple[Tensor, ...]:
            cache.index_copy_(0, at, row)
            self.count.add_(1)
            return cache * 2, self.count * 1, self.count, cache

    planning = MemoryPlanningPass(
        alloc_graph_input=not own_inputs, alloc_graph_output=not own_outputs
    )
    options = exir.ExecutorchBackendConfig(
        passes=[InitializedMutableBufferPass(["b_"])], memory_planning_pass=planning
    )
    program = lower(Both()).to_executorch(options)
    check_pte(Both(), rows, program, [0], own=own_inputs)


def test_a_planned_input_lives_as_long_as_it_is_read() -> None:
    class Long(nn.Module):
        """Much is computed between the write and the last read."""

        def forward(self, cache: Tensor, at: Tensor, row: Tensor) -> Tensor:
            cache.index_copy_(0, at, row)
            x = row
            for _ in range(5):
                x = torch.tanh(x.expand(4, 2) * 2).sum(0, keepdim=True)
            return cache.t() @ torch.ones(4, 2) + x

    for reinplace in (False, True):
        program = lower(Long()).to_executorch(config(), reinplace=reinplace)
        check_pte(Long(), rows, program, [0])


def test_a_fresh_value_in_place_lives_as_long_as_its_result() -> None:
    class Fresh(nn.Module):
        def forward(self, cache: Tensor, at: Tensor, row: Tensor) -> Tensor:
            mine = (cache + 1).index_copy(0, at, row)
            x = row
            for _ in range(5):
                x = torch.tanh(x.expand(4, 2) * 2).sum(0, keepdim=True)
            return mine * x

    program = lower(Fresh()).to_executorch(config())
    assert "index_put_" in str(program.exported_program().graph)
    check_pte(Fresh(), rows, program, [])


def test_methods_that_share_a_buffer() -> None:
    class State(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("state", torch.zeros(2, 2))

    class Add(State):
        def forward(self, x: Tensor) -> Tensor:
            return self.state.add_(x).view(-1) * 2

    class Set(State):
        def forward(self, x: Tensor) -> Tensor:
            self.state.copy_(x)
            return self.state + 0

    class Get(State):
        def forward(self) -> Tensor:
            return self.state + 0

    x, y = torch.ones(1), torch.full((2, 2), 5.0)
    eps = {
        "add": torch.export.export(Add(), (x,)),
        "set": torch.export.export(Set(), (y,)),
        "get": torch.export.export(Get(), ()),
    }
    program = drop_in.to_edge(eps).to_executorch(
        exir.ExecutorchBackendConfig(
            passes=[InitializedMutableBufferPass(["state"])],
            memory_planning_pass=MemoryPlanningPass(share_mutable_buffers=True),
            emit_mutable_buffer_names=True,
        )
    )
    # The state is in an arena of its own, at one place for all methods. The Python runtime gives
    # each method its own copy of that arena, so only the first call of each can be compared.
    plans = program.executorch_program.execution_plan
    assert {p.non_const_buffer_sizes[2] for p in plans} == {16}
    runtime = _load_for_executorch_from_buffer(program.buffer)
    for method, args, want in (
        ("add", (x,), torch.full((4,), 2.0)),
        ("set", (y,), y),
        ("get", (), torch.zeros(2, 2)),
    ):
        (got,) = runtime.run_method(method, args)
        assert torch.equal(got, want)


def test_a_pass_that_revives_an_overwritten_value_is_refused() -> None:
    class KeepsOld(nn.Module):
        def forward(self, cache: Tensor, at: Tensor, row: Tensor) -> Tensor:
            old = cache.clone()
            cache.index_copy_(0, at, row)
            return cache + old

    def remove_clones(gm: torch.fx.GraphModule) -> Any:
        for node in list(gm.graph.nodes):
            if "_clone_dim_order" in str(node.target):
                node.replace_all_uses_with(node.args[0])
                gm.graph.erase_node(node)
        return PassResult(gm, True)

    edge = lower(KeepsOld())
    check_pte(KeepsOld(), rows, edge.to_executorch(config()), [0])
    with pytest.raises(MutcanonError, match="overwritten by then") as error:
        edge.to_executorch(config(passes=[remove_clones]))
    assert error.value.code == "overwritten_value"


# Options


def test_mutation_outputs_can_be_dropped() -> None:
    class Two(nn.Module):
        def forward(self, cache: Tensor, at: Tensor, row: Tensor, total: Tensor) -> Tensor:
            cache.index_copy_(0, at, row)
            total.add_(row)
            return cache * 2

    def inputs(step: int) -> tuple[Tensor, ...]:
        return (*rows(step), torch.zeros(1, 2))

    edge = lower(Two(), inputs)
    program = edge.to_executorch(config(own=True), drop_mutation_outputs=True)
    check_pte(
        Two(), inputs, program, mutated_inputs(edge.exported_program()), own=True, dropped=True
    )
    both_ways = drop_in.to_executorch(edge, config(own=True), drop_mutation_outputs=True)
    assert both_ways.buffer == program.buffer


def test_dropping_them_with_planned_inputs_is_refused() -> None:
    with pytest.raises(MutcanonError, match="alloc_graph_input=False") as error:
        lower().to_executorch(config(), drop_mutation_outputs=True)
    assert error.value.code == "planned_inputs"


needs_extra_ops = pytest.mark.skipif(
    not hasattr(config(), "reinplace_extra_ops"), reason="came with executorch 1.4"
)


@needs_extra_ops
def test_extra_operators_share_memory() -> None:
    class Chain(nn.Module):
        def forward(self, total: Tensor, x: Tensor) -> Tensor:
            h = x.t() + total
            h = h * 2 + h
            total.add_(h)
            return h.sum()

    def inputs(step: int) -> tuple[Tensor, ...]:
        return torch.randn(16, 16), torch.randn(16, 16)

    edge = lower(Chain(), inputs)
    extra = frozenset({ops.edge.aten.add.Tensor, ops.edge.aten.mul.Tensor})
    sizes = []
    for chosen in (None, extra):
        program = edge.to_executorch(config(own=True, reinplace_extra_ops=chosen))
        check_pte(Chain(), inputs, program, [0], own=True, tolerance=1e-4)
        sizes.append(planned(program))
    # Where the planner cannot do it right it is left undone.
    assert sizes[1] < sizes[0] or not _executorch.plans_shared_memory()


@needs_extra_ops
def test_an_extra_operator_with_an_in_place_relative_becomes_it() -> None:
    class Scatter(nn.Module):
        def forward(self, cache: Tensor, at: Tensor, row: Tensor) -> Tensor:
            return (cache + 1).scatter_add(0, at.view(1, 1), row) * 2

    extra = frozenset({ops.edge.aten.scatter_add.default})
    # The portable runtime has no such kernel; who asks for it has.
    program = lower(Scatter()).to_executorch(config(reinplace_extra_ops=extra))
    assert "scatter_add_" in str(program.exported_program().graph)


def test_fusion_of_quantized_operators_still_runs_first() -> None:
    options = config(do_quant_fusion_and_const_prop=True)
    check_pte(Row(), rows, lower().to_executorch(options), [0])


# Custom operators and backends


def test_a_custom_operator_gets_a_copy_of_what_is_needed_later() -> None:
    pytest.importorskip("executorch.extension.llm.custom_ops.custom_ops")

    class Update(nn.Module):
        """The operator writes the cache; the old cache is needed for another input and later."""

        def forward(self, cache: Tensor, saved: Tensor, value: Tensor) -> Tensor:
            old = cache.clone()
            torch.ops.llama.update_cache(value, cache, 1)
            y = saved + cache
            saved.copy_(old)
            return y

    def inputs(step: int) -> tuple[Tensor, ...]:
        return torch.zeros(1, 4, 2, 2), torch.ones(1, 4, 2, 2), torch.full((1, 1, 2, 2), step + 1.0)

    edge = lower(Update(), inputs)
    for own in (True, False):
        program = edge.to_executorch(config(own=own))
        check_pte(Update(), inputs, program, mutated_inputs(edge.exported_program()), own=own)


class Nothing(BackendDetails):  # type: ignore[misc]
    """A backend that compiles anything to nothing."""

    @staticmethod
    def preprocess(edge_program: Any, compile_specs: Any) -> PreprocessResult:
        return PreprocessResult(processed_bytes=b"nothing")


class OwnState(Partitioner):  # type: ignore[misc]
    """Delegates every addition, and the buffers that it mutates."""

    def __init__(self) -> None:
        super().__init__()
        self.delegation_spec = DelegationSpec(Nothing.__name__, [])

    def partition(self, exported_program: Any) -> PartitionResult:
        for node in exported_program.graph.nodes:
            if node.op == "call_function" and "add" in str(node.target):
                node.meta["delegation_tag"] = "tag0"
        tag_mutated_buffer(exported_program)
        return PartitionResult(exported_program, {"tag0": self.delegation_spec})


def test_a_backend_that_owns_a_mutated_buffer() -> None:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("inside", torch.zeros(2))

        def forward(self, cache: Tensor, at: Tensor, row: Tensor) -> Tensor:
            self.inside.add_(row[0])
            cache.index_copy_(0, at, row)
            return cache + self.inside

    ep = torch.export.export(Mixed(), rows(0))
    edge = drop_in.to_edge_transform_and_lower(ep, partitioner=[OwnState()])
    program = edge.to_executorch(config(own=True))
    plan = program.executorch_program.execution_plan[0]
    assert len(plan.delegates) == 1
    kinds = [s.kind.name for s in program.exported_program().graph_signature.output_specs]
    assert kinds == ["USER_INPUT_MUTATION", "USER_OUTPUT"]
    assert "index_put_" in str(program.exported_program().graph)
