"""What canonicalize costs, by size of the graph and number of copies.

    python benches/canonicalize.py [--large]

In place: ours with all of its rules takes turns with two plain passes without any (baselines.py).
"floor" is the edit alone, with the answer known beforehand, which no pass in Python can beat.
Pure: canonicalize takes turns with a bare copy of the graph's nodes, which it cannot do without.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from torch.fx import Graph

import mutcanon
from baselines import edit, signature_driven, whole_graph
from synthetic import add_copies, count_copies, synthetic
from timing import in_turns

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import Node

#: The tables are wider than the 80 columns that a pipe gets.
WIDTH = 110


@dataclass(frozen=True)
class Size:
    """Nodes, mutated inputs and copies on each."""

    nodes: int
    targets: int
    depth: int
    rounds: int


SIZES = (
    Size(10_000, 2, 1, 41),
    Size(10_000, 64, 4, 41),
    Size(10_000, 512, 16, 11),
    Size(100_000, 2, 1, 11),
    Size(100_000, 64, 4, 11),
    Size(100_000, 512, 16, 11),
)
SMALL = (Size(1_000, 4, 2, 2),)
LARGE = (Size(1_000_000, 512, 16, 3),)


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--large", action="store_true", help="a million nodes too (10 GB, minutes)")
    parser.add_argument("--small", action="store_true", help="one small graph: does this run?")
    options = parser.parse_args()
    work = table(
        "copies to collapse: canonicalize_, in place",
        *("ours ms", "us a copy", "floor ms", "signature ms", "whole graph ms"),
    )
    idle = table("nothing to do", "canonicalize_ us", "canonicalize us")
    pure = table("copies to collapse: canonicalize", "ours ms", "copy of the nodes ms", "ratio")
    for size in SMALL if options.small else SIZES + LARGE * options.large:
        program = synthetic(size.nodes, size.targets, 0)
        names = f"{size.nodes:,}", f"{size.targets} x {size.depth}"
        work.add_row(*names, *collapse_in_place(program, size))
        idle.add_row(f"{size.nodes:,}", f"{size.targets} x 0", *find_nothing(program, size))
        pure.add_row(*names, *collapse_purely(program, size))
    Console(width=WIDTH).print(work, idle, pure)


def table(title: str, *headings: str) -> Table:
    """An empty table about programs of several sizes."""
    result = Table("nodes", "inputs x copies", title=title)
    for heading in headings:
        result.add_column(heading, justify="right")
    return result


def collapse_in_place(program: ExportedProgram, size: Size) -> list[str]:
    """Cells of the first table; the program has no copies, before and after."""
    (outputs,) = program.graph.output_node().args

    def grown() -> tuple[ExportedProgram, list[Node]]:
        return program, add_copies(program, size.depth)

    seconds = in_turns(
        {
            "ours": lambda grown: mutcanon.canonicalize_(grown[0]),
            "floor": lambda grown: edit(grown[0], outputs, grown[1]),
            "signature": lambda grown: signature_driven(grown[0]),
            "whole graph": lambda grown: whole_graph(grown[0]),
        },
        grown,
        size.rounds,
    )
    if count_copies(program):
        raise RuntimeError("a pass left copies behind; the times mean nothing")
    ours = seconds["ours"]
    return [
        f"{ours * 1e3:.2f}",
        f"{ours / (size.targets * size.depth) * 1e6:.2f}",
        f"{seconds['floor'] * 1e3:.2f}",
        *(
            f"{seconds[name] * 1e3:.2f} ({seconds[name] / ours:.1f}x)"
            for name in ("signature", "whole graph")
        ),
    ]


def find_nothing(program: ExportedProgram, size: Size) -> list[str]:
    """Cells of the second table."""
    seconds = in_turns(
        {"in place": mutcanon.canonicalize_, "pure": mutcanon.canonicalize},
        lambda: program,
        size.rounds,
    )
    return [f"{seconds[name] * 1e6:.0f}" for name in ("in place", "pure")]


def collapse_purely(program: ExportedProgram, size: Size) -> list[str]:
    """Cells of the third table; leaves copies in the program."""
    add_copies(program, size.depth)
    seconds = in_turns(
        {
            "ours": mutcanon.canonicalize,
            "copy": lambda program: Graph().graph_copy(program.graph, {}),
        },
        lambda: program,
        min(size.rounds, 5),
    )
    ours, copy = seconds["ours"], seconds["copy"]
    return [f"{ours * 1e3:.2f}", f"{copy * 1e3:.2f}", f"{ours / copy:.2f}"]


if __name__ == "__main__":
    main()
