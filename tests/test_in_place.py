"""What `to_executorch` makes of a mutation: in place, an early copy, or a refusal with its reason.

Most programs here are wrong, or slow, or fail at run time with stock executorch 1.5.1.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

pytestmark = [pytest.mark.executorch, pytest.mark.filterwarnings("ignore")]

exir = pytest.importorskip("executorch.exir")
from executorch.backends.xnnpack.partition.xnnpack_partitioner import (  # noqa: E402
    XnnpackPartitioner,
)

from mutcanon._core import in_place_reasons  # noqa: E402
from mutcanon.executorch import (  # noqa: E402
    InPlaceReport,
    report_in_place,
    to_edge_transform_and_lower,
)
from pte import calls, check_pte, config, mutated_inputs  # noqa: E402

Inputs = Callable[[int], tuple[Any, ...]]
ROWS = 6


def lower(module: nn.Module, inputs: Inputs, **options: Any) -> Any:
    return to_edge_transform_and_lower(torch.export.export(module, inputs(0)), **options)


def check(
    module: nn.Module,
    inputs: Inputs,
    *,
    ops: dict[str, int],
    reinplace: bool = True,
    **options: Any,
) -> Any:
    """Runs in both memory modes; `ops` counts what is left of writes, in the order of their names.

    Returns:
        The edge programs.
    """
    edge = lower(module, inputs, **options)
    before = str(edge.exported_program().graph)
    targets = mutated_inputs(edge.exported_program())
    for own in (True, False):
        program = edge.to_executorch(config(own=own), reinplace=reinplace)
        check_pte(module, inputs, program, targets, own=own)
        assert writes(program) == ops
        check_signature(program)
    assert str(edge.exported_program().graph) == before, "the edge program was edited"
    return edge


def check_signature(program: Any) -> None:
    ep = program.exported_program()
    targets = [s.target for s in ep.graph_signature.output_specs if s.target is not None]
    assert len(targets) == len(set(targets))


COUNTED = {
    "aten::copy": "copy",
    "aten::copy_": "copy_",
    "aten::clone": "clone",
    "dim_order_ops::_clone_dim_order": "clone",
    "aten::index_put": "index_put",
    "aten::index_put_": "index_put_",
}


def writes(program: Any) -> dict[str, int]:
    """How often the program calls each operator that only moves state."""
    found: Counter[str] = Counter()
    for name, n in calls(program).items():
        if name in COUNTED:
            found[COUNTED[name]] += n
    return dict(found)


def codes(edge: Any) -> set[str]:
    """The verdicts on all candidates."""
    found = report_in_place(edge.exported_program())
    assert all(isinstance(r, InPlaceReport) for r in found)
    return {r.code for r in found} - {"superseded"}


def cache_row(step: int) -> tuple[Tensor, Tensor, Tensor]:
    return torch.arange(2.0 * ROWS).view(1, ROWS, 2), torch.tensor([step]), torch.randn(1, 1, 2)


# In place


class Cloned(nn.Module):
    """A cache is read through a copy of all of it, after its row was written."""

    def forward(self, cache: Tensor, at: Tensor, row: Tensor) -> Tensor:
        cache.index_copy_(1, at, row)
        return cache.clone().expand(1, ROWS, 2).view(-1) + 1


class Before(nn.Module):
    """The copy is of the old cache, and read when the row is written."""

    def forward(self, cache: Tensor, at: Tensor, row: Tensor) -> Tensor:
        old = cache.clone()
        cache.index_copy_(1, at, row)
        return old + cache


def test_a_copy_that_changes_nothing_is_left_out() -> None:
    assert "left_out" in codes(check(Cloned(), cache_row, ops={"index_put_": 1}))


def test_a_copy_that_outlives_a_write_stays() -> None:
    edge = check(Before(), cache_row, ops={"clone": 1, "index_put_": 1})
    assert "left_out" not in codes(edge)


class Row(nn.Module):
    """A row of a cache is written and the cache is read, plainly and through a view."""

    def forward(self, cache: Tensor, at: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
        cache.index_copy_(1, at, row)
        return cache * 2, cache.view(-1) + 1


def test_a_row_is_written_where_it_lies() -> None:
    edge = check(Row(), cache_row, ops={"index_put_": 1})
    own = edge.to_executorch(config(own=True)).executorch_program.execution_plan[0]
    # Two results and the index; nothing is reserved for the cache.
    assert sum(own.non_const_buffer_sizes) < 3 * ROWS * 2 * 4


def test_reinplace_can_be_turned_off() -> None:
    check(Row(), cache_row, ops={"index_put": 1, "copy_": 1}, reinplace=False)


def test_through_xnnpack() -> None:
    check(Row(), cache_row, ops={"index_put_": 1}, partitioner=[XnnpackPartitioner()])


class BufferRow(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cache", torch.arange(2.0 * ROWS).view(1, ROWS, 2))

    def forward(self, at: Tensor, row: Tensor) -> Tensor:
        self.cache.index_copy_(1, at, row)
        return self.cache.sum(1)


def test_a_buffer_too() -> None:
    check(BufferRow(), lambda step: cache_row(step)[1:], ops={"index_put_": 1})


class NewState(nn.Module):
    """A state that is computed anew goes to its place without a copy."""

    def forward(self, state: Tensor, window: Tensor, x: Tensor) -> Tensor:
        recent = torch.cat([window, x], 1)
        window.copy_(recent[:, 1:])
        state.mul_(0.9).add_(recent.sum(1, keepdim=True))
        return state + 1


def new_state(step: int) -> tuple[Tensor, ...]:
    return torch.ones(2, 1), torch.zeros(2, 3), torch.randn(2, 1)


def test_a_result_is_computed_in_its_target() -> None:
    check(NewState(), new_state, ops={})
    check(NewState(), new_state, ops={"copy_": 2}, reinplace=False)


class DelegateResult(nn.Module):
    """The new value of one state comes from a backend that does not see it, the other's does."""

    def forward(self, state: Tensor, total: Tensor, x: Tensor) -> Tensor:
        y = state.sum() + x
        state.copy_(torch.sigmoid(x) * 2)
        total.copy_(torch.sigmoid(total) * x)
        return y


def test_a_backend_writes_to_the_target() -> None:
    def inputs(step: int) -> tuple[Tensor, ...]:
        return torch.ones(4, 4), torch.ones(4, 4), torch.randn(4, 4)

    # One copy for the state that the backend reads while it writes.
    check(DelegateResult(), inputs, ops={"copy_": 1}, partitioner=[XnnpackPartitioner()])


class Sliding(nn.Module):
    """Every row moves on, then one is written over: the moved ones go to their place first."""

    def forward(self, cache: Tensor, at: Tensor, row: Tensor) -> Tensor:
        moved = cache * 0.5
        cache.copy_(moved.index_copy(1, at, row))
        return cache.sum()


def test_rows_over_a_new_state_are_written_in_the_target() -> None:
    check(Sliding(), cache_row, ops={"index_put_": 1})


# What the kernel takes


class Put(nn.Module):
    def __init__(self, write: Callable[..., None]) -> None:
        super().__init__()
        self.write = write

    def forward(self, cache: Tensor, *rest: Tensor) -> Tensor:
        self.write(cache, *rest)
        return cache * 1


def lower_rank(cache: Tensor, at: Tensor, row: Tensor) -> None:
    cache[:, at] = row[0]


def broadcast(cache: Tensor, at: Tensor, row: Tensor) -> None:
    cache[:, at] = row[0, 0, :1]


def one_number(cache: Tensor, at: Tensor, row: Tensor) -> None:
    cache[:, at] = row.sum()


def from_the_end(cache: Tensor, at: Tensor, row: Tensor) -> None:
    cache[:, at - ROWS] = row


def index_of_rank_2(cache: Tensor, at: Tensor, row: Tensor) -> None:
    cache[:, torch.stack([at, at + 1])] = row[:, :, None]


def index_of_rank_0(cache: Tensor, at: Tensor, row: Tensor) -> None:
    torch.ops.aten.index_put_(cache, [None, at.reshape(())], row[:, 0])


def first_dimension(cache: Tensor, at: Tensor, row: Tensor) -> None:
    cache[at * 0] = cache.sum(1, keepdim=True) + row


def int32_index(cache: Tensor, at: Tensor, row: Tensor) -> None:
    cache[:, at.to(torch.int32)] = row


def constant_index(cache: Tensor, at: Tensor, row: Tensor) -> None:
    cache[:, torch.tensor([-1, 0])] = row


def a_slice(cache: Tensor, at: Tensor, row: Tensor) -> None:
    cache[:, 1:-1:2] = row


@pytest.mark.parametrize(
    "write",
    [
        lower_rank,
        broadcast,
        one_number,
        from_the_end,
        index_of_rank_2,
        index_of_rank_0,
        first_dimension,
        int32_index,
        a_slice,
    ],
    ids=lambda f: f.__name__,
)
def test_what_the_in_place_kernel_refuses_is_made_acceptable(write: Callable[..., None]) -> None:
    check(Put(write), cache_row, ops={"index_put_": 1})


def test_a_constant_index_needs_no_normalization() -> None:
    def first_and_third(cache: Tensor, at: Tensor, row: Tensor) -> None:
        cache[:, torch.tensor([0, 2])] = row

    edge = check(Put(constant_index), cache_row, ops={"index_put_": 1})
    assert "where" in str(edge.to_executorch(config()).exported_program().graph)
    edge = check(Put(first_and_third), cache_row, ops={"index_put_": 1})
    assert "where" not in str(edge.to_executorch(config()).exported_program().graph)


def accumulated(cache: Tensor, at: Tensor, row: Tensor) -> None:
    cache.index_put_((torch.zeros_like(at), at), row[:, 0], accumulate=True)


def masked(cache: Tensor, at: Tensor, row: Tensor) -> None:
    cache[:, torch.arange(ROWS) == at] = row


def two_indices(cache: Tensor, at: Tensor, row: Tensor) -> None:
    cache[at * 0, at] = row[0]


@pytest.mark.parametrize(
    ("write", "fact"),
    [
        (accumulated, "accumulated"),
        (two_indices, "2 index tensors"),
    ],
    ids=lambda v: getattr(v, "__name__", ""),
)
def test_what_it_cannot_take_stays_functional(write: Callable[..., None], fact: str) -> None:
    edge = check(Put(write), cache_row, ops={"index_put": 1, "copy_": 1})
    (report,) = [r for r in report_in_place(edge.exported_program()) if r.code == "kernel"]
    assert fact in report.fact


def test_indices_are_made_non_negative_once_for_all_layers() -> None:
    class Layers(nn.Module):
        def forward(self, at: Tensor, row: Tensor, *caches: Tensor) -> Tensor:
            for cache in caches:
                cache[:, at] = row
            return row * 1

    def inputs(step: int) -> tuple[Tensor, ...]:
        cache, at, row = cache_row(step)
        return at, row, cache, cache.clone(), cache.clone()

    edge = check(Layers(), inputs, ops={"index_put_": 3})
    program = edge.to_executorch(config()).exported_program()
    assert sum("where" in str(n.target) for n in program.graph.nodes) == 1


# Who still needs the old value


class ViewReadLater(nn.Module):
    def forward(self, x: Tensor, at: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
        y = x * 2
        old = y.view(ROWS, 2)
        z = y.index_put([torch.zeros_like(at), at], row[0])
        return z, old + 1


class OldReturned(nn.Module):
    def forward(self, x: Tensor, at: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
        y = x * 2
        return y, y.index_copy(1, at, row)


class Overwritten(nn.Module):
    """The result is returned, and its place receives something else."""

    def forward(self, a: Tensor, b: Tensor, at: Tensor, row: Tensor) -> Tensor:
        z = a.index_copy(1, at, row)
        a.copy_(b)
        return z


class OldCacheElsewhere(nn.Module):
    """The old cache goes to another input, which is read until the end."""

    def forward(self, a: Tensor, b: Tensor, at: Tensor, row: Tensor) -> Tensor:
        new = a.index_copy(1, at, row)
        y = b + new
        b.copy_(a)
        a.copy_(new)
        return y


class OldCacheElsewhereEarly(nn.Module):
    """The same, but nobody reads the other input afterwards: it is written back before the row."""

    def forward(self, a: Tensor, b: Tensor, at: Tensor, row: Tensor) -> Tensor:
        y = b + row
        b.copy_(a)
        a.index_copy_(1, at, row)
        return y


def two_caches(step: int) -> tuple[Tensor, ...]:
    cache, at, row = cache_row(step)
    return cache, cache + 100, at, row


@pytest.mark.parametrize(
    ("module", "inputs", "ops"),
    [
        (ViewReadLater, cache_row, {"index_put": 1}),
        (OldReturned, cache_row, {"index_put": 1}),
        (Overwritten, two_caches, {"index_put": 1, "copy_": 1}),
        (OldCacheElsewhere, two_caches, {"index_put": 1, "copy_": 2}),
        (OldCacheElsewhereEarly, two_caches, {"index_put_": 1, "copy_": 1}),
    ],
    ids=lambda v: getattr(v, "__name__", ""),
)
def test_an_old_value_that_is_needed_survives(
    module: type[nn.Module], inputs: Inputs, ops: dict[str, int]
) -> None:
    check(module(), inputs, ops=ops)


def test_a_new_value_may_be_returned() -> None:
    class Returned(nn.Module):
        def forward(self, cache: Tensor, at: Tensor, row: Tensor) -> Tensor:
            cache.index_copy_(1, at, row)
            return cache

    check(Returned(), cache_row, ops={"index_put_": 1})


def test_each_refusal_has_its_reason() -> None:
    assert "returned" in codes(lower(OldReturned(), cache_row))
    assert "overwritten" in codes(lower(Overwritten(), two_caches))
    assert "written_back_later" in codes(lower(OldCacheElsewhere(), two_caches))
    assert codes(lower(Row(), cache_row)) == {"in_place"}


def test_the_documentation_has_every_reason() -> None:
    text = (Path(__file__).parent.parent / "docs" / "executorch.md").read_text()
    listed = re.findall(r"^\| `(\w+)` \| (.+) \|$", text, flags=re.MULTILINE)
    reasons = [(code, sentence) for code, _, sentence in in_place_reasons()]
    assert [row for row in listed if row[0] in dict(reasons)] == reasons
    assert "kernel" in dict(listed)


# Write-backs


class Shift(nn.Module):
    def __init__(self, taps: int) -> None:
        super().__init__()
        self.taps = taps
        for i in range(taps):
            self.register_buffer(f"tap{i}", torch.full((3,), float(i)))

    def forward(self, x: Tensor) -> Tensor:
        taps = [getattr(self, f"tap{i}") for i in range(self.taps)]
        y = torch.stack(taps).sum(0) + x
        for new, old in zip(taps[:0:-1], taps[-2::-1], strict=True):
            new.copy_(old)
        taps[0].copy_(x)
        return y


class Swap(nn.Module):
    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        old = a.clone()
        a.copy_(b)
        b.copy_(old)
        return a - 2 * b


def test_a_shift_register_takes_a_copy_a_tap_and_no_temporary() -> None:
    check(Shift(8), lambda step: (torch.full((3,), 10.0 + step),), ops={"copy_": 8})


def test_a_swap_takes_one_temporary() -> None:
    def inputs(step: int) -> tuple[Tensor, ...]:
        return torch.zeros(3), torch.ones(3)

    check(Swap(), inputs, ops={"clone": 1, "copy_": 2})


def test_one_in_place_and_one_written_back_keep_their_outputs() -> None:
    class Mixed(nn.Module):
        def forward(self, a: Tensor, b: Tensor, at: Tensor, row: Tensor) -> Tensor:
            b.copy_(row.expand(1, ROWS, 2))
            a.index_copy_(1, at, row)
            return a + b

    edge = lower(Mixed(), two_caches)
    for reinplace in (False, True):
        program = edge.to_executorch(config(own=True), reinplace=reinplace)
        check_pte(Mixed(), two_caches, program, mutated_inputs(edge.exported_program()), own=True)
        specs = program.exported_program().graph_signature.output_specs
        assert [s.target for s in specs] == ["a", "b", None]


def test_a_buffer_copied_to_a_buffer_is_written() -> None:
    class Restore(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("live", torch.zeros(3))
            self.register_buffer("saved", torch.arange(3.0))

        def forward(self, x: Tensor) -> Tensor:
            y = self.live + x
            self.live.copy_(self.saved)
            return y

    check(Restore(), lambda step: (torch.ones(3) * step,), ops={"copy_": 1})


def test_parameters_are_written_and_start_from_their_values() -> None:
    class Decay(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.arange(3.0))

        def forward(self, x: Tensor) -> Tensor:
            y = self.weight * x
            with torch.no_grad():
                self.weight.mul_(0.5)
            return y

    check(Decay(), lambda step: (torch.ones(3),), ops={})


def test_early_write_backs_do_not_occupy_memory() -> None:
    class Layers(nn.Module):
        def __init__(self, mutates: bool) -> None:
            super().__init__()
            self.mutates = mutates

        def forward(self, x: Tensor, *states: Tensor) -> Tensor:
            for state in states:
                new = state + x
                if self.mutates:
                    state.copy_(new)
                x = new * 0.5
            return x

    def planned(mutates: bool, reinplace: bool) -> int:
        inputs = tuple(torch.ones(64, 64) for _ in range(9))
        edge = lower(Layers(mutates), lambda step: inputs)
        plan = edge.to_executorch(reinplace=reinplace).executorch_program.execution_plan[0]
        return sum(plan.non_const_buffer_sizes)

    for reinplace in (False, True):
        assert planned(True, reinplace) <= 1.05 * planned(False, reinplace)


def test_a_module_with_gradients_lowers() -> None:
    class Projected(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(2, 2)

        def forward(self, cache: Tensor, at: Tensor, row: Tensor) -> Tensor:
            cache.index_copy_(1, at, self.linear(row))
            return cache.sum(1)

    module = Projected()
    assert module.linear.weight.requires_grad
    check(module, cache_row, ops={"index_put_": 1})
