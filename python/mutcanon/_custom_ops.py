"""Custom operators that mutate their arguments, as they arrive in an edge program.

torch wraps such an operator in `auto_functionalized`: a call that returns, next to the operator's
own results, the new value of each argument that it mutates. ExecuTorch unwraps it and lets the
operator write over the argument, whether somebody still needs the old value or not. So the argument
is cloned beforehand where somebody does.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch._higher_order_ops.auto_functionalize import auto_functionalized, auto_functionalized_v2
from torch.fx import Node

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


@dataclass(frozen=True)
class MutatedArgument:
    """One argument that a custom operator mutates.

    Attributes:
        call: The wrapped call.
        value: The argument.
        result: Its new value; the call itself where nobody reads that.
        name: Its keyword in the call.
        index: Its position in the keyword's list, or None.
    """

    call: Node
    value: Node
    result: Node
    name: str
    index: int | None

    @property
    def operands(self) -> tuple[Node, ...]:
        """What else the call reads."""
        found = [n for n in self.call.all_input_nodes if n is not self.value]
        others = [n for n in _nodes(self.call.kwargs.values()) if n is self.value]
        return (*found, *others[1:])

    def replace(self, value: Node) -> None:
        """Has the operator mutate another value."""
        new: Any = value
        if self.index is not None:
            new = list(self.call.kwargs[self.name])  # type: ignore[arg-type]
            new[self.index] = value
        self.call.kwargs = {**self.call.kwargs, self.name: new}


def is_wrapped(node: Node) -> bool:
    """Whether the node calls a custom operator that mutates its arguments."""
    return node.target in (auto_functionalized, auto_functionalized_v2)


def mutated_arguments(call: Node) -> Iterator[MutatedArgument]:
    """The arguments that a wrapped call mutates."""
    schema = call.args[0]._schema  # type: ignore[union-attr]
    parts = {n.args[1]: n for n in call.users if n.target is operator.getitem}
    at = max(1, len(schema.returns))
    names = ["_all_bases"]
    if call.target is auto_functionalized:
        infos = [(a.name, a.alias_info) for a in schema.arguments]
        names = [name for name, info in infos if info is not None and info.is_write]
    for name in names:
        argument = call.kwargs.get(name)
        result = parts.get(at, call)
        if isinstance(argument, Node):
            yield MutatedArgument(call, argument, result, name, None)
        elif isinstance(argument, (list, tuple)):
            is_list = call.target is auto_functionalized
            for i, value in enumerate(argument):
                # The older form returns a list as one part, so its members have no new node.
                part = call if is_list else parts.get(at + i, call)
                if isinstance(value, Node):
                    yield MutatedArgument(call, value, part, name, i)
        at += 1


def _nodes(values: Any) -> Sequence[Node]:
    found: list[Node] = []
    for value in values:
        members = value if isinstance(value, (list, tuple)) else (value,)
        found += [n for n in members if isinstance(n, Node)]
    return found
