"""An exported program as the text that the checker reads, node by node.

Nothing is left out and nothing is interpreted: operators are names, constants are text, and what is
said of storage comes from `_check_facts`. This shares no code with the extraction that the planner
works from.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch._ops import HigherOrderOperator, OpOverload
from torch.fx import GraphModule, Node

from mutcanon._check_facts import Facts, facts_of, written_by_custom
from mutcanon._check_rows import rows_of
from mutcanon._check_types import word
from mutcanon.errors import InvalidProgramError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch.export import ExportedProgram
    from torch.fx import Graph

    from mutcanon._check_types import Types

_UNKNOWN = Facts(may_share_all=True, impure=True)


class _Output(NamedTuple):
    """An output: what it is for, what it mutates if anything, its value, its name in the signature.

    `kind` is "user", "other", or the kind of the mutated input.
    """

    kind: str
    target: str | None
    value: Any
    name: str | None


def encode(ep: ExportedProgram, types: Types, lowered_from: ExportedProgram | None = None) -> str:
    """A program as statements of the checker's textual form.

    Args:
        ep: The program.
        types: Receives the types of its values.
        lowered_from: The program that it was, where this one carries out its mutations itself, in
            the graph. What is mutated there and is no output here becomes what its input holds; the
            names of outputs, which executorch does not keep up, and assertions, which it removes,
            are left out.

    Raises:
        InvalidProgramError: When signature and graph disagree about inputs or outputs.
    """
    inputs = _inputs(ep)
    outputs = _outputs(ep)
    if lowered_from is not None:
        inputs, outputs = _as_before(inputs, outputs, lowered_from)
    writer = _Writer(ep.graph_module, types, ep.range_constraints)
    if lowered_from is not None:
        writer.is_lowered = True
        # Nodes that share a spec share memory in a plan of executorch.
        specs = ((n, n.meta.get("spec")) for n in inputs)
        writer.memory = {id(spec): n for n, spec in specs if spec is not None}
    writer.nodes({n: f"input {kind} {word(target)}" for n, (kind, target) in inputs.items()})
    for output in outputs:
        writer.output(output)
    return "".join(writer.lines)


def _inputs(ep: ExportedProgram) -> dict[Node, tuple[str, str]]:
    """Kind and target of each placeholder."""
    nodes, specs = ep.graph.find_nodes(op="placeholder"), ep.graph_signature.input_specs
    _require_as_many("inputs", nodes, specs)
    found = {}
    for node, spec in zip(nodes, specs, strict=True):
        kind = spec.kind.name.lower()
        found[node] = kind, node.name if kind == "user_input" else spec.target or node.name
    return found


def _outputs(ep: ExportedProgram) -> list[_Output]:
    values, specs = _results(ep.graph), ep.graph_signature.output_specs
    if len(values) < len(specs):
        # The memory plan of executorch drops what is written to a buffer.
        specs = [s for s in specs if s.kind.name != "BUFFER_MUTATION"]
    _require_as_many("outputs", values, specs)
    found = []
    for value, spec in zip(values, specs, strict=True):
        kind = spec.kind.name.lower()
        name = getattr(spec.arg, "name", None) if isinstance(value, Node) else None
        if kind.endswith("_mutation"):
            kind = kind.removesuffix("_mutation")
            found.append(_Output(kind, spec.target or "", value, name))
        else:
            kind = "user" if kind == "user_output" else "other"
            found.append(_Output(kind, None, value, name))
    return found


def _as_before(
    inputs: dict[Node, tuple[str, str]], outputs: list[_Output], before: ExportedProgram
) -> tuple[dict[Node, tuple[str, str]], list[_Output]]:
    """Inputs with their kinds before, since mutated parameters become buffers; all mutations."""

    def place(kind: str, target: str | None) -> tuple[bool, str | None]:
        # Parameters and buffers have names of their own; a user input may be called as one is.
        return kind == "user_input", target

    kinds = {place(kind, target): kind for kind, target in _inputs(before).values()}
    inputs = {n: (kinds.get(place(*given), given[0]), given[1]) for n, given in inputs.items()}
    holds = {place(*given): node for node, given in inputs.items()}
    found = {place(o.kind, o.target): o.value for o in outputs if o.target is not None}
    due = [o for o in _outputs(before) if o.target is not None]
    mutations = [
        o._replace(value=found.get(at, holds.get(at)), name=None)
        for o in due
        for at in [place(o.kind, o.target)]
    ]
    return inputs, [*mutations, *(o._replace(name=None) for o in outputs if o.target is None)]


def _require_as_many(what: str, values: Sequence[Any], specs: Sequence[Any]) -> None:
    if len(values) != len(specs):
        raise InvalidProgramError(
            f"program: {len(values)} {what}, of which the signature names {len(specs)}; "
            "mend the signature, or export again",
            code="signature_mismatch",
        )


def _results(graph: Graph) -> list[Any]:
    (results,) = graph.output_node().args
    return list(results) if isinstance(results, (tuple, list)) else [results]


class _Writer:
    """Writes the statements of one graph."""

    def __init__(self, gm: GraphModule, types: Types, ranges: Any, indent: str = "") -> None:
        self.gm = gm
        self.types = types
        self.ranges = ranges
        self.indent = indent
        self.lines: list[str] = []
        #: Whether it is a program that executorch goes on with, which does some things its own way.
        self.is_lowered = False
        #: The input that has the memory of a spec.
        self.memory: dict[int, Node] = {}
        #: What stands for a node where it is not called by its name.
        self.words: dict[Node, str] = {}

    def nodes(self, inputs: dict[Node, str]) -> None:
        """Writes all nodes; `inputs` says what each placeholder is."""
        for node in self.gm.graph.nodes:
            if node.op == "call_function":
                self._call(node)
            elif node.op == "placeholder":
                self._line(node, inputs[node])
            elif node.op == "get_attr":
                self._attribute(node)
            elif node.op != "output":
                # Neither modules nor methods are called in an exported program.
                self._any(node, f"{node.op}:{node.target}", _UNKNOWN)

    def output(self, output: _Output) -> None:
        """Writes one output."""
        kind, target, value, named = output
        if target is not None:
            role = f"mutate {kind} {word(target)} <-"
        else:
            role = "output" if kind == "user" else "other"
        if isinstance(value, Node):
            name = "" if named is None else f" as {word(named)}"
            self.lines.append(f"{self.indent}{role} {self._word(value)}{name}\n")
        else:
            self.lines.append(f"{self.indent}{role} {word(repr(value))}\n")

    def _word(self, node: Node) -> str:
        return self.words.get(node) or f"%{node.name}"

    def _place(self, node: Node) -> Node | None:
        """The input whose memory the node has."""
        return self.memory.get(id(node.meta.get("spec"))) if self.memory else None

    def _line(self, node: Node, what: str) -> None:
        kind = self.types.result(node.meta.get("val"))
        self.lines.append(f"{self.indent}%{node.name} : {kind} = {what}\n")
        place = self._place(node)
        if place is not None and node is not place and f"same 0 %{place.name}" not in what:
            # Computed in the memory of an input: a write to it.
            held = self.words[node] = f"%{node.name}__held"
            write = f"copy %{place.name} %{node.name} ; same 0 %{place.name}"
            self.lines.append(f"{self.indent}{held} : {kind} = {write} ; writes %{place.name} 0\n")

    def _attribute(self, node: Node) -> None:
        value: Any = self.gm
        for part in str(node.target).split("."):
            value = getattr(value, part)
        if not isinstance(value, GraphModule):
            # The object itself is the constant: a delegate, a tensor that was not lifted.
            self._line(node, f"call get_attr {word(str(node.target))} {id(value)}")
            return
        name = self.words[node] = f"@{node.name}"
        body = _Writer(value, self.types, self.ranges, self.indent + "  ")
        body.nodes({n: f"input operand {n.name}" for n in value.graph.find_nodes(op="placeholder")})
        for result in _results(value.graph):
            body.output(_Output("user", None, result, None))
        start, end = f"{self.indent}body {name[1:]}\n", f"{self.indent}end\n"
        self.lines += [start, *body.lines, end]

    def _call(self, node: Node) -> None:
        target = node.target
        if target is operator.getitem:
            source, index = node.args
            if (
                isinstance(source, Node)
                and isinstance(index, int)
                and isinstance(source.meta.get("val"), (tuple, list))
            ):
                self._line(node, f"item {index} {self._word(source)}")
                return
        facts = facts_of(target)
        if facts.is_allocation and (place := self._place(node)) is not None:
            self.words[node] = f"%{place.name}"
            return
        if not (self.is_lowered and facts.is_assertion):
            self._any(node, None, facts)

    def _any(self, node: Node, name: str | None, facts: Facts) -> None:
        rows = rows_of(node) if self.is_lowered else None
        arguments = rows or facts.bind(node)
        flat: list[str] = []
        for argument in arguments:
            if type(argument) is Node:
                flat.append(self.words.get(argument) or f"%{argument.name}")
            else:
                self._argument(argument, flat)
        is_clone = facts.is_clone or (facts.is_clone_of_same_type and self._keeps_type(node))
        if is_clone:
            # It looks as its own type says, and has the values of its argument.
            arguments, flat = [arguments[0]] * 2, [flat[0]] * 2
        if len(flat) == 2 and (is_clone or (facts.is_copy and flat[1][0] == "%")):
            self.types.prove([node, *arguments], self.ranges)
            head = "copy"
        else:
            head = facts.head if name is None else f"call {word(name)}"
        if rows is not None:
            head = "call rows"
        if facts.typed:
            flat.append(self.types.result(node.meta.get("val")))
        clauses = [] if facts.has_no_clauses else facts.clauses(node, arguments, self._word)
        if self.is_lowered:
            clauses = list(clauses)
            # ExecuTorch unwraps the operator, which then writes its arguments themselves.
            for result, written in written_by_custom(node):
                clauses += [f"; same {result} {self._word(written)}"]
                clauses += [f"; writes {self._word(written)} {result}"]
        self._line(node, " ".join([head, *flat, *clauses]))

    def _keeps_type(self, node: Node) -> bool:
        source = node.args[0] if node.args else None
        types = [
            self.types.result(n.meta.get("val")) for n in (node, source) if isinstance(n, Node)
        ]
        return len(types) == 2 and types[0] == types[1]

    def _argument(self, value: Any, flat: list[str]) -> None:
        if isinstance(value, Node):
            flat.append(self._word(value))
        elif isinstance(value, (list, tuple)):
            flat.append("[")
            for element in value:
                self._argument(element, flat)
            flat.append("]")
        elif isinstance(value, dict):
            flat.append("{")
            for key, element in value.items():
                flat.append(word(f"{key}="))
                self._argument(element, flat)
            flat.append("}")
        elif isinstance(value, slice):
            flat.append("slice")
            self._argument([value.start, value.stop, value.step], flat)
        else:
            flat.append(_constant(value))


def _constant(value: Any) -> str:
    if type(value) in (int, bool, type(None)):
        return str(value)
    if isinstance(value, (int, float, complex, str, bytes)):
        return word(repr(value))
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return word(f"sym:{value.node.expr}")
    if isinstance(value, (OpOverload, HigherOrderOperator)):
        return word(f"op:{value}")
    if isinstance(
        value, (torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size)
    ):
        return word(repr(value))
    # Anything else is the same only as long as it is the same object.
    return word(f"{type(value).__name__}:{id(value)}")
