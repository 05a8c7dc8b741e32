"""The private names of ExecuTorch that mutcanon uses, in one place.

Checked on executorch 1.5.1. `tests/test_executorch_names.py` fails when one of them moves. Each is
looked up when it is needed, by what it is and not by a version number; one that is missing raises
`VersionError`.
"""

from __future__ import annotations

import inspect
from importlib import import_module, metadata
from types import FunctionType, ModuleType
from typing import Any

import torch

from mutcanon._alias import aten_op
from mutcanon._patch import Site
from mutcanon.errors import UnsupportedError, VersionError

_PROGRAM = "executorch.exir.program._program"


def exir() -> ModuleType:
    """The public module `executorch.exir`."""
    return _module("executorch.exir")


def generate_edge_program() -> Site:
    """Turns one ATen program into an edge program, at the end of every path to one."""
    return _function(_module(_PROGRAM), "_generate_edge_program", ("config", "program"))


def to_executorch() -> Site:
    """Turns edge programs into an ExecuTorch program."""
    return _function(exir().EdgeProgramManager, "to_executorch", ("self", "config"))


def with_programs(manager: Any, programs: dict[str, Any]) -> Any:
    """A copy of an `EdgeProgramManager` that has other programs; its class is the stock one."""
    if set(getattr(manager, "_edge_programs", ())) != set(programs):
        raise _moved("EdgeProgramManager._edge_programs")
    new = object.__new__(exir().EdgeProgramManager)
    new.__dict__.update(manager.__dict__)
    new._edge_programs = programs
    return new


def fuse_quantization(program: Any) -> Any:
    """ExecuTorch's own pass, which it runs before anything else in `to_executorch`."""
    fusion = _module("executorch.exir.passes.quant_fusion_pass")
    return fusion.quant_fusion_and_const_prop_pass(program)


def plans_shared_memory() -> bool:
    """Whether the planner knows how long memory lives that results share by a mark.

    Before executorch 1.5 it does not, and gives it to others too early.
    """
    return hasattr(_module("executorch.exir.memory_planning"), "_extend_storage_base_lifetimes")


def program_pass() -> Any:
    """The class of passes over whole programs; `object` before executorch 1.4, which has none."""
    return getattr(_module("executorch.exir.pass_base"), "ExportedProgramPassBase", object)


def require_program_passes() -> None:
    """Raises where passes see a graph module alone, and so no signature."""
    if program_pass() is object:
        raise _moved("exir.pass_base.ExportedProgramPassBase")


def program_pass_result(program: Any, modified: bool) -> Any:
    """What such a pass returns."""
    return _module("executorch.exir.pass_base").ExportedProgramPassResult(program, modified)


def edge_ops() -> Any:
    """The edge dialect's operators."""
    return _module("executorch.exir.dialects._ops").ops.edge


def can_be_emitted(op: Any) -> bool:
    """Whether ExecuTorch finds a variant of a custom operator that it can put into a program."""
    convert = _module("executorch.exir.operator.convert")
    try:
        if convert.is_inplace_variant(op._schema.name, op._schema.overload_name):
            return True
        convert.to_out_variant(op)
    except Exception:  # some schemas are beyond its parser, which says so in many ways
        return False
    return True


def becomes_view(target: Any) -> bool:
    """Whether ExecuTorch turns this copy of a view into a view later on."""
    return aten_op(target) is torch.ops.aten.view_copy.default


def is_clone(op: Any) -> bool:
    """Whether the operator clones, in torch's way or in that of the edge dialect."""
    _module("executorch.exir.passes.dim_order_ops_registry")  # which defines the latter
    return op in (
        torch.ops.aten.clone.default,
        torch.ops.dim_order_ops._clone_dim_order.default,
    )


def keeps_values(target: Any) -> bool:
    """Whether the operator returns its operand's values unless it changes the layout or type."""
    op = aten_op(target)
    return is_clone(op) or op in (
        torch.ops.aten.alias_copy.default,
        torch.ops.aten.detach_copy.default,
        torch.ops.aten.expand_copy.default,
        torch.ops.aten.lift_fresh_copy.default,
        torch.ops.aten.slice_copy.Tensor,
        torch.ops.aten._to_copy.default,
        torch.ops.dim_order_ops._to_dim_order_copy.default,
    )


def is_delegate_call(node: Any) -> bool:
    """Whether the node calls a backend."""
    return node.target is _module("executorch.exir.delegate").executorch_call_delegate


def has_default_dim_order(val: torch.Tensor) -> bool:
    """Whether ExecuTorch takes the tensor for contiguous."""
    try:
        order = _module("executorch.exir.tensor").dim_order_from_stride(val.stride())
    except (RuntimeError, ValueError):  # a stride of 0, which ExecuTorch has no order for
        return False
    return list(order) == list(range(val.dim()))


def keeps_strides(val: Any) -> bool:
    """Whether ExecuTorch stores a tensor as torch does: contiguous, or channels last."""
    return not isinstance(val, torch.Tensor) or (
        val.is_contiguous()
        or (val.dim() == 4 and val.is_contiguous(memory_format=torch.channels_last))
    )


def is_view(node: Any) -> bool:
    """Whether the node is a view that ExecuTorch made of a copy."""
    return is_view_function(node.target)


def is_view_function(target: Any) -> bool:
    """Whether the target of a call is that view."""
    return target is _module("executorch.exir.memory").view


def is_allocation(node: Any) -> bool:
    """Whether the node stands for the place of an operator's result."""
    return is_allocation_function(getattr(node, "target", None))


def is_allocation_function(target: Any) -> bool:
    """Whether the target of a call stands for such a place."""
    return target is _module("executorch.exir.memory").alloc


def rebase_view(view: Any, base: Any) -> None:
    """Has the spec of a view share memory with another spec."""
    if not hasattr(view, "_base"):
        raise _moved("_ViewSpec._base")
    view._base = base


def may_share_memory(a: Any, b: Any) -> bool:
    """Whether two specs describe the same tensor."""
    spec = _module("executorch.exir.tensor").TensorSpec
    facts = ("shape", "dtype", "dim_order", "shape_dynamism", "device", "device_index")
    return (
        type(a) is spec
        and type(b) is spec
        and not b.const
        and all(getattr(a, name, None) == getattr(b, name, None) for name in facts)
    )


def load(program: bytes) -> Any:
    """A program in the runtime, with a method `forward(inputs, clone_outputs=True)`.

    The public `executorch.runtime` copies every output of every call, which costs as much as the
    mutations whose cost we want to see, and it reads zeros for inputs whose memory is the caller's.
    """
    runtime = _module("executorch.extension.pybindings.portable_lib")
    name = "_load_for_executorch_from_buffer"
    if not hasattr(runtime, name):
        raise _moved(f"{runtime.__name__}.{name}")
    return getattr(runtime, name)(program)


def _module(name: str) -> ModuleType:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name == "executorch":
            raise UnsupportedError(
                "executorch is not installed: pip install 'mutcanon[executorch]'",
                code="no_executorch",
            ) from error
        raise _moved(name) from error


def _function(owner: Any, name: str, parameters: tuple[str, ...]) -> Site:
    """A site whose stock function has this name and these leading parameters."""

    def is_known(value: Any) -> bool:
        return any(
            f.__name__ == name
            and f.__module__ == _PROGRAM
            and tuple(inspect.signature(f).parameters)[: len(parameters)] == parameters
            for f in _behind(value)
        )

    if not hasattr(owner, name):
        raise _moved(f"{owner.__name__}.{name}")
    return Site(owner, name, is_known)


def _behind(value: Any) -> list[FunctionType]:
    """The function itself, and the one that ExecuTorch's logging decorator hides in a closure."""
    if not isinstance(value, FunctionType) or hasattr(value, "__wrapped__"):
        return []
    cells = [cell.cell_contents for cell in value.__closure__ or ()]
    return [value, *(f for f in cells if isinstance(f, FunctionType))]


def _moved(name: str) -> VersionError:
    try:
        version = metadata.version("executorch")
    except metadata.PackageNotFoundError:  # a build from source
        version = "of unknown version"
    return VersionError(
        f"{name} is not in executorch {version}: use a version of executorch that mutcanon was "
        "tested with (1.5.1), or a newer mutcanon",
        code="moved_name",
    )
