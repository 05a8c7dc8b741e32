"""Many archives: what is to be done, and what became of it.

A batch is a list of units of work, one for each file, and an engine that carries them out in any
order: threads here (the compiled core releases the GIL), Ray elsewhere (`_batch_ray.py`). A unit
never raises; what went wrong with one file is its outcome, and the others go on. All that engines
share is in `run_unit`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, Protocol

import mutcanon
from mutcanon import _core, _journal, _store
from mutcanon.errors import MutcanonError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from threading import Event

    from mutcanon._journal import Journal

#: Version of an outcome's JSON form; a field may be added in a minor release.
SCHEMA_VERSION = 1

#: Why a file may fail, besides the core's refusals of what is in it.
FAILURES = {
    "invalid_problem": "the mutations of a graph contradict one another",
    "io": "the system said no: permissions, a full disk, a file that is gone",
    "unknown_format": "the file is none of torch's",
    "worker_version": "a Ray worker has another mutcanon",
    "worker_lost": "no Ray worker could finish the file",
    "out_of_memory": "there was not enough memory",
    "unexpected": "something that nobody thought of: please report this",
}

Status = Literal["clean", "found", "rewritten", "would_rewrite", "unchanged", "foreign", "failed"]


@dataclass(frozen=True)
class Settings:
    """What is the same for all units of a batch.

    Attributes:
        command: "check", or "rewrite".
        form: "portable" or "minimal".
        verify: Whether all checksums are compared.
        check: Whether the independent checker compares each result with its source.
        certificate: Whether each result gets a certificate beside it; implies `check`.
        embed: Whether each result that is written holds its certificate; implies `check`.
        dry_run: Whether nothing is written.
        consumers: Those whose findings count, as the findings name them; all if empty.
        version: Of the mutcanon that made the batch; workers of another one refuse it.
    """

    command: Literal["check", "rewrite"]
    form: str = "portable"
    verify: bool = False
    check: bool = False
    certificate: bool = False
    embed: bool = False
    dry_run: bool = False
    consumers: tuple[str, ...] = ()
    version: str = mutcanon.__version__


@dataclass(frozen=True)
class Unit:
    """One file.

    Attributes:
        name: Its name in the batch, and below an output directory.
        source: Where it is.
        target: Where the result goes; None where nothing is written.
        size: Its length in bytes.
        known: What a file of this name held when it was done, and what the result held; None
            where nobody keeps a journal.
    """

    name: str
    source: str
    target: str | None
    size: int
    known: tuple[tuple[str, str | None], ...] | None = None

    @property
    def is_in_place(self) -> bool:
        """Whether the file itself is replaced."""
        return self.source == self.target


@dataclass(frozen=True)
class Outcome:
    """What became of a unit.

    Attributes:
        name: As in the unit.
        source: As in the unit.
        target: Where the result is; None where nothing was written.
        status: "clean" or "found" for a check; "rewritten" or "unchanged" for a rewrite, in a dry
            run "would_rewrite"; "foreign" for a file without an exported program; "failed".
        size: Length of the source in bytes.
        seconds: What it took.
        kind: What the file is.
        code: For a failure, its stable code.
        message: For a failure or a foreign file, what it is and what to do.
        models: For each exported program its report, as the core makes it.
        resumed: Whether an earlier run did it.
        before: Digest of the source, where a journal is kept.
        after: Digest of the result, where a journal is kept and something was written.
    """

    name: str
    source: str
    target: str | None
    status: Status
    size: int = 0
    seconds: float = 0.0
    kind: str = ""
    code: str = ""
    message: str = ""
    models: tuple[dict[str, Any], ...] = ()
    resumed: bool = False
    before: str | None = field(default=None, repr=False)
    after: str | None = field(default=None, repr=False)

    def to_dict(self) -> dict[str, Any]:
        """What `--json` prints."""
        fields = asdict(self)
        del fields["before"], fields["after"]
        return {"schema_version": SCHEMA_VERSION, **fields}


class Engine(Protocol):
    """Carries out units in any order, until all are done or `stop` is set."""

    def __call__(
        self, units: Sequence[Unit], settings: Settings, stop: Event
    ) -> Iterator[Outcome]: ...


# The batch


def shard(units: Iterable[Unit], index: int, count: int) -> list[Unit]:
    """The part of a batch that shard `index` (from 1) of `count` does.

    It depends on a unit's name only, so that each machine can tell its own.
    """

    def place(name: str) -> int:
        digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass")).digest()
        return int.from_bytes(digest[:8], "big")

    return [unit for unit in units if place(unit.name) % count == index - 1]


def run(
    units: Sequence[Unit],
    settings: Settings,
    engine: Engine,
    stop: Event,
    journal: Journal | None = None,
) -> Iterator[Outcome]:
    """Carries out a batch; what the journal says is done is not done again."""
    if settings.command == "rewrite" and not settings.dry_run:
        _store.remove_leftovers({unit.target for unit in units if unit.target})
    if journal is not None:
        units = [replace(unit, known=journal.known(unit.name)) for unit in units]
    for outcome in engine(units, settings, stop):
        yield outcome if journal is None else _journaled(outcome, journal)


def _journaled(outcome: Outcome, journal: Journal) -> Outcome:
    if outcome.before is None or outcome.status == "failed":
        return outcome
    if not outcome.resumed:
        journal.record(outcome.name, outcome.before, outcome.after, asdict(outcome))
        return outcome
    fields = journal.recall(outcome.name, outcome.before)
    fields |= {"source": outcome.source, "target": outcome.target, "resumed": True}
    return Outcome(**{**fields, "models": tuple(fields["models"])})


def run_in_threads(
    units: Sequence[Unit], settings: Settings, stop: Event, *, jobs: int
) -> Iterator[Outcome]:
    """The engine of one machine. Told to stop, it ends what it has begun and begins nothing."""
    rest = iter(units)
    pending: set[Future[Outcome]] = set()
    with ThreadPoolExecutor(jobs, thread_name_prefix="mutcanon") as pool:
        try:
            while True:
                # Twice as many as run, so that no thread waits for us, and hardly more, so that
                # few have to be taken back.
                new = islice(rest, 0 if stop.is_set() else 2 * jobs - len(pending))
                pending |= {pool.submit(run_unit, unit, settings) for unit in new}
                if stop.is_set():
                    pending -= {future for future in pending if future.cancel()}
                if not pending:
                    return
                done, pending = wait(pending, return_when=FIRST_COMPLETED)
                for future in done:
                    yield future.result()
        finally:
            for future in pending:
                future.cancel()


# One unit


def run_unit(unit: Unit, settings: Settings) -> Outcome:
    """Does what is to be done with one file; never raises."""
    start = time.perf_counter()
    try:
        outcome = _run_unit(unit, settings)
    except Exception as error:  # whatever it is: the other files go on
        code, message = describe(error)
        outcome = Outcome(unit.name, unit.source, None, "failed", code=code, message=message)
    return replace(outcome, size=unit.size, seconds=round(time.perf_counter() - start, 6))


def _run_unit(unit: Unit, settings: Settings) -> Outcome:
    if settings.version != mutcanon.__version__:
        raise MutcanonError(
            f"{unit.source}: this worker has mutcanon {mutcanon.__version__}, "
            f"and the batch is one of {settings.version}: install the same version everywhere",
            code="worker_version",
        )
    _store.require_file(unit.source)
    before = None
    if unit.known is not None:
        before = _journal.fingerprint(unit.source)
        if before is not None and _is_done(unit, before):
            # With any status: it is in the journal, which does not travel to the workers.
            return Outcome(
                unit.name, unit.source, unit.target, "clean", resumed=True, before=before
            )
    with _store.local_copy(unit.source) as path:
        try:
            result = _apply(path, unit, settings)
        except _core.CoreError as error:
            message, code = error.args
            raise MutcanonError(message.replace(path, unit.source), code=code) from error
    outcome = _judge(result, unit, settings)
    if before is None or outcome.target is None:
        return replace(outcome, before=before)
    after = _journal.fingerprint(outcome.target)
    # A file that was replaced will be found as what it is now.
    return replace(outcome, before=after if unit.is_in_place else before, after=after)


def _is_done(unit: Unit, before: str) -> bool:
    for known, after in unit.known or ():
        if known == before:
            if after is None or unit.target is None or unit.is_in_place:
                return True
            with contextlib.suppress(FileNotFoundError):
                return _journal.fingerprint(unit.target) == after
    return False


def _apply(path: str, unit: Unit, settings: Settings) -> dict[str, Any]:
    """What the core says of a local file, once it has written the result to where it belongs."""
    form, verify, target = settings.form, settings.verify, unit.target
    if target is None or settings.dry_run:
        return _parse(_core.analyze_archive(path, form, verify=verify))
    options = {
        "verify": verify,
        "check": settings.check or settings.certificate,
        "embed": settings.embed,
    }
    if not _store.is_url(target):
        _store.make_parent(target)
        result = _parse(_core.rewrite_archive(path, target, form, **options))
        if settings.certificate and "certificate" in result:
            _certify(result, certificate_path(target))
        return result
    with _store.temporary() as staged:
        result = _parse(_core.rewrite_archive(path, staged, form, **options))
        if result["action"] == "rewritten" or (
            result["action"] == "copied" and not unit.is_in_place
        ):
            _store.upload(staged, target)
        if settings.certificate and "certificate" in result:
            _certify(result, staged)
            _store.upload(staged, certificate_path(target))
    return result


def certificate_path(target: str) -> str:
    """Where the certificate of a result goes: beside it."""
    return target.removesuffix(_store.SUFFIX) + ".certificate.json"


def _certify(result: dict[str, Any], path: str) -> None:
    # Written last: a certificate without its archive would be a claim about nothing.
    _store.write_text(path, json.dumps(result["certificate"], indent=1) + "\n")


def _parse(report: str) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(report)
    return result


#: What is no exported program, but something else of torch's that may well have its place in a zoo.
_FOREIGN = {
    "compiled_model",
    "legacy_export",
    "torchscript",
    "checkpoint",
    "etrecord",
    "executorch_program",
}


def _judge(result: dict[str, Any], unit: Unit, settings: Settings) -> Outcome:
    kind, summary = result["kind"], result["summary"]
    outcome = Outcome(unit.name, unit.source, None, "foreign", kind=kind)
    if kind in _FOREIGN:
        return replace(outcome, message=f"{unit.source}: {summary}")
    if kind != "exported_program":
        raise UnsupportedError(f"{unit.source}: {summary}", code="unknown_format")
    models = tuple(result["models"])
    for model in models if settings.consumers else ():
        findings = model["report"]["findings"]
        model["report"]["findings"] = [
            finding for finding in findings if set(settings.consumers) & set(finding["consumers"])
        ]
    changes = any(not model["report"]["changes_nothing"] for model in models)
    status: Status
    if settings.command == "check":
        wrong = any(model["report"]["findings"] for model in models)
        status = "found" if changes or wrong else "clean"
        return replace(outcome, status=status, models=models)
    if settings.dry_run:
        status, target = "would_rewrite" if changes else "unchanged", None
    else:
        status, target = "rewritten" if changes else "unchanged", unit.target
    return replace(outcome, status=status, models=models, target=target)


def describe(error: Exception) -> tuple[str, str]:
    """A stable code and a sentence for what went wrong with a file."""
    if isinstance(error, MutcanonError):
        return error.code, error.args[0]
    if isinstance(error, OSError):
        what = error.strerror or str(error) or type(error).__name__
        return "io", f"{error.filename}: {what}" if error.filename else what
    if isinstance(error, MemoryError):
        return "out_of_memory", "not enough memory"
    return "unexpected", f"{type(error).__name__}: {error}"
