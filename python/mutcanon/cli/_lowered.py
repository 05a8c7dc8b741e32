"""A decode step as an ExecuTorch program: lowered, run, and what it costs.

Shared by `mutcanon demo` and the benches. Stock and ours differ in one argument, the function that
lowers, as they do for a user who changes one import.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import ExecutorchBackendConfig
from executorch.exir.passes import MemoryPlanningPass
from executorch.exir.schema import KernelCall

from mutcanon import _executorch
from mutcanon.cli._decoder import step_inputs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor
    from torch.export import ExportedProgram

#: Operators of a program that exist only to carry out a mutation. Each writes its whole result.
_MUTATION_OPS = {"aten::copy", "aten::copy_", "aten::index_put", "aten::index_copy"}


@dataclass(frozen=True)
class Lowered:
    """A program in the runtime, and the facts that its file tells.

    Attributes:
        program: The loaded program; it reads from `buffer`.
        buffer: The file's bytes.
        planned: Bytes of memory that the program needs for its activations and planned inputs.
        moved: Bytes that the mutations write in a step, write-backs included.
        seconds: What the lowering took.
    """

    program: Any
    buffer: bytes
    planned: int
    moved: int
    seconds: float


def lower(exported: ExportedProgram, lower_with: Callable[..., Any]) -> Lowered:
    """Lowers for XNNPACK, with stock's `to_edge_transform_and_lower` or ours."""
    start = time.perf_counter()
    lowered = emit(to_edge(exported, lower_with))
    return dataclasses.replace(lowered, seconds=time.perf_counter() - start)


def to_edge(exported: ExportedProgram, lower_with: Callable[..., Any]) -> Any:
    """The edge programs, lowered for XNNPACK."""
    return lower_with(exported, partitioner=[XnnpackPartitioner()])


def emit(edge: Any, *, caller_owns_inputs: bool = False) -> Lowered:
    """The program that an edge manager makes; stock's can do so once.

    Args:
        edge: The manager.
        caller_owns_inputs: Whether a step works on the caller's tensors. Otherwise they are copied
            into planned memory first.
    """
    planning = MemoryPlanningPass(alloc_graph_input=not caller_owns_inputs)
    start = time.perf_counter()
    manager = edge.to_executorch(ExecutorchBackendConfig(memory_planning_pass=planning))
    seconds = time.perf_counter() - start
    plan = manager.executorch_program.execution_plan[0]
    buffer = manager.buffer
    planned = sum(plan.non_const_buffer_sizes)
    return Lowered(_executorch.load(buffer), buffer, planned, _bytes_moved(plan), seconds)


def _bytes_moved(plan: Any) -> int:
    moved = 0
    for instruction in (i.instr_args for chain in plan.chains for i in chain.instructions):
        if (
            isinstance(instruction, KernelCall)
            and plan.operators[instruction.op_index].name in _MUTATION_OPS
        ):
            out = plan.values[instruction.args[-1]].val
            moved += math.prod(out.sizes) * _ITEM_SIZES[out.scalar_type.name]
    return moved


#: Bytes an element, for the types that the programs here use.
_ITEM_SIZES = {"FLOAT": 4, "HALF": 2, "BFLOAT16": 2, "LONG": 8, "INT": 4, "BOOL": 1}


def decode(lowered: Lowered, state: Sequence[Tensor], steps: int) -> list[Tensor]:
    """Runs steps, each on the state that the last one left; returns the logits, then the state.

    A method returns the new state before its outputs.
    """
    logits = []
    for step in range(steps):
        *state, out = lowered.program.forward((*step_inputs(step), *state))
        logits.append(out)
    return [*logits, *state]


def time_steps(programs: Sequence[Lowered], state: Sequence[Tensor], rounds: int) -> list[float]:
    """Median seconds of a step for each program; they take turns, so all are disturbed alike.

    The state is one like the given one, in memory that was written to: fresh zeros share one page,
    and to read them costs nothing.
    """
    inputs = (*step_inputs(0), *map(torch.rand_like, state))
    times: list[list[float]] = [[] for _ in programs]
    for _ in range(rounds + 1):
        for lowered, taken in zip(programs, times, strict=True):
            start = time.perf_counter()
            lowered.program.forward(inputs, clone_outputs=False)
            taken.append(time.perf_counter() - start)
    return [statistics.median(taken[1:]) for taken in times]  # the first round warms up
