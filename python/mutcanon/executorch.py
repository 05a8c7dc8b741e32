"""Lowering to ExecuTorch with canonical mutations: change one import, nothing else.

`to_edge_transform_and_lower` decomposes a program two or more times, and each time leaves one copy
more on every mutated user input. The functions here are ExecuTorch's own, with two steps added
around the place where every one of their paths makes an edge program out of an ATen program: before
it the copies collapse that are redundant in the ATen dialect; after it those collapse that became
redundant there, because views are contiguous copies in the edge dialect (the state of a
convolution, for example, which is a slice). On a program that has nothing to collapse both steps do
nothing, so an ExecuTorch that learns to do the same finds us out of its way.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from executorch.exir.pass_base import ExportedProgramPassBase, ExportedProgramPassResult

from mutcanon import _executorch
from mutcanon._canonicalize import canonicalize, canonicalize_
from mutcanon._patch import Patch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from executorch.exir import EdgeCompileConfig, EdgeProgramManager
    from executorch.exir.backend.partitioner import Partitioner
    from torch.export import ExportedProgram

__all__ = ["CanonicalizeMutations", "to_edge", "to_edge_transform_and_lower"]


def to_edge_transform_and_lower(
    programs: ExportedProgram | dict[str, ExportedProgram],
    transform_passes: Sequence[Any] | dict[str, Sequence[Any]] | Any | None = None,
    partitioner: list[Partitioner] | dict[str, list[Partitioner]] | None = None,
    constant_methods: dict[str, Any] | None = None,
    compile_config: EdgeCompileConfig | None = None,
    generate_etrecord: bool = False,
    **options: Any,
) -> EdgeProgramManager:
    """`executorch.exir.to_edge_transform_and_lower` without redundant copies.

    Args:
        programs: As in executorch; never edited.
        transform_passes: As in executorch.
        partitioner: As in executorch.
        constant_methods: As in executorch.
        compile_config: As in executorch.
        generate_etrecord: As in executorch.
        **options: Whatever else the installed executorch takes.

    Returns:
        The edge programs.
    """
    with lowering():
        return _executorch.exir().to_edge_transform_and_lower(
            programs,
            transform_passes,
            partitioner,
            constant_methods,
            compile_config,
            generate_etrecord,
            **options,
        )


def to_edge(
    programs: ExportedProgram | dict[str, ExportedProgram],
    constant_methods: dict[str, Any] | None = None,
    compile_config: EdgeCompileConfig | None = None,
    generate_etrecord: bool = False,
    **options: Any,
) -> EdgeProgramManager:
    """`executorch.exir.to_edge` without redundant copies.

    Args:
        programs: As in executorch; never edited.
        constant_methods: As in executorch.
        compile_config: As in executorch.
        generate_etrecord: As in executorch.
        **options: Whatever else the installed executorch takes.

    Returns:
        The edge programs.
    """
    with lowering():
        return _executorch.exir().to_edge(
            programs, constant_methods, compile_config, generate_etrecord, **options
        )


class CanonicalizeMutations(ExportedProgramPassBase):  # type: ignore[misc]
    """The same as a pass, for `transform_passes` and `EdgeProgramManager.transform`.

    The result has the portable form, since nobody else's write-back knows an order.
    """

    def call(self, exported_program: ExportedProgram) -> ExportedProgramPassResult:
        """Returns a canonical program; the very same one, not modified, when it is so already."""
        result = canonicalize(exported_program, form="portable")
        return ExportedProgramPassResult(result, result is not exported_program)


def _canonicalize_around(stock: Any, config: Any, program: Any, *args: Any, **options: Any) -> Any:
    """Canonicalizes before and after the step; like the step itself, it owns the program."""
    edge = stock(config, canonicalize_(program, form="portable"), *args, **options)
    return canonicalize_(edge, form="portable")


_PATCHES = (Patch(_executorch.generate_edge_program, _canonicalize_around),)


@contextmanager
def lowering() -> Iterator[None]:
    """What a lowering needs, for this context."""
    with ExitStack() as stack:
        for patch in _PATCHES:
            stack.enter_context(patch.here())
        yield
