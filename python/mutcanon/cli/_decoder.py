"""The model of `mutcanon demo`: one decode step with all of its state as inputs.

It has the two kinds of state that language models carry. KV caches receive one row a step
(`index_copy_`). The window of a short convolution moves on: its new value is a slice, whose strides
are not the window's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F  # noqa: N812 (everybody calls it so)
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

HEADS, HEAD_DIM, VOCABULARY, WINDOW = 8, 64, 256, 3
WIDTH = HEADS * HEAD_DIM


class Layer(nn.Module):
    """Attention over a KV cache, then a gated feed-forward network."""

    def __init__(self) -> None:
        super().__init__()
        self.attention_norm, self.feed_norm = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.query, self.key, self.value, self.project = (
            nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4)
        )
        self.gate, self.up = (nn.Linear(WIDTH, 2 * WIDTH, bias=False) for _ in range(2))
        self.down = nn.Linear(2 * WIDTH, WIDTH, bias=False)

    def forward(
        self, x: Tensor, position: Tensor, mask: Tensor, keys: Tensor, values: Tensor
    ) -> Tensor:
        h = self.attention_norm(x)
        query, key, value = (
            project(h).view(1, 1, HEADS, HEAD_DIM).transpose(1, 2)
            for project in (self.query, self.key, self.value)
        )
        keys.index_copy_(2, position, key)
        values.index_copy_(2, position, value)
        seen = F.scaled_dot_product_attention(query, keys, values, attn_mask=mask)
        x = x + self.project(seen.transpose(1, 2).reshape(1, 1, WIDTH))
        h = self.feed_norm(x)
        fed: Tensor = self.down(F.silu(self.gate(h)) * self.up(h))
        return x + fed


class Decoder(nn.Module):
    """Token and position in, logits out; the window and two caches a layer are mutated."""

    def __init__(self, layers: int, context: int) -> None:
        super().__init__()
        self.context = context
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.place = nn.Embedding(context, WIDTH)
        self.taps = nn.Parameter(torch.randn(WIDTH, WINDOW + 1) / 2)
        self.layers = nn.ModuleList(Layer() for _ in range(layers))
        self.norm, self.head = nn.RMSNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, token: Tensor, position: Tensor, window: Tensor, *caches: Tensor) -> Tensor:
        x = self.embed(token) + self.place(position)
        recent = torch.cat((window, x.transpose(1, 2)), dim=2)
        window.copy_(recent[:, :, 1:])
        x = x + (recent * self.taps).sum(dim=2).unsqueeze(1)
        mask = torch.where(torch.arange(self.context)[None, :] <= position[:, None], 0.0, -1e9)
        for i, layer in enumerate(self.layers):
            x = layer(x, position, mask, caches[2 * i], caches[2 * i + 1])
        logits: Tensor = self.head(self.norm(x))
        return logits


def make(layers: int, context: int) -> Decoder:
    """The model with random weights, the same ones every time."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Decoder(layers, context).eval().requires_grad_(requires_grad=False)


def empty_state(model: Decoder) -> list[Tensor]:
    """The window and the caches before the first token."""
    caches = (torch.zeros(1, HEADS, model.context, HEAD_DIM) for _ in range(2 * len(model.layers)))
    return [torch.zeros(1, WIDTH, WINDOW), *caches]


def step_inputs(step: int) -> tuple[Tensor, Tensor]:
    """Token and position of one step."""
    return torch.tensor([[7 * step % VOCABULARY]]), torch.tensor([step])


def export(model: Decoder) -> torch.export.ExportedProgram:
    """The program that `torch.export` makes of one step."""
    return torch.export.export(model, (*step_inputs(0), *empty_state(model)))


def decode(call: Callable[..., Tensor], state: Sequence[Tensor], steps: int) -> list[Tensor]:
    """Runs steps on the state, which `call` mutates; returns the logits and then the state."""
    with torch.no_grad():
        logits = [call(*step_inputs(step), *state).clone() for step in range(steps)]
    return [*logits, *state]
