"""Lowering to ExecuTorch with mutation right and free: change one import, nothing else.

`to_edge_transform_and_lower` decomposes a program two or more times, and each time leaves one copy
more on every mutated user input. The functions here are ExecuTorch's own, with two steps added
around the place where every one of their paths makes an edge program out of an ATen program: before
it the copies collapse that are redundant in the ATen dialect; after it those collapse that became
redundant there, because views are contiguous copies in the edge dialect (the state of a
convolution, for example, which is a slice). The decompositions themselves are those of
`mutcanon.run_decompositions`, which keep parallel assignment.

`to_executorch` carries the mutations out: in place where nobody needs the old value any more, by an
early copy elsewhere. ExecuTorch's own passes for that find nothing left to do; on a program that is
canonical already ours do nothing either, so an ExecuTorch that learns to do the same finds us out
of its way.
"""

from __future__ import annotations

import dataclasses
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from executorch import exir

from mutcanon import _executorch
from mutcanon._apply import new_signature
from mutcanon._canonicalize import canonicalize, canonicalize_
from mutcanon._check import is_always, require_right
from mutcanon._extra_ops import extra_form
from mutcanon._extract import output_args
from mutcanon._patch import Patch
from mutcanon._planning import PlanningPass
from mutcanon._runtime_limits import (
    check_caller_owns_inputs,
    check_custom_operators,
    check_strides,
)
from mutcanon._torch import PARAMETER_MUTATION, with_parts
from mutcanon._unlift import decompositions
from mutcanon._write_back import InPlaceReport, carry_out, report_in_place

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from executorch.exir import (
        EdgeCompileConfig,
        ExecutorchBackendConfig,
        ExecutorchProgramManager,
    )
    from executorch.exir.backend.partitioner import Partitioner
    from torch.export import ExportedProgram

__all__ = [
    "CanonicalizeMutations",
    "EdgeProgramManager",
    "InPlaceReport",
    "report_in_place",
    "to_edge",
    "to_edge_transform_and_lower",
    "to_executorch",
]


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
        manager = _executorch.exir().to_edge_transform_and_lower(
            programs,
            transform_passes,
            partitioner,
            constant_methods,
            compile_config,
            generate_etrecord,
            **options,
        )
    return EdgeProgramManager.of(manager)


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
        manager = _executorch.exir().to_edge(
            programs, constant_methods, compile_config, generate_etrecord, **options
        )
    return EdgeProgramManager.of(manager)


def to_executorch(
    edge: exir.EdgeProgramManager,
    config: ExecutorchBackendConfig | None = None,
    *,
    reinplace: bool = True,
    drop_mutation_outputs: bool = False,
    check: bool = False,
) -> ExecutorchProgramManager:
    """`EdgeProgramManager.to_executorch` with mutations carried out right, and in place.

    Args:
        edge: The edge programs, made by whom you like. They are not edited, so this can be called
            again with another config.
        config: As in executorch. A `memory_planning_pass` of your own is kept; what executorch's
            own `run_reinplace_pass` does is part of `reinplace`.
        reinplace: Whether results may be computed in place. It is safe; turn it off to see what it
            is worth.
        drop_mutation_outputs: Whether mutated user inputs are to be no outputs of the method. The
            caller must own their memory: `MemoryPlanningPass(alloc_graph_input=False)`.
        check: Have the independent checker compare each program, once its mutations are carried
            out, with what it was (see `mutcanon.check`).

    Returns:
        The ExecuTorch program.

    Raises:
        InternalError: When the checker objects; please report the message.
        UnsupportedError: When executorch cannot do it, or `drop_mutation_outputs` would lose a
            mutation.
        VersionError: When a private name of executorch is not where we know it.
    """
    config = config or _executorch.exir().ExecutorchBackendConfig()
    programs = {name: _named_as_returned(edge.exported_program(name)) for name in edge.methods}
    if getattr(config, "do_quant_fusion_and_const_prop", False):
        programs = {name: _executorch.fuse_quantization(p) for name, p in programs.items()}
    state_parameters = {
        s.target
        for p in programs.values()
        for s in p.graph_signature.output_specs
        if s.kind is PARAMETER_MUTATION and s.target is not None
    }
    for name, program in programs.items():
        if not getattr(config.to_out_var_pass, "ignore_to_out_var_failure", False):
            check_custom_operators(program, name)
        check_strides(program, name)
    extra = frozenset(getattr(config, "reinplace_extra_ops", None) or ())
    carried_out = {}
    for name, program in programs.items():
        planning = _planning_pass(config, name)
        if drop_mutation_outputs:
            check_caller_owns_inputs(program, name, planning)
        carried_out[name] = carry_out(
            program,
            reinplace=reinplace,
            drop_outputs=drop_mutation_outputs,
            state_parameters=state_parameters,
            extra_form=extra_form(extra if reinplace else ()),
        )
        if check or is_always():
            require_right(program, carried_out[name], ["nobody"])
    manager = _executorch.with_programs(edge, carried_out)
    # With gradients enabled torch refuses to write to an input that a parameter reaches.
    with torch.no_grad(), to_executorch_patch.suspended():
        return manager.to_executorch(_our_config(config))


def _named_as_returned(program: ExportedProgram) -> ExportedProgram:
    """The program whose signature names the outputs that the graph returns.

    Passes of executorch replace nodes and leave the names in the signature; it goes by position.
    """
    signature = program.graph_signature
    outputs = output_args(program.graph_module)
    if len(outputs) != len(signature.output_specs):
        return program
    named = new_signature(signature, outputs, None)
    if named.output_specs == signature.output_specs:
        return program
    return with_parts(program, program.graph_module, named, program.module_call_graph)


def _our_config(config: ExecutorchBackendConfig) -> ExecutorchBackendConfig:
    """The config without what is done already, and with our preparation of the memory plan."""
    planning = config.memory_planning_pass
    done = {
        "run_reinplace_pass": False,
        "reinplace_extra_ops": None,
        "do_quant_fusion_and_const_prop": False,
    }
    known = {field.name for field in dataclasses.fields(config)}
    return dataclasses.replace(
        config,
        memory_planning_pass=(
            {name: PlanningPass(p) for name, p in planning.items()}
            if isinstance(planning, dict)
            else PlanningPass(planning)
        ),
        **{name: value for name, value in done.items() if name in known},
    )


def _planning_pass(config: ExecutorchBackendConfig, method: str) -> Any:
    planning = config.memory_planning_pass
    if isinstance(planning, dict):
        default = _executorch.exir().ExecutorchBackendConfig().memory_planning_pass
        return planning.get(method, default)
    return planning


class EdgeProgramManager(exir.EdgeProgramManager):  # type: ignore[misc]
    """executorch's `EdgeProgramManager`, whose `to_executorch` is the one of this module."""

    @classmethod
    def of(cls, manager: exir.EdgeProgramManager) -> EdgeProgramManager:
        """The same manager with our `to_executorch`."""
        new = object.__new__(cls)
        new.__dict__.update(manager.__dict__)
        return new

    def transform(self, *args: Any, **options: Any) -> EdgeProgramManager:
        """As in executorch."""
        return self.of(super().transform(*args, **options))

    def to_backend(self, *args: Any, **options: Any) -> EdgeProgramManager:
        """As in executorch."""
        return self.of(super().to_backend(*args, **options))

    def to_executorch(
        self,
        config: ExecutorchBackendConfig | None = None,
        *,
        reinplace: bool = True,
        drop_mutation_outputs: bool = False,
        check: bool = False,
    ) -> ExecutorchProgramManager:
        """See `mutcanon.executorch.to_executorch`."""
        return to_executorch(
            self,
            config,
            reinplace=reinplace,
            drop_mutation_outputs=drop_mutation_outputs,
            check=check,
        )


class CanonicalizeMutations(_executorch.program_pass()):  # type: ignore[misc]
    """The same as a pass, for `transform_passes` and `EdgeProgramManager.transform`.

    The result has the portable form, since nobody else's write-back knows an order.
    """

    def __init__(self) -> None:
        _executorch.require_program_passes()
        super().__init__()

    def call(self, exported_program: ExportedProgram) -> Any:
        """Returns a canonical program; the very same one, not modified, when it is so already."""
        result = canonicalize(exported_program, form="portable")
        return _executorch.program_pass_result(result, result is not exported_program)


def _canonicalize_around(stock: Any, config: Any, program: Any, *args: Any, **options: Any) -> Any:
    """Canonicalizes before and after the step; like the step itself, it owns the program."""
    edge = stock(config, canonicalize_(program, form="portable"), *args, **options)
    return canonicalize_(edge, form="portable")


def _to_executorch(stock: Any, edge: Any, config: Any = None) -> Any:
    return to_executorch(edge, config)


generate = Patch(_executorch.generate_edge_program, _canonicalize_around)
to_executorch_patch = Patch(_executorch.to_executorch, _to_executorch)


@contextmanager
def lowering() -> Iterator[None]:
    """What a lowering needs, for this context."""
    with generate.here(), decompositions.here():
        yield
