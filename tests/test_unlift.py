"""`mutcanon.module` and `mutcanon.run_decompositions` against eager, repeated and repeated."""

from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.utils import _pytree as pytree  # noqa: E402

import mutcanon  # noqa: E402
import mutcanon.errors  # noqa: E402
from mutcanon import _torch  # noqa: E402

aten = torch.ops.aten
STEPS = 4


class State(nn.Module):
    """A module with these buffers, in this order."""

    def __init__(self, **buffers):
        super().__init__()
        for name, value in buffers.items():
            self.register_buffer(name, value)


def rand(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


class DelayLine(State):
    def forward(self, x):
        self.b.copy_(self.a)
        self.a.copy_(x)
        return self.b * 1


class ShiftRegister(nn.Module):
    def __init__(self, taps=8):
        super().__init__()
        for i in range(taps):
            self.register_buffer(f"t{i}", rand(3, seed=i))
        self.taps = taps

    def forward(self, x):
        for i in range(self.taps - 1, 0, -1):
            getattr(self, f"t{i}").copy_(getattr(self, f"t{i - 1}"))
        self.t0.copy_(x)
        return self.t7 + self.t3


class Swap(State):
    def forward(self, x):
        t = self.b.clone()
        self.b.copy_(self.a)
        self.a.copy_(t)
        return self.a + x


class SharedValue(State):
    def forward(self, x):
        v = x * 2
        self.a.copy_(v)
        self.b.copy_(v)
        return x + 1


class Transposed(State):
    def forward(self, x):
        self.a.copy_(x.t())
        return self.a.view(-1) * 2


class Broadcast(State):
    def forward(self, x):
        self.a.copy_(x[0])
        return self.a * 1


class Cast(State):
    def forward(self, x):
        self.a.copy_(x.double() * 1.1)
        return self.a.clone()


class Returned(State):
    def forward(self, x):
        self.a.add_(x)
        return self.a, self.a * 2


class ScalarReturned(State):
    def forward(self, x):
        y = (self.a + x).sum()
        self.a.copy_(y)
        return y


class InputSwap(nn.Module):
    def forward(self, a, b):
        t = a.clone()
        a.copy_(b)
        b.copy_(t)
        return a - b


def two(shape=(3,)):
    return {"a": rand(*shape), "b": rand(*shape, seed=1)}


# program, its inputs, copies in each decomposed program, whole copies that its module makes
PROGRAMS = {
    "delay_line": (lambda: DelayLine(**two()), (rand(3),), 1, 2),
    "delay_line_registered_last_first": (
        lambda: DelayLine(b=rand(3), a=rand(3, seed=1)),
        (rand(3),),
        1,
        2,
    ),
    "shift_register": (ShiftRegister, (rand(3),), 7, 8),
    "swap": (lambda: Swap(**two()), (rand(3),), 1, 3),
    "shared_value": (lambda: SharedValue(**two()), (rand(3),), 1, 3),
    "transposed": (lambda: Transposed(a=rand(3, 4)), (rand(4, 3),), 1, 2),
    "broadcast": (lambda: Broadcast(a=rand(2, 3)), (rand(2, 3),), 1, 2),
    "cast": (lambda: Cast(a=rand(3)), (rand(3),), 1, 3),
    "returned": (lambda: Returned(a=rand(3)), (rand(3),), 0, 1),
    "scalar_returned": (lambda: ScalarReturned(a=rand(3)), (rand(3),), 1, 2),
    "input_swap": (InputSwap, (rand(3), rand(3, seed=1)), 1, 3),
}


def trace(module, inputs):
    """Outputs, inputs and state of some steps, each step with inputs of its own."""
    seen = []
    with torch.no_grad():
        for step in range(STEPS):
            args = [t + step for t in inputs]
            outputs = pytree.tree_leaves(module(*args))
            seen += [t.clone() for t in [*outputs, *args]]
            seen += [b.clone() for _, b in sorted(module.named_buffers())]
    return seen


def same(found, wanted):
    return len(found) == len(wanted) and all(
        a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b)
        for a, b in zip(found, wanted, strict=True)
    )


def count(graph, *ops):
    return sum(n.op == "call_function" and n.target in ops for n in graph.nodes)


@pytest.mark.parametrize("name", PROGRAMS)
def test_any_number_of_decompositions_is_right_and_grows_nothing(name):
    make, inputs, copies, moved = PROGRAMS[name]
    wanted = trace(make(), inputs)
    ep = torch.export.export(make(), tuple(t.clone() for t in inputs))
    for _ in range(4):
        ep = mutcanon.run_decompositions(ep, {})
        ep.validate()
        assert count(ep.graph, aten.copy.default) == copies
        assert mutcanon.canonicalize(ep) is ep
        assert same(trace(mutcanon.module(copy.deepcopy(ep)), inputs), wanted)
        assert same(trace(copy.deepcopy(ep).module(), inputs), wanted)
        made = mutcanon.module(copy.deepcopy(ep)).graph
        assert count(made, aten.copy.default, aten.copy_.default, aten.clone.default) == moved


def test_the_minimal_form_leaves_the_order_to_our_write_back():
    ep = torch.export.export(ShiftRegister(), (rand(3),))
    ep = mutcanon.run_decompositions(ep, {}, form="minimal")
    assert count(ep.graph, aten.copy.default) == 0
    assert same(trace(mutcanon.module(ep), (rand(3),)), trace(ShiftRegister(), (rand(3),)))


def test_a_user_output_keeps_its_own_tensor():
    ep = torch.export.export(Returned(a=rand(3)), (rand(3),)).run_decompositions({})
    module = mutcanon.module(ep)
    first, _ = module(rand(3))
    assert first.data_ptr() != module.a.data_ptr()


def test_stock_functions_are_back_afterwards():
    from torch.export import _unlift

    removal = _torch.copy_removal_site()

    def functions():
        return _unlift._insert_copy_for_mutations, getattr(removal.owner, removal.attribute)

    before = functions()
    ep = torch.export.export(Swap(**two()), (rand(3),))
    mutcanon.module(mutcanon.run_decompositions(ep, {}))
    after = functions()
    assert after == before


def test_a_replaced_stock_function_is_refused(monkeypatch):
    from torch.export import _unlift

    monkeypatch.setattr(_unlift, "_insert_copy_for_mutations", lambda *args: None)
    ep = torch.export.export(Swap(**two()), (rand(3),))
    with pytest.raises(mutcanon.errors.VersionError, match="_insert_copy_for_mutations"):
        mutcanon.module(ep)


def test_a_program_without_mutations_is_untouched():
    class Plain(nn.Module):
        def forward(self, x):
            return x + 1

    ep = torch.export.export(Plain(), (rand(3),))
    assert torch.equal(mutcanon.module(ep)(rand(3)), rand(3) + 1)
    assert torch.equal(mutcanon.run_decompositions(ep).module()(rand(3)), rand(3) + 1)
