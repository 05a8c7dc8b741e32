"""ExportedProgram -> `_core.Problem`, for the top graph and for each control-flow body.

Only what bears on a decision is extracted: the copies, what they read, and whatever may share
storage with an output. A graph of a million nodes with a handful of mutations costs a handful of
visits; nothing here walks all nodes.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch._ops import HigherOrderOperator
from torch.export.graph_signature import InputKind, OutputKind
from torch.fx import GraphModule, Node

from mutcanon._alias import REPRESENTATION_KEEPERS, aten_op, is_copy, op_facts
from mutcanon._core import CoreError, Problem
from mutcanon._layout import Layouts
from mutcanon._torch import PARAMETER_MUTATION, call_targets
from mutcanon.errors import InvalidProgramError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch.export import ExportedProgram
    from torch.export.graph_signature import ExportGraphSignature, OutputSpec
    from torch.fx import Graph

    from mutcanon._alias import OpFacts

MUTATIONS = frozenset(
    {
        OutputKind.BUFFER_MUTATION,
        PARAMETER_MUTATION,
        OutputKind.USER_INPUT_MUTATION,
    }
)


@dataclass
class GraphFacts:
    """What the targets of a graph's calls say before any node is looked at.

    Attributes:
        copies: The functional copies of the graph.
        writers: Nodes that write an argument in place, each with its operator's facts.
        higher_order: Calls of higher-order operators.
    """

    copies: list[Node] = field(default_factory=list)
    writers: list[tuple[Node, OpFacts]] = field(default_factory=list)
    higher_order: list[Node] = field(default_factory=list)


def graph_facts(graph: Graph) -> GraphFacts:
    """Looks at the distinct call targets of the graph, and at the nodes of those that matter."""
    facts = GraphFacts()
    for target in call_targets(graph):
        if is_copy(target):
            facts.copies.extend(_calls(graph, target))
        elif isinstance(target, HigherOrderOperator):
            facts.higher_order.extend(_calls(graph, target))
        elif (known := op_facts(target)).written:
            facts.writers.extend((n, known) for n in _calls(graph, target))
    return facts


def _calls(graph: Graph, target: Any) -> Sequence[Node]:
    return graph.find_nodes(op="call_function", target=target, sort=False)


def bodies(gm: GraphModule) -> Iterator[tuple[str, GraphModule]]:
    """The control-flow bodies below a graph module with their paths, each once."""
    if not gm._modules:
        return
    for path, module in gm.named_modules():
        if path and isinstance(module, GraphModule):
            yield path, module


@dataclass
class Extract:
    """A problem and the nodes that its numbers stand for.

    Attributes:
        gm: The graph module.
        problem: The core's problem.
        nodes: The node of each value; None for results that have no node of their own.
        outputs: The output node's arguments, in order.
        targets: For each output the placeholder that it mutates, or None.
    """

    gm: GraphModule
    problem: Problem
    nodes: list[Node | None]
    outputs: list[Any]
    targets: list[Node | None]


def output_args(gm: GraphModule) -> list[Any]:
    """The graph's outputs, flat, in order."""
    (args,) = gm.graph.output_node().args
    return list(args) if isinstance(args, (tuple, list)) else [args]


def check_signature(ep: ExportedProgram, outputs: Sequence[Any]) -> None:
    """Refuses a program whose signature and outputs disagree.

    Raises:
        InvalidProgramError: With the first output that is wrong.
    """
    specs = ep.graph_signature.output_specs
    if len(specs) != len(outputs):
        raise InvalidProgramError(
            f"output: the graph returns {len(outputs)} values and the signature names {len(specs)}"
            "; mend the signature, or export the program again",
            code="signature_mismatch",
        )
    for i, (spec, value) in enumerate(zip(specs, outputs, strict=True)):
        if isinstance(value, Node) and getattr(spec.arg, "name", value.name) != value.name:
            raise InvalidProgramError(
                f"output {i}: the graph returns {value.name!r} where the signature names "
                f"{spec.arg.name!r} ({spec.kind.name}); mend the signature, or export again",
                code="signature_mismatch",
            )


def extract_program(
    ep: ExportedProgram,
    facts: GraphFacts,
    outputs: list[Any],
    layouts: Layouts,
    opaque_writes: bool,
) -> Extract:
    """The problem of the top graph.

    Args:
        ep: The program.
        facts: Those of its graph.
        outputs: The output node's arguments.
        layouts: Where layouts are interned.
        opaque_writes: Whether some body writes in place.

    Raises:
        InvalidProgramError: When a mutation's target is no placeholder, or the like.
    """
    builder = _Builder(layouts)
    builder.input_kinds = _input_kinds(ep.graph_signature)
    builder.add_copies(facts.copies)
    codes: list[int] = []
    find = _Targets(ep)
    targets: list[Node | None] = [None] * len(outputs)
    for i, (spec, value) in enumerate(zip(ep.graph_signature.output_specs, outputs, strict=True)):
        if not isinstance(value, Node):
            codes.append(0)
        elif spec.kind in MUTATIONS:
            targets[i] = target = find.find(i, spec)
            kind = 3 if spec.kind is OutputKind.USER_INPUT_MUTATION else 2
            if find.is_namesake(spec):
                kind += 2
            codes += (kind, builder.visit(target), builder.visit(value))
        elif spec.kind is OutputKind.USER_OUTPUT and _is_tensor(value):
            codes += (1, builder.visit(value))
        else:
            codes.append(0)
    return builder.finish(ep.graph_module, facts, codes, outputs, targets, opaque_writes)


def extract_body(
    gm: GraphModule, facts: GraphFacts, outputs: list[Any], layouts: Layouts, opaque_writes: bool
) -> Extract:
    """The problem of a control-flow body: its outputs must not alias anything (semantics 4.6)."""
    builder = _Builder(layouts)
    builder.add_copies(facts.copies)
    codes: list[int] = []
    for value in outputs:
        if isinstance(value, Node) and _is_tensor(value):
            codes += (1, builder.visit(value))
        else:
            codes.append(0)
    none: list[Node | None] = [None] * len(outputs)
    return builder.finish(gm, facts, codes, outputs, none, opaque_writes, is_body=True)


def extract_write_back(gm: GraphModule, outputs: list[Any], targets: list[Node | None]) -> Extract:
    """The problem of writing the outputs of an unlifted graph back: every copy in it stays.

    Args:
        gm: A graph whose buffers and parameters are attributes.
        outputs: The output node's arguments.
        targets: For each output the node that it is written to, or None.
    """
    builder = _Builder(Layouts(), copies_stay=True)
    codes: list[int] = []
    for value, target in zip(outputs, targets, strict=True):
        if not isinstance(value, Node):
            codes.append(0)
        elif target is not None:
            codes += (2, builder.visit(target), builder.visit(value))
        elif _is_tensor(value):
            codes += (1, builder.visit(value))
        else:
            codes.append(0)
    return builder.finish(gm, GraphFacts(), codes, outputs, targets, False)


def _is_tensor(node: Node) -> bool:
    # Without metadata we cannot know, and a tensor is what could be harmed.
    val = node.meta.get("val")
    return val is None or isinstance(val, torch.Tensor)


class _Targets:
    """Finds the placeholder of a mutation's target."""

    def __init__(self, ep: ExportedProgram) -> None:
        self._ep = ep
        self._by_name: dict[str, Node] | None = None
        self._by_target: dict[str, str] = {}
        self._inputs: frozenset[str] = frozenset()

    def find(self, output: int, spec: OutputSpec) -> Node:
        if self._by_name is None:
            self._by_name = {
                n.name: n for n in self._ep.graph.find_nodes(op="placeholder", sort=False)
            }
            signature = self._ep.graph_signature
            self._by_target = _placeholder_names(signature)
            self._inputs = frozenset(
                s.arg.name
                for s in signature.input_specs
                if s.kind is InputKind.USER_INPUT and hasattr(s.arg, "name")
            )
        name = spec.target
        if name is not None and spec.kind is not OutputKind.USER_INPUT_MUTATION:
            name = self._by_target.get(name)
        node = None if name is None else self._by_name.get(name)
        if node is None:
            raise InvalidProgramError(
                f"output {output}: {spec.kind.name} of {spec.target!r}, which is no input; "
                "mend the signature, or export again",
                code="unknown_target",
            )
        return node

    def is_namesake(self, spec: OutputSpec) -> bool:
        """Whether a user input and a buffer or parameter have this name."""
        if spec.kind is OutputKind.USER_INPUT_MUTATION:
            return spec.target in self._by_target
        return spec.target in self._inputs


def _placeholder_names(signature: ExportGraphSignature) -> dict[str, str]:
    return {
        spec.target: spec.arg.name
        for spec in signature.input_specs
        if spec.target is not None and hasattr(spec.arg, "name")
    }


def _input_kinds(signature: ExportGraphSignature) -> dict[str, int]:
    """The core's code for the placeholder of each input."""
    codes = {InputKind.BUFFER: 5, InputKind.USER_INPUT: 6}
    return {
        spec.arg.name: codes.get(spec.kind, 7)
        for spec in signature.input_specs
        if hasattr(spec.arg, "name")
    }


class _Builder:
    """Numbers values, operands first, and writes their codes (see `_core.pyi`)."""

    def __init__(self, layouts: Layouts, *, copies_stay: bool = False) -> None:
        self.layouts = layouts
        self.copies_stay = copies_stay
        self.input_kinds: dict[str, int] = {}
        self.codes: list[int] = []
        self.nodes: list[Node | None] = []
        self.numbers: dict[Any, int] = {}

    def visit(self, node: Node) -> int:
        """The number of a node's value; numbers what it depends on first."""
        number = self.numbers.get(node)
        if number is not None:
            return number
        stack: list[Node] = [node]
        while stack:
            top = stack[-1]
            if top in self.numbers:
                stack.pop()
                continue
            stays = self.copies_stay and top.op == "call_function" and is_copy(top.target)
            operands = () if stays else _operands(top)
            missing = [o for o in operands if o not in self.numbers]
            if missing:
                stack += missing
                continue
            self._add(top, operands)
            stack.pop()
        return self.numbers[node]

    def add_copies(self, copies: Sequence[Node]) -> None:
        """Numbers the copies. They stand in graph order, so most find their operands numbered."""
        numbers, codes, nodes = self.numbers, self.codes, self.nodes
        for copy in copies:
            args = copy.args
            if len(args) == 2 and copy not in numbers:
                destination, source = args
                if source not in numbers and isinstance(source, Node):
                    self.visit(source)
                if destination in numbers and source in numbers and not copy.kwargs:
                    to = numbers[destination]
                    layout = self.layouts.number(copy.meta.get("val"))
                    codes += (3, layout, to + 1, to, numbers[source])
                    numbers[copy] = len(nodes)
                    nodes.append(copy)
                    continue
            self.visit(copy)

    def _add(self, node: Node, operands: Sequence[Node]) -> None:
        layout = self.layouts.number(node.meta.get("val"))
        numbers = self.numbers
        if node.op in ("placeholder", "get_attr"):
            codes = [self.input_kinds.get(node.name, 0), layout, 0]
        elif node.op != "call_function":
            raise InvalidProgramError(
                f"{node.name}: a {node.op} node; export the program again", code="malformed_node"
            )
        elif operands and is_copy(node.target):
            destination, source = operands
            codes = [3, layout, numbers[destination] + 1, numbers[destination], numbers[source]]
            if _flag(node, 2, "non_blocking"):
                codes[0] = 4
        elif operands:
            codes = self._alias_codes(node, layout, operands)
        else:
            codes = [1, layout, 0]
        numbers[node] = len(self.nodes)
        self.nodes.append(node)
        self.codes += codes

    def _alias_codes(self, node: Node, layout: int, operands: Sequence[Node]) -> list[int]:
        if aten_op(node.target) in REPRESENTATION_KEEPERS:
            return [1, layout, self.numbers[operands[0]] + 1]
        if node.target is operator.getitem and operands[0].op == "call_function":
            index = node.args[1]
            return [2, layout, 0, 1, self._result(operands[0], index)]
        return [2, layout, 0, len(operands), *(self.numbers[o] for o in operands)]

    def _result(self, producer: Node, index: Any) -> int:
        """The number of one result of an operator that returns several.

        Results of their own storage are told apart, and two nodes that take the same one share it.
        """
        facts = op_facts(producer.target)
        if facts.may_alias_all or any(facts.aliases):
            return self.numbers[producer]
        key = (producer, index)
        number = self.numbers.get(key)
        if number is None:
            number = self.numbers[key] = len(self.nodes)
            self.nodes.append(None)
            self.codes += (1, 0, 0)
        return number

    def finish(
        self,
        gm: GraphModule,
        facts: GraphFacts,
        outputs: list[int],
        output_nodes: list[Any],
        targets: list[Node | None],
        opaque_writes: bool,
        *,
        is_body: bool = False,
    ) -> Extract:
        groups = [_tensor_operands(call) for call in facts.higher_order]
        operand_groups = [
            [self.visit(n) for n in group]
            for group in groups
            if any(n.op == "call_function" and is_copy(n.target) for n in group)
        ]
        written = [self.visit(n) for node, known in facts.writers for n in _written(node, known)]
        read = [
            self.visit(value)
            for value, target in zip(output_nodes, targets, strict=True)
            if target is not None and any(u.op != "output" for u in value.users)
        ]
        try:
            problem = Problem(
                self.layouts.symbols,
                self.layouts.table,
                self.codes,
                outputs,
                operand_groups=operand_groups,
                written=written,
                read=read,
                opaque_writes=opaque_writes,
                is_body=is_body,
                names=[],
            )
        except CoreError as error:
            message, code = error.args
            raise InvalidProgramError(f"{message}; export the program again", code=code) from error
        return Extract(gm, problem, self.nodes, output_nodes, targets)


def _operands(node: Node) -> Sequence[Node]:
    """The nodes that decide about a value: what it may alias, copies, or keeps the form of."""
    if node.op != "call_function":
        return ()
    target = node.target
    if is_copy(target):
        return _copy_operands(node)
    if target is operator.getitem:
        # An element of a list of nodes, as some passes leave it, may be any of them.
        return node.all_input_nodes if not isinstance(node.args[0], Node) else (node.args[0],)
    facts = op_facts(target)
    if facts.may_alias_all:
        return _tensor_operands(node)
    if any(facts.aliases):
        positions = sorted({i for result in facts.aliases for i in result})
        return [n for i in positions for n in _nodes_in(_argument(node, i, facts))]
    if aten_op(target) in REPRESENTATION_KEEPERS and isinstance(node.args[0], Node):
        return (node.args[0],)
    return ()


def _copy_operands(node: Node) -> tuple[Node, Node]:
    args = node.args
    if len(args) >= 2:
        destination, source = args[0], args[1]
    else:
        destination = args[0] if args else node.kwargs.get("self")
        source = node.kwargs.get("src")
    if not isinstance(destination, Node) or not isinstance(source, Node):
        raise InvalidProgramError(
            f"{node.name}: aten.copy of something that is no node; export the program again",
            code="malformed_node",
        )
    return destination, source


def _flag(node: Node, position: int, name: str) -> bool:
    value = node.args[position] if len(node.args) > position else node.kwargs.get(name, False)
    return value is not False and value is not None


def _argument(node: Node, position: int, facts: OpFacts) -> Any:
    if position < len(node.args):
        return node.args[position]
    return node.kwargs.get(facts.names[position])


def _written(node: Node, facts: OpFacts) -> list[Node]:
    return [n for i in facts.written for n in _nodes_in(_argument(node, i, facts))]


def _tensor_operands(node: Node) -> list[Node]:
    return [n for n in node.all_input_nodes if n.op != "get_attr" and _is_tensor(n)]


def _nodes_in(argument: Any) -> list[Node]:
    found: list[Node] = []
    torch.fx.node.map_arg(argument, lambda n: found.append(n))
    return found
