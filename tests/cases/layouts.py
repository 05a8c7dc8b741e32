"""Copies that change a type: casts, broadcasts, strides, and layouts that only look different."""

import torch
from torch.export import Dim

from cases._case import case, rand


@case(
    "et9930-channels-last-cache",
    "pytorch/executorch#9930",
    inputs=lambda s: (
        rand(s, 1, 3, 4, 4).to(memory_format=torch.channels_last),
        rand(s, 1, 3, 1, 1),
    ),
)
def channels_last(a, x):
    """A channels_last input mutated elementwise."""
    a.mul_(x)
    return a + 1


@case(
    "et11086-transposed-source",
    "pytorch/executorch#11086",
    inputs=lambda s: (torch.zeros(3, 4), rand(s, 4, 3)),
    left=(1, 1, 1),
    reasons=("strides",),
)
def transposed_source(a, x):
    """cache.copy_(x.t()): the source has other strides than the target."""
    a.copy_(x.t())
    return a.sum(0)


@case(
    "adv-transposed-source-buffer",
    inputs=lambda s: (rand(s, 3, 2),),
    buffers=lambda: {"a": torch.zeros(2, 3)},
    stops=2,
    lost={1: "strides: the program does not run"},
)
def transposed_source_viewed(self, x):
    """a.copy_(x.t()), then a reader that views a."""
    self.a.copy_(x.t())
    return self.a.view(6) * 1


@case(
    "adv-expand-copy",
    inputs=lambda s: (torch.zeros(4, 3), rand(s, 3)),
    left=(1, 1, 1),
    reasons=("broadcast",),
)
def expand_input(a, r):
    """a[4, 3].copy_(row[3]) broadcasts."""
    a.copy_(r)
    return a.sum(0)


@case(
    "adv-expand-copy-buffer",
    inputs=lambda s: (rand(s, 3),),
    buffers=lambda: {"buf": torch.zeros(4, 3)},
)
def expand_buffer(self, r):
    """buf[4, 3].copy_(row + 1) broadcasts into a buffer that only the old state is read of."""
    old = self.buf.sum(0)
    self.buf.copy_(r + 1)
    return old


@case(
    "adv-expand-buffer-read",
    inputs=lambda s: (rand(s, 2, 3),),
    buffers=lambda: {"c": torch.zeros(2, 3)},
    lost=dict.fromkeys((1, 2, 3), "broadcast"),
)
def expand_buffer_read(self, x):
    """c.copy_(x[0]) broadcasts, and the new state is read."""
    self.c.copy_(x[0])
    return self.c * 1


@case(
    "adv-expand-buffer-sum",
    inputs=lambda s: (rand(s, 2, 3),),
    buffers=lambda: {"c": torch.zeros(2, 3)},
    lost=dict.fromkeys((1, 2, 3), "broadcast"),
)
def expand_buffer_sum(self, x):
    """c.copy_(x[0]) broadcasts, and the new state is summed."""
    self.c.copy_(x[0])
    return self.c.sum()


@case(
    "adv-expand-scalar-buffer-return",
    inputs=lambda s: (rand(s, 3),),
    buffers=lambda: {"buf": torch.zeros(3)},
    left=(1, 1, 1),
    left_minimal=(0, 0, 0),
    reasons=("value_and_output",),
)
def expand_scalar_and_return_it(self, x):
    """buf[3].copy_(y) of a 0-dim y, and y is returned with its own shape."""
    y = (x + self.buf).sum()
    self.buf.copy_(y)
    return y


@case(
    "adv-half-to-float",
    inputs=lambda s: (torch.zeros(3), rand(s, 3).half()),
    left=(1, 1, 1),
    reasons=("cast",),
)
def half_to_float(a, x):
    """A float32 input takes a float16 one."""
    a.copy_(x)
    return a + 1


@case(
    "adv-float-to-half-input-return",
    inputs=lambda s: (torch.zeros(3).half(), rand(s, 3)),
    left=(1, 1, 1),
    reasons=("cast",),
)
def float_to_half_and_return_it(a, x):
    """A float16 input takes a float32 value that is returned too."""
    y = x * 1.0001 + 1
    a.copy_(y)
    return y


@case(
    "adv-double-to-float-buffer",
    inputs=lambda s: (rand(s, 3),),
    buffers=lambda: {"c": torch.zeros(3)},
    lost=dict.fromkeys((1, 2, 3), "cast"),
)
def double_to_float_buffer(self, x):
    """A float32 buffer takes a float64 value, and its clone is returned."""
    self.c.copy_(x.double() * 1.1)
    return self.c.clone()


@case(
    "adv-float-to-half-buffer",
    inputs=lambda s: (rand(s, 3),),
    buffers=lambda: {"c": torch.zeros(3, dtype=torch.float16)},
    stops=2,
    lost={1: "cast: the program does not run"},
)
def float_to_half_buffer(self, x):
    """A float16 buffer takes a float32 value, and the rounding is read."""
    self.c.copy_(x * 1.001)
    return self.c.float() - x


@case(
    "adv-int-to-float",
    inputs=lambda s: (torch.zeros(3), rand(s, 3, dtype=torch.int64)),
    left=(1, 1, 1),
    reasons=("cast",),
)
def int_to_float(a, x):
    """A float32 input takes an int64 one."""
    a.copy_(x)
    return a / 2


@case(
    "adv-float-to-int-truncates",
    inputs=lambda s: (torch.zeros(3, dtype=torch.int32), rand(s, 3) * 5),
    left=(1, 1, 1),
    reasons=("cast",),
)
def float_to_int(a, x):
    """An int32 input takes a float32 one, truncated."""
    a.copy_(x)
    return a + 1


@case(
    "adv-two-casts",
    inputs=lambda s: (torch.zeros(3).half(), torch.zeros(3), rand(s, 3)),
    left=(2, 2, 2),
    reasons=("cast",),
)
def two_casts(h, f, x):
    """float32 to float16 to float32 rounds."""
    h.copy_(x)
    f.copy_(h)
    return f - x


@case("adv-transposed-input", inputs=lambda s: (rand(s, 4, 3).t(), rand(s, 3, 4)))
def transposed_input(a, x):
    """The input is a transposed view, and mutated."""
    a.add_(x)
    return a * 2


@case(
    "adv-strided-buffer-viewed",
    inputs=lambda s: (rand(s, 2, 3),),
    buffers=lambda: {"c": torch.zeros(3, 2).t()},
    lost=dict.fromkeys((1, 2, 3), "strides"),
)
def strided_buffer_viewed(self, x):
    """A buffer with transposed strides, read through as_strided."""
    self.c.copy_(x)
    return self.c.as_strided((6,), (1,))


@case(
    "adv-slice-only",
    inputs=lambda s: (rand(s, 4, 4), rand(s, 2, 2)),
    left=(1, 1, 1),
    reasons=("strides",),
)
def slice_only(a, x):
    """Only a[1:3, ::2] is written."""
    a[1:3, ::2] = x
    return a.sum()


@case("adv-interior-select", inputs=lambda s: (rand(s, 4, 3), rand(s, 3)))
def interior_select(a, x):
    """One row is written through select: the copy under the scatter is interior."""
    a[1] = x * 2
    return a.sum(0)


@case("adv-zero-size", inputs=lambda s: (torch.zeros(0, 3), rand(s, 3)))
def zero_size(a, x):
    """An empty input mutated."""
    a.add_(x)
    return a.sum(0) + x


@case(
    "adv-size1-odd-strides",
    inputs=lambda s: (torch.empty_strided((3, 1), (1, 7)).copy_(rand(s, 3, 1)), rand(s, 3, 1)),
)
def size_one_stride(a, x):
    """A dimension of size 1 with a stride that means nothing."""
    a.add_(x)
    return a * 2


_BATCH = {0: Dim("b", min=1, max=8)}


@case(
    "adv-dynamic-batch",
    dynamic_shapes=(_BATCH, _BATCH),
    inputs=lambda s: (rand(s, 2 + s % 2, 3), rand(s, 2 + s % 2, 3, salt=1)),
)
def dynamic_batch(a, x):
    """A dynamic batch, and the mutated input changes size between calls."""
    a.add_(x)
    return a * 2


_SEQUENCE = Dim("s", min=1, max=8)


def _prefill(step):
    n, start = (3, 0) if step == 0 else (1, 2 + step)
    return torch.zeros(1, 16, 2), rand(step, 1, n, 2), torch.arange(start, start + n)


@case("adv-dynamic-seq", dynamic_shapes=({}, {1: _SEQUENCE}, {0: _SEQUENCE}), inputs=_prefill)
def dynamic_sequence(k, x, pos):
    """A prompt of dynamic length is written at a dynamic start."""
    k.index_copy_(1, pos, x)
    return k.sum(1)


@case(
    "adv-symint-input",
    dynamic_shapes=({}, {}, Dim.DYNAMIC),
    inputs=lambda s: (torch.zeros(1, 8, 2), rand(s, 1, 1, 2), s + 2),
)
def symint_input(k, x, p):
    """A start position as a symbolic integer: k[:, p:p+1] = x."""
    torch._check(p >= 0)
    torch._check(p < 8)
    k.narrow(1, p, 1).copy_(x)
    return k.sum(1)
