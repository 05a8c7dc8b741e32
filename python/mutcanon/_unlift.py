"""Functional program -> module that mutates, and back again, under parallel assignment.

torch turns mutation outputs into a row of `copy_` in signature order, and returns the `copy_`
result for a user output that is also a mutation's value (semantics 2 and 4.8). Here the planner
orders the writes, temporaries break rings, and a user output stays the tensor that it is.

Two functions of torch are replaced for that, and only for calls that come through us: the one that
inserts the writes, and the one that removes copies of buffers without looking at them.
"""

from __future__ import annotations

import copy
import inspect
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import torch
from torch.export.graph_signature import OutputSpec
from torch.fx import Node
from torch.utils import _pytree as pytree

from mutcanon import _torch
from mutcanon._canonicalize import canonicalize, canonicalize_
from mutcanon._extract import extract_write_back
from mutcanon._layout import Layouts
from mutcanon._patch import Patch
from mutcanon._report import input_namesakes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from torch.export import ExportedProgram
    from torch.fx import GraphModule

    from mutcanon._canonicalize import Form

__all__ = ["module", "run_decompositions"]

aten = torch.ops.aten


class _InputName(str):
    """The name of a user input, in a list of names that may be those of buffers too."""


#: Whether the module is only made to be traced again: then a user output that is a mutation's
#: value must stay one node with it, or each round trip would leave a copy.
_retracing: ContextVar[bool] = ContextVar("retracing", default=False)


def module(ep: ExportedProgram, **options: Any) -> torch.nn.Module:
    """What `ep.module()` promises, for any functional program.

    All targets receive their values at once; user outputs keep their own dtype, shape and storage.
    A delay line or a shift register costs one copy a target, a ring of targets one temporary more.

    Args:
        ep: The program; it is not edited. As with torch, the module shares its parameters and
            buffers with it.
        options: Passed on to `ep.module`, `check_guards` for one.

    Raises:
        InvalidProgramError: When the signature and the graph disagree.
        VersionError: When torch's own function is not the one that we know.
    """
    minimal = _told_apart(canonicalize(ep, form="minimal"))
    with write_backs.here():
        return minimal.module(**options)


def run_decompositions(
    ep: ExportedProgram, decomp_table: Any = None, *, form: Form = "portable", **options: Any
) -> ExportedProgram:
    """What `ep.run_decompositions` promises, with mutation kept right and no copy growth.

    Args:
        ep: The program; it is not edited.
        decomp_table: As for `ep.run_decompositions`.
        form: The form of the result, as for `mutcanon.canonicalize`.
        options: Passed on to `ep.run_decompositions`.

    Raises:
        InvalidProgramError: When the signature and the graph disagree.
        VersionError: When torch's own function is not the one that we know.
    """
    minimal = _told_apart(canonicalize(ep, form="minimal"))
    with retracing():
        result = minimal.run_decompositions(decomp_table, **options)
    # torch returns the argument itself where there is nothing to decompose.
    if result is minimal:
        return canonicalize(ep, form=form)
    return canonicalize_(result, form=form)


def _told_apart(ep: ExportedProgram) -> ExportedProgram:
    """The program with mutated inputs told from buffers, since torch goes on with names alone."""
    signature = ep.graph_signature
    namesakes = input_namesakes(signature)
    if not namesakes:
        return ep
    told = copy.copy(signature)
    told.output_specs = [
        OutputSpec(s.kind, s.arg, _InputName(s.target)) if i in namesakes else s
        for i, s in enumerate(signature.output_specs)
    ]
    return _torch.with_parts(ep, ep.graph_module, told, ep.module_call_graph)


@contextmanager
def retracing() -> Iterator[None]:
    """Both replacements, in the mood for `run_decompositions`."""
    token = _retracing.set(True)
    try:
        with ExitStack() as stack:
            stack.enter_context(write_backs.here())
            stack.enter_context(copy_removal.here())
            yield
    finally:
        _retracing.reset(token)


def _insert_write_backs(
    stock: Any,
    gm: GraphModule,
    mutated_outputs: Sequence[str | None],
    unlifted_name_to_node: Mapping[str, Node],
    input_name_to_node: Mapping[str, Node],
) -> None:
    """Stands in for torch's `_insert_copy_for_mutations`."""
    outputs = pytree.tree_leaves(gm.graph.output_node().args)
    names = {**input_name_to_node, **unlifted_name_to_node}

    def find(name: str) -> Node:
        return input_name_to_node[name] if isinstance(name, _InputName) else names[name]

    unknown = [n for n in mutated_outputs if n is not None and n not in names]
    if len(outputs) != len(mutated_outputs) or unknown or not any(mutated_outputs):
        # Nothing to write, or something that torch has a message for.
        stock(gm, mutated_outputs, unlifted_name_to_node, input_name_to_node)
        return
    targets = [None if n is None else find(n) for n in mutated_outputs]
    _write(gm, outputs, targets)


def _write(gm: GraphModule, outputs: list[Any], targets: list[Node | None]) -> None:
    graph, output = gm.graph, gm.graph.output_node()
    plan = extract_write_back(gm, outputs, targets).problem.plan("minimal")
    value_of = list(outputs)
    written: dict[Node, Node] = {}
    with graph.inserting_before(output):
        for i, _, _ in plan.inserts:
            value_of[i] = _call(gm, aten.clone.default, outputs[i])
        for is_save, i in plan.write_backs:
            target = targets[i]
            if is_save:
                value_of[i] = _call(gm, aten.clone.default, value_of[i])
            elif target is not None and value_of[i] is not target:
                written[outputs[i]] = _call(gm, aten.copy_.default, target, value_of[i])
    users = [v for v, t in zip(value_of, targets, strict=True) if t is None]
    if _retracing.get():
        users = [_same_tensor(v, written) for v in users]
    output.args = (tuple(users),)


def _call(gm: GraphModule, op: Any, *args: Node) -> Node:
    node = gm.graph.call_function(op, args)
    node.meta["val"] = args[0].meta.get("val")
    return node


def _same_tensor(value: Any, written: Mapping[Node, Node]) -> Any:
    """The target after the write, where it is what the user output is in every respect."""
    write = written.get(value) if isinstance(value, Node) else None
    if write is None:
        return value
    layouts = Layouts()
    a, b = (layouts.number(n.meta.get("val")) for n in (value, write))
    return write if a == b != 0 else value


def _keep_copies(stock: Any, gm: GraphModule, signature: Any) -> Any:
    """Stands in for torch's `_remove_unnecessary_copy_op_pass`: canonicalization comes later."""
    return gm, signature


def _decompose(stock: Any, ep: ExportedProgram, *args: Any, **options: Any) -> ExportedProgram:
    """Stands in for `ExportedProgram.run_decompositions` in code that lowers programs."""
    bound = inspect.signature(stock).bind(ep, *args, **options)
    _, *named = bound.arguments.items()
    return run_decompositions(ep, **dict(named))


def _module(stock: Any, ep: ExportedProgram, *args: Any, **options: Any) -> torch.nn.Module:
    """Stands in for `ExportedProgram.module` in code that one cannot edit."""
    bound = inspect.signature(stock).bind(ep, *args, **options)
    _, *named = bound.arguments.items()
    return module(ep, **dict(named))


modules = Patch(_torch.module_site, _module)
decompositions = Patch(_torch.run_decompositions_site, _decompose)
write_backs = Patch(_torch.insert_copy_site, _insert_write_backs)
copy_removal = Patch(_torch.copy_removal_site, _keep_copies)
