"""The reference that every numeric test compares with.

It shares no code with mutcanon. `eager` runs a module over several steps and records what a caller
can see; `interpret` runs a functional program by its meaning, parallel assignment (semantics 1):
every output is computed from the state on entry, then all targets receive their values at once, so
that the result does not depend on anybody's write-back. `unlifted` runs what stock torch makes of
the same program, `ep.module()`. All of them own their state: nothing leaks into the program, which
shares its buffers with `ep.module()` and with the module that it was exported from.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ExportGraphSignature, InputKind, OutputKind
from torch.fx import GraphModule, Interpreter, Node
from torch.utils import _pytree as pytree

Arguments = Callable[[int], tuple[tuple[Any, ...], dict[str, Any]]]
Call = Callable[[tuple[Any, ...], dict[str, Any]], Any]

MUTATIONS = {
    OutputKind.USER_INPUT_MUTATION,
    OutputKind.BUFFER_MUTATION,
    getattr(OutputKind, "PARAMETER_MUTATION", None),  # torch 2.10 and newer
}


# torch before 2.9 puts no guards into a module.
NO_GUARDS = (
    {"check_guards": False}
    if "check_guards" in inspect.signature(ExportedProgram.module).parameters
    else {}
)


@dataclasses.dataclass(frozen=True)
class Step:
    """What can be seen after one call: outputs and inputs as flat lists, state by name."""

    outputs: list[Any]
    inputs: list[Any]
    state: dict[str, torch.Tensor]


@dataclasses.dataclass(frozen=True)
class Trace:
    """Several calls, each with the state that the one before it left behind."""

    steps: list[Step]
    mutated: frozenset[int]


# Running


def eager(module: torch.nn.Module, arguments: Arguments, steps: int = 3) -> Trace:
    """Runs a module, and finds out which inputs it mutates: those whose version moves."""
    mutated: set[int] = set()

    def call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        flat = pytree.tree_leaves((args, kwargs))
        before = [getattr(leaf, "_version", 0) for leaf in flat]
        result = module(*args, **kwargs)
        mutated.update(
            i for i, leaf in enumerate(flat) if getattr(leaf, "_version", 0) != before[i]
        )
        return result

    steps_run = run(call, arguments, steps, mutated, lambda: _named_state(module))
    return Trace(steps_run, frozenset(mutated))


def unlifted(
    ep: ExportedProgram,
    arguments: Arguments,
    mutated: frozenset[int],
    steps: int = 3,
    unlift: Callable[..., torch.nn.Module] = ExportedProgram.module,
) -> Trace:
    """Runs `ep.module()`: stock torch's write-back, one target after another."""
    module = unlift(copy.deepcopy(ep), **NO_GUARDS)
    call: Call = lambda args, kwargs: module(*args, **kwargs)  # noqa: E731
    return Trace(run(call, arguments, steps, mutated, lambda: _named_state(module)), mutated)


def interpret(
    ep: ExportedProgram, arguments: Arguments, mutated: frozenset[int], steps: int = 3
) -> Trace:
    """Runs a program by its meaning, parallel assignment."""
    machine = _Machine(ep)
    return Trace(run(machine, arguments, steps, mutated, machine.named_state), mutated)


def run(
    call: Call,
    arguments: Arguments,
    steps: int,
    mutated: set[int] | frozenset[int],
    state: Callable[[], dict[str, torch.Tensor]] = dict,
) -> list[Step]:
    """Runs anything over several steps: `call` may mutate its arguments, `state` is read after it.

    Inputs at the positions `mutated` are carried from each step to the next.
    """
    done: list[Step] = []
    flat: list[Any] = []
    for step in range(steps):
        args, kwargs = arguments(step)
        fresh, spec = pytree.tree_flatten((args, kwargs))
        if step:
            fresh = _carried(fresh, flat, mutated)
            args, kwargs = pytree.tree_unflatten(fresh, spec)
        with torch.no_grad():
            outputs = pytree.tree_leaves(call(args, kwargs))
        flat = fresh
        done.append(Step(*copy.deepcopy((outputs, flat)), _detached(state())))
    return done


def _carried(fresh: list[Any], old: list[Any], mutated: set[int] | frozenset[int]) -> list[Any]:
    """The inputs of the next step: mutated ones go on, unless this step brings another shape."""
    next_inputs = list(fresh)
    for i in mutated:
        if fresh[i].shape == old[i].shape and fresh[i].stride() == old[i].stride():
            next_inputs[i] = old[i]
    return next_inputs


def _named_state(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    return dict([*module.named_buffers(), *module.named_parameters()])


def _detached(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().clone() for name, tensor in state.items()}


class _Machine:
    """An ExportedProgram with state of its own, run by parallel assignment."""

    def __init__(self, ep: ExportedProgram) -> None:
        self.ep = ep
        stored = {**ep.state_dict, **ep.constants}
        specs = ep.graph_signature.input_specs
        wanted = {s.target for s in specs if s.kind != InputKind.USER_INPUT and s.target in stored}
        # One deep copy of all, so that what shares storage goes on sharing it.
        self.stored = copy.deepcopy({name: stored[name] for name in sorted(wanted)})
        self.given: dict[str, Any] = {}

    def named_state(self) -> dict[str, torch.Tensor]:
        kinds = {InputKind.BUFFER, InputKind.PARAMETER}
        specs = self.ep.graph_signature.input_specs
        return {s.target: self.stored[s.target] for s in specs if s.kind in kinds}

    def compute(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The graph's outputs, from the state as it is."""
        spec = self.ep.call_spec.in_spec
        # `children` came with torch 2.9.
        order = (spec.children() if hasattr(spec, "children") else spec.children_specs)[1].context
        kwargs = {name: kwargs[name] for name in order}
        users = iter(pytree.tree_leaves((args, kwargs)))
        self.given = {
            spec.arg.name: (
                next(users) if spec.kind == InputKind.USER_INPUT else self.stored[spec.target]
            )
            for spec in self.ep.graph_signature.input_specs
        }
        interpreter = Interpreter(self.ep.graph_module)
        return interpreter.run(*self.given.values(), enable_io_processing=False)

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        results = self.compute(args, kwargs)
        # A snapshot first: assigning one target must not change a value that is read off another.
        results = pytree.tree_map_only(torch.Tensor, lambda t: t.detach().clone(), results)
        outputs = []
        for spec, value in zip(self.ep.graph_signature.output_specs, results, strict=True):
            if spec.kind in MUTATIONS:
                is_input = spec.kind == OutputKind.USER_INPUT_MUTATION
                targets = self.given if is_input else self.stored
                targets[spec.target].detach().copy_(value)
            elif spec.kind == OutputKind.USER_OUTPUT:
                outputs.append(value)
        return outputs


# Comparing


def difference(want: Trace, got: Trace, tolerance: float = 0.0) -> str:
    """Where two traces differ, bit for bit unless a tolerance is given; empty when they do not."""
    for i, (a, b) in enumerate(zip(want.steps, got.steps, strict=True)):
        for what, xs, ys in (("output", a.outputs, b.outputs), ("input", a.inputs, b.inputs)):
            if len(xs) != len(ys):
                return f"step {i}: {len(xs)} {what}s wanted, {len(ys)} returned"
            for j, (x, y) in enumerate(zip(xs, ys, strict=True)):
                if reason := unequal(x, y, tolerance):
                    return f"step {i}, {what} {j}: {reason}"
        for name in a.state.keys() & b.state.keys():
            if reason := unequal(a.state[name], b.state[name], tolerance):
                return f"step {i}, {name}: {reason}"
    return ""


def unequal(want: Any, got: Any, tolerance: float = 0.0) -> str:
    """Why two values are not the same: bit for bit, unless a tolerance is given."""
    if not isinstance(want, torch.Tensor) or not isinstance(got, torch.Tensor):
        return "" if type(want) is type(got) and want == got else f"{got!r} instead of {want!r}"
    for fact in ("dtype", "shape", "is_quantized", "layout"):
        if getattr(want, fact) != getattr(got, fact):
            return f"{fact} {getattr(got, fact)} instead of {getattr(want, fact)}"
    if tolerance:
        same = torch.allclose(want, got, rtol=tolerance, atol=tolerance, equal_nan=True)
    else:
        same = torch.equal(_bits(want), _bits(got))
    if not same:
        return f"{got.flatten()[:6].tolist()} instead of {want.flatten()[:6].tolist()}"
    return ""


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.to_dense() if tensor.layout is not torch.strided else tensor
    tensor = tensor.int_repr() if tensor.is_quantized else tensor.resolve_conj().resolve_neg()
    return tensor.reshape(-1).contiguous().view(torch.uint8)


def sharing(ep: ExportedProgram, arguments: Arguments) -> set[tuple[int, Any]]:
    """What the user outputs of a program share storage with: (output, input), (output, output).

    Inputs of the graph are named, user outputs are positions. This is about the graph itself: what
    a caller gets in the end also depends on the write-back.
    """
    machine = _Machine(ep)
    args, kwargs = arguments(0)
    with torch.no_grad():
        results = machine.compute(args, kwargs)
    specs = ep.graph_signature.output_specs
    outputs = [r for s, r in zip(specs, results, strict=True) if s.kind == OutputKind.USER_OUTPUT]
    found: set[tuple[int, Any]] = set()
    for i, output in enumerate(outputs):
        found |= {(i, name) for name, value in machine.given.items() if _share(output, value)}
        found |= {(i, j) for j in range(i) if _share(output, outputs[j])}
    return found


def _share(a: Any, b: Any) -> bool:
    if not (isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor)) or not a.numel():
        return False
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


# Looking at graphs


def graphs(module: GraphModule) -> Iterator[torch.fx.Graph]:
    """The graph of a module and those of its control-flow bodies."""
    for part in module.modules():
        if isinstance(part, GraphModule):
            yield part.graph


def is_copy(node: Node) -> bool:
    """Whether a node is aten.copy, in the ATen or in the edge dialect."""
    schema = getattr(node.target, "_schema", None)
    return node.op == "call_function" and schema is not None and schema.name == "aten::copy"


def count_copies(ep: ExportedProgram) -> int:
    """How many aten.copy nodes a program has, those of its control-flow bodies included."""
    return len(copies(ep))


def changes_nothing(copy: Node) -> bool:
    """Whether a copy is redundant by its type: equal dtype, sizes, and strides that matter."""
    made, source = copy.meta["val"], copy.args[1].meta["val"]
    if made.dtype != source.dtype or tuple(made.shape) != tuple(source.shape):
        return False
    dims = zip(made.shape, made.stride(), source.stride(), strict=True)
    return made.numel() == 0 or all(a == b for size, a, b in dims if size != 1)


def copies(ep: ExportedProgram) -> list[Node]:
    """The aten.copy nodes of a program, those of its control-flow bodies included."""
    return [node for graph in graphs(ep.graph_module) for node in graph.nodes if is_copy(node)]


def mutations(ep: ExportedProgram) -> list[tuple[Any, Node]]:
    """The mutation outputs: (spec, node)."""
    nodes = ep.graph.output_node().args[0]
    pairs = zip(ep.graph_signature.output_specs, nodes, strict=True)
    return [(spec, node) for spec, node in pairs if spec.kind in MUTATIONS]


def fingerprint(ep: ExportedProgram) -> list[Any]:
    """Everything about a program that a function which edits nothing must leave alone."""
    lines: list[Any] = [str(ep.graph_signature), str(ep.module_call_graph)]
    lines += [sorted(ep.state_dict), sorted(ep.constants), dict(ep.range_constraints)]
    for graph in graphs(ep.graph_module):
        for node in graph.nodes:
            meta = {key: id(value) for key, value in node.meta.items()}
            lines.append(
                (node.name, node.op, str(node.target), str(node.args), str(node.kwargs), meta)
            )
    return lines


def require_invariants(
    before: ExportedProgram, after: ExportedProgram, *, same_metadata: bool = True
) -> None:
    """Semantics 6, except for what a run shows.

    Metadata can be compared by identity only where `after` was not made from a copy of `before`.
    """
    after.graph.lint()
    after.validate()
    old, new = before.graph_signature, after.graph_signature
    assert [s.arg for s in old.input_specs] == [s.arg for s in new.input_specs]
    placeholders = [
        [n.name for n in ep.graph.nodes if n.op == "placeholder"] for ep in (before, after)
    ]
    assert placeholders[0] == placeholders[1]
    nodes = after.graph.output_node().args[0]
    assert len(nodes) == len(new.output_specs) == len(old.output_specs)
    for spec, node in zip(new.output_specs, nodes, strict=True):
        if isinstance(node, Node):
            assert spec.arg.name == node.name
    places = {OutputKind.TOKEN: 0, **dict.fromkeys(MUTATIONS, 1)}
    kinds = [places.get(s.kind, 2) for s in new.output_specs]
    assert kinds == sorted(kinds), "tokens, then mutations, then what the user gets"
    assert _targets(old) == _targets(new)
    names = [node.name for node in after.graph.nodes]
    assert len(set(names)) == len(names)
    originals = {node.name: node for node in before.graph.nodes}
    for node in after.graph.nodes:
        original = originals.get(node.name)
        if original is not None and node.op != "output":
            assert node.meta.keys() == original.meta.keys()
            if same_metadata:
                assert all(node.meta[key] is original.meta[key] for key in node.meta)


def _targets(signature: ExportGraphSignature) -> list[tuple[str, str | None]]:
    specs = signature.output_specs
    return sorted((s.kind.name, s.target) for s in specs if s.kind in MUTATIONS)
