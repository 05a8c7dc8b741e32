"""Edge program -> `_core.Flow`: the whole graph, and what in it could be written in place.

A node has two ways to be written in place. It may write over its first operand, as `index_put` over
a cache; that needs an in-place kernel. Or it may write its result where the mutation's target lies,
as any operator with an out variant can: the target is then its `out`.

ExecuTorch turns some copies of views into views, so those count as views here. A custom operator
that mutates its arguments arrives as `auto_functionalized`; ExecuTorch lets it write over them
whether somebody still reads them or not, so it is a candidate too, and gets clones where it must.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch._ops import HigherOrderOperator
from torch.export.graph_signature import InputKind, OutputKind
from torch.fx import Node

from mutcanon import _executorch
from mutcanon._alias import aten_op, is_copy, op_facts, written_operand
from mutcanon._core import Flow
from mutcanon._custom_ops import MutatedArgument, is_wrapped, mutated_arguments
from mutcanon._extract import MUTATIONS, check_signature, output_args
from mutcanon._kernels import InPlaceForm, Refused, in_place_form
from mutcanon._layout import Layouts

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.export.graph_signature import OutputSpec

aten = torch.ops.aten

#: Operators that look at their first operand's type only.
_LAYOUT_ONLY = frozenset(
    {
        aten.full_like.default,
        aten.zeros_like.default,
        aten.ones_like.default,
        aten.empty_like.default,
        aten.copy.default,
    }
)


_NUMBERS = (torch.SymInt, torch.SymFloat, torch.SymBool, int, float, bool)


@dataclass(frozen=True)
class Candidate:
    """A node that could write in place.

    Attributes:
        node: The node.
        result: Its result, or the part of it that stands for `over`.
        over: What would be overwritten.
        operands: What it reads meanwhile, and what must therefore lie elsewhere.
        form: How it is built, for one that writes over an operand.
        argument: The argument, for a custom operator.
    """

    node: Node
    result: Node
    over: Node
    operands: tuple[Node, ...]
    form: InPlaceForm | None = None
    argument: MutatedArgument | None = None


@dataclass
class FlowExtract:
    """A flow and the nodes that its numbers stand for.

    Attributes:
        flow: The core's flow.
        nodes: The graph's nodes but the output.
        outputs: The output node's arguments.
        targets: For each output the placeholder that it mutates, or None.
        candidates: Those of the flow.
        identities: Nodes that only copy their operand.
        refused: Nodes whose in-place form the kernel does not take, with the missing fact.
    """

    flow: Flow
    nodes: list[Node]
    outputs: list[Any]
    targets: list[Node | None]
    candidates: list[Candidate]
    identities: list[Node]
    refused: list[tuple[Node, str]]


def extract_flow(
    ep: ExportedProgram,
    *,
    reinplace: bool,
    extra_form: Callable[[Node], InPlaceForm | None] = lambda node: None,
) -> FlowExtract:
    """The flow of the program's top graph.

    Args:
        ep: An edge program.
        reinplace: Whether operators may be computed in place; custom operators are in any case.
        extra_form: The form of operators that the user added.

    Raises:
        InvalidProgramError: When the signature and the graph disagree.
    """
    outputs = output_args(ep.graph_module)
    check_signature(ep, outputs)
    nodes = [n for n in ep.graph.nodes if n.op != "output"]
    builder = _Builder({n: i for i, n in enumerate(nodes)})
    for node in nodes:
        builder.add(node)
    targets = mutation_targets(ep)
    codes: list[int] = []
    for value, target in zip(outputs, targets, strict=True):
        if not isinstance(value, Node):
            codes.append(0)
        elif target is None:
            codes += (1, builder.numbers[value])
        else:
            value = target if _is_in_place(value, target) else value
            codes += (2, builder.numbers[target], builder.numbers[value])
    candidates = list(_custom_operators(nodes))
    identities: list[Node] = []
    refused: list[tuple[Node, str]] = []
    if reinplace:
        identities = [n for n in nodes if _is_identity(n)]
        forms = _forms(nodes, _Constants(ep), refused)
        extra = {n: form for n in nodes if n not in forms and (form := extra_form(n)) is not None}
        candidates += [Candidate(n, n, form.over, form.operands, form) for n, form in forms.items()]
        candidates += _direct(outputs, targets, forms)
        candidates += [Candidate(n, n, form.over, form.operands, form) for n, form in extra.items()]
    flow = Flow(
        builder.codes,
        codes,
        [c for candidate in candidates for c in builder.candidate(candidate)],
        [builder.numbers[n] for n in identities],
        [n.name for n in nodes],
    )
    return FlowExtract(flow, nodes, outputs, targets, candidates, identities, refused)


def _is_in_place(value: Node, target: Node) -> bool:
    """Whether the target has its value already, in a program that somebody made to write there."""
    while value.op == "call_function" and (over := written_operand(value)) is not None:
        value = over
    return value is target


def _is_identity(node: Node) -> bool:
    """Whether the node copies its only operand and changes neither values nor layout."""
    if node.op != "call_function" or not _executorch.keeps_values(node.target):
        return False
    operands = node.all_input_nodes
    if len(operands) != 1 or any(_is_control_flow(user) for user in node.users):
        return False
    return _looks_alike(node, operands[0], Layouts())


def _is_control_flow(node: Node) -> bool:
    """Whether the node's operands must not share storage with one another (semantics 4.6)."""
    return isinstance(node.target, HigherOrderOperator) and not _executorch.is_delegate_call(node)


def mutation_targets(ep: ExportedProgram) -> list[Node | None]:
    """For each output the placeholder that it mutates, or None."""
    signature = ep.graph_signature
    by_name: dict[str, Node] = {n.name: n for n in ep.graph.nodes if n.op == "placeholder"}
    names: dict[str, str] = {s.target: s.arg.name for s in signature.input_specs if s.target}

    def find(spec: OutputSpec) -> Node | None:
        if spec.kind not in MUTATIONS or spec.target is None:
            return None
        # A user input may be called as a buffer is.
        is_input = spec.kind is OutputKind.USER_INPUT_MUTATION
        name: str = spec.target if is_input else names[spec.target]
        return by_name[name]

    return [find(s) for s in signature.output_specs]


@dataclass
class _Builder:
    numbers: Mapping[Node, int]
    codes: list[int] = field(default_factory=list)

    def add(self, node: Node) -> None:
        """Writes the codes of a node (see `_core.pyi`)."""
        numbers = self.numbers
        reads = [] if _reads_sizes(node) else [numbers[n] for n in node.all_input_nodes]
        written: list[int] = []
        if node.op == "placeholder":
            self.codes.append(0)
        elif (shared := aliased(node)) is None:
            self.codes.append(1)
        else:
            self.codes += (2, len(shared), *(numbers[n] for n in shared))
        if node.op == "call_function":
            facts = op_facts(node.target)
            operands = [_argument(node, i, facts.names) for i in facts.written]
            written = [numbers[n] for n in operands if isinstance(n, Node)]
        self.codes += (len(reads), *reads, len(written), *written)

    def candidate(self, c: Candidate) -> list[int]:
        number = self.numbers
        operands = [number[n] for n in c.operands]
        return [number[c.node], number[c.result], number[c.over], len(operands), *operands]


def _reads_sizes(node: Node) -> bool:
    """Whether the node looks at no element, only at sizes or strides."""
    return aten_op(node.target) in (aten.sym_size.int, aten.sym_stride.int, aten.sym_numel.default)


def aliased(node: Node) -> list[Node] | None:
    """What the result may share storage with; None for new storage, or none at all."""
    if node.op != "call_function":
        return []  # a constant or a body: known to nobody, so never written
    if isinstance(node.meta.get("val"), _NUMBERS):
        return None
    target = node.target
    if target is operator.getitem:
        # Every part of a fresh result has storage of its own.
        source = node.args[0]
        is_fresh = isinstance(source, Node) and aliased(source) is None
        return None if is_fresh else node.all_input_nodes
    if isinstance(target, HigherOrderOperator):
        return None
    if _executorch.becomes_view(target):
        return node.all_input_nodes[:1]
    facts = op_facts(target)
    if facts.may_alias_all:
        return node.all_input_nodes
    if facts.is_fresh:
        return None
    positions = sorted({i for result in facts.aliases for i in result})
    found = [_argument(node, i, facts.names) for i in positions]
    return [n for n in found if isinstance(n, Node)] or node.all_input_nodes


def _argument(node: Node, position: int, names: tuple[str, ...]) -> Any:
    if position < len(node.args):
        return node.args[position]
    return node.kwargs.get(names[position])


def _custom_operators(nodes: list[Node]) -> Iterator[Candidate]:
    for node in nodes:
        if is_wrapped(node):
            for argument in mutated_arguments(node):
                yield Candidate(
                    node, argument.result, argument.value, argument.operands, argument=argument
                )


def _forms(
    nodes: list[Node], constant: _Constants, refused: list[tuple[Node, str]]
) -> dict[Node, InPlaceForm]:
    """The nodes that an in-place kernel could compute; the others that ask for one are refused."""
    forms = {}
    layouts = Layouts()
    for node in nodes:
        if node.op == "call_function":
            try:
                form = in_place_form(node, constant)
            except Refused as error:
                refused.append((node, str(error)))
                continue
            if form is None:
                continue
            if _looks_alike(node, form.over, layouts):
                forms[node] = form
            else:
                refused.append((node, f"the result has other strides than {form.over.name}"))
    return forms


def _looks_alike(a: Node, b: Node, layouts: Layouts) -> bool:
    """Whether two values are known to have one type and layout.

    ExecuTorch makes inputs contiguous, and leaves the results that were computed from them as they
    were.
    """
    numbers = [layouts.number(n.meta.get("val")) for n in (a, b)]
    return numbers[0] == numbers[1] != 0


def _direct(
    outputs: list[Any], targets: list[Node | None], forms: Mapping[Node, InPlaceForm]
) -> Iterator[Candidate]:
    """Results that could be computed where their target lies.

    Where the last steps to a value write rows over one another, that is what they begin with.
    """
    layouts = Layouts()
    for value, target in zip(outputs, targets, strict=True):
        if target is None or not isinstance(value, Node):
            continue
        first = value
        while first in forms:
            first = forms[first].over
        for result in (value,) if first is value else (value, first):
            node = _computed_by(result)
            if node is not None and _looks_alike(result, target, layouts):
                yield Candidate(node, result, target, tuple(_read_meanwhile(node, target)))


def _computed_by(result: Node) -> Node | None:
    """The node that could be told where to put the result: an operator, or a backend."""
    if result.op != "call_function" or aliased(result) is not None:
        return None
    if result.target is operator.getitem:
        (source,) = result.all_input_nodes
        return source if _executorch.is_delegate_call(source) else None
    return None if isinstance(result.target, HigherOrderOperator) else result


def _read_meanwhile(node: Node, target: Node) -> list[Node]:
    """The operands that must not be the target, when the node's result goes there."""
    op = aten_op(node.target)
    reads = node.all_input_nodes
    if op in _LAYOUT_ONLY or is_copy(op):
        return [n for n in reads if n is not node.args[0]] + _repeated(node)
    if torch.Tag.pointwise in getattr(op, "tags", ()):
        # Element by element: each is read before it is written.
        return [n for n in reads if n is not target]
    return reads


def _repeated(node: Node) -> list[Node]:
    """The first operand, where it is read for its values too."""
    first = node.args[0]
    return [n for n in node.args[1:] if n is first and isinstance(n, Node)]


class _Constants:
    """The values of placeholders that no run changes."""

    def __init__(self, ep: ExportedProgram) -> None:
        mutated = {s.target for s in ep.graph_signature.output_specs if s.kind in MUTATIONS}
        self._values: dict[str, torch.Tensor] = {}
        kinds = (InputKind.CONSTANT_TENSOR, InputKind.BUFFER)
        for spec in ep.graph_signature.input_specs:
            if spec.kind in kinds and spec.target not in mutated:
                value = ep.constants.get(spec.target, ep.state_dict.get(spec.target))
                if isinstance(value, torch.Tensor):
                    self._values[spec.arg.name] = value

    def __call__(self, node: Node) -> torch.Tensor | None:
        return self._values.get(node.name) if node.op == "placeholder" else None
