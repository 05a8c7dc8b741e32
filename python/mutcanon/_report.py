"""What `analyze` says: frozen records, as text and as JSON.

`SCHEMA_VERSION` belongs to the JSON form; a field may be added in a minor release, and none changes
its meaning.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch.export.graph_signature import ExportGraphSignature

__all__ = [
    "SCHEMA_VERSION",
    "CopyReport",
    "FindingReport",
    "MutationReport",
    "Remark",
    "Report",
    "input_namesakes",
    "target_names",
]

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class CopyReport:
    """One `aten.copy` of the program, or one that is added.

    Attributes:
        node: The copy's name; for an added copy, the output that gets it.
        graph: The control-flow body that it is in, "" for the top graph.
        decision: "collapse", "keep" or "insert".
        source: Name of the value that it copies.
        reads: For a collapsed copy, what its readers read instead.
        code: For a kept or added copy, the reason's stable code.
        fact: The fact that was missing, in words.
        blame: Name of another value that has to do with the reason.
        bytes: Size of the copied tensor in bytes; None where it depends on a symbol or is not
            known.
        formula: The size in bytes as an expression, "" where it is not known.
    """

    node: str
    graph: str
    decision: str
    source: str
    reads: str | None
    code: str | None
    fact: str
    blame: str | None
    bytes: int | None
    formula: str


@dataclass(frozen=True)
class MutationReport:
    """One mutation output.

    Attributes:
        output: Position among the graph's outputs before any reordering.
        kind: "user_input", "buffer" or "parameter".
        target: The mutated input: a name, or the fully qualified name of a buffer or parameter;
            with " (input)" behind it where both have one name.
        value: Name of the value before.
        new_value: Name of the value afterwards; the copied value where a copy is added.
        depth: Copies between the target and the value's producer, before.
        new_depth: The same afterwards.
    """

    output: int
    kind: str
    target: str
    value: str
    new_value: str
    depth: int
    new_depth: int


@dataclass(frozen=True)
class FindingReport:
    """Something that stock consumers get wrong in the program as it is.

    Attributes:
        code: The finding's stable code.
        output: The output that comes out wrong: a mutation's target, or "output N".
        other: The other output that has to do with it.
        consumers: Who gets it wrong.
        sentence: What happens.
        advice: What to do.
    """

    code: str
    output: str
    other: str | None
    consumers: tuple[str, ...]
    sentence: str
    advice: str


@dataclass(frozen=True)
class Remark:
    """One thing that the checker says is wrong, or that would be.

    Attributes:
        code: The kind, stable.
        message: What it is about, and what is the matter.
    """

    code: str
    message: str

    def __str__(self) -> str:
        return f"{self.message} [{self.code}]"


@dataclass(frozen=True)
class Report:
    """What canonicalization does to a program, and why it does no more.

    Attributes:
        form: "portable" or "minimal".
        copies: Every copy of the program, then those that are added.
        mutations: The mutation outputs, in their old order.
        write_backs: The order of the write-backs, as ("save" | "write", target).
        hazards: Pairs of targets (reader, writer): the first one's new value shares storage with
            the second.
        findings: What stock consumers get wrong in the program as it was given.
        reordered: Whether mutation outputs change places.
        bytes_saved: Bytes that the collapsed copies write in each call; None where that depends on
            a symbol.
        formula: The same as an expression.
    """

    form: str
    copies: tuple[CopyReport, ...]
    mutations: tuple[MutationReport, ...]
    write_backs: tuple[tuple[str, str], ...]
    hazards: tuple[tuple[str, str], ...]
    findings: tuple[FindingReport, ...]
    reordered: bool
    bytes_saved: int | None
    formula: str

    @property
    def collapsed(self) -> tuple[CopyReport, ...]:
        """The copies that go."""
        return tuple(c for c in self.copies if c.decision == "collapse")

    @property
    def kept(self) -> tuple[CopyReport, ...]:
        """The copies that stay."""
        return tuple(c for c in self.copies if c.decision == "keep")

    @property
    def inserted(self) -> tuple[CopyReport, ...]:
        """The copies that are added."""
        return tuple(c for c in self.copies if c.decision == "insert")

    @property
    def changes_nothing(self) -> bool:
        """Whether the program is canonical already."""
        return not self.collapsed and not self.inserted and not self.reordered

    def to_json(self) -> str:
        """The report as one JSON object."""
        fields: dict[str, Any] = {"schema_version": SCHEMA_VERSION, **asdict(self)}
        fields["changes_nothing"] = self.changes_nothing
        return json.dumps(fields)

    def __str__(self) -> str:
        lines = [self.headline]
        for m in self.mutations:
            depth = f"{m.depth} -> {m.new_depth}"
            lines.append(f"  {m.kind} {m.target} <- {m.new_value} (copies below: {depth})")
        lines += [f"  {_sentence(c)}" for c in self.copies]
        if self.hazards:
            order = ", ".join(f"{step} {target}" for step, target in self.write_backs)
            lines.append(f"  write-back order: {order}")
        for f in self.findings:
            because = f" because of {f.other}" if f.other else ""
            lines.append(f"  {f.code} ({', '.join(f.consumers)}): {f.output}{because}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from mutcanon._drawing import fragment

        return fragment(self)

    @property
    def headline(self) -> str:
        """What happens, in one line."""
        counts = (
            f"{len(self.collapsed)} collapse, {len(self.kept)} stay, {len(self.inserted)} added"
        )
        saved = f"{self.formula} bytes a call saved" if self.collapsed else "nothing to save"
        if self.changes_nothing:
            return f"{self.form} form already: {len(self.kept)} copies stay"
        return f"{self.form} form: {len(self.copies)} copies, {counts}; {saved}"


def _sentence(copy: CopyReport) -> str:
    where = f" in {copy.graph}" if copy.graph else ""
    if copy.decision == "collapse":
        return f"collapse {copy.node}{where}: its readers read {copy.reads}"
    reason = copy.code or ""
    if copy.blame:
        reason += f" ({copy.blame})"
    if copy.fact:
        reason += f": {copy.fact}"
    if copy.decision == "insert":
        return f"add a copy of {copy.source} at output {copy.node}{where}: {reason}"
    return f"keep {copy.node}{where}: {reason}"


def input_namesakes(signature: ExportGraphSignature) -> frozenset[int]:
    """The outputs that mutate a user input which is called as a buffer or parameter is."""
    states = {s.target for s in signature.input_specs}
    return frozenset(
        i
        for i, s in enumerate(signature.output_specs)
        if s.kind.name == "USER_INPUT_MUTATION" and s.target in states
    )


def target_names(signature: ExportGraphSignature) -> list[str]:
    """What each output mutates, for people; empty where it mutates nothing.

    A user input that is called as a buffer is gets a name of its own.
    """
    namesakes = input_namesakes(signature)
    return [
        f"{s.target} (input)" if i in namesakes else s.target or ""
        for i, s in enumerate(signature.output_specs)
    ]
