"""Makes the archives in tests/data, with which the torch-free path is tested where torch is not.

    python tools/make_test_archives.py

They are committed; run it when one is added. What torch writes about the machine (paths in stack
traces) is left out.
"""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.export.pt2_archive._package import package_pt2

import mutcanon

if TYPE_CHECKING:
    from collections.abc import Callable

DATA = Path(__file__).parent.parent / "tests" / "data"

# Node metadata that names files of this machine, or is of no use to the tests.
_ELSEWHERE = {"stack_trace", "from_node", "nn_module_stack", "torch_fn", "source_fn_stack"}


class Program(nn.Module):
    """A forward, and buffers."""

    def __init__(self, forward: Callable[..., Any], **buffers: Tensor) -> None:
        super().__init__()
        self.function = forward
        for name, tensor in buffers.items():
            self.register_buffer(name, tensor)

    def forward(self, *args: Tensor) -> Any:
        """Calls it."""
        return self.function(self, *args)


def decomposed(
    forward: Callable[..., Any],
    *args: Tensor,
    times: int = 1,
    stock: bool = True,
    dynamic_shapes: Any = None,
    **buffers: Tensor,
) -> torch.export.ExportedProgram:
    """The program after some decompositions, stock torch's or ours."""
    module = Program(forward, **buffers)
    program = torch.export.export(module, args, dynamic_shapes=dynamic_shapes)
    for _ in range(times):
        if stock:
            program = program.run_decompositions({})
        else:
            program = mutcanon.run_decompositions(program, {})
    for graph_module in program.graph_module.modules():
        for node in graph_module.graph.nodes if hasattr(graph_module, "graph") else ():
            node.meta = {key: node.meta[key] for key in node.meta.keys() - _ELSEWHERE}
    return program


def step(self: Program, cache: Tensor, row: Tensor) -> Tensor:
    """One redundant copy for each decomposition after the first."""
    cache.add_(row)
    return cache.sum()


def converts(self: Program, cache: Tensor, row: Tensor) -> Tensor:
    """A copy that casts has to stay."""
    cache.copy_(row)
    return cache + 1


def shifts(self: Program, x: Tensor) -> Tensor:
    """A delay line; stock torch takes its snapshot away."""
    out = self.b + 1
    self.b.copy_(self.a)
    self.a.copy_(x)
    return out


def swaps(self: Program, x: Tensor) -> Tensor:
    """Two buffers change places; stock torch loses one."""
    old = self.b.clone()
    self.b.copy_(self.a)
    self.a.copy_(old)
    return self.a + x


def restores(self: Program, x: Tensor) -> Tensor:
    """One buffer receives another; stock ExecuTorch drops the write."""
    out = self.live + x
    self.live.copy_(self.saved)
    return out


def rounds(self: Program, x: Tensor) -> Tensor:
    """A cast into a buffer, which stock torch takes away under its reader."""
    self.state.copy_(x * 1.001)
    return self.state * 2


def spreads(self: Program, x: Tensor) -> Tensor:
    """A number for each element of a buffer, which stock torch takes away under its reader."""
    self.state.copy_(x.sum())
    return self.state.sum()


def transposes(self: Program, x: Tensor) -> Tensor:
    """A buffer receives another view of itself."""
    out = self.a + x
    self.a.copy_(self.a.t())
    return out


def returns_value(self: Program, x: Tensor) -> Tensor:
    """A user output is the value of a buffer that cannot hold it."""
    y = (self.a + x).double()
    self.a.copy_(y)
    return y


def trains(self: Program, x: Tensor) -> Tensor:
    """A parameter is mutated."""
    out = x * self.p
    self.p.add_(1)
    return out


def keeps_and_counts(self: Program, a: Tensor, b: Tensor, x: Tensor) -> Tensor:
    """One input receives itself, and another one something new."""
    out = a + b + x
    a.copy_(a)
    b.add_(x)
    return out


def called_alike(self: Program, a: Tensor, x: Tensor) -> Tensor:
    """An input is mutated that is called as a buffer is."""
    a.add_(self.args_0 + x)
    return a * 2


def resets(self: Program, a: Tensor, x: Tensor) -> Tensor:
    """A buffer is mutated that is called as an input is."""
    out = self.args_0 * x
    self.args_0.copy_(a)
    return out


def writes_twice(self: Program, a: Tensor, b: Tensor, x: Tensor) -> Tensor:
    """Two inputs receive one value."""
    value = x * 2
    a.copy_(value)
    b.copy_(value)
    return x + 1


def edit(name: str, change: Callable[[dict[str, Any]], None]) -> None:
    """Makes of an archive what a careless pass would: torch writes no such thing."""
    path = DATA / f"{name}.pt2"
    source = zipfile.ZipFile(io.BytesIO(path.read_bytes()))
    with zipfile.ZipFile(path, "w") as target:
        for entry in source.infolist():
            text = source.read(entry)
            if entry.filename.endswith("models/model.json"):
                document = json.loads(text)
                change(document["graph_module"])
                text = json.dumps(document).encode()
            target.writestr(entry.filename, text)


def share_value(module: dict[str, Any]) -> None:
    """Two mutations of one node, in what was made of `writes_twice`."""
    nodes, outputs = module["graph"]["nodes"], module["graph"]["outputs"]
    (value,) = (node["name"] for node in nodes if node["target"].endswith("mul.Tensor"))
    for output, spec in list(zip(outputs, module["signature"]["output_specs"], strict=True))[:2]:
        output["as_tensor"]["name"] = value
        spec["user_input_mutation"]["arg"]["name"] = value


def return_cache(module: dict[str, Any]) -> None:
    """The old cache is a user output, in what was made of `step`."""
    (cache, _), (_, output) = module["graph"]["inputs"], module["graph"]["outputs"]
    spec = module["signature"]["output_specs"][1]["user_output"]
    for place in (output, spec["arg"]):
        place["as_tensor"]["name"] = cache["as_tensor"]["name"]


def save(name: str, *programs: torch.export.ExportedProgram) -> None:
    """Writes an archive with one program, or with several."""
    buffer = io.BytesIO()
    if len(programs) == 1:
        torch.export.save(programs[0], buffer)
    else:
        names = ("prefill", "decode")
        package_pt2(buffer, exported_programs=dict(zip(names, programs, strict=True)))
    (DATA / f"{name}.pt2").write_bytes(buffer.getvalue())


def main() -> None:
    """Writes all of them."""
    torch.manual_seed(0)
    DATA.mkdir(exist_ok=True)
    cache, row, half = torch.zeros(4), torch.ones(4), torch.zeros(4, dtype=torch.float16)
    rows = torch.export.Dim("rows", min=2, max=64)

    save("redundant", decomposed(step, cache, row, times=3))
    save("canonical", decomposed(step, cache, row))
    save("cast", decomposed(converts, half, row, times=3))
    save("two-models", decomposed(step, cache, row, times=3), decomposed(step, cache[:2], row[:2]))
    shapes = {"args": ({0: rows}, {0: rows})}
    save("dynamic", decomposed(step, cache, row, times=3, dynamic_shapes=shapes))
    save("delay-line", decomposed(shifts, row, a=torch.zeros(4), b=torch.zeros(4)))
    save("delay-line-right", decomposed(shifts, row, a=cache, b=torch.zeros(4), stock=False))
    save("swap", decomposed(swaps, row, a=torch.zeros(4), b=torch.ones(4)))
    save("restored", decomposed(restores, row, live=torch.zeros(4), saved=torch.arange(4.0)))
    save("lost-cast", decomposed(rounds, row, state=half))
    save("lost-broadcast", decomposed(spreads, row, state=torch.zeros(4)))
    save("shared", decomposed(writes_twice, cache, torch.zeros(4), row))
    edit("shared", share_value)
    save("stale-output", decomposed(step, cache, row))
    edit("stale-output", return_cache)
    save("transposed", decomposed(transposes, torch.ones(2, 2), a=torch.arange(4.0).view(2, 2)))
    save("returned", decomposed(returns_value, row, a=torch.zeros(4)))
    save("parameter", decomposed(trains, row, p=nn.Parameter(row.clone(), False)))
    save("same-name", decomposed(called_alike, row, 2 * row, args_0=torch.zeros(4)))
    save("reset", decomposed(resets, row, 2 * row, args_0=torch.zeros(4)))
    identity = decomposed(keeps_and_counts, cache, torch.zeros(4), row)
    save("identity", mutcanon.canonicalize(identity, form="minimal"))


if __name__ == "__main__":
    main()
