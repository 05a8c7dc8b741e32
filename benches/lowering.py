"""The share that canonicalize has of a lowering to ExecuTorch, by number of layers.

python benches/lowering.py [--layers 4 16]
"""

from __future__ import annotations

import argparse
import time

import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from rich.console import Console
from rich.table import Table

import mutcanon
from mutcanon.cli import _decoder
from mutcanon.executorch import to_edge_transform_and_lower
from synthetic import add_copies, count_copies
from timing import in_turns

DECOMPOSITIONS = 3
CONTEXT = 128


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, nargs="+", default=[4, 16])
    options = parser.parse_args()
    table = Table("layers", "nodes", "copies", title="canonicalize_ in a lowering")
    for heading in ("canonicalize_ ms", "portable s", "share", "XNNPACK s", "share"):
        table.add_column(heading, justify="right")
    for layers in options.layers:
        table.add_row(*measure(layers))
    Console().print(table)


def measure(layers: int) -> list[str]:
    """One row, for the demo's decoder as it is when the edge program is about to be made."""
    exported = _decoder.export(_decoder.make(layers, CONTEXT))
    program = exported
    for _ in range(DECOMPOSITIONS):
        program = program.run_decompositions({})
    copies = count_copies(program)
    mutcanon.canonicalize_(program)

    def grown() -> torch.export.ExportedProgram:
        add_copies(program, DECOMPOSITIONS - 1)
        return program

    seconds = in_turns({"ours": mutcanon.canonicalize_}, grown, 20)["ours"]
    row = [str(layers), str(len(program.graph.nodes)), str(copies), f"{seconds * 1e3:.2f}"]
    for partitioner in (None, [XnnpackPartitioner()]):
        start = time.perf_counter()
        to_edge_transform_and_lower(exported, partitioner=partitioner)
        lowering = time.perf_counter() - start
        row += [f"{lowering:.1f}", f"{seconds / lowering:.4%}"]
    return row


if __name__ == "__main__":
    main()
