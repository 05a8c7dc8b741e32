"""Random mutating programs: whatever stock torch makes of one, mutcanon keeps its meaning.

A program is a list of statements over a few states (two inputs, two buffers), a source, and what
earlier statements computed. Values are views, relayouts, casts, rows to broadcast, snapshots; any
of them may be written into any state, twice, or into two of them, and any may be returned.

MUTCANON_EXAMPLES sets how many programs are tried; CI tries the same ones each time.
"""

from __future__ import annotations

import os
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
    return torch.empty(2, 3).copy_(t)


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
}
WRITES = {
    "copy_": lambda s, t: s.copy_(t),
    "add_": lambda s, t: s.add_(t),
    "set_row": lambda s, t: s.__setitem__(1, row(t)),
    "set_all": lambda s, t: s.__setitem__(slice(0, None), t),
    "index_copy_": lambda s, t: s.index_copy_(0, torch.tensor([1]), row(t)[None].to(s.dtype)),
    "fill_": lambda s, t: s.fill_(3),
}

index = st.integers(0, 9)
compute = st.tuples(st.sampled_from(sorted(VALUES)), index, index)
write = st.tuples(st.sampled_from(sorted(WRITES)), st.integers(0, len(STATES) - 1), index)
programs = st.fixed_dictionaries(
    {
        "statements": st.lists(st.one_of(compute, write, write), min_size=1, max_size=7),
        "returned": st.lists(index, min_size=1, max_size=3),
        "half_state": st.booleans(),
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
        self.register_buffer("q", q.half() if made["half_state"] else q)
        self.register_buffer("p", p)

    def forward(self, a, b, x):
        states = {"a": a, "b": b, "p": self.p, "q": self.q}
        values = [*states.values(), x]
        for name, *operands in self.made["statements"]:
            if name in WRITES:
                target, source = operands
                WRITES[name](values[target], values[source % len(values)])
            else:
                count, function = VALUES[name]
                read = [values[i % len(values)] for i in operands[:count]]
                values.append(function(*read))
        return tuple(values[i % len(values)] for i in self.made["returned"])


def arguments(step):
    return (rand(step, 2, 3, salt=3), rand(step, 2, 3, salt=4), rand(step, 2, 3, salt=5)), {}


def text(made):
    """The program as a reader would write it."""
    names = [*STATES, "x"]
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
    except RuntimeError:  # two tensors that do not fit
        reject()


@tries
@given(programs)
def test_any_program_keeps_its_meaning(made):
    trace = eager(made)
    ep = torch.export.export(Program(made), arguments(0)[0])
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
    ep = torch.export.export(Program(made), arguments(0)[0])
    for depth in range(1, DEPTHS + 1):
        note(f"decomposition {depth}")
        with torch.no_grad():
            ep = mutcanon.run_decompositions(ep, {})
        assert oracle.difference(trace, oracle.interpret(ep, arguments, trace.mutated)) == ""
        assert mutcanon.canonicalize(ep) is ep
        got = oracle.unlifted(ep, arguments, trace.mutated, unlift=mutcanon.module)
        assert oracle.difference(trace, got) == ""
