"""Every case of `tests/cases`, through stock torch and executorch and through mutcanon.

    python benches/cases.py > docs/cases.md        about ten minutes

For torch a program is decomposed twice and run by `module()`; for executorch it is lowered by
`to_edge_transform_and_lower` and run from the .pte, once in the caller's memory and once in planned
memory. Each run takes three steps and is compared with eager at every one of them.
"""

from __future__ import annotations

import contextlib
import copy
import io
import logging
import sys
import warnings
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

import executorch.exir as exir
import torch
from executorch.exir import ExecutorchBackendConfig
from executorch.exir.passes import MemoryPlanningPass
from executorch.exir.passes.init_mutable_pass import InitializedMutableBufferPass
from executorch.extension.pybindings.portable_lib import _load_for_executorch_from_buffer
from torch.utils import _pytree as pytree

import mutcanon
import mutcanon.executorch as ours
import oracle
from cases import CASES, Case
from programs import export
from pte import calls, mutated_inputs

HEADER = """# Cases

What `python benches/cases.py` prints: every case of `tests/cases` through stock torch 2.13.0 and
executorch 1.5.1, and through mutcanon. A cell says whether three steps were as in eager; for a
.pte it adds how often a step copies a state or writes it with a functional `index_put`, a full pass
each. *refused* is an error; [ExecuTorch](executorch.md) says which ones are ours and which are the
runtime's.

| case | what it shows | torch | mutcanon | executorch | mutcanon |
| --- | --- | --- | --- | --- | --- |"""

#: Kernels round otherwise than eager.
TOLERANCE = {"adv-bf16-input": 5e-2, "et4042-half-state": 1e-2}
COPIES = {"aten::copy", "aten::copy_", "aten::index_put"}


def main() -> None:
    """Prints the table; cases may be named on the command line."""
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    print(HEADER)
    for case in CASES.values():
        if case.not_exported or (sys.argv[1:] and case.id not in sys.argv[1:]):
            continue
        trace = oracle.eager(case.module(), case.arguments)
        cells = [
            through_torch(case, trace, stock=True),
            through_torch(case, trace, stock=False),
            through_executorch(case, trace, exir),
            through_executorch(case, trace, ours),
        ]
        print(f"| {case.id} | {case.title} | {' | '.join(cells)} |", flush=True)


def through_torch(case: Case, trace: oracle.Trace, *, stock: bool) -> str:
    """Decomposes twice and runs the module."""

    def run() -> str:
        ep = export(case)
        for _ in range(2):
            ep = ep.run_decompositions({}) if stock else mutcanon.run_decompositions(ep, {})
        ep = copy.deepcopy(ep)
        module = ep.module(check_guards=False) if stock else mutcanon.module(ep, check_guards=False)
        steps = oracle.run(
            lambda args, kwargs: module(*args, **kwargs),
            case.arguments,
            3,
            trace.mutated,
            lambda: dict([*module.named_buffers(), *module.named_parameters()]),
        )
        return oracle.difference(trace, oracle.Trace(steps, trace.mutated))

    return outcome(run)


def through_executorch(case: Case, trace: oracle.Trace, library: Any) -> str:
    """Lowers, and runs the .pte in both memory modes."""
    copies: list[int] = []

    def run() -> str:
        edge = library.to_edge_transform_and_lower(
            export(case), compile_config=exir.EdgeCompileConfig(_check_ir_validity=False)
        )
        targets = mutated_inputs(edge.exported_program())
        for own in (True, False):
            program = copy.deepcopy(edge).to_executorch(
                ExecutorchBackendConfig(
                    passes=[InitializedMutableBufferPass(["b_", "p_"])],
                    memory_planning_pass=MemoryPlanningPass(alloc_graph_input=not own),
                )
            )
            copies.append(sum(n for name, n in calls(program).items() if name in COPIES))
            difference = compare_pte(case, trace, program, targets, own)
            if difference:
                return difference
        return ""

    result = outcome(run)
    return f"{result}, {copies[0]}" if copies and result != "refused" else result


def compare_pte(
    case: Case, trace: oracle.Trace, program: Any, targets: list[int], own: bool
) -> str:
    """How three steps of a .pte differ from eager."""
    buffer = program.buffer
    runtime = _load_for_executorch_from_buffer(buffer)

    def call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        flat = pytree.tree_leaves((args, kwargs))
        results = runtime.run_method("forward", tuple(flat))
        # A user output of stock stands after an output for each mutated input and parameter.
        users = results[len(results) - len(trace.steps[0].outputs) :]
        if not own:
            for target, new in zip(targets, results, strict=False):
                flat[target].copy_(new)
        return users

    steps = oracle.run(call, case.arguments, 3, trace.mutated)
    tolerance = TOLERANCE.get(case.id, 1e-5)
    return oracle.difference(trace, oracle.Trace(steps, trace.mutated), tolerance)


def outcome(run: Any) -> str:
    """right, **wrong** or refused."""
    quiet = io.StringIO()
    try:
        with torch.no_grad(), contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet):
            difference = run()
    except Exception:
        return "refused"
    return "**wrong**" if difference else "right"


if __name__ == "__main__":
    main()
