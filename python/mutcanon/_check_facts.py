"""What the checker knows about an operator: names, aliases, writes, effects. Nothing about values.

Everything is read off the operator's schema. An operator that writes in place is named after the
functional one that computes the same (`add_` and `add.out` after `add`), so that a program before
and after reinplacing are the same terms.
"""

from __future__ import annotations

import functools
import operator
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch._higher_order_ops.auto_functionalize import auto_functionalized, auto_functionalized_v2
from torch._ops import HigherOrderOperator, OpOverload
from torch.fx import Node

from mutcanon._check_types import word
from mutcanon._torch import is_composite

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

#: Composite operators whose results are new whatever they are given, though their schema need not
#: be believed.
_NEW = frozenset(
    {
        "_clone_dim_order",
        "_empty_dim_order",
        "_to_dim_order_copy",
        "adaptive_avg_pool2d",
        "avg_pool1d",
        "batch_norm",
        "conv1d",
        "conv2d",
        "conv3d",
        "conv_transpose1d",
        "conv_transpose2d",
        "cosine_similarity",
        "group_norm",
        "gru",
        "hstack",
        "instance_norm",
        "layer_norm",
        "linear",
        "log_softmax",
        "lstm",
        "matmul",
        "max_pool1d",
        "max_pool2d",
        "one_hot",
        "outer",
        "rms_norm",
        "scaled_dot_product_attention",
        "softmax",
        "vstack",
    }
)

#: Operators that move data into a copy of their first argument, quantizer and all.
_KEEPS = frozenset(
    {
        "as_strided_scatter",
        "copy",
        "diagonal_scatter",
        "index_add",
        "index_copy",
        "index_fill",
        "index_put",
        "masked_fill",
        "masked_scatter",
        "scatter",
        "scatter_add",
        "select_scatter",
        "slice_scatter",
    }
)

#: Higher-order operators whose results are new tensors by contract.
NEW_HIGHER_ORDER = frozenset(
    {
        "associative_scan",
        "auto_functionalized",
        "auto_functionalized_v2",
        "cond",
        "executorch_call_delegate",
        "flex_attention",
        "map_impl",
        "scan",
        "triton_kernel_wrapper_functional",
        "while_loop",
    }
)

#: Higher-order operators that have an effect, or state of their own.
_IMPURE_HIGHER_ORDER = frozenset(
    {
        "call_torchbind",
        "executorch_call_delegate",
        "print",
        "run_and_save_rng_state",
        "run_with_rng_state",
        "with_effects",
    }
)

#: Operators that keep the values of their first argument unless they change its type.
_CLONES_OF_SAME_TYPE = frozenset(
    {
        "aten._to_copy.default",
        "aten.alias_copy.default",
        "aten.detach_copy.default",
        "aten.expand_copy.default",
        "aten.lift_fresh_copy.default",
        "aten.slice_copy.Tensor",
        "dim_order_ops._clone_dim_order.default",
        "dim_order_ops._to_dim_order_copy.default",
    }
)

#: Where plain functions on numbers come from.
_PURE_MODULES = frozenset({"_operator", "operator", "math", "builtins", "torch"})


@dataclass(frozen=True)
class Facts:
    """The facts of one operator.

    Attributes:
        name: What it is called; in-place variants are called as the functional one.
        parameters: Name and default of each argument of its schema; None without a schema.
        dropped: Arguments that are left out: where results are written, whose value on entry does
            not matter, and tensor options.
        typed: Whether the type of the result stands for the tensor options.
        writes: Arguments that are written, each with the result that it becomes, if any.
        same: For each result the argument that it is.
        views: For a result, or for all (None), the argument that it certainly shares storage with.
        may: For a result, or for all (None), the arguments that it may share storage with.
        may_share_all: Every result may share storage with every tensor argument.
        keeps: Whether the result has the quantizer of the first argument.
        impure: Whether it matters when it runs.
        is_copy: Whether it is `copy` or `copy_`.
        is_clone: Whether it is `clone`.
        is_clone_of_same_type: Whether it is one where its result has the type of its argument.
        is_assertion: Whether it has no result and writes nothing.
        is_allocation: Whether it stands for memory in a plan of executorch.
        is_memory_view: Whether it is executorch's own view, which stands for `view_copy`.
    """

    name: str = ""
    parameters: tuple[tuple[str, Any], ...] | None = None
    dropped: frozenset[int] = frozenset()
    typed: bool = False
    writes: tuple[tuple[int, int | None], ...] = ()
    same: tuple[tuple[int, int], ...] = ()
    views: tuple[tuple[int | None, int], ...] = ()
    may: tuple[tuple[int | None, tuple[int, ...]], ...] = ()
    may_share_all: bool = False
    keeps: bool = False
    impure: bool = False
    is_copy: bool = False
    is_clone: bool = False
    is_clone_of_same_type: bool = False
    is_assertion: bool = False
    is_allocation: bool = False
    is_memory_view: bool = False

    @functools.cached_property
    def head(self) -> str:
        """How a call begins in the textual form."""
        return f"call {word(self.name)}"

    @functools.cached_property
    def has_no_clauses(self) -> bool:
        """Whether there is nothing to say but what the operator is called."""
        said = self.same or self.views or self.may or self.writes
        return not (said or self.may_share_all or self.keeps or self.impure)

    def bind(self, node: Node) -> list[Any]:
        """The arguments in the order of the schema, without trailing defaults."""
        if self.parameters is None:
            return [*node.args, *(node.kwargs and [node.kwargs])]
        values = list(node.args)
        parameters = self.parameters
        if node.kwargs:
            rest = parameters[len(values) :]
            values += [node.kwargs.get(name, default) for name, default in rest]
        if self.dropped:
            # What is not given stands for its default, which may lie before what is dropped.
            values += [default for _, default in parameters[len(values) :]]
            parameters = tuple(p for i, p in enumerate(parameters) if i not in self.dropped)
            values = [v for i, v in enumerate(values) if i not in self.dropped]
        while values and _is_default(values[-1], parameters[len(values) - 1][1]):
            values.pop()
        return values

    def clauses(
        self, node: Node, arguments: Sequence[Any], name: Callable[[Node], str]
    ) -> Iterator[str]:
        """What the results share, what is written, and the rest.

        Args:
            node: The call.
            arguments: Its arguments, as `bind` gives them.
            name: What a node is called in the textual form.
        """

        def clause(head: str, nodes: Sequence[Node]) -> Iterator[str]:
            if nodes:
                yield " ".join([head, *map(name, nodes)])

        every = range(_count(node))
        for result, position in self.same:
            yield from clause(f"; same {result}", self._nodes(node, position))
        for shown, position in self.views:
            for k in every if shown is None else (shown,):
                yield from clause(f"; view {k}", self._nodes(node, position))
        for shown, positions in self.may:
            nodes = [n for p in positions for n in self._nodes(node, p)]
            for k in every if shown is None else (shown,):
                yield from clause(f"; may {k}", nodes)
        if self.may_share_all:
            nodes = [n for n in node.all_input_nodes if _may_be_tensor(n)]
            for k in every:
                yield from clause(f"; may {k}", nodes)
        for position, becomes in self.writes:
            for written in self._nodes(node, position):
                yield f"; writes {name(written)}" + ("" if becomes is None else f" {becomes}")
        if self.keeps and arguments and isinstance(arguments[0], Node):
            yield f"; keeps {name(arguments[0])}"
        if self.impure:
            yield "; impure"

    def _nodes(self, node: Node, position: int) -> list[Node]:
        assert self.parameters is not None  # facts about arguments come with a schema
        if position < len(node.args):
            value = node.args[position]
        else:
            value = node.kwargs.get(self.parameters[position][0])
        values = value if isinstance(value, (list, tuple)) else [value]
        return [v for v in values if isinstance(v, Node)]


def _count(node: Node) -> int:
    val = node.meta.get("val")
    return len(val) if isinstance(val, (list, tuple)) else 1


def _may_be_tensor(node: Node) -> bool:
    val = node.meta.get("val")
    if node.op == "get_attr":
        return isinstance(val, torch.Tensor)
    return val is None or isinstance(val, (torch.Tensor, list, tuple))


def _is_default(value: Any, default: Any) -> bool:
    return type(value) is type(default) and not isinstance(value, Node) and value == default


#: By the target's identity: to hash an operator is Python code.
_known: dict[int, tuple[Any, Facts]] = {}


def written_by_custom(node: Node) -> Iterator[tuple[int, Node]]:
    """What a custom operator writes that torch has wrapped: each result and the argument it is."""
    if node.target not in (auto_functionalized, auto_functionalized_v2):
        return
    schema = node.args[0]._schema  # type: ignore[union-attr]
    first = max(1, len(schema.returns))  # an operator without results returns None in their place
    bases = node.kwargs.get("_all_bases")
    if bases is None:
        written = (a.name for a in schema.arguments if a.alias_info and a.alias_info.is_write)
        bases = [node.kwargs.get(name) for name in written]
    for result, base in enumerate(bases, first):  # type: ignore[arg-type]
        if isinstance(base, Node):
            yield result, base


def facts_of(target: Any) -> Facts:
    """The facts of a call's target."""
    known = _known.get(id(target))
    if known is None:
        known = _known[id(target)] = target, _read(target)
    return known[1]


def _read(target: Any) -> Facts:
    # An edge operator wraps one of ATen.
    inner = getattr(target, "_op", None)
    op = inner if isinstance(inner, OpOverload) else target
    if isinstance(op, OpOverload):
        return _read_schema(op)
    if isinstance(op, HigherOrderOperator):
        name = op.__name__
        return Facts(
            f"higher_order.{name}",
            may_share_all=name not in NEW_HIGHER_ORDER,
            impure=name in _IMPURE_HIGHER_ORDER,
        )
    if "executorch.exir.memory" in sys.modules and (memory := _memory_function(op)):
        return memory
    module = getattr(op, "__module__", "") or ""
    name = f"{module}.{getattr(op, '__qualname__', op)}"
    pure = module in _PURE_MODULES or module.startswith(("torch.", "executorch.exir"))
    return Facts(name, may_share_all=op is not operator.not_, impure=not pure)


def _memory_function(function: Any) -> Facts | None:
    """The facts of what executorch has of its own: memory, and views that stand for copies."""
    from mutcanon import _executorch

    if _executorch.is_view_function(function):
        copy = facts_of(torch.ops.aten.view_copy.default)
        return replace(copy, views=((None, 0),), is_memory_view=True)
    if _executorch.is_allocation_function(function):
        return Facts("memory", is_allocation=True)
    return None


#: They say what a new tensor looks like, which its type says as well; an operator with an `out`
#: takes them from there.
_OPTIONS = frozenset({"dtype", "layout", "device", "pin_memory"})


class _Required:
    """The default of an argument without one; equal to nothing."""


_REQUIRED = _Required()


def _read_schema(op: OpOverload) -> Facts:
    schema = op._schema
    arguments, returns = schema.arguments, schema.returns
    parameters = tuple(
        (a.name, a.default_value if a.has_default_value() else _REQUIRED) for a in arguments
    )
    marks = [a.alias_info for a in arguments]
    written = [i for i, m in enumerate(marks) if m is not None and m.is_write]
    options = _options(arguments)
    outs = [i for i in written if arguments[i].is_out]
    same: list[tuple[int, int]] = []
    views: list[tuple[int | None, int]] = []
    may: list[tuple[int | None, tuple[int, ...]]] = []
    composite = is_composite(op)
    for k, result in enumerate(returns):
        mark = result.alias_info
        if mark is None:
            continue
        is_list = not isinstance(result.type, torch.TensorType)
        sources = tuple(_sources(mark, marks))
        k_or_all = None if is_list else k
        if mark.is_write and len(sources) == 1:
            same.append((k, sources[0]))
        elif len(sources) == 1 and not composite:
            views.append((k_or_all, sources[0]))
        else:
            may.append((k_or_all, sources))
    packet = str(op.overloadpacket).rpartition(".")[2]
    name, results, typed = _functional(op, written)
    # A number shares no storage: the size of a tensor, for one.
    holds_tensors = any("Tensor" in str(r.type) for r in returns)
    unmarked = not (same or views or may or written) and holds_tensors
    return Facts(
        name=name,
        parameters=parameters,
        dropped=frozenset([*outs, *options]),
        typed=typed or bool(options),
        writes=tuple((i, results.get(i)) for i in written),
        same=tuple(same),
        views=tuple(views),
        may=tuple(may),
        may_share_all=unmarked and composite and packet not in _NEW,
        keeps=packet.removesuffix("_") in _KEEPS,
        impure=torch.Tag.nondeterministic_seeded in op.tags or not (returns or written),
        is_copy=name == "aten.copy.default",
        is_clone=name == "aten.clone.default",
        is_clone_of_same_type=name in _CLONES_OF_SAME_TYPE,
        is_assertion=not (returns or written),
    )


def _sources(mark: Any, marks: Sequence[Any]) -> Iterator[int]:
    sets = mark.before_set | mark.after_set
    for i, other in enumerate(marks):
        if other is not None:
            theirs = other.before_set | other.after_set
            if not sets or "*" in sets or "*" in theirs or sets & theirs:
                yield i


def _functional(op: OpOverload, written: Sequence[int]) -> tuple[str, dict[int, int], bool]:
    """The functional operator that computes what this one writes, and which result goes where.

    The last value says whether that one has tensor options.
    """
    name = str(op)
    arguments = op._schema.arguments
    # Of a list that is written it is not said which result is which element's.
    if not written or not all(isinstance(arguments[i].type, torch.TensorType) for i in written):
        return name, {}, False
    outs = [i for i in written if arguments[i].is_out]
    base, _, overload = name.rpartition(".")
    if outs == list(written):
        kept = [a for i, a in enumerate(arguments) if i not in outs]
        if match := _overload(base, overload, kept, len(outs)):
            return match[0], {i: k for k, i in enumerate(outs)}, match[1]
    elif not outs and list(written) == [0] and base.endswith("_"):
        base = base.removesuffix("_")
        if match := _overload(base, overload, arguments, 1):
            return match[0], {0: 0}, match[1]
    return name, {}, False


def _overload(
    base: str, preferred: str, arguments: Sequence[Any], results: int
) -> tuple[str, bool] | None:
    """The overload with these arguments that writes nothing and gives so many results."""
    namespace, _, name = base.partition(".")
    packet = getattr(getattr(torch.ops, namespace), name, None)
    if packet is None:
        return None
    wanted = [(a.name, str(a.type)) for a in arguments]
    for overload in sorted(packet.overloads(), key=lambda o: o != preferred):
        schema = getattr(packet, overload)._schema
        options = _options(schema.arguments)
        kept = [a for i, a in enumerate(schema.arguments) if i not in options]
        writes = any(a.alias_info is not None and a.alias_info.is_write for a in kept)
        is_same = [(a.name, str(a.type)) for a in kept] == wanted
        if is_same and len(schema.returns) == results and not writes:
            return f"{base}.{overload}", bool(options)
    return None


def _options(arguments: Sequence[Any]) -> list[int]:
    """The positions of the tensor options, which come as four."""
    positions = [i for i, a in enumerate(arguments) if a.name in _OPTIONS]
    return positions if len(positions) == len(_OPTIONS) else []
