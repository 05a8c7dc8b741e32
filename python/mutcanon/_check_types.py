"""What values look like, as the checker is told.

Types are few, so each is stated once and then named. Symbolic sizes are expressions; two
expressions count as equal when torch can show it without a new guard, or when they reduce to one
another once the symbols that the program allows a single value for are replaced by it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import sympy
import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.symbolic_shapes import statically_known_true

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch.fx import Node

_PLAIN = re.compile(r"[^\s\"\\%@#;\x00-\x1f\x7f][^\s\"\\\x00-\x1f\x7f]*").fullmatch
_SYNTAX = frozenset({"=", "(", ")", ":", "<-"})
_QUANTIZED = frozenset({torch.quint8, torch.qint8, torch.qint32, torch.quint4x2, torch.quint2x4})
_TENSORS = (torch.Tensor, FakeTensor, torch.nn.Parameter)


def word(text: str) -> str:
    """A word of the textual form, quoted where that is needed."""
    if _PLAIN(text) and text not in _SYNTAX:
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + escaped.replace("\n", "\\n").replace("\r", "\\r") + '"'


class Types:
    """The types of both programs."""

    def __init__(self) -> None:
        self._statements: list[str] = []
        self._names: dict[str, str] = {}
        self._known: dict[Any, str] = {}
        #: Both programs refer to the same values, which must stay alive to be told by their ids.
        self._seen: dict[int, tuple[Any, str]] = {}
        self._equal: dict[tuple[str, str], bool] = {}

    def text(self) -> str:
        """The statements of the textual form."""
        equal = (f"equal {a} {b}\n" for (a, b), proved in self._equal.items() if proved)
        types = (f"type T{i} = {t}\n" for i, t in enumerate(self._statements))
        return "".join([*equal, *types])

    def result(self, val: Any) -> str:
        """The type of a node's value, as it stands before the `=`."""
        seen = self._seen.get(id(val))
        if seen is not None:
            return seen[1]
        if isinstance(val, (tuple, list)):
            name = " ".join(["(", *(self._name_of(v) for v in val), ")"])
        else:
            name = self._name_of(val)
        self._seen[id(val)] = val, name
        return name

    def _name_of(self, val: Any) -> str:
        if not isinstance(val, torch.Tensor):
            return self._named(f"other {type(val).__name__}")
        try:
            key = (
                type(val),
                val.dtype,
                val.shape,
                val.stride(),
                val.device,
                val.is_conj(),
                val.is_neg(),
            )
            known = self._known.get(key)
        except (TypeError, RuntimeError):
            # Symbolic sizes cannot be hashed, and not every layout has strides.
            return self._named(_describe(val))
        if known is None:
            known = self._known[key] = self._named(_describe(val))
        return known

    def _named(self, statement: str) -> str:
        name = self._names.get(statement)
        if name is None:
            name = self._names[statement] = f"T{len(self._statements)}"
            self._statements.append(statement)
        return name

    def prove(self, nodes: Sequence[Node], ranges: Mapping[Any, Any]) -> None:
        """Proves what it can about the dimensions of tensors that a copy relates.

        Args:
            nodes: The copy, its destination and its source.
            ranges: The program's `range_constraints`.
        """
        vals: list[Any] = [n.meta.get("val") for n in nodes]
        if any(type(v) not in _TENSORS or v.layout is not torch.strided for v in vals):
            return
        first, *others = vals
        for other in others:
            if first.dim() != other.dim():
                continue
            for of in (torch.Tensor.size, torch.Tensor.stride):
                for a, b in zip(of(first), of(other), strict=True):
                    self._prove(a, b, ranges)
            for size in first.size():
                self._prove(size, 1, ranges)

    def _prove(self, a: Any, b: Any, ranges: Mapping[Any, Any]) -> None:
        if isinstance(a, int) and isinstance(b, int):
            return
        pair = _dim(a), _dim(b)
        if pair[0] != pair[1] and pair not in self._equal:
            self._equal[pair] = _is_equal(a, b, ranges)


def _is_equal(a: Any, b: Any, ranges: Mapping[Any, Any]) -> bool:
    try:
        if statically_known_true(a == b):
            return True
        difference = _expression(a) - _expression(b)
        fixed = {s: r.lower for s, r in ranges.items() if r.lower == r.upper}
        return bool(sympy.expand(difference.subs(fixed)) == 0)
    except Exception:  # whatever went wrong, nothing was proved
        return False


def _expression(dim: Any) -> sympy.Expr:
    return sympy.Integer(dim) if isinstance(dim, int) else dim.node.expr


def _dim(dim: Any) -> str:
    return str(dim) if isinstance(dim, int) else word(str(dim.node.expr))


def _describe(val: torch.Tensor) -> str:
    dtype = str(val.dtype).removeprefix("torch.")
    if type(val) not in _TENSORS:
        return f"other {word(f'{type(val).__name__}:{dtype}')}"
    if val.is_nested or val.layout is not torch.strided:
        return f"other {word(f'{val.layout}:{dtype}')}"
    sizes, strides = (" ".join(map(_dim, dims)) for dims in (val.shape, val.stride()))
    text = f"{dtype} {val.device} [ {sizes} ] [ {strides} ]"
    text += " conj" * val.is_conj() + " neg" * val.is_neg()
    if val.dtype in _QUANTIZED:
        text += f" quantizer {word(_quantizer(val))}"
    return text


def _quantizer(val: torch.Tensor) -> str:
    try:
        if val.qscheme() is torch.per_tensor_affine:
            return f"{val.q_scale()!r}/{val.q_zero_point()}"
    except (RuntimeError, NotImplementedError):
        pass
    return ""
