"""Mutation around and inside of control flow, and what export refuses."""

import torch

from cases._case import case, rand


@case(
    "et21490-cond-state",
    "pytorch/executorch#21490",
    inputs=lambda s: (rand(s, 2),),
    buffers=lambda: {"state": torch.full((1,), 3.0)},
)
def two_conds_and_state(self, d):
    """The results of two conds live together, and one becomes the state."""
    v = d[:1]
    st = self.state + 0
    r1 = torch.cond(v.sum() >= 0, lambda v, s: v * 2, lambda v, s: s + 1, [v, st])
    r2 = torch.cond(v.sum() >= 0, lambda v, r: r - v, lambda v, r: r + v, [v, r1])
    self.state.copy_(r2)
    return r1, r2


@case(
    "pt169118-cond-order",
    "pytorch/pytorch#169118",
    inputs=lambda s: (rand(s, 1),),
    buffers=lambda: {"flag": torch.tensor([False])},
    transient=("flag",),
)
def cond_reads_flag_then_sets_it(self, x):
    """A flag is read by a cond and then set."""
    out = torch.cond(self.flag, lambda x: x + 1.0, lambda x: x + 0.0, (x,))
    self.flag.fill_(True)
    return out


@case("adv-while-loop-cache", inputs=lambda s: (torch.zeros(4), torch.tensor(2)))
def while_loop_cache(c, n):
    """A cache input is updated by what a while_loop carries."""
    carried = (n.clone(), c.clone())
    _, new = torch.while_loop(lambda i, c: i > 0, lambda i, c: (i - 1, c + 1.0), carried)
    c.copy_(new)
    return c * 2


@case(
    "adv-cond-branch-mutates",
    inputs=lambda s: (torch.zeros(3), rand(s, 3)),
    stops=1,
    since="2.12",
)
def cond_branch_mutates(c, x):
    """A cache is mutated inside a branch."""

    def write(c, x):
        c.add_(x)
        return x * 2

    return torch.cond(x.sum() > 0, write, lambda c, x: x - 1, [c, x])


@case("adv-cond-branch-writes-row", inputs=lambda s: (rand(s, 3, 2), rand(s, 2)))
def cond_branch_writes_row(c, x):
    """A branch updates a copy of the cache by rows: the copy under its scatter is interior."""

    def write(c, x):
        new = c.clone()
        new[1] = x * 2
        return new

    c.copy_(torch.cond(x.sum() > 0, write, lambda c, x: c - 1, (c, x)))
    return c.sum(0)


@case(
    "adv-cond-two-operands",
    inputs=lambda s: (rand(s, 3), rand(s, 3, salt=1), rand(s, 1)),
    left=(1, 1, 1),
    reasons=("subgraph_boundary",),
)
def cond_two_operands(a, b, x):
    """Two operands of a cond hold one value: the copy keeps their storage apart."""
    b.copy_(a)
    return torch.cond(x.sum() > 0, lambda a, b: a + b, lambda a, b: a * b, (a, b))


@case(
    "adv-cond-branch-returns-copy",
    inputs=lambda s: (rand(s, 3), rand(s, 1)),
    left=(1, 1, 1),
    reasons=("subgraph_boundary",),
)
def cond_branch_returns_copy(a, x):
    """A branch returns a copy of its operand: the copy keeps output and input apart."""

    def same(a):
        new = torch.empty(3)
        new.copy_(a)
        return new

    a.copy_(torch.cond(x.sum() > 0, same, lambda a: a - 1, (a,)))
    return a + x


@case(
    "pt197096-plain-attribute",
    "pytorch/pytorch#197096",
    inputs=lambda s: (rand(s, 3),),
    attributes=lambda: {"c": torch.zeros(3)},
    stops=1,
)
def plain_attribute(self, x):
    """A plain tensor attribute, no buffer, is mutated."""
    self.c.add_(x)
    return self.c * 1
