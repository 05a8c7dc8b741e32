"""`mutcanon demo`: what changes, shown on a small decoder and measured on this machine."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

import click
from rich.table import Table

from mutcanon.cli import fail, messages, output, require_torch
from mutcanon.cli._summary import readable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor

    from mutcanon import Report
    from mutcanon.cli._decoder import Decoder

DECOMPOSITIONS = 3
ROUNDS = 20
#: How far kernels of ExecuTorch may be from eager ones; a wrong state is off by the size of the
#: values, about 1.
TOLERANCE = 1e-4


@click.command("demo")
@click.option("--layers", type=click.IntRange(1), default=2, show_default=True)
@click.option(
    "--context", type=click.IntRange(8), default=2048, show_default=True, help="Rows of a KV cache."
)
@click.option("--steps", type=click.IntRange(1, 8), default=8, show_default=True)
def command(layers: int, context: int, steps: int) -> None:
    """Show on a small decoder what mutcanon changes.

    Its state is a KV cache for keys and one for values in each layer, and the window of a short
    convolution, all of them inputs that the decoder mutates. Results of both programs are compared
    with eager PyTorch.
    """
    require_torch("executorch")
    from mutcanon.cli import _decoder

    model = _decoder.make(layers, context)
    expected = _decoder.decode(model, _decoder.empty_state(model), steps)
    wrong = show_programs(model, expected, steps)
    if find_spec("executorch") is None:
        hint = "pip install 'mutcanon[executorch]'"
        messages().print(
            f"ExecuTorch is not installed; for the lowered program: {hint}", markup=False
        )
    else:
        wrong += show_lowered(model, expected, steps)
    if wrong:
        fail(f"results differ from eager PyTorch: {', '.join(wrong)}")


def show_programs(model: Decoder, expected: list[Tensor], steps: int) -> list[str]:
    """Prints the exported program before and after; returns what is wrong."""
    import torch

    import mutcanon
    from mutcanon.cli import _decoder

    messages().print(f"exporting, and decomposing {DECOMPOSITIONS} times", style="dim")
    before = _decoder.export(model)
    for _ in range(DECOMPOSITIONS):
        before = before.run_decompositions({})
    report = mutcanon.analyze(before)
    after = mutcanon.canonicalize(before)

    state = _decoder.empty_state(model)
    table = Table(
        f"{len(state)} mutated inputs, {readable(sum(t.nbytes for t in state))}",
        "torch.export",
        "mutcanon",
        title="The program",
        title_justify="left",
    )
    left = (*report.kept, *report.inserted)
    table.add_row("copies", str(len(report.collapsed + report.kept)), str(len(left)))
    table.add_row(
        "deepest chain",
        str(max(m.depth for m in report.mutations)),
        str(max(m.new_depth for m in report.mutations)),
    )
    table.add_row(
        "they copy a step",
        readable(sum(c.bytes or 0 for c in report.collapsed + report.kept)),
        readable(sum(c.bytes or 0 for c in left)),
    )
    wrong, verdicts = [], []
    for name, program in (("torch.export", before), ("mutcanon", after)):
        got = _decoder.decode(program.module(), _decoder.empty_state(model), steps)
        equal = all(torch.equal(g, e) for g, e in zip(got, expected, strict=True))
        verdicts.append("equal bit for bit" if equal else "WRONG")
        if not equal:
            wrong.append(name)
    table.add_row(f"eager, {steps} steps", *verdicts)
    output().print(table)
    for sentence in kept_sentences(report):
        output().print(sentence, markup=False)
    return wrong


def kept_sentences(report: Report) -> Iterable[str]:
    """One line for each copy that stays."""
    target_of = {m.new_value: m.target for m in report.mutations}
    for copy in report.kept:
        target = target_of.get(copy.node, "")
        yield f"{copy.node} stays ({target}): {copy.code}, {copy.fact}"


def show_lowered(model: Decoder, expected: list[Tensor], steps: int) -> list[str]:
    """Prints the ExecuTorch program, lowered by stock and by ours; returns what is wrong."""
    import torch
    from executorch.exir import to_edge_transform_and_lower as stock

    from mutcanon.cli import _decoder, _lowered
    from mutcanon.executorch import to_edge_transform_and_lower as ours

    lowered = {}
    for name, lower_with in (("executorch.exir", stock), ("mutcanon.executorch", ours)):
        messages().print(f"lowering for XNNPACK with {name}", style="dim")
        lowered[name] = _lowered.lower(_decoder.export(model), lower_with)

    table = Table("", *lowered, title="The ExecuTorch program", title_justify="left")
    table.add_row("planned memory", *(readable(p.planned) for p in lowered.values()))
    table.add_row("mutations write a step", *(readable(p.moved) for p in lowered.values()))
    state = expected[steps:]
    times = _lowered.time_steps(list(lowered.values()), state, ROUNDS)
    table.add_row(f"a step, median of {ROUNDS}", *(f"{t * 1e3:.2f} ms" for t in times))
    wrong, verdicts = [], []
    for name, program in lowered.items():
        got = _lowered.decode(program, _decoder.empty_state(model), steps)
        differences = [(g - e).abs().max() for g, e in zip(got, expected, strict=True)]
        error = torch.stack(differences).max().item()
        equal = error < TOLERANCE
        verdicts.append(f"{'within' if equal else 'WRONG by'} {error:.0e}")
        if not equal:
            wrong.append(name)
    table.add_row(f"eager, {steps} steps", *verdicts)
    output().print(table)
    return wrong
