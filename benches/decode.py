"""What mutations cost at run time: a decode step through XNNPACK, stock and ours in turns.

    python benches/decode.py [--layers 8] [--context 2048] [--rounds 20]

"floor" is one `copy_` of all the state by torch: the price of one pass over it on this machine.
"""

from __future__ import annotations

import argparse
import time

import torch
from executorch.exir import to_edge_transform_and_lower as stock
from rich.console import Console
from rich.table import Table

from mutcanon.cli import _decoder, _lowered
from mutcanon.executorch import to_edge_transform_and_lower as ours

MIB = 2**20


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
    programs = [
        _lowered.lower(exported, lower_with, caller_owned=caller_owned)
        for caller_owned in (False, True)
        for lower_with in (stock, ours)
    ]
    steps = _lowered.time_steps(programs, state, options.rounds)
    size = sum(t.nbytes for t in state)
    title = f"{options.layers} layers, state of {size / MIB:.0f} MiB in {len(state)} inputs"
    table = Table("memory of the inputs", "planned", "", "the caller's", "", title=title)
    table.add_row("", "stock", "mutcanon", "stock", "mutcanon", end_section=True)
    table.add_row("planned MiB", *(f"{p.planned / MIB:.1f}" for p in programs))
    table.add_row("passes over the state a step", *(f"{p.moved / size:.1f}" for p in programs))
    table.add_row("step, median ms", *(f"{s * 1e3:.2f}" for s in steps))
    table.add_row("faster", *(f"{steps[i // 2 * 2] / s:.2f}x" for i, s in enumerate(steps)))
    table.add_row("lowering s", *(f"{p.seconds:.1f}" for p in programs))
    console = Console()
    console.print(table)
    console.print(f"floor: one pass over the state by torch takes {copy_floor(state) * 1e3:.2f} ms")


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
