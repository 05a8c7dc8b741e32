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

from mutcanon._patch import Site
from mutcanon.errors import UnsupportedError, VersionError

_PROGRAM = "executorch.exir.program._program"


def exir() -> ModuleType:
    """The public module `executorch.exir`."""
    return _module("executorch.exir")


def generate_edge_program() -> Site:
    """Turns one ATen program into an edge program, at the end of every path to one."""
    return _function(_module(_PROGRAM), "_generate_edge_program", ("config", "program"))


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
