"""Mutations that read one another's targets: swaps, rotations, delay lines, shared values."""

import torch

from cases._case import case, rand


def _two(step):
    return rand(step, 3), rand(step, 3, salt=1)


def _two_and_row(step):
    return rand(step, 4), rand(step, 4, salt=1), torch.tensor([step]), rand(step, 1)


@case(
    "adv-swap-inputs",
    inputs=_two,
    left=(1, 1, 1),
    left_minimal=(0, 0, 0),
    reasons=("placeholder_value",),
)
def swap_inputs(a, b):
    """Swaps two inputs."""
    t = a.clone()
    a.copy_(b)
    b.copy_(t)
    return a - b


@case(
    "adv-swap-buffers",
    inputs=lambda s: (rand(s, 3),),
    buffers=lambda: {"a": torch.arange(3.0), "b": torch.arange(3.0) + 10},
    left=(1, 1, 1),
    left_minimal=(0, 0, 0),
    reasons=("placeholder_value",),
)
def swap_buffers(self, x):
    """Swaps two buffers, and reads one."""
    t = self.a.clone()
    self.a.copy_(self.b)
    self.b.copy_(t)
    return self.a + x


@case(
    "adv-swap-buffers-read-old",
    inputs=lambda s: (rand(s, 3),),
    buffers=lambda: {"b": torch.arange(3.0) + 10, "a": torch.arange(3.0)},
    left=(1, 1, 1),
    left_minimal=(0, 0, 0),
    reasons=("placeholder_value",),
)
def swap_buffers_read_old(self, x):
    """Swaps two buffers, and returns a mix of the old state."""
    mix = self.a * 2 + self.b + x
    t = self.b.clone()
    self.b.copy_(self.a)
    self.a.copy_(t)
    return mix


@case(
    "adv-rotate3-inputs",
    inputs=lambda s: (rand(s, 3), rand(s, 3, salt=1), rand(s, 3, salt=2)),
    left=(2, 2, 2),
    left_minimal=(0, 0, 0),
    reasons=("placeholder_value",),
)
def rotate_inputs(a, b, c):
    """Rotates three inputs, a <- b <- c <- a."""
    t = a.clone()
    a.copy_(b)
    b.copy_(c)
    c.copy_(t)
    return a + 2 * b + 3 * c


@case(
    "adv-delay-line-buffers",
    inputs=lambda s: (rand(s, 3),),
    buffers=lambda: {"a": torch.zeros(3), "b": torch.ones(3)},
    stops=2,
    left=(1, 1, 1),
    left_minimal=(0, 0, 0),
    reasons=("placeholder_value",),
)
def delay_line(self, x):
    """A delay line of two buffers: b <- a <- x, a registered first."""
    old = self.b * 2 + self.a
    self.b.copy_(self.a)
    self.a.copy_(x)
    return old


@case(
    "adv-shift-register",
    inputs=lambda s: (rand(s, 3),),
    buffers=lambda: {"a": torch.zeros(3), "b": torch.ones(3), "c": torch.full((3,), 2.0)},
    stops=2,
    left=(2, 2, 2),
    left_minimal=(0, 0, 0),
    reasons=("placeholder_value",),
)
def shift_register(self, x):
    """A shift register of three buffers: c <- b <- a <- x."""
    self.c.copy_(self.b)
    self.b.copy_(self.a)
    self.a.copy_(x)
    return self.c + 0


@case(
    "adv-delay-line-inputs",
    inputs=lambda s: (rand(s, 3), rand(s, 3, salt=1), rand(s, 3, salt=2)),
    left=(1, 1, 1),
    left_minimal=(0, 0, 0),
    reasons=("placeholder_value",),
)
def delay_line_inputs(a, b, x):
    """A delay line of two inputs, the target that is read first comes first."""
    b.copy_(a)
    a.copy_(x * 2)
    return a - b


@case(
    "adv-swap-then-row",
    inputs=_two_and_row,
    left=(1, 1, 1),
    left_minimal=(0, 0, 0),
    reasons=("placeholder_value",),
)
def swap_then_row(a, b, pos, v):
    """Swaps two caches, then writes a row of one."""
    t = a.clone()
    a.copy_(b)
    b.copy_(t)
    b.index_put_([pos], v)
    return a - b


@case(
    "adv-old-cache-kept",
    inputs=_two_and_row,
    left=(1, 1, 1),
    left_minimal=(0, 0, 0),
    reasons=("placeholder_value",),
)
def old_cache_kept(a, b, pos, v):
    """The old cache goes into another input, then the cache gets a row."""
    b.copy_(a)
    a.index_put_([pos], v)
    return a - b


@case("adv-two-updates-of-one-cache", inputs=_two_and_row)
def two_updates_of_one_cache(a, b, pos, v):
    """Two updates of the same old cache go into two inputs."""
    new_a = a.index_put([pos], v)
    new_b = a.index_put([pos + 1], v)
    a.copy_(new_a)
    b.copy_(new_b)
    return a + b


@case(
    "adv-copy-input-to-input",
    inputs=lambda s: (torch.zeros(3), rand(s, 3)),
    left=(1, 1, 1),
    left_minimal=(0, 0, 0),
    reasons=("placeholder_value",),
)
def copy_input_to_input(a, b):
    """a.copy_(b), b is not mutated."""
    a.copy_(b)
    return b * 2


@case(
    "adv-return-untouched-input",
    inputs=_two,
    left=(1, 1, 1),
    left_minimal=(0, 0, 0),
    reasons=("placeholder_value",),
)
def return_untouched_input(a, b):
    """b is returned as it is, and a is overwritten by b."""
    a.copy_(b)
    return b


@case(
    "pt198132-src-changed-later",
    "pytorch/pytorch#198132",
    inputs=lambda s: (torch.zeros(3, 2), rand(s, 3, 2)),
)
def source_changed_later(dst, src):
    """dst[0:] = src[0:]; src.add_(1): dst gets the old source."""
    dst[0:, :] = src[0:, :]
    src.add_(1)
    return dst + src


@case(
    "adv-copy-input-to-buffer-return",
    inputs=lambda s: (rand(s, 3),),
    buffers=lambda: {"buf": torch.zeros(3)},
)
def value_is_also_returned(self, x):
    """buf.copy_(y); return y: one node is a mutation's value and a user output."""
    y = x + self.buf
    self.buf.copy_(y)
    return y


@case(
    "adv-same-value-two-inputs",
    inputs=lambda s: (torch.zeros(3), torch.zeros(3), rand(s, 3)),
    left=(2, 2, 2),
    left_minimal=(1, 1, 1),
    reasons=("value_and_output",),
)
def same_value_two_inputs(a, b, x):
    """One value goes to two inputs and is returned."""
    v = x * 2
    a.copy_(v)
    b.copy_(v)
    return v


@case(
    "adv-same-value-two-buffers",
    inputs=lambda s: (rand(s, 3),),
    buffers=lambda: {"a": torch.zeros(3), "b": torch.ones(3)},
    stops=1,
)
def same_value_two_buffers(self, x):
    """One value goes to two buffers, and the old state is returned."""
    old = self.a - self.b
    v = x * 2
    self.a.copy_(v)
    self.b.copy_(v)
    return old


@case(
    "pt166572-same-tensor-twice",
    "pytorch/pytorch#166572",
    inputs=lambda s: (c := torch.zeros(3), c, rand(s, 3)),
    stops=1,
)
def same_tensor_twice(c1, c2, x):
    """One cache object is passed for two layers."""
    c1.add_(x)
    c2.mul_(2)
    return c1 + c2


@case(
    "adv-aliased-caller-inputs", inputs=lambda s: (a := torch.zeros(3), a[1:], rand(s, 2)), stops=1
)
def aliased_inputs(a, b, x):
    """The caller passes a tensor and a view of it."""
    b.add_(x)
    return a * 2


@case("adv-return-old-through-copy", inputs=_two, left=(1, 1, 1), reasons=("user_output",))
def return_old_through_copy(a, b):
    """b.copy_(a); a.add_(1); return b: the output is the old value of a mutated input."""
    b.copy_(a)
    a.add_(1)
    return b


@case(
    "adv-value-returned",
    inputs=lambda s: (torch.zeros(3), rand(s, 3)),
    left=(1, 1, 1),
    left_minimal=(0, 0, 0),
    reasons=("value_and_output",),
)
def value_returned(a, x):
    """a.copy_(y); return y: the output is not the target's tensor."""
    y = x * 2
    a.copy_(y)
    return y


@case(
    "adv-copy-of-copy",
    inputs=lambda s: (torch.zeros(3), torch.ones(3), rand(s, 3)),
    left=(1, 1, 1),
    reasons=("shared_value",),
)
def copy_of_copy(a, b, x):
    """b.copy_(y); a.copy_(b): a chain of copies with links to other destinations."""
    b.copy_(x * 2)
    a.copy_(b)
    return a + b


@case(
    "adv-swap-without-clone",
    inputs=_two,
    left=(2, 2, 2),
    left_minimal=(0, 0, 0),
    reasons=("placeholder_value",),
)
def swap_without_clone(a, b):
    """Swaps two inputs through a temporary that is written by copy_."""
    t = torch.empty(3)
    t.copy_(a)
    a.copy_(b)
    b.copy_(t)
    return a - b


@case(
    "adv-delay-line-of-views-inputs",
    inputs=lambda s: (rand(s, 3), rand(s, 3, salt=1), rand(s, 3, salt=2)),
    left=(1, 1, 1),
    left_minimal=(0, 0, 0),
    reasons=("snapshot",),
)
def delay_line_of_views_inputs(a, b, x):
    """b takes a view of a, which is written back before b is."""
    b[0:] = a[0:]
    a.copy_(x * 2)
    return a - b


@case(
    "adv-delay-line-of-views-buffers",
    inputs=lambda s: (rand(s, 3),),
    buffers=lambda: {"a": torch.zeros(3), "b": torch.ones(3)},
    lost=dict.fromkeys((2, 3), "the order of the write-backs"),
)
def delay_line_of_views_buffers(self, x):
    """The same with buffers, whose order nobody sees."""
    old = self.a * 2 + self.b
    self.b[0:] = self.a[0:]
    self.a.copy_(x * 2)
    return old


@case("adv-view-of-input-to-input", inputs=lambda s: (torch.zeros(3, 2), rand(s, 6)))
def view_of_input_to_input(a, x):
    """a takes a view of an input that is not mutated."""
    a.copy_(x.view(3, 2))
    return a + 1


@case(
    "adv-view-of-itself",
    inputs=lambda s: (rand(s, 2, 3),),
    left=(1, 1, 1),
    left_minimal=(0, 0, 0),
    reasons=("overlap",),
)
def view_of_itself(a):
    """a takes another view of itself."""
    a.copy_(a.view(6).view(2, 3))
    return a + 1


@case(
    "adv-two-outputs-one-value",
    inputs=lambda s: (rand(s, 3),),
    left=(1, 1, 1),
    reasons=("output_alias",),
)
def two_outputs_one_value(x):
    """A copy keeps two outputs apart; nothing is mutated."""
    y = x * 2
    t = torch.empty(3)
    t.copy_(y)
    return y, t
