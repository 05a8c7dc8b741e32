"""mutcanon behind the names of torch and executorch, for code that one cannot edit.

A library that calls `executorch.exir` itself gets what `mutcanon.executorch` does, and
`ExportedProgram.module` and `run_decompositions` become those of mutcanon. Nothing is replaced on
import, a function that is not the one we know is refused, and everything is undone at the end.
"""

from __future__ import annotations

import threading
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

from mutcanon._unlift import decompositions, modules, write_backs
from mutcanon.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mutcanon._patch import Patch

__all__ = ["disable", "enable", "enabled"]

_lock = threading.Lock()
_times = 0


@contextmanager
def enabled() -> Iterator[None]:
    """For what runs inside the block, in this thread or task alone; blocks nest.

    Raises:
        VersionError: When a function to be replaced is not the stock one.

    Example:
        >>> import mutcanon
        >>> with mutcanon.enabled():
        ...     pass  # library.lower(model)
    """
    with ExitStack() as stack:
        for patch in _patches():
            stack.enter_context(patch.here())
        yield


def enable() -> None:
    """For the whole process, all of its threads included, until `disable` is called as often.

    Raises:
        VersionError: When a function to be replaced is not the stock one.
    """
    global _times
    with _lock, ExitStack() as undo:
        for patch in _patches():
            patch.enable()
            undo.callback(patch.disable)
        undo.pop_all()
        _times += 1


def disable() -> None:
    """Takes one `enable` back.

    Raises:
        UnsupportedError: When it was not called.
    """
    global _times
    with _lock:
        if not _times:
            raise UnsupportedError(
                "disable: mutcanon is not enabled; call enable first, or use `with enabled()`",
                code="not_enabled",
            )
        _times -= 1
        for patch in _patches():
            patch.disable()


def _patches() -> tuple[Patch, ...]:
    if find_spec("executorch") is None:
        return (modules, write_backs, decompositions)
    from mutcanon.executorch import generate, to_executorch_patch

    return (modules, write_backs, decompositions, generate, to_executorch_patch)
