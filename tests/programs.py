"""Programs of the cases after some decompositions, and what becomes of them; each made once."""

from __future__ import annotations

import copy
import functools

import pytest
import torch
from torch.torch_version import TorchVersion

import mutcanon
import oracle
from cases import CASES, Case

FORMS = ("portable", "minimal")
DEPTHS = (1, 2, 3)


def existing() -> list[tuple[str, int]]:
    """Every case with every number of decompositions that stock torch survives."""
    return [(c.id, d) for c in CASES.values() for d in DEPTHS if c.stops is None or d < c.stops]


@functools.cache
def trace(name: str) -> oracle.Trace:
    """Eager torch."""
    case = CASES[name]
    require_torch(case)
    return oracle.eager(case.module(), case.arguments)


@functools.cache
def program(name: str, depth: int) -> torch.export.ExportedProgram:
    """The program after `depth` decompositions."""
    with torch.no_grad():
        return program(name, depth - 1).run_decompositions({}) if depth else export(CASES[name])


def require_torch(case: Case) -> None:
    """Skips the test where torch is too old for the case."""
    if case.since and torch.__version__ < TorchVersion(case.since):
        pytest.skip(f"torch {case.since} is the first that runs and exports it")


def export(case: Case) -> torch.export.ExportedProgram:
    """The program as torch.export.export makes it."""
    require_torch(case)
    args, kwargs = case.arguments(0)
    return torch.export.export(
        case.module(), args, kwargs, dynamic_shapes=case.dynamic_shapes, strict=False
    )


@functools.cache
def canonical(name: str, depth: int, form: str) -> torch.export.ExportedProgram:
    """The canonical form."""
    return mutcanon.canonicalize(program(name, depth), form=form)


def own(name: str, depth: int) -> torch.export.ExportedProgram:
    """A program that a test may edit."""
    return copy.deepcopy(program(name, depth))
