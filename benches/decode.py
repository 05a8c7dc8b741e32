"""What mutations cost at run time: a decode step through XNNPACK, stock and ours in turns.

    python benches/decode.py [--layers 8] [--context 2048] [--rounds 20]

Twice: with inputs that the caller owns, so that a step works on the caller's caches, and with
planned inputs, which are copied into the program's memory first (one pass more). "floor" is one
`copy_` of all the state by torch: the price of one pass over it on this machine.
"""

from __future__ import annotations

import argparse
import copy
import time

import torch
from executorch.exir import to_edge_transform_and_lower as stock
from rich.console import Console
from rich.table import Table

from mutcanon.cli import _decoder, _lowered
from mutcanon.executorch import to_edge_transform_and_lower as ours

MIB = 2**20
STEPS = 3


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--context", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    torch.set_num_threads(1)  # for the floor; the runtime has threads of its own
    model = _decoder.make(options.layers, options.context)
    exported = _decoder.export(model)
    state = _decoder.empty_state(model)
    expected = _decoder.decode(model, [t.clone() for t in state], STEPS)
    edges = [_lowered.to_edge(exported, lower_with) for lower_with in (stock, ours)]
    console = Console()
    console.print(f"floor: one pass takes {copy_floor(state) * 1e3:.2f} ms")
    for own in (True, False):
        programs = [_lowered.emit(copy.deepcopy(edge), caller_owns_inputs=own) for edge in edges]
        errors = [error(p, state, expected) for p in programs]
        steps = _lowered.time_steps(programs, state, options.rounds)
        table = Table("", "stock", "mutcanon")
        rows(table, programs, steps, errors, state, own)
        console.print(table)
        console.print(f"step: {steps[0] / steps[1]:.2f} times faster")


def rows(
    table: Table,
    programs: list[_lowered.Lowered],
    steps: list[float],
    errors: list[float],
    state: list[torch.Tensor],
    own: bool,
) -> None:
    """Fills in what was measured."""
    size = sum(t.nbytes for t in state)
    table.title = f"{size / MIB:.0f} MiB of state in {len(state)} inputs, " + (
        "owned by the caller" if own else "planned"
    )
    staged = 0 if own else 1
    table.add_row("planned MiB", *(f"{p.planned / MIB:.2f}" for p in programs))
    table.add_row("passes over the state", *(f"{p.moved / size + staged:.1f}" for p in programs))
    table.add_row("step, median ms", *(f"{s * 1e3:.2f}" for s in steps))
    table.add_row(f"error after {STEPS} steps", *(f"{e:.1e}" for e in errors))


def error(
    program: _lowered.Lowered, state: list[torch.Tensor], expected: list[torch.Tensor]
) -> float:
    """The largest difference from eager in the logits of some steps and in the state after them."""
    got = _lowered.decode(program, [t.clone() for t in state], STEPS)
    return max(float((g - e).abs().max()) for g, e in zip(got, expected, strict=True))


def copy_floor(state: list[torch.Tensor]) -> float:
    """Best seconds of one copy of all the state."""
    sources, copies = [torch.rand_like(t) for t in state], [torch.rand_like(t) for t in state]
    best = float("inf")
    for _ in range(10):
        start = time.perf_counter()
        for source, destination in zip(sources, copies, strict=True):
            destination.copy_(source)
        best = min(best, time.perf_counter() - start)
    return best


if __name__ == "__main__":
    main()
