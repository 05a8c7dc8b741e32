"""Makes mutation in exported PyTorch programs right and free.

`canonicalize` collapses every copy that is proved redundant and keeps the rest; `analyze` says what
and why; `mutcanon.executorch` lowers with both. Importing mutcanon imports no framework: torch is
loaded on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mutcanon._core import __version__

if TYPE_CHECKING:
    from mutcanon._canonicalize import analyze, canonicalize, canonicalize_
    from mutcanon._check import CheckResult, check
    from mutcanon._enable import disable, enable, enabled
    from mutcanon._report import Report
    from mutcanon._unlift import module, run_decompositions

__all__ = [
    "CheckResult",
    "Report",
    "__version__",
    "analyze",
    "canonicalize",
    "canonicalize_",
    "check",
    "disable",
    "enable",
    "enabled",
    "module",
    "run_decompositions",
]

_HOMES = {
    "CheckResult": "mutcanon._check",
    "Report": "mutcanon._report",
    "analyze": "mutcanon._canonicalize",
    "canonicalize": "mutcanon._canonicalize",
    "canonicalize_": "mutcanon._canonicalize",
    "check": "mutcanon._check",
    "disable": "mutcanon._enable",
    "enable": "mutcanon._enable",
    "enabled": "mutcanon._enable",
    "module": "mutcanon._unlift",
    "run_decompositions": "mutcanon._unlift",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
