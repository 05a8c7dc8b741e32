"""Random mutating programs: whatever stock torch makes of one, mutcanon keeps its meaning.

A program is a list of statements over a few states (two inputs, two buffers), a source, and what
earlier statements computed. Values are views, slices, scatters, relayouts, casts, rows to
broadcast, snapshots, branches and a custom operator's results; any of them may be written into any
state, twice, or into two of them, two states may be swapped, and any value may be returned. The
first dimension of the inputs may be dynamic; then there are no buffers, whose sizes are fixed.

MUTCANON_EXAMPLES sets how many programs are tried; CI tries the same ones each time.
"""

from __future__ import annotations

import copy
import os
import random
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import HealthCheck, event, given, note, reject, settings
from torch import nn

import mutcanon
import oracle
from cases._case import rand

pytestmark = pytest.mark.filterwarnings("ignore")

STATES = ("a", "b", "p", "q")
DEPTHS = 3

_library = torch.library.Library("mutprograms", "DEF")
_library.define("accumulate_(Tensor(a!) state, Tensor value) -> ()")
_library.define("offset(Tensor value) -> Tensor")


@torch.library.impl(_library, "accumulate_", "CompositeExplicitAutograd")
def _accumulate(state, value):
    state.add_(value * 2)


@torch.library.register_fake("mutprograms::accumulate_", lib=_library)
def _accumulate_fake(state, value):
    return None


@torch.library.impl(_library, "offset", "CompositeExplicitAutograd")
def _offset(value):
    return value + 3


@torch.library.register_fake("mutprograms::offset", lib=_library)
def _offset_fake(value):
    return torch.empty_like(value)


tries = settings(
    max_examples=int(os.environ.get("MUTCANON_EXAMPLES", "20")),
    deadline=None,
    derandomize="CI" in os.environ,
    database=None if "CI" in os.environ else settings().database,
    suppress_health_check=list(HealthCheck),
)


def row(t):
    return t.reshape(-1)[:3]


def relayout(t):
    return (t * 1).t().contiguous().t() if t.dim() == 2 else t * 1


def snapshot(t):
    return torch.empty_like(t, dtype=torch.float32).copy_(t)


def broadcast(t, u):
    return torch.empty_like(u).copy_(t)


def branch(t):
    # Straight to the operator: torch.cond would compile each program first, for seconds.
    def copied(t):
        return torch.empty_like(t).copy_(t)

    is_positive = t.sum() > 0
    if torch.compiler.is_exporting():
        return torch.ops.higher_order.cond(is_positive, copied, lambda t: t * 2, (t,))
    return copied(t) if is_positive else t * 2


def swap(s, t):
    old = s.clone()
    s.copy_(t)
    t.copy_(old)


# name -> (values read, function); every value has the shape (2, 3) or (3,).
VALUES = {
    "scale": (1, lambda t: t * 2),
    "add": (2, lambda t, u: t + u),
    "clone": (1, lambda t: t.clone()),
    "slice": (1, lambda t: t[0:]),
    "view": (1, lambda t: t.reshape(-1).view(t.shape)),
    "row": (1, row),
    "relayout": (1, relayout),
    "half": (1, lambda t: t.half()),
    "double": (1, lambda t: t.double()),
    "snapshot": (1, snapshot),
    "broadcast": (2, broadcast),
    "narrow": (1, lambda t: t[:, 1:3] if t.dim() == 2 else t[1:]),
    "flip": (1, lambda t: t.flip(0)),
    "scatter": (2, lambda t, u: torch.slice_scatter(t, u, 0)),
    "select_scatter": (2, lambda t, u: torch.select_scatter(t, row(u), 0, 0)),
    "where": (2, lambda t, u: torch.where(t > 0, t, u)),
    "branch": (1, branch),
    "offset": (1, lambda t: torch.ops.mutprograms.offset(t)),
}
WRITES = {
    "copy_": lambda s, t: s.copy_(t),
    "add_": lambda s, t: s.add_(t),
    "set_row": lambda s, t: s.__setitem__(1, row(t)),
    "set_all": lambda s, t: s.__setitem__(slice(0, None), t),
    "index_copy_": lambda s, t: s.index_copy_(0, torch.tensor([1]), row(t)[None].to(s.dtype)),
    "fill_": lambda s, t: s.fill_(3),
    "mul_slice": lambda s, t: s[:, 1:].mul_(2),
    "add_view": lambda s, t: s.view(s.shape).add_(t),
    "accumulate_": lambda s, t: torch.ops.mutprograms.accumulate_(s, t),
    "swap": swap,
}

index = st.integers(0, 9)
compute = st.tuples(st.sampled_from(sorted(VALUES)), index, index)
write = st.tuples(st.sampled_from(sorted(WRITES)), st.integers(0, len(STATES) - 1), index)
programs = st.fixed_dictionaries(
    {
        "statements": st.lists(st.one_of(compute, write, write), min_size=1, max_size=7),
        "returned": st.lists(index, min_size=1, max_size=3),
        "half_state": st.booleans(),
        "dynamic": st.booleans(),
        "strided_state": st.booleans(),
    }
)


class Program(nn.Module):
    """A random program as a module."""

    def __init__(self, made: dict[str, Any]) -> None:
        super().__init__()
        self.made = made
        p = rand(1, 3, 2).t() if made["strided_state"] else rand(1, 2, 3)
        q = rand(2, 2, 3)
        if not made["dynamic"]:
            self.register_buffer("q", q.half() if made["half_state"] else q)
            self.register_buffer("p", p)

    def forward(self, a, b, x):
        states = [a, b, x, x] if self.made["dynamic"] else [a, b, self.p, self.q]
        values = [*states, x]
        for name, *operands in self.made["statements"]:
            if name in WRITES:
                target, source = operands
                WRITES[name](values[target], values[source % len(values)])
            else:
                count, function = VALUES[name]
                read = [values[i % len(values)] for i in operands[:count]]
                values.append(function(*read))
        return tuple(values[i % len(values)] for i in self.made["returned"])


def export(made):
    """The program as torch.export.export makes it; None where it refuses a program that runs."""
    rows = torch.export.Dim("rows", min=2, max=64)
    shapes = {name: {0: rows} for name in ("a", "b", "x")} if made["dynamic"] else None
    try:
        return torch.export.export(Program(made), arguments(0)[0], dynamic_shapes=shapes)
    except Exception:
        event("stock torch does not export it")
        return None


def arguments(step):
    return (rand(step, 2, 3, salt=3), rand(step, 2, 3, salt=4), rand(step, 2, 3, salt=5)), {}


def text(made):
    """The program as a reader would write it."""
    names = ["a", "b", "x", "x", "x"] if made["dynamic"] else [*STATES, "x"]
    lines = []
    for name, *operands in made["statements"]:
        if name in WRITES:
            lines.append(f"{names[operands[0]]}.{name}({names[operands[1] % len(names)]})")
        else:
            read = [names[i % len(names)] for i in operands[: VALUES[name][0]]]
            names.append(f"v{len(names)}")
            lines.append(f"{names[-1]} = {name}({', '.join(read)})")
    lines.append("return " + ", ".join(names[i % len(names)] for i in made["returned"]))
    return "\n".join(lines)


def meaning(ep, mutated):
    """What a program computes; None where stock torch made one that does not run."""
    try:
        return oracle.interpret(ep, arguments, mutated)
    except RuntimeError:
        return None


def check(ep, mutated):
    """Both forms of one program, by everything that must hold."""
    want = meaning(ep, mutated)
    before = oracle.fingerprint(ep)
    counts = {}
    for form in ("portable", "minimal"):
        result = mutcanon.canonicalize(ep, form=form)
        report = mutcanon.analyze(ep, form=form)
        counts[form] = oracle.count_copies(result)
        check_report(ep, result, report)
        assert (result is ep) == report.changes_nothing
        assert mutcanon.canonicalize(result, form=form) is result
        oracle.require_invariants(ep, result)
        if want is not None:
            assert oracle.difference(want, meaning(result, mutated)) == ""
            assert oracle.sharing(result, arguments) <= oracle.sharing(ep, arguments)
    assert counts["minimal"] <= counts["portable"]
    assert oracle.fingerprint(ep) == before
    if want is None:
        event("stock torch made a program that does not run")
        return
    portable = mutcanon.canonicalize(ep)
    assert oracle.difference(want, oracle.unlifted(portable, arguments, mutated)) == ""


def check_report(ep, result, report):
    """The report foretells the result; a kept copy may lose its last reader all the same."""
    collapsed = {copy.node for copy in report.collapsed}
    kept = {copy.node for copy in report.kept}
    old = {node.name: node for node in ep.graph.nodes}
    new = {node.name for node in oracle.copies(result)}
    gone = kept - new
    assert not collapsed & new
    assert len(new) == len(kept) - len(gone) + len(report.inserted)
    left = {node.name for node in result.graph.nodes}
    assert not any(user.name in left for name in gone for user in old[name].users)


def eager(made):
    note(text(made))
    try:
        return oracle.eager(Program(made), arguments)
    except (RuntimeError, IndexError):  # two tensors that do not fit
        reject()


@tries
@given(programs)
def test_any_program_keeps_its_meaning(made):
    trace = eager(made)
    ep = export(made)
    if ep is None:
        return
    for depth in range(1, DEPTHS + 1):
        note(f"decomposition {depth}")
        try:
            with torch.no_grad():
                ep = ep.run_decompositions({})
        except Exception:  # stock torch refuses many of its own results
            event(f"stock torch stops at decomposition {depth}")
            return
        check(ep, trace.mutated)


@tries
@given(programs)
def test_any_program_is_eager_through_our_decompositions(made):
    trace = eager(made)
    ep = export(made)
    if ep is None:
        return
    for depth in range(1, DEPTHS + 1):
        note(f"decomposition {depth}")
        with torch.no_grad():
            ep = mutcanon.run_decompositions(ep, {})
        assert oracle.difference(trace, oracle.interpret(ep, arguments, trace.mutated)) == ""
        assert mutcanon.canonicalize(ep) is ep
        got = oracle.unlifted(ep, arguments, trace.mutated, unlift=mutcanon.module)
        assert oracle.difference(trace, got) == ""


def shuffled(ep, seed):
    """The same program with its nodes in another order that respects their uses."""
    ep = copy.deepcopy(ep)
    choose = random.Random(seed)
    nodes = [n for n in ep.graph.nodes if n.op not in ("placeholder", "output")]
    left = {n: {i for i in n.all_input_nodes if i in set(nodes)} for n in nodes}
    output = ep.graph.output_node()
    while left:
        node = choose.choice([n for n in left if not left[n]])
        del left[node]
        output.prepend(node)
        for needs in left.values():
            needs.discard(node)
    ep.graph.lint()
    ep.graph_module.recompile()
    return ep


def require_order_independence(ep, seed):
    """What is decided depends on what a program means, not on where its nodes stand."""
    other = shuffled(ep, seed)
    for form in ("portable", "minimal"):
        assert decisions(ep, form) == decisions(other, form)


def decisions(ep, form):
    """Which copies collapse, and why others stay or are added."""
    report = mutcanon.analyze(ep, form=form)
    return (
        {copy.node for copy in report.collapsed},
        {(copy.node, copy.code) for copy in report.kept},
        sorted(copy.code for copy in report.inserted),
    )


@tries
@given(programs, st.integers(0, 1000))
def test_any_program_is_decided_alike_in_any_order(made, seed):
    eager(made)
    ep = export(made)
    if ep is None:
        return
    for _ in range(2):
        with torch.no_grad():
            ep = ep.run_decompositions({})
    require_order_independence(ep, seed)
