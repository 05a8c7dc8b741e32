"""Exported programs in `.pt2` archives, without torch.

`analyze` says what an archive is and what its programs need; `rewrite` writes it in canonical form;
`verify` compares two archives, and what a certificate claims of them. The first two decide as
`mutcanon.analyze` and `mutcanon.canonicalize` do, `verify` knows nothing of how they decide, and
none imports torch: the graph is read and edited as text, everything else is copied as it is. The
GIL is free while they work, so threads run in parallel.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from mutcanon import _core
from mutcanon._report import CopyReport, FindingReport, MutationReport, Remark, Report
from mutcanon.errors import InternalError, InvalidProgramError, MutcanonError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = [
    "ArchiveReport",
    "ModelReport",
    "ModelVerdict",
    "Outcome",
    "Remark",
    "Verification",
    "analyze",
    "rewrite",
    "verify",
]

Form = Literal["portable", "minimal"]

_UNSUPPORTED = frozenset({"compressed_graph", "schema_version", "too_large", "unknown_argument"})


@dataclass(frozen=True)
class ModelReport:
    """One exported program of an archive.

    Attributes:
        model: Its name in the archive.
        graph_size: Length of its graph's JSON in bytes.
        copies_before: The `aten.copy` nodes of all its graphs.
        copies_after: Those that are left in the end.
        report: What it needs and why, as `mutcanon.analyze` reports it.
    """

    model: str
    graph_size: int
    copies_before: int
    copies_after: int
    report: Report


@dataclass(frozen=True)
class ArchiveReport:
    """What an archive is and what its programs need.

    Attributes:
        kind: What the file is, told by its contents: "exported_program", or another format's name.
        summary: The same in words, with what can be done about it.
        has_compiled_models: Whether the archive also holds compiled models, which a rewrite leaves
            as they are.
        models: The exported programs.
    """

    kind: str
    summary: str
    has_compiled_models: bool
    models: tuple[ModelReport, ...]

    @property
    def changes_nothing(self) -> bool:
        """Whether a rewrite would leave the archive as it is."""
        return all(m.report.changes_nothing for m in self.models)


@dataclass(frozen=True)
class Outcome:
    """What `rewrite` did.

    Attributes:
        action: "rewritten"; "copied", when there was nothing to do and the destination now holds
            the same bytes; "untouched", when that was so in place; or "foreign", when the file
            holds no exported program that we can work on and nothing was written.
        report: What the archive was before, and why.
        certificate: What was collapsed and why that was right, as JSON values; None unless the
            checker was asked.
    """

    action: str
    report: ArchiveReport
    certificate: dict[str, Any] | None = None


@dataclass(frozen=True)
class ModelVerdict:
    """What the checker says of one program.

    Attributes:
        model: Its name in the archive.
        objections: What is wrong; empty when the result is right.
        warnings: What would be wrong if the caller passed one tensor as two inputs.
    """

    model: str
    objections: tuple[Remark, ...]
    warnings: tuple[Remark, ...]


@dataclass(frozen=True)
class Verification:
    """What `verify` says.

    Attributes:
        models: Each program.
        certificate: The certificate of the two archives, as JSON values; it claims nothing that
            is not so, but a result that is objected to has none worth keeping.
    """

    models: tuple[ModelVerdict, ...]
    certificate: dict[str, Any]

    @property
    def is_right(self) -> bool:
        """Whether nothing is wrong."""
        return not any(model.objections for model in self.models)


def analyze(
    path: str | os.PathLike[str], *, form: Form = "portable", verify: bool = False
) -> ArchiveReport:
    """Says what `rewrite` would do to a file, and why it would do no more.

    Args:
        path: The file; of any kind, since `.pt2` is also the ending of other formats.
        form: As for `mutcanon.canonicalize`.
        verify: Whether to read all of the archive and compare its checksums.

    Raises:
        InvalidProgramError: When the archive or a program contradicts itself.
        UnsupportedError: When it is sound, but not what we can read.
        OSError: When the system says no.

    Example:
        >>> import torch, mutcanon.archive
        >>> class Count(torch.nn.Module):
        ...     def forward(self, n):
        ...         n.add_(1)
        ...         return n * 2
        >>> ep = torch.export.export(Count(), (torch.zeros(3),))
        >>> for _ in range(3):
        ...     ep = ep.run_decompositions({})
        >>> path = getfixture("tmp_path") / "count.pt2"
        >>> torch.export.save(ep, path)
        >>> (model,) = mutcanon.archive.analyze(path).models
        >>> model.copies_before, model.copies_after
        (2, 0)
    """
    return _archive_report(_call(_core.analyze_archive, path, form, verify=verify))


def rewrite(
    source: str | os.PathLike[str],
    destination: str | os.PathLike[str],
    *,
    form: Form = "portable",
    verify: bool = False,
    check: bool = False,
    embed: bool = False,
) -> Outcome:
    """Writes an archive in canonical form.

    The result is written to a temporary file beside the destination, which then takes its place:
    whatever happens, there is the old file or the new one, whole.

    Args:
        source: The archive.
        destination: Where the result goes; may be the source itself.
        form: As for `mutcanon.canonicalize`.
        verify: Whether to compare every checksum before and after, and to analyze the result.
        check: Whether the independent checker compares the result with the source, and certifies
            it.
        embed: Whether the certificate also goes into the archive, below `extra/`; implies `check`.

    Raises:
        InvalidProgramError: When the archive or a program contradicts itself.
        UnsupportedError: When it is sound, but not what we can read.
        InternalError: When `verify` or `check` finds fault with our own result; the destination is
            as it was.
        OSError: When the system says no.
    """
    fields = _call(
        _core.rewrite_archive, source, destination, form, verify=verify, check=check, embed=embed
    )
    return Outcome(fields["action"], _archive_report(fields), fields.get("certificate"))


def verify(
    before: str | os.PathLike[str],
    after: str | os.PathLike[str],
    certificate: Mapping[str, Any] | None = None,
    *,
    form: Form | None = None,
) -> Verification:
    """Compares an archive with what it was rewritten to; the planner has no part in it.

    Args:
        before: The archive as it was.
        after: The result. A certificate that it holds is checked too.
        certificate: What is claimed of the two, as `rewrite` returns it.
        form: Which consumers it has to be right for; the certificate's form by default, and
            "portable" without one.

    Raises:
        InvalidProgramError: When an archive, a program or the certificate cannot be understood.
        UnsupportedError: When it is sound, but not what we can read.
        OSError: When the system says no.

    Example:
        >>> import torch, mutcanon.archive
        >>> class Count(torch.nn.Module):
        ...     def forward(self, n):
        ...         n.add_(1)
        ...         return n * 2
        >>> ep = torch.export.export(Count(), (torch.zeros(3),))
        >>> for _ in range(3):
        ...     ep = ep.run_decompositions({})
        >>> before = getfixture("tmp_path") / "before.pt2"
        >>> after = getfixture("tmp_path") / "after.pt2"
        >>> torch.export.save(ep, before)
        >>> outcome = mutcanon.archive.rewrite(before, after, check=True)
        >>> mutcanon.archive.verify(before, after, outcome.certificate).is_right
        True
    """
    claims = None if certificate is None else json.dumps(certificate)
    if form is None:
        form = "minimal" if certificate and certificate.get("form") == "minimal" else "portable"
    fields = _call(_core.verify_archive, before, after, form, certificate=claims)
    models = tuple(
        ModelVerdict(
            model["model"],
            tuple(Remark(**remark) for remark in model["objections"]),
            tuple(Remark(**remark) for remark in model["warnings"]),
        )
        for model in fields["models"]
    )
    return Verification(models, fields["certificate"])


def _call(function: Callable[..., str], *args: Any, **options: Any) -> dict[str, Any]:
    try:
        fields: dict[str, Any] = json.loads(function(*args, **options))
    except _core.CoreError as error:
        message, code = error.args
        raise _error_type(code)(message, code=code) from None
    return fields


def _error_type(code: str) -> type[MutcanonError]:
    if code == "internal":
        return InternalError
    return UnsupportedError if code in _UNSUPPORTED else InvalidProgramError


def _archive_report(fields: dict[str, Any]) -> ArchiveReport:
    return ArchiveReport(
        kind=fields["kind"],
        summary=fields["summary"],
        has_compiled_models=fields["has_compiled_models"],
        models=tuple(
            ModelReport(**{**model, "report": read_report(model["report"])})
            for model in fields["models"]
        ),
    )


def read_report(fields: dict[str, Any]) -> Report:
    """A report from its JSON form."""
    return Report(
        form=fields["form"],
        copies=tuple(CopyReport(**copy) for copy in fields["copies"]),
        mutations=tuple(MutationReport(**mutation) for mutation in fields["mutations"]),
        write_backs=tuple((step, target) for step, target in fields["write_backs"]),
        hazards=tuple((reader, writer) for reader, writer in fields["hazards"]),
        findings=tuple(
            FindingReport(**{**finding, "consumers": tuple(finding["consumers"])})
            for finding in fields["findings"]
        ),
        reordered=fields["reordered"],
        bytes_saved=fields["bytes_saved"],
        formula=fields["formula"],
    )
