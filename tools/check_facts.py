"""Writes what the checker knows of operators, for archives, which are checked without torch.

The facts are those of `mutcanon._check_facts`, which the checker has of its own: the table of the
archive path (`alias_table.py`) is the planner's.

    python tools/check_facts.py            rewrite rust/src/check/facts.txt
    python tools/check_facts.py --check    exit 1 when it would change
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import logging
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from mutcanon._check_facts import NEW_HIGHER_ORDER, Facts, facts_of

if TYPE_CHECKING:
    from collections.abc import Iterator

FILE = Path(__file__).resolve().parent.parent / "rust/src/check/facts.txt"
MODULES = ("torch.ao.quantization.fx._decomposed", "torch._inductor.inductor_prims", "torchao")
NAMESPACES = frozenset({"aten", "prims", "quantized_decomposed", "torchao"})


def table() -> str:
    """The table as text, one line an operator, sorted."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for module in MODULES:
            importlib.import_module(module)
    lines = [line(name, facts_of(op)) for name, op in operators()]
    lines += [f"higher_order.{name}" for name in NEW_HIGHER_ORDER]
    version = importlib.metadata.version("torch").partition("+")[0]
    return "\n".join([f"# torch {version}; written by tools/check_facts.py", *sorted(lines), ""])


def operators() -> Iterator[tuple[str, Any]]:
    """Every registered operator of the namespaces, with its name in an archive."""
    for qualified in torch._C._dispatch_get_all_op_names():
        namespace, _, rest = qualified.partition("::")
        if namespace in NAMESPACES:
            name, _, overload = rest.partition(".")
            packet = getattr(getattr(torch.ops, namespace), name, None)
            op = getattr(packet, overload or "default", None)
            if isinstance(op, torch._ops.OpOverload):
                yield f"{namespace}.{name}.{overload or 'default'}", op


def line(name: str, facts: Facts) -> str:
    """One operator."""
    assert facts.parameters is not None
    arguments = [parameter for parameter, _ in facts.parameters]

    def names(*positions: int) -> str:
        return ",".join(arguments[i] for i in positions)

    def result(k: int | None) -> str:
        return "*" if k is None else str(k)

    words = [name]
    if facts.name != name:
        words.append(f"as={facts.name}")
    words += [f"same={k}:{names(p)}" for k, p in facts.same]
    words += [f"view={result(k)}:{names(p)}" for k, p in facts.views]
    words += [f"may={result(k)}:{names(*p)}" for k, p in facts.may]
    words += [f"writes={names(p)}" + ("" if k is None else f":{k}") for p, k in facts.writes]
    flags = {"all": facts.may_share_all, "keeps": facts.keeps, "impure": facts.impure}
    words += [flag for flag, holds in flags.items() if holds]
    return " ".join(words)


def main(argv: list[str] | None = None) -> int:
    """Writes or checks the table."""
    parser = argparse.ArgumentParser(description="Writes what the checker knows of operators.")
    parser.add_argument("--check", action="store_true", help="only say whether it would change")
    check = parser.parse_args(argv).check
    text = table()
    if FILE.exists() and FILE.read_text() == text:
        return 0
    if not check:
        FILE.write_text(text)
    sys.stderr.write(f"{FILE.name}: {'out of date' if check else 'written'}\n")
    return int(check)


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    raise SystemExit(main())
