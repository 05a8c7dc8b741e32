"""The independent checker: does a result still mean what the program meant?

`check` reads both programs in full, node by node, and hands them to the core's checker as text. It
shares no code with the extraction that the planner works from: what is misread there is not
misread here.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from mutcanon import _core
from mutcanon._check_program import encode
from mutcanon._check_types import Types
from mutcanon._report import Remark, target_names
from mutcanon.errors import InternalError, InvalidProgramError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch.export import ExportedProgram

__all__ = ["CheckResult", "Remark", "always", "check"]

Consumer = Literal["torch", "executorch", "mutcanon", "nobody"]


@dataclass(frozen=True)
class CheckResult:
    """What the checker says.

    Attributes:
        objections: What is wrong; empty when the result is right.
        warnings: What would be wrong if the caller passed one tensor as two inputs, and what the
            consumer never does.
        case: Both programs as text: `_core.check` replays it.
    """

    objections: tuple[Remark, ...]
    warnings: tuple[Remark, ...]
    case: str = field(repr=False)

    @property
    def is_right(self) -> bool:
        """Whether nothing is wrong."""
        return not self.objections

    def __str__(self) -> str:
        lines = [*map(str, self.objections), *(f"warning: {w}" for w in self.warnings)]
        return "\n".join(lines) or "right"


def check(
    before: ExportedProgram,
    after: ExportedProgram,
    *,
    consumer: Consumer = "torch",
    write_backs: Sequence[tuple[str, str]] | Sequence[tuple[str, int]] | None = None,
) -> CheckResult:
    """Compares a program with what it was rewritten to.

    Args:
        before: The program as it was.
        after: The program as it is.
        consumer: Who carries out the mutations of `after`: "torch" (`ep.module()`), "executorch"
            (`to_executorch`), both in the order of the signature; "mutcanon", in the order of
            `write_backs`; or "nobody", when the graph does it itself, as one that `to_executorch`
            is done with.
        write_backs: The steps of mutcanon's write-back, as `Report.write_backs` has them: "save" or
            "write", and a target or the number of an output.

    Returns:
        The objections, none when every user output and every mutated target gets the value that it
        got before and nothing shares storage that did not.

    Raises:
        InvalidProgramError: When a program contradicts itself.
        UnsupportedError: When the consumer is unknown or its steps are missing.

    Example:
        >>> import torch, mutcanon
        >>> class Count(torch.nn.Module):
        ...     def forward(self, x):
        ...         x.add_(1)
        ...         return x * 2
        >>> ep = torch.export.export(Count(), (torch.ones(2),)).run_decompositions({})
        >>> ep = ep.run_decompositions({})
        >>> mutcanon.check(ep, mutcanon.canonicalize(ep)).is_right
        True
    """
    types = Types()
    line = consumer_line(after, consumer, write_backs)
    return compare(types, *_encode(before, after, types, consumer), line)


def _encode(
    before: ExportedProgram, after: ExportedProgram, types: Types, consumer: str
) -> tuple[str, str]:
    if consumer == "nobody":
        return encode(before, types, before), encode(after, types, before)
    return encode(before, types), encode(after, types)


def compare(types: Types, before: str, after: str, consumer: str) -> CheckResult:
    """Compares two encoded programs.

    Args:
        types: Where the types of both are.
        before: The program as it was.
        after: The program as it is.
        consumer: The statement that names the consumer.
    """
    case = f"{types.text()}{consumer}\nbefore\n{before}after\n{after}"
    try:
        objections, warnings = _core.check(case)
    except _core.CoreError as error:
        message, code = error.args
        raise InvalidProgramError(f"{message}; export the program again", code=code) from error
    return CheckResult(
        tuple(Remark(*o) for o in objections), tuple(Remark(*w) for w in warnings), case
    )


def require_right(
    before: ExportedProgram,
    after: ExportedProgram,
    consumers: Sequence[Consumer],
    steps: Sequence[tuple[str, int]] = (),
    problem: Callable[[], str] | None = None,
) -> None:
    """Refuses a result of ours that is wrong.

    Args:
        before: The program as it was.
        after: The result.
        consumers: Those that it has to be right for.
        steps: Those of mutcanon's write-back; none when the top graph had nothing to decide.
        problem: Says in textual form what was decided about; both programs when None.

    Raises:
        InternalError: When the checker objects.
    """
    if not steps:
        specs = enumerate(after.graph_signature.output_specs)
        steps = [("write", i) for i, spec in specs if spec.kind.name.endswith("_MUTATION")]
    types = Types()
    texts = _encode(before, after, types, consumers[0])
    for consumer in consumers:
        result = compare(types, *texts, consumer_line(after, consumer, steps))
        if not result.is_right:
            text = result.case if problem is None else problem()
            raise InternalError(
                f"program: the result is not what it should be for {consumer}, and was not "
                f"returned; please report this\n{result}\n{text}",
                code="check_failed",
            )


def consumer_line(
    ep: ExportedProgram,
    consumer: str,
    write_backs: Sequence[tuple[str, str]] | Sequence[tuple[str, int]] | None,
) -> str:
    """The statement that names the consumer."""
    if consumer in ("torch", "executorch", "nobody"):
        return f"consumer {consumer}"
    if consumer != "mutcanon":
        raise UnsupportedError(
            f"consumer {consumer!r}: none of 'torch', 'executorch', 'mutcanon', 'nobody'",
            code="unknown_consumer",
        )
    if write_backs is None:
        raise UnsupportedError(
            "consumer 'mutcanon': pass its steps, analyze(ep, form='minimal').write_backs",
            code="no_write_backs",
        )
    outputs = {name: i for i, name in enumerate(target_names(ep.graph_signature)) if name}
    steps = (f"{step} {t if isinstance(t, int) else outputs[t]}" for step, t in write_backs)
    return " ".join(["consumer steps", *steps])


_always = bool(os.environ.get("MUTCANON_CHECK"))


@contextlib.contextmanager
def always() -> Iterator[None]:
    """Checks every result of `canonicalize` and `canonicalize_` inside the context.

    The environment variable `MUTCANON_CHECK=1` does the same for a whole process.
    """
    global _always
    before, _always = _always, True
    try:
        yield
    finally:
        _always = before


def is_always() -> bool:
    """Whether every result is to be checked."""
    return _always
