"""Runs a lowered program next to eager PyTorch, over several steps, each with its own state."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch
from executorch.exir import ExecutorchBackendConfig
from executorch.exir.passes import MemoryPlanningPass
from executorch.exir.passes.init_mutable_pass import InitializedMutableBufferPass
from executorch.extension.pybindings.portable_lib import _load_for_executorch_from_buffer
from torch import nn
from torch.export.graph_signature import InputKind, OutputKind

STEPS = 3


def config(
    *, own: bool = False, passes: Sequence[Any] = (), **options: Any
) -> ExecutorchBackendConfig:
    """Buffers start from their values; `own` leaves the memory of inputs to the caller."""
    return ExecutorchBackendConfig(
        passes=[InitializedMutableBufferPass(["b_"]), *passes],
        memory_planning_pass=MemoryPlanningPass(alloc_graph_input=not own),
        **options,
    )


def mutated_inputs(ep: torch.export.ExportedProgram) -> list[int]:
    """Positions of the mutated user inputs, in the order of the mutation outputs."""
    users = [s.arg.name for s in ep.graph_signature.input_specs if s.kind == InputKind.USER_INPUT]
    return [
        users.index(s.target)
        for s in ep.graph_signature.output_specs
        if s.kind == OutputKind.USER_INPUT_MUTATION
    ]


def calls(program: Any) -> Counter[str]:
    """How often the method calls each operator."""
    plan = program.executorch_program.execution_plan[0]
    instructions = (i.instr_args for chain in plan.chains for i in chain.instructions)
    return Counter(plan.operators[i.op_index].name for i in instructions if hasattr(i, "op_index"))


def check_pte(
    module: nn.Module,
    make_inputs: Callable[[int], tuple[Any, ...]],
    program: Any,
    targets: Sequence[int],
    *,
    own: bool = False,
    dropped: bool = False,
    steps: int = STEPS,
    tolerance: float = 1e-5,
) -> None:
    """Compares outputs and mutated inputs with eager at every step.

    Args:
        module: The eager module; it is copied, so its buffers stay as they are.
        make_inputs: The inputs of a step; mutated ones are carried over from the step before.
        program: What `to_executorch` returned.
        targets: Positions of the mutated inputs, in the order of the method's leading outputs.
        own: Whether the caller's tensors are to be updated in place.
        dropped: Whether the method has no outputs for mutated inputs.
        steps: How many steps.
        tolerance: Of values; kernels differ from eager's.
    """
    eager = copy.deepcopy(module)
    runtime = _load_for_executorch_from_buffer(program.buffer)
    state: dict[int, torch.Tensor] = {}
    for step in range(steps):
        inputs = list(make_inputs(step))
        want_args, got_args = copy.deepcopy(inputs), copy.deepcopy(inputs)
        for i, value in state.items():
            want_args[i], got_args[i] = value.clone(), value.clone()
        with torch.no_grad():
            want = eager(*want_args)
        want = list(want) if isinstance(want, (tuple, list)) else [want]
        results = [
            r.clone() if isinstance(r, torch.Tensor) else r
            for r in runtime.run_method("forward", tuple(got_args))
        ]
        expected = want if dropped else [*(want_args[t] for t in targets), *want]
        assert len(results) == len(expected), f"step {step}"
        for i, (w, g) in enumerate(zip(expected, results, strict=True)):
            assert_same(w, g, f"step {step}, output {i}", tolerance)
        if own:
            for i, (w, g) in enumerate(zip(want_args, got_args, strict=True)):
                assert_same(w, g, f"step {step}, input {i}", tolerance)
        state = {t: want_args[t] for t in targets}


def assert_same(want: Any, got: Any, what: str, tolerance: float) -> None:
    if not isinstance(want, torch.Tensor):
        assert want == got, what
        return
    assert want.shape == got.shape, what
    assert want.dtype == got.dtype, what
    torch.testing.assert_close(
        got, want, rtol=tolerance, atol=tolerance, check_stride=False, msg=lambda m: f"{what}: {m}"
    )
