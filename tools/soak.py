"""A long search for counter-examples: random programs, every path, bit for bit against eager.

The programs are those of tests/test_properties.py. Each is exported, decomposed up to three times
by stock torch, and every result goes through mutcanon in memory and as an archive, with the
checker on; a share is lowered with ExecuTorch and run there. What differs is shrunk and printed,
and ends the run. Stock torch loses the meaning of some programs itself, which nothing behind it
can mend: there mutcanon has to mean what stock torch's program means, and the program counts as
lost by stock torch.

    python tools/soak.py --programs 10000 --seed 1 --pte 0.02
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import random
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

os.environ["MUTCANON_CHECK"] = "1"
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

import hypothesis
import torch
from hypothesis import HealthCheck, given, note

import mutcanon
import mutcanon.archive
import mutcanon.executorch
import oracle
import test_properties as properties


def main() -> None:
    """Searches until the programs or the minutes are used up, or something differs."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--programs", type=int, default=10_000, help="how many are tried")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop after so long")
    parser.add_argument("--seed", type=int, default=0, help="the same programs for the same seed")
    parser.add_argument("--pte", type=float, default=0.0, help="share that is lowered and run")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    tally: Counter[str] = Counter()
    start = time.monotonic()

    @hypothesis.seed(options.seed)
    @hypothesis.settings(
        max_examples=options.programs,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(properties.programs)
    def search(made: dict[str, object]) -> None:
        if time.monotonic() - start > 60 * options.minutes:
            return
        # The same for the same program, so that what fails can be shrunk.
        choose = random.Random(f"{options.seed} {made}")
        examine(made, tally, choose if choose.random() < options.pte else None)
        if tally["programs"] % 100 == 0:
            print(summary(options.seed, tally, start), flush=True)

    try:
        search()
    finally:
        print(summary(options.seed, tally, start), flush=True)


def summary(seed: int, tally: Counter[str], start: float) -> str:
    """What was tried so far."""
    counts = ", ".join(f"{count} {what}" for what, count in sorted(tally.items()))
    return f"seed {seed}, {time.monotonic() - start:.0f} s: {counts}"


def examine(made: dict[str, object], tally: Counter[str], choose: random.Random | None) -> None:
    """Everything that must hold of one program; raises where it does not.

    Args:
        made: The program.
        tally: Counts what was done.
        choose: Chooses how it is lowered with ExecuTorch; None if it is not.
    """
    trace = properties.eager(made)
    tally["programs"] += 1
    ep = properties.export(made)
    if ep is None:
        tally["not exported by stock torch"] += 1
        return
    if choose is not None:
        own, reinplace = choose.random() < 0.5, choose.random() < 0.8
        note(f"lowered with own={own}, reinplace={reinplace}")
        lower(made, ep, tally, own=own, reinplace=reinplace)
    for depth in range(1, properties.DEPTHS + 1):
        note(f"decomposition {depth}")
        try:
            with torch.no_grad(), few_composites(ep):
                ep = ep.run_decompositions({})
        except Exception:
            tally["stopped by stock torch"] += 1
            return
        tally["decompositions"] += 1
        want = properties.meaning(ep, trace.mutated)
        if want is None or oracle.difference(trace, want) != "":
            tally["decompositions lost by stock torch"] += 1
            properties.check(ep, trace.mutated)
            return
        in_memory(ep, trace, seed=tally["programs"])
        as_archive(ep, trace)


@functools.cache
def composites() -> frozenset[object]:
    """The composite operators that a decomposition with an empty table leaves alone."""
    return frozenset(torch._export.utils._collect_all_valid_cia_ops())


@contextlib.contextmanager
def few_composites(ep: torch.export.ExportedProgram) -> Iterator[None]:
    """Decompositions inside look only at the composite operators that the program has.

    Stock torch registers all two thousand of them anew in each run, which takes longer than
    everything else here together.
    """
    module = torch.export.exported_program
    graphs = (m.graph for m in ep.graph_module.modules() if isinstance(m, torch.fx.GraphModule))
    present = composites() & {node.target for graph in graphs for node in graph.nodes}
    collect = module._collect_all_valid_cia_ops
    module._collect_all_valid_cia_ops = lambda: set(present)
    try:
        yield
    finally:
        module._collect_all_valid_cia_ops = collect


def in_memory(ep: torch.export.ExportedProgram, trace: oracle.Trace, *, seed: int) -> None:
    """Both forms, and the portable form of the same graph in another order."""
    result = mutcanon.canonicalize(ep)
    got = oracle.unlifted(result, properties.arguments, trace.mutated)
    assert oracle.difference(trace, got) == ""
    assert mutcanon.canonicalize(result) is result
    minimal = mutcanon.canonicalize(ep, form="minimal")
    got = oracle.unlifted(minimal, properties.arguments, trace.mutated, unlift=mutcanon.module)
    assert oracle.difference(trace, got) == ""
    properties.require_order_independence(ep, seed)


def as_archive(ep: torch.export.ExportedProgram, trace: oracle.Trace) -> None:
    """The archive, rewritten without torch and loaded again."""
    with tempfile.TemporaryDirectory() as folder:
        before, after = Path(folder, "before.pt2"), Path(folder, "after.pt2")
        torch.export.save(ep, before)
        mutcanon.archive.rewrite(before, after, verify=True, check=True)
        loaded = torch.export.load(after)
    got = oracle.unlifted(loaded, properties.arguments, trace.mutated)
    assert oracle.difference(trace, got) == ""


def lower(
    made: dict[str, object],
    ep: torch.export.ExportedProgram,
    tally: Counter[str],
    *,
    own: bool,
    reinplace: bool,
) -> None:
    """The program lowered with ExecuTorch, next to eager PyTorch."""
    import pte
    from mutcanon.executorch import to_edge

    try:
        with torch.no_grad():
            targets = pte.mutated_inputs(mutcanon.run_decompositions(ep, {}))
        program = to_edge(ep).to_executorch(pte.config(own=own), reinplace=reinplace)
    except mutcanon.errors.InternalError:
        raise
    except Exception as error:
        tally[f"not lowered by ExecuTorch ({type(error).__name__})"] += 1
        return
    try:
        pte.check_pte(
            properties.Program(made),
            lambda step: properties.arguments(step)[0],
            program,
            targets,
            own=own,
        )
    except RuntimeError:
        tally["not run by ExecuTorch"] += 1
        return
    tally["run by ExecuTorch"] += 1


if __name__ == "__main__":
    main()
