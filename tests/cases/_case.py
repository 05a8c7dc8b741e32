"""What a case is, and how a function becomes one."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

CASES: dict[str, Case] = {}


@dataclasses.dataclass(frozen=True)
class Case:
    """A mutating program, and what is known about it.

    The copies that may be left are derived from docs/semantics.md, not recorded from the code:
    each number is the fewest that the contract allows for what stock torch made of the program.

    Attributes:
        id: Stable; its prefix names the project of the report (`adv` for our own).
        source: The public thread that reported the situation, or "own".
        title: What the program shows.
        make: Builds the module, always with the same state.
        inputs: Step -> positional arguments, or a pair of those and keyword arguments.
        dynamic_shapes: For torch.export.export.
        train: Whether the module runs in training mode.
        left: Copies left in the portable form after 1, 2 and 3 decompositions.
        left_minimal: The same for the minimal form, where it differs.
        reasons: The codes for which copies of the portable form stay.
        stops: The decomposition at which stock torch raises, if it does.
        lost: Decomposition -> what stock torch lost of the program, which nobody can restore.
        since: The first torch that runs and exports the program; empty if all do.
        not_exported: The error of torch.export.export, if it refuses the program.
    """

    id: str
    source: str
    title: str
    make: Callable[[], nn.Module]
    inputs: Callable[[int], Any]
    dynamic_shapes: Any = None
    train: bool = False
    left: tuple[int, int, int] = (0, 0, 0)
    left_minimal: tuple[int, int, int] | None = None
    reasons: frozenset[str] = frozenset()
    stops: int | None = None
    lost: Mapping[int, str] = dataclasses.field(default_factory=dict)
    since: str = ""
    not_exported: str = ""

    def arguments(self, step: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of one step, new on each call."""
        given = self.inputs(step)
        has_keywords = (
            len(given) == 2 and isinstance(given[0], tuple) and isinstance(given[1], dict)
        )
        return given if has_keywords else (given, {})

    def module(self) -> nn.Module:
        """A new module, in the mode in which it is exported."""
        return self.make().train(self.train)


def case(
    id: str,
    source: str = "own",
    *,
    inputs: Callable[[int], Any],
    buffers: Callable[[], dict[str, torch.Tensor]] = dict,
    attributes: Callable[[], dict[str, Any]] = dict,
    transient: tuple[str, ...] = (),
    reasons: tuple[str, ...] = (),
    **known: Any,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers a function as the forward of a case; `transient` buffers are not persistent.

    A function whose first parameter is `self` reads its buffers and attributes there (submodules,
    parameters, plain tensors).
    """

    def register(forward: Callable[..., Any]) -> Callable[..., Any]:
        takes_self = next(iter(inspect.signature(forward).parameters), None) == "self"
        method = forward if takes_self else staticmethod(forward)
        Program = type(forward.__name__, (nn.Module,), {"forward": method})

        def make() -> nn.Module:
            torch.manual_seed(0)
            program = Program()
            for name, tensor in buffers().items():
                program.register_buffer(name, tensor, persistent=name not in transient)
            for name, value in attributes().items():
                setattr(program, name, value)
            return program

        title = (inspect.getdoc(forward) or "").splitlines()[0].rstrip(".")
        add(Case(id, source, title, make, inputs, reasons=frozenset(reasons), **known))
        return forward

    return register


def add(new: Case) -> None:
    """Registers a case whose module is a class of its own."""
    if new.id in CASES:
        raise ValueError(f"two cases are named {new.id}")
    CASES[new.id] = new


def rand(step: int, *shape: int, dtype: torch.dtype = torch.float32, salt: int = 0) -> torch.Tensor:
    """A tensor that depends on the step and the salt only."""
    generator = torch.Generator().manual_seed(1000 * salt + step + 1)
    if dtype == torch.bool:
        return torch.rand(shape, generator=generator) > 0.5
    if not dtype.is_floating_point:
        return torch.randint(0, 9, shape, generator=generator).to(dtype)
    return torch.randn(shape, generator=generator).to(dtype)
