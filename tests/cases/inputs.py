"""State that the caller owns: mutated user inputs."""

import torch
from torch import nn

from cases._case import case, rand

aten = torch.ops.aten


@case(
    "et4850-input-kv", "pytorch/executorch#4850", inputs=lambda s: (rand(s, 3), rand(s, 3, salt=1))
)
def add_to_input(a, x):
    """A caller-owned state passed as an input, a.add_(x)."""
    a.add_(x)
    return a * 2


@case(
    "pt138293-copy-return-dst",
    "pytorch/pytorch#138293",
    inputs=lambda s: (rand(s, 4), rand(s, 4, salt=1)),
    left=(1, 1, 1),
    reasons=("user_output",),
)
def copy_return(dst, src):
    """dst.copy_(src); return dst: the copies pile up with each decomposition."""
    dst.copy_(src)
    return dst


def _cache_row(step):
    return torch.zeros(1, 5, 4), rand(step, 1, 1, 4), torch.tensor([step])


@case("adv-params-require-grad", inputs=_cache_row, attributes=lambda: {"lin": nn.Linear(4, 4)})
def cache_and_trainable_linear(self, cache, x, pos):
    """Parameters require grad, and a projected value goes into a cache input."""
    cache.index_copy_(1, pos, self.lin(x))
    return self.lin(cache.sum(1))


@case(
    "et8781-linear-cache",
    "pytorch/executorch#8781",
    inputs=_cache_row,
    attributes=lambda: {"lin": nn.Linear(4, 4).requires_grad_(False)},
)
def cache_and_linear(self, cache, x, pos):
    """A linear layer and a cache input written by index_copy_."""
    cache.index_copy_(1, pos, self.lin(x))
    return self.lin(cache.sum(1))


@case(
    "et12003-kv-input",
    "pytorch/executorch#12003",
    inputs=lambda s: (torch.zeros(1, 6, 2), torch.tensor([s]), rand(s, 1, 1, 2)),
)
def kv_input(k, pos, v):
    """A cache as an input, one row written by index_put_."""
    aten.index_put_(k, [None, pos], v)
    return k.sum(1)


@case(
    "et19482-mixed-inputs",
    "pytorch/executorch#19482",
    inputs=lambda s: (rand(s, 4), rand(s, 4, salt=1), torch.tensor([s]), rand(s, 1)),
)
def mixed_inputs(a, b, pos, v):
    """One mutated input could be updated in place, another is written back."""
    a.index_put_([pos], v)
    b.mul_(2)
    return a + b


@case(
    "et19482-mixed-inputs-rev",
    "pytorch/executorch#19482",
    inputs=lambda s: (rand(s, 4), rand(s, 4, salt=1), torch.tensor([s]), rand(s, 1)),
)
def mixed_inputs_reversed(b, a, pos, v):
    """The same with the written-back input first."""
    b.mul_(2)
    a.index_put_([pos], v)
    return a + b


@case(
    "et19482-mixed-buffers",
    "pytorch/executorch#19482",
    inputs=lambda s: (torch.tensor([s]), rand(s, 1)),
    buffers=lambda: {"a": torch.zeros(4), "b": torch.ones(4)},
)
def mixed_buffers(self, pos, v):
    """The same with buffers, and a user output."""
    self.a.index_put_([pos], v)
    self.b.mul_(2)
    return self.a + self.b


@case(
    "pt115106-bn-user-stats",
    "pytorch/pytorch#115106",
    inputs=lambda s: (rand(s, 5, 4), torch.zeros(4), torch.ones(4)),
)
def batch_norm_user_statistics(x, mean, var):
    """Batch norm's running statistics are inputs, and mutated."""
    return torch.nn.functional.batch_norm(x, mean, var, None, None, True, 0.5, 0.6)


@case("pt112429-view-add", "pytorch/pytorch#112429", inputs=lambda s: (rand(s, 12),))
def view_add(x):
    """x.view(...).add_(2); return x."""
    x.view(3, 2, -1).add_(2.0)
    return x


@case("pt112429-empty-slice-write", "pytorch/pytorch#112429", inputs=lambda s: (rand(s, 2, 5),))
def empty_slice_write(x):
    """x[:, n:] = 0 where the slice is empty; return x."""
    x[:, x.size(1) :] = 0
    return x


@case(
    "pt147213-dict-cache",
    "pytorch/pytorch#147213",
    inputs=lambda s: (rand(s, 3), {"k": torch.zeros(3), "v": torch.ones(3)}, 0),
)
def dict_cache(x, c, n):
    """A dict of caches is an input, and the tensors inside are mutated."""
    c["k"].add_(x)
    c["v"].mul_(x)
    return {"o": c["k"] + c["v"], "n": n}


@case(
    "tf39931-static-cache-pytree",
    "huggingface/transformers#39931",
    inputs=lambda s: (
        (rand(s, 1, 1, 2),),
        {
            "past": [(torch.zeros(1, 5, 2), torch.zeros(1, 5, 2)) for _ in range(2)],
            "pos": torch.tensor([s]),
        },
    ),
)
def static_cache_pytree(x, past, pos):
    """A list of (k, v) caches plus positions by keyword, written by index_copy_."""
    for i, (k, v) in enumerate(past):
        k.index_copy_(1, pos, x + i)
        v.index_copy_(1, pos, x * (i + 2))
        x = x + (k * v).sum(1, keepdim=True)
    return x


@case(
    "pt143379-noise", "pytorch/pytorch#143379", inputs=lambda s: (rand(s, 3).abs(), torch.zeros(3))
)
def noise(x, noise):
    """An op that overwrites its noise input (values below zero alone draw from the generator)."""
    return aten.rrelu_with_noise(x, noise, 0.4, 0.6, True).mean()


@case("adv-returns-old", inputs=lambda s: (rand(s, 4), torch.tensor([s]), rand(s, 1)))
def returns_old_cache(a, pos, v):
    """Returns a clone of the old cache, then writes a row."""
    old = a.clone()
    a.index_put_([pos], v)
    return old, a + 0


@case("adv-returns-old-clone", inputs=lambda s: (rand(s, 3), rand(s, 3, salt=1)))
def returns_old_clone(a, x):
    """old = a.clone(); a.add_(x); return old."""
    old = a.clone()
    a.add_(x)
    return old


@case("adv-return-mutated-input", inputs=lambda s: (rand(s, 3),))
def return_mutated_twice(a):
    """a.add_(1); return a, a."""
    a.add_(1)
    return a, a


@case("adv-mutated-twice", inputs=lambda s: (rand(s, 3), rand(s, 3, salt=1)))
def mutated_twice(a, x):
    """a.add_(x), then a.mul_(2), and both results are read."""
    a.add_(x)
    middle = a + 0
    a.mul_(2)
    return middle, a + 0


@case("adv-unused-mutated", inputs=lambda s: (rand(s, 3), rand(s, 3, salt=1)))
def overwritten_only(a, x):
    """a is only overwritten: never read, not returned."""
    a.fill_(7)
    return x * 2


@case(
    "adv-zero-then-copy",
    inputs=lambda s: (rand(s, 3), rand(s, 3, salt=1)),
    left=(1, 1, 1),
    left_minimal=(0, 0, 0),
    reasons=("placeholder_value",),
)
def dead_first_write(a, x):
    """a.zero_(); a.copy_(x): the first write is dead."""
    a.zero_()
    a.copy_(x)
    return a + 1


@case("adv-self-copy", inputs=lambda s: (rand(s, 3),))
def self_copy(a):
    """a.copy_(a): a mutation that changes nothing."""
    a.copy_(a)
    return a + 1


@case(
    "adv-bool-input",
    inputs=lambda s: (rand(s, 4, dtype=torch.bool), rand(s, 4, dtype=torch.bool, salt=1)),
)
def bool_input(m, x):
    """A bool mask mutated by logical_or_."""
    m.logical_or_(x)
    return m & x


@case(
    "adv-int-input",
    inputs=lambda s: (rand(s, 4, dtype=torch.int32), rand(s, 4, dtype=torch.int32, salt=1)),
)
def int_input(a, x):
    """int32 counters mutated."""
    a.add_(x)
    return a * 2


@case("adv-complex-input", inputs=lambda s: (torch.complex(rand(s, 3), rand(s, 3, salt=1)),))
def complex_input(a):
    """A complex input mutated, without conjugation."""
    a.mul_(2)
    return torch.view_as_real(a).sum(-1)


@case(
    "adv-bf16-input",
    inputs=lambda s: (rand(s, 4, dtype=torch.bfloat16), rand(s, 4, dtype=torch.bfloat16, salt=1)),
)
def bf16_input(a, x):
    """A bfloat16 input mutated."""
    a.add_(x)
    return a * 2


@case(
    "adv-kwargs-order", inputs=lambda s: ((rand(s, 3),), {"b": torch.zeros(3), "a": torch.ones(3)})
)
def keyword_order(x, *, a, b):
    """Keywords come in another order than in the signature."""
    a.add_(x)
    b.sub_(x)
    return a * b


def _many_caches(step):
    return rand(step, 4), *(torch.zeros(4) for _ in range(25))


@case("adv-many-decomps-growth", inputs=_many_caches)
def many_caches(x, *caches):
    """25 layers of caches as inputs."""
    for c in caches:
        c.add_(x)
        x = x + c * 0.1
    return x


def _row(step):
    return torch.arange(8.0).reshape(4, 2), torch.tensor([step]), rand(step, 1, 2)


@case("adv-kv-row-then-scale", inputs=_row)
def row_then_scale(k, pos, v):
    """A row written by index_put_, then the cache scaled."""
    k.index_put_([pos], v)
    return k * 2


@case("adv-kv-row-then-view", inputs=_row)
def row_then_view(k, pos, v):
    """A row written by index_put_, then a view of the cache read."""
    k.index_put_([pos], v)
    return k.view(-1) * 2


@case("adv-kv-row-then-transpose", inputs=_row)
def row_then_transpose(k, pos, v):
    """A row written by index_put_, then the transposed cache read."""
    k.index_put_([pos], v)
    return k.t() + 0


# Operators of our own that mutate an argument.

_library = torch.library.Library("mutcases", "DEF")
_library.define("fill_row_(Tensor(a!) cache, Tensor v, int i) -> ()")


@torch.library.impl(_library, "fill_row_", "CompositeExplicitAutograd")
def _fill_row_(cache, v, i):
    cache[i] = v


@torch.library.register_fake("mutcases::fill_row_", lib=_library)
def _fill_row_fake(cache, v, i):
    return None


@case(
    "pt138221-custom-op-input",
    "pytorch/pytorch#138221",
    inputs=lambda s: (torch.zeros(4, 2), rand(s, 2)),
)
def custom_op_input(c, v):
    """A custom op with a mutable argument, on a user input."""
    torch.ops.mutcases.fill_row_(c, v, 1)
    return c * 2


@case(
    "pt138221-custom-op-view",
    "pytorch/pytorch#138221",
    inputs=lambda s: (torch.ones(2, 4, 2), rand(s, 2)),
)
def custom_op_view(c, v):
    """A custom op that mutates a slice of a user input."""
    torch.ops.mutcases.fill_row_(c[1], v, 2)
    return c * 2


@case(
    "et3788-custom-op-buffer",
    "pytorch/executorch#3788",
    inputs=lambda s: (rand(s, 2),),
    buffers=lambda: {"c": torch.zeros(4, 2)},
)
def custom_op_buffer(self, v):
    """A custom op that mutates a buffer."""
    torch.ops.mutcases.fill_row_(self.c, v, 1)
    return self.c * 2
