"""What the independent checker costs.

    python benches/check.py [--small]

"core" is the checker itself, on both programs as text; "program" is `mutcanon.check` with the
reading of both; "torch" is torch's own verifier on one of the two. For archives a rewrite takes
turns with the same rewrite with `check`, and with a replay by `verify`.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

import mutcanon
import mutcanon.archive
from mutcanon import _core
from synthetic import synthetic
from timing import in_turns

WIDTH = 110


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", action="store_true", help="one small graph: does this run?")
    options = parser.parse_args()
    memory = table("the checker: us a node", "core", "program", "torch's verifier")
    disk = table("archives", "rewrite ms", "with check ms", "verify ms")
    for nodes, rounds in [(1_000, 2)] if options.small else [(1_000, 11), (10_000, 5)]:
        program = synthetic(nodes, 4, 3)
        memory.add_row(f"{nodes:,}", *in_memory(program, nodes, rounds))
        disk.add_row(f"{nodes:,}", *on_disk(program, rounds))
    Console(width=WIDTH).print(memory, disk)


def table(title: str, *headings: str) -> Table:
    """An empty table about programs of several sizes."""
    result = Table("nodes", title=title)
    for heading in headings:
        result.add_column(heading, justify="right")
    return result


def in_memory(program: torch.export.ExportedProgram, nodes: int, rounds: int) -> list[str]:
    """Cells of the first table."""
    result = mutcanon.canonicalize(program)
    checked = mutcanon.check(program, result)
    if not checked.is_right:
        raise RuntimeError("the checker objects; the times mean nothing")
    verifiers = [verifier() for verifier in result.verifiers]
    seconds = in_turns(
        {
            "core": lambda _: _core.check(checked.case),
            "program": lambda _: mutcanon.check(program, result),
            "torch": lambda _: [verifier.check(result) for verifier in verifiers],
        },
        lambda: None,
        rounds,
    )
    return [f"{seconds[name] / nodes * 1e6:.2f}" for name in ("core", "program", "torch")]


def on_disk(program: torch.export.ExportedProgram, rounds: int) -> list[str]:
    """Cells of the second table."""
    with tempfile.TemporaryDirectory() as folder:
        before, after = Path(folder, "before.pt2"), Path(folder, "after.pt2")
        torch.export.save(program, before)
        seconds = in_turns(
            {
                "rewrite": lambda _: mutcanon.archive.rewrite(before, after),
                "check": lambda _: mutcanon.archive.rewrite(before, after, check=True),
                "verify": lambda _: mutcanon.archive.verify(before, after),
            },
            lambda: None,
            rounds,
        )
    return [f"{seconds[name] * 1e3:.2f}" for name in ("rewrite", "check", "verify")]


if __name__ == "__main__":
    main()
