"""Results of control flow, of which ExecuTorch keeps one at a time."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

pytestmark = [pytest.mark.executorch, pytest.mark.filterwarnings("ignore")]

pytest.importorskip("executorch.exir")

import mutcanon.executorch as drop_in  # noqa: E402
from pte import calls, check_pte, config  # noqa: E402


def choose(x: Tensor) -> Tensor:
    result: Tensor = torch.cond(x.sum() > 0, lambda x: x * 2, lambda x: x + 1, (x,))
    return result


class Returned(nn.Module):
    """Both results leave the program."""

    def forward(self, state: Tensor, x: Tensor) -> Any:
        first = choose(x)
        second = choose(first + state)
        state.copy_(second)
        return first, second


class Viewed(nn.Module):
    """The first result is read through a view, after the second ran."""

    def forward(self, state: Tensor, x: Tensor) -> Any:
        row = choose(x).view(1, 3)
        state.add_(choose(x - 1))
        return row * 2


class Nested(nn.Module):
    """Both results are needed inside a branch."""

    def forward(self, state: Tensor, x: Tensor) -> Any:
        def both(x: Tensor) -> Tensor:
            first = choose(x)
            second = choose(first - 1)
            return first * 3 + second

        result = torch.cond(x[0] > 0, both, lambda x: x - 1, (x,))
        state.add_(result)
        return result


class Layers(nn.Module):
    """Each result is used up before the next one is made."""

    def forward(self, state: Tensor, x: Tensor) -> Any:
        for _ in range(3):
            x = choose(x) - state
        state.add_(x)
        return x


def inputs(step: int) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(step)
    return torch.ones(3), torch.randn(3, generator=generator)


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize(
    ("module", "clones"), [(Returned(), 1), (Viewed(), 1), (Nested(), 1), (Layers(), 0)]
)
def test_a_result_that_is_needed_longer_is_copied(
    module: nn.Module, clones: int, own: bool
) -> None:
    edge = drop_in.to_edge(torch.export.export(module, inputs(0)))
    program = edge.to_executorch(config(own=own))
    check_pte(module, inputs, program, [0], own=own)
    assert calls(program)["aten::clone"] == clones


def test_functionalized_operators_run_no_bodies() -> None:
    pytest.importorskip("executorch.extension.llm.custom_ops.custom_ops")

    class Update(nn.Module):
        def forward(self, k: Tensor, v: Tensor, row: Tensor) -> Tensor:
            torch.ops.llama.update_cache(row, k, 1)
            torch.ops.llama.update_cache(row * 2, v, 1)
            return k + v

    def caches(step: int) -> tuple[Tensor, ...]:
        return torch.zeros(1, 4, 2, 2), torch.ones(1, 4, 2, 2), torch.full((1, 1, 2, 2), step + 1.0)

    edge = drop_in.to_edge(torch.export.export(Update(), caches(0)))
    program = edge.to_executorch(config())
    check_pte(Update(), caches, program, [0, 1])
    assert calls(program)["aten::clone"] == 0
