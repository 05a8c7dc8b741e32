"""Writes the alias table of the archive path: what `_alias` reads off schemas, as text.

The archive path works without torch, so it carries what the torch path would look up. Every rule is
in `mutcanon._alias`; this only calls it for each operator that the installed libraries register.

    python tools/alias_table.py            rewrite rust/src/pt2/ops/*.txt
    python tools/alias_table.py --check    exit 1 when one of them would change

A library that is not installed keeps its table. Each table names the version it was made from.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import logging
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from mutcanon import _alias

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = Path(__file__).resolve().parent.parent / "rust/src/pt2/ops"


@dataclass(frozen=True)
class Library:
    """A library that registers operators.

    Attributes:
        name: Its name, and its table's.
        imports: Modules that register the operators.
        namespaces: Those of its operators.
    """

    name: str
    imports: tuple[str, ...]
    namespaces: frozenset[str]


LIBRARIES = (
    Library(
        "torch",
        ("torch.ao.quantization.fx._decomposed", "torch._inductor.inductor_prims"),
        frozenset({"aten", "prims", "quantized", "quantized_decomposed", "_c10d_functional"}),
    ),
    Library("torchao", ("torchao",), frozenset({"torchao"})),
    Library(
        "executorch", ("executorch.extension.llm.custom_ops.custom_ops",), frozenset({"llama"})
    ),
)


def table(library: Library) -> str | None:
    """The library's table, or None when it is not installed."""
    try:
        version = importlib.metadata.version(library.name)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for module in library.imports:
                importlib.import_module(module)
    except ImportError:
        return None
    lines = sorted(_line(name, op) for name, op in _operators(library.namespaces))
    if library.name == "torch":
        lines += sorted(f"higher_order.{n}" for n in _alias.FRESH_HIGHER_ORDER)
        lines.sort()
    head = f"# {library.name} {version.partition('+')[0]}; written by tools/alias_table.py\n"
    return head + "".join(f"{line}\n" for line in lines)


def _operators(namespaces: frozenset[str]) -> Iterator[tuple[str, Any]]:
    for qualified in torch._C._dispatch_get_all_op_names():
        namespace, _, rest = qualified.partition("::")
        if namespace not in namespaces:
            continue
        name, _, overload = rest.partition(".")
        packet = getattr(getattr(torch.ops, namespace), name, None)
        op = getattr(packet, overload or "default", None)
        if isinstance(op, torch._ops.OpOverload):
            yield f"{namespace}.{name}.{overload or 'default'}", op


def _line(name: str, op: Any) -> str:
    facts = _alias.op_facts(op)
    words = [name]
    if facts.may_alias_all:
        words.append("aliases=*")
    elif any(facts.aliases):
        words.append("aliases=" + _names(facts, {i for r in facts.aliases for i in r}))
    if facts.written:
        words.append("writes=" + _names(facts, set(facts.written)))
    elif torch.fx.Graph().call_function(op).is_impure():
        words.append("impure")
    if op in _alias.REPRESENTATION_KEEPERS:
        words.append("keeps")
    return " ".join(words)


def _names(facts: _alias.OpFacts, positions: set[int]) -> str:
    return ",".join(facts.names[i] for i in sorted(positions))


def main(argv: list[str] | None = None) -> int:
    """Writes or checks the tables."""
    parser = argparse.ArgumentParser(description="Writes the alias tables of the archive path.")
    parser.add_argument("--check", action="store_true", help="only say whether one would change")
    check = parser.parse_args(argv).check
    stale = 0
    for library in LIBRARIES:
        path, text = FOLDER / f"{library.name}.txt", table(library)
        if text is None or (path.exists() and path.read_text() == text):
            continue
        stale += 1
        if not check:
            path.write_text(text)
        sys.stderr.write(f"{path.name}: {'out of date' if check else 'written'}\n")
    return stale if check else 0


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    raise SystemExit(main())
