"""A decode step as an ExecuTorch program: lowered, run, and what it costs.

Shared by `mutcanon demo` and the benches. Stock and ours differ in one argument, the function that
lowers, as they do for a user who changes one import.
"""

from __future__ import annotations

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


def lower(
    exported: ExportedProgram, lower_with: Callable[..., Any], *, caller_owned: bool = False
) -> Lowered:
    """Lowers for XNNPACK.

    Args:
        exported: The program.
        lower_with: Stock's `to_edge_transform_and_lower` or ours.
        caller_owned: Whether inputs stay in the caller's memory, which the program then mutates;
            otherwise it plans memory for them and copies them there.
    """
    config = ExecutorchBackendConfig(
        memory_planning_pass=MemoryPlanningPass(alloc_graph_input=not caller_owned)
    )
    start = time.perf_counter()
    manager = lower_with(exported, partitioner=[XnnpackPartitioner()]).to_executorch(config)
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

    Each has a state like the given one, in memory that was written to: fresh zeros share one page,
    and to read them costs nothing.
    """
    inputs = [(*step_inputs(0), *map(torch.rand_like, state)) for _ in programs]
    times: list[list[float]] = [[] for _ in programs]
    for _ in range(rounds + 1):
        for lowered, own, taken in zip(programs, inputs, times, strict=True):
            start = time.perf_counter()
            lowered.program.forward(own, clone_outputs=False)
            taken.append(time.perf_counter() - start)
    return [statistics.median(taken[1:]) for taken in times]  # the first round warms up
