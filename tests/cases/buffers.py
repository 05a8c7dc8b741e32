"""State in buffers and parameters."""

import torch
from torch import nn

from cases._case import case, rand

aten = torch.ops.aten


@case(
    "et7515-set-cache",
    "pytorch/executorch#7515",
    inputs=lambda s: (rand(s, 2, 3),),
    buffers=lambda: {"buf": torch.zeros(2, 3)},
)
def set_cache(self, x):
    """buffer.copy_(x) as the last write, read back in the next call."""
    old = self.buf + 0.5
    self.buf.copy_(x)
    return old


@case(
    "et7810-buffer-to-buffer",
    "pytorch/executorch#7810",
    inputs=lambda s: (rand(s, 4),),
    buffers=lambda: {"live": torch.zeros(4), "saved": torch.arange(4.0)},
    left=(1, 1, 1),
    left_minimal=(0, 0, 0),
    reasons=("placeholder_value",),
)
def restore_saved(self, x):
    """Restores a saved cache: live.copy_(saved), both buffers."""
    out = self.live + x
    self.live.copy_(self.saved)
    return out


@case(
    "et4042-half-state",
    "pytorch/executorch#4042",
    inputs=lambda s: (rand(s, 3),),
    buffers=lambda: {"state": torch.tensor([7.0, 5.0, 6.0], dtype=torch.float16)},
)
def half_state(self, x):
    """A half-precision state, mul_ then add_, with a scaled read."""
    self.state.mul_(x.to(torch.float16))
    self.state.add_(1)
    return self.state * 9


@case(
    "et5068-roll-cache",
    "pytorch/executorch#5068",
    inputs=lambda s: (rand(s, 1, 2),),
    buffers=lambda: {"cache": torch.zeros(1, 6)},
)
def roll_cache(self, x):
    """A sliding cache: buf[:] = cat(buf, x)[-n:]."""
    full = torch.cat([self.cache, x], dim=1)
    self.cache[:] = full[:, -6:]
    return full.mean(dim=1)


@case(
    "et21979-conv-state",
    "pytorch/executorch#21979",
    inputs=lambda s: (rand(s, 1, 4, 1),),
    buffers=lambda: {"conv_state": torch.zeros(1, 4, 3)},
    attributes=lambda: {"conv": nn.Conv1d(4, 4, 4)},
)
def conv_state(self, x):
    """A short convolution's state: concatenated, convolved, written one step later."""
    h = torch.cat([self.conv_state, x], dim=-1)
    self.conv_state.copy_(h[..., 1:])
    return self.conv(h)


@case(
    "et10487-add-return-buffer",
    "pytorch/executorch#10487",
    inputs=lambda s: (rand(s, 2, 5),),
    buffers=lambda: {"buf": torch.zeros(2, 5)},
)
def add_return_buffer(self, x):
    """buffer.add_(x); return buffer."""
    self.buf.add_(x)
    return self.buf


@case(
    "et6493-kv-index-put",
    "pytorch/executorch#6493",
    inputs=lambda s: (torch.tensor([s]), rand(s, 1, 1, 2)),
    buffers=lambda: {"k": torch.zeros(1, 8, 2)},
)
def kv_index_put(self, pos, v):
    """A cache in a buffer, one row written by index_put_."""
    aten.index_put_(self.k, [None, pos], v)
    return self.k + 0.0


@case(
    "et11990-nonpersistent",
    "pytorch/executorch#11990",
    inputs=lambda s: (rand(s, 3),),
    buffers=lambda: {"acc": torch.zeros(3)},
    transient=("acc",),
)
def nonpersistent(self, x):
    """A mutated buffer that is not in the state_dict."""
    self.acc.copy_(self.acc + x)
    return self.acc * 2


@case(
    "et19980-bn-tracked",
    "pytorch/executorch#19980",
    inputs=lambda s: (rand(s, 4, 3),),
    attributes=lambda: {"bn": nn.BatchNorm1d(3)},
    train=True,
)
def batch_norm_tracked(self, x):
    """BatchNorm in training mode: running statistics and an integer counter."""
    return self.bn(x)


@case(
    "et19980-bn-user-counter",
    "pytorch/executorch#19980",
    inputs=lambda s: (rand(s, 3),),
    buffers=lambda: {"n": torch.zeros((), dtype=torch.int64), "mean": torch.zeros(3)},
)
def counter_and_mean(self, x):
    """A 0-dim integer counter next to a float state."""
    self.n += 1
    self.mean.lerp_(x, 0.1)
    return self.mean * 1.0, self.n + 0


@case(
    "coreml2272-overwrite-state",
    "apple/coremltools#2272",
    inputs=lambda s: (rand(s, 5),),
    buffers=lambda: {"state": torch.ones(5)},
)
def overwrite_state(self, x):
    """The whole state overwritten by an expression: state.copy_(state * 2 + x)."""
    self.state.copy_(self.state * 2 + x)
    return x - 1


@case(
    "coreml1726-read-then-write",
    "apple/coremltools#1726",
    inputs=lambda s: (rand(s, 4),),
    buffers=lambda: {"a": torch.ones(4)},
    transient=("a",),
)
def read_then_write(self, x):
    """The output uses the old buffer, then the buffer is adapted."""
    out = x * self.a
    self.a.mul_(0.9).add_(0.1 * x)
    return out


@case(
    "trt4459-ring-roll",
    "pytorch/TensorRT#4459",
    inputs=lambda s: (rand(s, 2, 1),),
    buffers=lambda: {"st": torch.arange(8.0).reshape(2, 4)},
)
def ring_roll(self, x):
    """A recurrent state rolled as a ring."""
    st = torch.roll(self.st, -1, dims=1)
    st = torch.cat([st[:, :-1], x], dim=1)
    self.st.copy_(st)
    return st.sum(1)


@case(
    "pt120424-mul-then-add",
    "pytorch/pytorch#120424",
    inputs=lambda s: (rand(s, 6),),
    buffers=lambda: {"buf": torch.arange(6.0) * 2},
)
def mul_then_add(self, x):
    """buf.mul_(2); return x + buf."""
    self.buf.mul_(2)
    return x + self.buf


@case(
    "pt166572-buffer-two-names",
    "pytorch/pytorch#166572",
    inputs=lambda s: (rand(s, 3),),
    buffers=lambda: {"p": (p := torch.zeros(3)), "q": p},
    stops=1,
)
def buffer_two_names(self, x):
    """One buffer registered under two names, both written."""
    self.p.add_(x)
    self.q.mul_(2)
    return self.p + 0


@case(
    "et17005-step",
    "pytorch/executorch#17005",
    inputs=lambda s: (rand(s, 1),),
    buffers=lambda: {"state": torch.zeros(2, 2)},
)
def add_return_view(self, x):
    """A step that returns a scaled view of the state that it just advanced."""
    return self.state.add_(x).view(-1) * 2


@case(
    "et17005-set-state",
    "pytorch/executorch#17005",
    inputs=lambda s: (rand(s, 2, 2),),
    buffers=lambda: {"state": torch.zeros(2, 2)},
)
def set_and_read(self, s):
    """A setter that returns what it has just set."""
    self.state.copy_(s)
    return self.state + 0


@case(
    "adv-parameter-decay",
    inputs=lambda s: (rand(s, 3),),
    attributes=lambda: {"w": nn.Parameter(torch.ones(3), requires_grad=False)},
)
def parameter_decay(self, x):
    """A parameter is mutated in forward."""
    self.w.mul_(0.5)
    return self.w + x


@case(
    "adv-parameter-set",
    inputs=lambda s: (rand(s, 3),),
    attributes=lambda: {"w": nn.Parameter(torch.ones(3), requires_grad=False)},
)
def parameter_set(self, x):
    """A parameter becomes a value that is computed from it."""
    old = self.w * 3
    self.w.copy_(old + x)
    return old
