"""The independent checker: does a result still mean what the program meant?

`check` reads both programs in full, node by node, and hands them to the core's checker as text. It
shares no code with the extraction that the planner works from: what is misread there is not
misread here. Operators stay uninterpreted; what this module says about each call is where its
results may live and what it writes, read off the operator's schema (`_OpFacts`).
"""

from __future__ import annotations

import contextlib
import operator
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch._ops import HigherOrderOperator, OpOverload
from torch.fx import GraphModule, Node

from mutcanon import _core
from mutcanon._check_facts import Facts, facts_of
from mutcanon._check_types import Types, word
from mutcanon.errors import InternalError, InvalidProgramError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch.export import ExportedProgram
    from torch.fx import Graph

__all__ = ["CheckResult", "Remark", "always", "check"]

Consumer = Literal["torch", "executorch", "mutcanon"]

_UNKNOWN = Facts(may_share_all=True, impure=True)


@dataclass(frozen=True)
class Remark:
    """One thing that is wrong, or that would be.

    Attributes:
        code: The kind, stable.
        message: The output, input or node that it is about, and what is the matter.
    """

    code: str
    message: str

    def __str__(self) -> str:
        return f"{self.message} [{self.code}]"


@dataclass(frozen=True)
class CheckResult:
    """What the checker says.

    Attributes:
        objections: What is wrong; empty when the result is right.
        warnings: What would be wrong if the caller passed one tensor as two inputs, and what the
            consumer never does.
        case: Both programs as text: `_core.check` replays it.
    """

    objections: tuple[Remark, ...]
    warnings: tuple[Remark, ...]
    case: str = field(repr=False)

    @property
    def is_right(self) -> bool:
        """Whether nothing is wrong."""
        return not self.objections

    def __str__(self) -> str:
        lines = [*map(str, self.objections), *(f"warning: {w}" for w in self.warnings)]
        return "\n".join(lines) or "right"


def check(
    before: ExportedProgram,
    after: ExportedProgram,
    *,
    consumer: Consumer = "torch",
    write_backs: Sequence[tuple[str, str]] | Sequence[tuple[str, int]] | None = None,
) -> CheckResult:
    """Compares a program with what it was rewritten to.

    Args:
        before: The program as it was.
        after: The program as it is.
        consumer: Who carries out the mutations of `after`: "torch" (`ep.module()`), "executorch"
            (`to_executorch`), both in the order of the signature, or "mutcanon", in the order of
            `write_backs`.
        write_backs: The steps of mutcanon's write-back, as `Report.write_backs` has them: "save" or
            "write", and a target or the number of an output.

    Returns:
        The objections, none when every user output and every mutated target gets the value that it
        got before and nothing shares storage that did not.

    Raises:
        InvalidProgramError: When a program contradicts itself.
        UnsupportedError: When the consumer is unknown or its steps are missing.

    Example:
        >>> import torch, mutcanon
        >>> class Count(torch.nn.Module):
        ...     def forward(self, x):
        ...         x.add_(1)
        ...         return x * 2
        >>> ep = torch.export.export(Count(), (torch.ones(2),)).run_decompositions({})
        >>> ep = ep.run_decompositions({})
        >>> mutcanon.check(ep, mutcanon.canonicalize(ep)).is_right
        True
    """
    types = Types()
    texts = encode(before, types), encode(after, types)
    return compare(types, *texts, consumer_line(after, consumer, write_backs))


def compare(types: Types, before: str, after: str, consumer: str) -> CheckResult:
    """Compares two encoded programs.

    Args:
        types: Where the types of both are.
        before: The program as it was.
        after: The program as it is.
        consumer: The statement that names the consumer.
    """
    case = f"{types.text()}{consumer}\nbefore\n{before}after\n{after}"
    try:
        objections, warnings = _core.check(case)
    except _core.CoreError as error:
        message, code = error.args
        raise InvalidProgramError(f"{message}; export the program again", code=code) from error
    return CheckResult(
        tuple(Remark(*o) for o in objections), tuple(Remark(*w) for w in warnings), case
    )


def require_right(
    before: ExportedProgram,
    after: ExportedProgram,
    consumers: Sequence[Consumer],
    steps: Sequence[tuple[str, int]],
    problem: Callable[[], str],
) -> None:
    """Refuses a result of ours that is wrong.

    Args:
        before: The program as it was.
        after: The result.
        consumers: Those that it has to be right for.
        steps: Those of mutcanon's write-back; none when the top graph had nothing to decide.
        problem: Says in textual form what was decided about.

    Raises:
        InternalError: When the checker objects.
    """
    if not steps:
        specs = enumerate(after.graph_signature.output_specs)
        steps = [("write", i) for i, spec in specs if spec.kind.name.endswith("_MUTATION")]
    types = Types()
    texts = encode(before, types), encode(after, types)
    for consumer in consumers:
        result = compare(types, *texts, consumer_line(after, consumer, steps))
        if not result.is_right:
            raise InternalError(
                f"program: the result is not what it should be for {consumer}, and was not "
                f"returned; please report this\n{result}\n{problem()}",
                code="check_failed",
            )


def consumer_line(
    ep: ExportedProgram,
    consumer: str,
    write_backs: Sequence[tuple[str, str]] | Sequence[tuple[str, int]] | None,
) -> str:
    """The statement that names the consumer."""
    if consumer in ("torch", "executorch"):
        return f"consumer {consumer}"
    if consumer != "mutcanon":
        raise UnsupportedError(
            f"consumer {consumer!r}: none of 'torch', 'executorch', 'mutcanon'",
            code="unknown_consumer",
        )
    if write_backs is None:
        raise UnsupportedError(
            "consumer 'mutcanon': pass its steps, analyze(ep, form='minimal').write_backs",
            code="no_write_backs",
        )
    outputs = {s.target: i for i, s in enumerate(ep.graph_signature.output_specs) if s.target}
    steps = (f"{step} {t if isinstance(t, int) else outputs[t]}" for step, t in write_backs)
    return " ".join(["consumer steps", *steps])


_always = bool(os.environ.get("MUTCANON_CHECK"))


@contextlib.contextmanager
def always() -> Iterator[None]:
    """Checks every result of `canonicalize` and `canonicalize_` inside the context.

    The environment variable `MUTCANON_CHECK=1` does the same for a whole process.
    """
    global _always
    before, _always = _always, True
    try:
        yield
    finally:
        _always = before


def is_always() -> bool:
    """Whether every result is to be checked."""
    return _always


def encode(ep: ExportedProgram, types: Types) -> str:
    """A program as the statements of the checker's textual form.

    Args:
        ep: The program.
        types: Receives the types of its values.

    Raises:
        InvalidProgramError: When signature and graph disagree about inputs or outputs.
    """
    signature = ep.graph_signature
    placeholders = ep.graph.find_nodes(op="placeholder")
    if len(placeholders) != len(signature.input_specs):
        raise InvalidProgramError(
            f"program: {len(placeholders)} inputs, of which the signature names "
            f"{len(signature.input_specs)}; mend the signature, or export again",
            code="signature_mismatch",
        )
    inputs = {}
    for node, spec in zip(placeholders, signature.input_specs, strict=True):
        kind = spec.kind.name.lower()
        target = node.name if kind == "user_input" else spec.target or node.name
        inputs[node] = f"input {kind} {word(target)}"
    writer = _Writer(ep.graph_module, types, ep.range_constraints)
    writer.nodes(inputs)
    results = _outputs(ep.graph)
    if len(results) != len(signature.output_specs):
        raise InvalidProgramError(
            f"program: {len(results)} outputs, of which the signature names "
            f"{len(signature.output_specs)}; mend the signature, or export again",
            code="signature_mismatch",
        )
    for value, spec in zip(results, signature.output_specs, strict=True):
        kind = spec.kind.name.lower()
        if kind.endswith("_mutation"):
            role = f"mutate {kind.removesuffix('_mutation')} {word(spec.target or '')} <-"
        else:
            role = "output" if kind == "user_output" else "other"
        named = getattr(spec.arg, "name", None) if isinstance(value, Node) else None
        writer.output(role, value, named)
    return "".join(writer.lines)


def _outputs(graph: Graph) -> list[Any]:
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
        self.bodies: dict[Node, str] = {}

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

    def output(self, role: str, value: Any, named: str | None) -> None:
        """Writes one output."""
        if isinstance(value, Node):
            name = f" as {word(named)}" if named is not None else ""
            self.lines.append(f"{self.indent}{role} %{value.name}{name}\n")
        else:
            self.lines.append(f"{self.indent}{role} {word(repr(value))}\n")

    def _line(self, node: Node, what: str) -> None:
        kind = self.types.result(node.meta.get("val"))
        self.lines.append(f"{self.indent}%{node.name} : {kind} = {what}\n")

    def _attribute(self, node: Node) -> None:
        value: Any = self.gm
        for part in str(node.target).split("."):
            value = getattr(value, part)
        if not isinstance(value, GraphModule):
            # The object itself is the constant: a delegate, a tensor that was not lifted.
            self._line(node, f"call get_attr {word(str(node.target))} {id(value)}")
            return
        name = self.bodies[node] = f"@{node.name}"
        body = _Writer(value, self.types, self.ranges, self.indent + "  ")
        body.nodes({n: f"input operand {n.name}" for n in value.graph.find_nodes(op="placeholder")})
        for result in _outputs(value.graph):
            body.output("output", result, None)
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
                self._line(node, f"item {index} %{source.name}")
                return
        self._any(node, None, facts_of(target))

    def _any(self, node: Node, name: str | None, facts: Facts) -> None:
        arguments = facts.bind(node)
        flat: list[str] = []
        for argument in arguments:
            self._argument(argument, flat)
        if facts.is_copy and len(flat) == 2 and flat[0][0] == flat[1][0] == "%":
            d, s = node_pair(arguments)
            self.types.prove((node, d, s), self.ranges)
            head = "copy"
        else:
            head = f"call {word(name or facts.name)}"
        clauses = facts.clauses(node, arguments)
        self._line(node, " ".join([head, *flat, *clauses]))

    def _argument(self, value: Any, flat: list[str]) -> None:
        if isinstance(value, Node):
            flat.append(self.bodies.get(value) or f"%{value.name}")
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


def node_pair(arguments: Sequence[Any]) -> tuple[Node, Node]:
    """The destination and the source of a copy."""
    d, s = arguments[:2]
    return d, s


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
