"""What ExecuTorch cannot do with a mutation, said before it is tried.

Each of these would otherwise end in an error that names something else, or in wrong values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.export.graph_signature import OutputKind

from mutcanon import _executorch
from mutcanon._alias import aten_op
from mutcanon._custom_ops import is_wrapped
from mutcanon._extract import MUTATIONS
from mutcanon.errors import UnsupportedError

if TYPE_CHECKING:
    from torch.export import ExportedProgram

aten = torch.ops.aten


def check_caller_owns_inputs(program: ExportedProgram, method: str, planning: Any) -> None:
    """Refuses to drop mutation outputs where they are the only trace of a mutation.

    Args:
        program: An edge program.
        method: The method's name.
        planning: The memory planning pass.
    """
    mutates = any(
        s.kind is OutputKind.USER_INPUT_MUTATION for s in program.graph_signature.output_specs
    )
    if mutates and getattr(planning, "alloc_graph_input", True):
        raise UnsupportedError(
            f"method {method!r}: its inputs are copied into planned memory, so without mutation "
            "outputs nobody could see what becomes of them; pass "
            "memory_planning_pass=MemoryPlanningPass(alloc_graph_input=False)",
            code="planned_inputs",
        )


def check_custom_operators(program: ExportedProgram, method: str) -> None:
    """Refuses a custom operator that mutates its arguments and that no program can hold."""
    for node in program.graph.nodes:
        if is_wrapped(node) and not _executorch.can_be_emitted(node.args[0]):
            name = node.args[0]._schema.name
            raise UnsupportedError(
                f"method {method!r}: executorch finds no out variant of the custom operator "
                f"{name}; register one, {name}.out with the same arguments and a `Tensor(a!) out`",
                code="no_out_variant",
            )


def check_strides(program: ExportedProgram, method: str) -> None:
    """Refuses to look at the memory of a mutated state whose layout ExecuTorch changes.

    It makes a buffer contiguous whatever its strides are, which only `as_strided` can tell.
    """
    if not any(s.kind in MUTATIONS for s in program.graph_signature.output_specs):
        return
    for node in program.graph.nodes:
        if aten_op(node.target) is aten.as_strided_copy.default:
            (source,) = node.all_input_nodes[:1]
            if not _executorch.keeps_strides(source.meta.get("val")):
                raise UnsupportedError(
                    f"method {method!r}: {node.name} looks at the memory of {source.name}, which "
                    "is neither contiguous nor channels last; make the state contiguous, since "
                    "executorch does the same without a word",
                    code="strided_state",
                )
