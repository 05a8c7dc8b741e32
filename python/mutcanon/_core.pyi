"""The compiled core. Private: import from `mutcanon`."""

from os import PathLike
from typing import final

__all__ = [
    "CoreError",
    "Flow",
    "Plan",
    "Problem",
    "__version__",
    "analyze_archive",
    "check",
    "finding_codes",
    "findings_text",
    "in_place_reasons",
    "plan_text",
    "reasons",
    "refusals",
    "rewrite_archive",
    "verify_archive",
]

__version__: str

class CoreError(ValueError):
    """An input that the core refuses; `args` is (message, code)."""

@final
class Problem:
    """The mutations and copies of one graph.

    Sizes and strides are numbers; `-1 - i` stands for `symbols[i]`.

    A layout is (dtype, device, format, conj, neg, quantizer, sizes, strides). Its format is
    "strided", the name of something else, or None for a value without tensor metadata.

    `values` holds for each value, operands first: its kind, its layout, the value whose
    representation it keeps plus one (or 0), then the operands. Kinds: 0 placeholder; 1 fresh;
    2 alias (count, values); 3 copy (destination, source); 4 the same with non_blocking; 5, 6, 7
    placeholder of a buffer, a user input, anything else.

    `outputs` holds for each output its kind and values. Kinds: 0 no tensor; 1 user output (value);
    2 mutation (target, value); 3 mutation whose position is observable (target, value); 4 and 5
    the same where an input and a buffer or parameter have one name.
    """

    def __new__(
        cls,
        symbols: list[str],
        layouts: list[tuple[str, str, str | None, bool, bool, str | None, list[int], list[int]]],
        values: list[int],
        outputs: list[int],
        *,
        operand_groups: list[list[int]],
        written: list[int],
        read: list[int],
        opaque_writes: bool,
        is_body: bool,
        names: list[str],
    ) -> Problem: ...
    def with_equalities(self, pairs: list[tuple[int, int]]) -> Problem: ...
    def plan(self, form: str) -> Plan: ...
    def findings(self) -> list[tuple[str, int, int | None, list[str]]]: ...
    def text(self) -> str: ...
    def plan_text(self, form: str) -> str: ...

@final
class Plan:
    """What is decided. Values and outputs are positions; a reason is (code, blamed value, fact)."""

    @property
    def changes_nothing(self) -> bool: ...
    @property
    def collapsed(self) -> tuple[list[int], list[int]]: ...
    @property
    def kept(self) -> list[tuple[int, tuple[str, int | None, str]]]: ...
    @property
    def inserts(self) -> list[tuple[int, int, tuple[str, int | None, str]]]: ...
    @property
    def order(self) -> list[int] | None: ...
    @property
    def write_backs(self) -> list[tuple[bool, int]]: ...
    @property
    def hazards(self) -> list[tuple[int, int]]: ...
    @property
    def queries(self) -> list[tuple[int, int]]: ...

@final
class Flow:
    """A whole graph in execution order, and what in it could be written in place.

    `nodes` holds for each node its kind (0 placeholder, 1 fresh, 2 alias), for an alias a count and
    the values that it may alias, then a count and the values it reads, a count and those it writes.
    `outputs` is as in `Problem`. `candidates` holds for each its node, its result, the value that
    it would write over, a count and the operands that must lie elsewhere. `identities` are nodes
    that copy their only operand.
    """

    def __new__(
        cls,
        nodes: list[int],
        outputs: list[int],
        candidates: list[int],
        identities: list[int],
        names: list[str],
    ) -> Flow: ...
    def schedule(
        self,
    ) -> tuple[list[tuple[str, int | None]], list[tuple[int, bool, int]], list[bool]]: ...
    def text(self) -> str: ...

def in_place_reasons() -> list[tuple[str, str, str]]: ...
def reasons() -> list[tuple[str, str, str]]: ...
def finding_codes() -> list[tuple[str, str, str]]: ...
def plan_text(problem: str, form: str) -> str: ...
def findings_text(problem: str) -> str: ...
def analyze_archive(path: str | PathLike[str], form: str, *, verify: bool = False) -> str: ...
def rewrite_archive(
    source: str | PathLike[str],
    destination: str | PathLike[str],
    form: str,
    *,
    verify: bool = False,
    check: bool = False,
    embed: bool = False,
) -> str: ...
def verify_archive(
    before: str | PathLike[str],
    after: str | PathLike[str],
    form: str,
    certificate: str | None = None,
) -> str: ...
def check(case: str) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]: ...
def refusals() -> list[tuple[str, str]]: ...
