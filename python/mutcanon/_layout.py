"""What tensors look like, as numbers that the core can compare, and proofs about symbols.

Distinct layouts are few however long the graph, so each is described once and then named by its
number. A symbolic size is interned by its expression: two sizes with the same expression get the
same symbol, and the core needs no proof. For the pairs that it asks about we try arithmetic and the
program's range constraints, and never add a guard (semantics 3.6).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import sympy
import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.utils._sympy.value_ranges import bound_sympy

if TYPE_CHECKING:
    from collections.abc import Mapping

logger = logging.getLogger(__name__)

LayoutTuple = tuple[str, str, "str | None", bool, bool, "str | None", list[int], list[int]]

_UNKNOWN: LayoutTuple = ("", "", None, False, False, None, [], [])
_PLAIN_TYPES = (FakeTensor, torch.Tensor, torch.nn.Parameter)
_QUANTIZED = (torch.quint8, torch.qint8, torch.qint32, torch.quint4x2, torch.quint2x4)


class Layouts:
    """Interned layouts and symbols of one program.

    Attributes:
        table: The distinct layouts, as the core takes them.
        symbols: Text of each symbolic expression, by number.
    """

    def __init__(self) -> None:
        self.table: list[LayoutTuple] = [_UNKNOWN]
        self.symbols: list[str] = []
        self._numbers: dict[Any, int] = {}
        self._codes: dict[Any, int] = {}
        self._examples: list[Any] = []

    def number(self, val: Any) -> int:
        """The number of the layout of a node's `meta["val"]`; 0 for anything but a tensor."""
        if not isinstance(val, torch.Tensor):
            return 0
        try:
            # Only strided tensors have strides, so the memory format needs no place in the key.
            kind = type(val)
            # The property of a fake tensor costs as much as the rest of the key.
            device = val.fake_device if isinstance(val, FakeTensor) else val.device
            key = (val.shape, val.stride(), val.dtype, device, val.is_neg(), kind)
            found = self._numbers.get(key)
        except (TypeError, RuntimeError):
            # Symbolic sizes have no hash; sparse tensors have no strides.
            return self._add(None, val)
        if found is None or val.dtype.is_complex or val.dtype in _QUANTIZED:
            return self._add(key, val)
        return found

    def _add(self, key: Any, val: torch.Tensor) -> int:
        layout = self._describe(val)
        text = repr(layout)
        number = self._numbers.get(text)
        if number is None:
            number = self._numbers[text] = len(self.table)
            self.table.append(layout)
        if key is not None:
            self._numbers[key] = number
        return number

    def _describe(self, val: torch.Tensor) -> LayoutTuple:
        dtype, device = str(val.dtype).removeprefix("torch."), str(val.device)
        if not isinstance(val, _PLAIN_TYPES) or type(val) not in _PLAIN_TYPES:
            return (dtype, device, f"subclass:{type(val).__name__}", False, False, None, [], [])
        if val.layout is not torch.strided or val.is_nested:
            name = "nested" if val.is_nested else str(val.layout).removeprefix("torch.")
            return (dtype, device, name, False, False, None, [], [])
        sizes = [self._code(d) for d in val.shape]
        strides = [self._code(d) for d in val.stride()]
        quantizer = _quantizer(val) if val.dtype in _QUANTIZED else None
        return (dtype, device, "strided", val.is_conj(), val.is_neg(), quantizer, sizes, strides)

    def _code(self, dim: Any) -> int:
        if isinstance(dim, int):
            return dim
        expr = dim.node.expr
        if expr.is_Integer:
            return int(expr)
        code = self._codes.get(expr)
        if code is None:
            code = self._codes[expr] = -1 - len(self.symbols)
            self.symbols.append(str(expr))
            self._examples.append(dim)
        return code

    def prove(self, pair: tuple[int, int], ranges: Mapping[Any, Any]) -> bool:
        """Whether two encoded dimensions are equal in every run of the program.

        Args:
            pair: Two dimensions in the core's encoding.
            ranges: The program's `range_constraints`.
        """
        a, b = (self._examples[-1 - code] if code < 0 else code for code in pair)
        try:
            return _is_zero(_expr(a) - _expr(b), ranges) or bool(statically_known_true(a == b))
        except Exception:  # a failed proof is no proof, whatever made it fail
            logger.debug("no proof of %s == %s", a, b, exc_info=True)
            return False


def _expr(dim: Any) -> sympy.Expr:
    return sympy.Integer(dim) if isinstance(dim, int) else dim.node.expr


def _is_zero(difference: sympy.Expr, ranges: Mapping[Any, Any]) -> bool:
    difference = sympy.expand(difference)
    if difference == 0:
        return True
    known = {s: ranges[s] for s in difference.free_symbols if s in ranges}
    if len(known) < len(difference.free_symbols):
        return False
    bounds = bound_sympy(difference, known)
    return bool(bounds.lower == 0 and bounds.upper == 0)


def _quantizer(val: torch.Tensor) -> str:
    """What identifies the quantizer, or "" where torch does not say (as of a fake tensor)."""
    try:
        if val.qscheme() is torch.per_tensor_affine:
            return f"{val.q_scale()!r}:{val.q_zero_point()}"
    except (RuntimeError, NotImplementedError):
        pass
    return ""
