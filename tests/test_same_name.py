"""A user input that is called as a buffer is: torch writes back by name, and confuses the two."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import mutcanon
import oracle
from cases._case import rand


class Both(nn.Module):
    """The buffer and the input are mutated."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("state", torch.zeros(3))

    def forward(self, state, x):
        self.state.add_(x)
        state.mul_(x)
        return self.state - state


class Reset(Both):
    """The buffer alone is mutated, by the input."""

    def forward(self, state, x):
        self.state.copy_(state)
        return self.state * x


class Caller(Both):
    """The input alone is mutated, by the buffer."""

    def forward(self, state, x):
        state.add_(self.state + x)
        return state * 2


MODULES = (Both, Reset, Caller)
in_modules = pytest.mark.parametrize("make", MODULES)


def arguments(step):
    return (rand(step, 3, salt=1), rand(step, 3, salt=2)), {}


def by_its_name(ep, **options):
    """`ExportedProgram.module`, whatever that is by now."""
    return ep.module(**options)


def exported(make):
    return torch.export.export(make(), *arguments(0))


@in_modules
def test_our_decompositions_and_our_module_tell_them_apart(make):
    want = oracle.eager(make(), arguments)
    ep = exported(make)
    for _ in range(3):
        with torch.no_grad():
            ep = mutcanon.run_decompositions(ep, {})
        assert oracle.difference(want, oracle.interpret(ep, arguments, want.mutated)) == ""
        assert mutcanon.canonicalize(ep) is ep
        assert oracle.count_copies(ep) == 0 if make is not Reset else 1
        got = oracle.unlifted(ep, arguments, want.mutated, unlift=mutcanon.module)
        assert oracle.difference(want, got) == ""
    assert mutcanon.check(ep, ep).is_right


@in_modules
def test_names_of_torch_are_told_apart_where_mutcanon_is_enabled(make):
    want = oracle.eager(make(), arguments)
    with mutcanon.enabled(), torch.no_grad():
        ep = exported(make).run_decompositions({})
        by_name = oracle.unlifted(ep, arguments, want.mutated, unlift=by_its_name)
    assert oracle.difference(want, by_name) == ""


def test_stock_torch_takes_one_for_the_other():
    want = oracle.eager(Both(), arguments)
    ep = exported(Both).run_decompositions({})
    assert oracle.difference(want, oracle.unlifted(ep, arguments, want.mutated)) != ""
    found = [(f.code, f.output, f.consumers) for f in mutcanon.analyze(ep).findings]
    everybody = ("torch.module", "torch.run_decompositions", "executorch")
    assert found == [
        ("same_name", "state", ("executorch",)),
        ("same_name", "state (input)", everybody),
    ]


def test_the_report_has_two_names():
    with torch.no_grad():
        ep = exported(Both).run_decompositions({})
    report = mutcanon.analyze(ep, form="minimal")
    assert [m.target for m in report.mutations] == ["state", "state (input)"]
    assert report.write_backs == (("write", "state"), ("write", "state (input)"))
    steps = report.write_backs
    assert mutcanon.check(ep, ep, consumer="mutcanon", write_backs=steps).is_right


@pytest.mark.parametrize("own", [False, True])
@in_modules
def test_the_lowered_program_tells_them_apart(make, own):
    pytest.importorskip("executorch")
    import mutcanon.executorch
    import pte

    ep = exported(make)
    program = mutcanon.executorch.to_edge(ep).to_executorch(pte.config(own=own))
    targets = [] if make is Reset else [0]
    pte.check_pte(copy.deepcopy(make()), lambda step: arguments(step)[0], program, targets, own=own)
