"""Archives for the benchmarks: many small ones, one of heavy weights, one of a very large graph.

    python benches/archives.py small|weights|graph PATH

All are decode steps of a transformer whose caches are inputs, after three decompositions: two
copies are left on each cache.
"""

from __future__ import annotations

import json
import sys
import zipfile
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DECOMPOSITIONS = 3


class Block(nn.Module):
    """Attention over two caches, then a gated feed-forward."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.RMSNorm(width) for _ in range(2))
        self.attention = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(4))
        self.feed_forward = nn.ModuleList(
            nn.Linear(*sizes, bias=False)
            for sizes in ((width, 3 * width), (width, 3 * width), (3 * width, width))
        )

    def rotate(self, x: torch.Tensor, angle: torch.Tensor) -> torch.Tensor:
        a, b = x.chunk(2, -1)
        cos, sin = angle.cos(), angle.sin()
        return torch.cat((a * cos - b * sin, a * sin + b * cos), -1)

    def forward(
        self,
        x: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        position: torch.Tensor,
        angle: torch.Tensor,
    ) -> torch.Tensor:
        to_query, to_key, to_value, to_out = self.attention
        h = self.norms[0](x)
        query, key, value = (
            to(h).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for to in (to_query, to_key, to_value)
        )
        keys.index_copy_(2, position, self.rotate(key, angle))
        values.index_copy_(2, position, value)
        query = self.rotate(query, angle)
        y = functional.scaled_dot_product_attention(query, keys, values)
        x = x + to_out(y.transpose(1, 2).flatten(-2))
        gate, up, down = self.feed_forward
        h = self.norms[1](x)
        return x + down(functional.silu(gate(h)) * up(h))


class Decoder(nn.Module):
    """A stack of blocks; its caches are arguments."""

    def __init__(self, layers: int, width: int, heads: int, vocabulary: int = 64) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.RMSNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        half = width // heads // 2
        self.register_buffer("frequencies", 10000 ** (-torch.arange(half) / half))

    def forward(
        self, token: torch.Tensor, position: torch.Tensor, *caches: torch.Tensor
    ) -> torch.Tensor:
        x = self.embedding(token)
        angle = position[:, None] * self.frequencies
        for i, block in enumerate(self.blocks):
            x = block(x, caches[2 * i], caches[2 * i + 1], position, angle)
        return self.head(self.norm(x))


def decoder(layers: int, width: int, heads: int, length: int = 32) -> torch.export.ExportedProgram:
    """The exported program of a decode step."""
    torch.manual_seed(0)
    caches = [torch.zeros(1, heads, length, width // heads) for _ in range(2 * layers)]
    args = (torch.zeros(1, 1, dtype=torch.long), torch.zeros(1, dtype=torch.long), *caches)
    with torch.no_grad():
        ep = torch.export.export(Decoder(layers, width, heads).eval(), args)
        for _ in range(DECOMPOSITIONS):
            ep = ep.run_decompositions({})
    return ep


def small(path: Path) -> None:
    """About 1.4 MB: four layers."""
    torch.export.save(decoder(4, 64, 2), path)


def weights(path: Path) -> None:
    """About 1.1 GB of weights and 1 600 nodes: 32 layers."""
    torch.export.save(decoder(32, 832, 8), path)


def graph(path: Path, replicas: int = 16) -> None:
    """About 160 MiB of JSON: a hundred layers, side by side `replicas` times in one graph.

    torch would take hours to export this; to load it takes a minute or two.
    """
    one = path.with_suffix(".one.pt2")
    torch.export.save(decoder(100, 32, 2), one)
    with zipfile.ZipFile(one) as archive, zipfile.ZipFile(path, "w") as out:
        for name in archive.namelist():
            _, _, inner = name.partition("/")
            data = archive.read(name)
            if inner == "models/model.json":
                data = json.dumps(replicated(json.loads(data), replicas)).encode()
            elif inner.startswith("data/sample_inputs/"):
                data = b""
            out.writestr(f"{path.stem}/{inner}", data)
    one.unlink()


def replicated(program: dict[str, Any], replicas: int) -> dict[str, Any]:
    """The program `replicas` times side by side; parameters and buffers are shared."""
    module = program["graph_module"]
    old, signature = module["graph"], module["signature"]
    specs = signature["input_specs"]
    shared = [i for i, spec in enumerate(specs) if "user_input" not in spec]
    own = [i for i, spec in enumerate(specs) if "user_input" in spec]
    kept = {old["inputs"][i]["as_tensor"]["name"] for i in shared}
    new: dict[str, Any] = {**old, "nodes": [], "tensor_values": {}}
    new["inputs"] = [old["inputs"][i] for i in shared]
    inputs = [specs[i] for i in shared]
    outputs: list[tuple[Any, Any]] = []
    for k in range(replicas):
        part = _renamed(old, kept, f"r{k}_")
        new["nodes"] += part["nodes"]
        new["tensor_values"] |= part["tensor_values"]
        new["inputs"] += [part["inputs"][i] for i in own]
        inputs += [_renamed(specs[i], kept, f"r{k}_") for i in own]
        output_specs = _renamed(signature["output_specs"], kept, f"r{k}_")
        outputs += zip(part["outputs"], output_specs, strict=True)
    outputs.sort(key=lambda pair: "user_output" in pair[1])
    new["outputs"] = [output for output, _ in outputs]
    signature = {"input_specs": inputs, "output_specs": [spec for _, spec in outputs]}
    (root, *_) = module["module_call_graph"]
    leaf = {"type": None, "context": None, "children_spec": []}
    arguments = [_tuple([leaf] * (len(own) * replicas)), _tuple([], "builtins.dict", "[]")]
    interface = {
        **root["signature"],
        "in_spec": json.dumps([1, _tuple(arguments)]),
        "out_spec": json.dumps([1, _tuple([leaf] * replicas)]),
        "forward_arg_names": None,
    }
    calls = [{"fqn": "", "signature": interface}]
    graph_module = {**module, "graph": new, "signature": signature, "module_call_graph": calls}
    return {**program, "graph_module": graph_module, "guards_code": []}


def _tuple(children: list[Any], kind: str = "builtins.tuple", context: str = "null") -> Any:
    return {"type": kind, "context": context, "children_spec": children}


def _renamed(value: Any, kept: set[str], prefix: str) -> Any:
    """The same with a prefix on every name of a value, except those kept."""

    def new(name: str) -> str:
        return name if name in kept else prefix + name

    if isinstance(value, list):
        return [_renamed(v, kept, prefix) for v in value]
    if not isinstance(value, dict):
        return value
    return dict(_renamed_items(value, kept, prefix, new))


def _renamed_items(
    value: dict[str, Any], kept: set[str], prefix: str, new: Any
) -> Iterator[tuple[str, Any]]:
    for key, v in value.items():
        if key == "tensor_values":
            yield key, {new(name): meta for name, meta in v.items()}
        elif key == "as_tensor" or (key == "arg" and set(v) == {"name"}):
            yield key, {"name": new(v["name"])}
        elif key == "as_tensors":
            yield key, [{"name": new(t["name"])} for t in v]
        elif key == "user_input_name" or (key == "name" and "target" in value):
            yield key, new(v)
        elif key == "metadata":
            yield key, v
        else:
            yield key, _renamed(v, kept, prefix)


if __name__ == "__main__":
    from pathlib import Path

    {"small": small, "weights": weights, "graph": graph}[sys.argv[1]](Path(sys.argv[2]))
