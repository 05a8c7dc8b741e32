"""What `check` and `rewrite` have in common: options, the way through a batch, exit codes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from dataclasses import dataclass, replace
from functools import partial
from threading import Event
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from mutcanon import _batch
from mutcanon._journal import Journal
from mutcanon.cli import EXIT_FAILURE, messages, output
from mutcanon.cli._progress import progress
from mutcanon.cli._summary import Summary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from mutcanon._batch import Engine, Outcome, Settings, Unit

EXIT_FOUND = 1
#: What shells report of a command that Ctrl-C ended.
EXIT_INTERRUPTED = 130


def _shard(
    _ctx: click.Context, _param: click.Parameter, value: str | None
) -> tuple[int, int] | None:
    """I/N as two numbers."""
    if value is None:
        return None
    index, _, count = value.partition("/")
    if index.isdecimal() and count.isdecimal() and 1 <= int(index) <= int(count):
        return int(index), int(count)
    raise click.BadParameter(f"{value!r} is not like 2/8, part 2 of 8 parts")


@dataclass(frozen=True)
class Options:
    """How a batch is to be carried out; the same for both commands."""

    form: str
    verify: bool
    jobs: int
    shard: tuple[int, int] | None
    fail_fast: bool
    as_json: bool
    engine: str
    address: str
    journal: str | None

    def with_journal(self, directory: str) -> Options:
        """The same with a journal in a directory."""
        return replace(self, journal=directory)


def options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the common arguments; the command receives `paths` and `options`."""

    def wrapped(paths: tuple[str, ...], **given: Any) -> None:
        names = Options.__dataclass_fields__
        own = {name: value for name, value in given.items() if name not in names}
        common = Options(**{name: given[name] for name in names})
        command(paths=paths, options=common, **own)

    wrapped.__doc__ = command.__doc__
    decorators = (
        click.argument("paths", nargs=-1, required=True, type=click.Path()),
        click.option(
            "--form",
            type=click.Choice(["portable", "minimal"]),
            default="portable",
            show_default=True,
            help="portable: right whatever writes back; minimal: for a write-back that orders its "
            "copies.",
        ),
        click.option("--verify", is_flag=True, help="Compare the checksums of all contents."),
        click.option(
            "--jobs",
            type=click.IntRange(1),
            default=_processors(),
            show_default="processors",
            help="Files at a time on this machine.",
        ),
        click.option(
            "--shard",
            metavar="I/N",
            callback=_shard,
            help="Do part I of N parts; a file's name decides its part.",
        ),
        click.option("--fail-fast", is_flag=True, help="Stop at the first file that fails."),
        click.option("--json", "as_json", is_flag=True, help="Print one JSON object a file."),
        click.option(
            "--journal",
            metavar="DIR",
            type=click.Path(file_okay=False),
            help="Where to note what is done, so that a second run skips it.",
        ),
        click.option(
            "--engine",
            type=click.Choice(["threads", "ray"]),
            default="threads",
            show_default=True,
            help="ray: on a Ray cluster that exists.",
        ),
        click.option(
            "--address",
            default="auto",
            envvar="RAY_ADDRESS",
            show_default=True,
            help="The Ray cluster.",
        ),
    )
    for decorate in reversed(decorators):
        wrapped = decorate(wrapped)
    return wrapped


def _processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))  # a container may have fewer than the machine
    return os.cpu_count() or 1


class Ending(NamedTuple):
    """How a batch ended: with which exit code, and whether every file had its turn."""

    exit_code: int
    is_whole: bool


def run(
    units: Sequence[Unit],
    settings: Settings,
    options: Options,
    show: Callable[[Outcome], None],
    note: Callable[[Outcome], None] | None = None,
) -> Ending:
    """Carries out a batch and prints what came of it.

    Args:
        units: All files; those of other shards are left out here.
        settings: What is to be done with each.
        options: How.
        show: Prints what people want to know of one file, unless JSON is printed.
        note: What else is to be done with each outcome. Both are called in the order of the units.
    """
    if options.shard is not None:
        units = _batch.shard(units, *options.shard)
    journal = _journal(settings, options)
    summary = Summary(settings.command, len(units))
    position = {unit.source: i for i, unit in enumerate(units)}
    with _stoppable() as stop, progress(settings.command, units) as move:
        in_order = _InOrder(*filter(None, (_print_json if options.as_json else show, note)))
        try:
            for outcome in _batch.run(units, settings, _engine(options), stop, journal):
                summary.add(outcome)
                move(outcome)
                if outcome.status == "failed":
                    messages().print(
                        f"failed: {outcome.message} [{outcome.code}]", markup=False, soft_wrap=True
                    )
                    if options.fail_fast:
                        stop.set()
                in_order.add(position[outcome.source], outcome)
        finally:
            if journal is not None:
                journal.close()
        in_order.flush()
    if journal is not None and journal.trouble is not None:
        messages().print(
            f"not all that was done could be noted in {options.journal}, and the next run does the "
            f"rest again: {_batch.describe(journal.trouble)[1]}",
            markup=False,
            soft_wrap=True,
        )
    (messages() if options.as_json else output()).print(summary)
    if stop.signal is not None:
        messages().print("interrupted: the same command goes on from here", markup=False)
        exit_code = EXIT_INTERRUPTED
    elif summary.counts["failed"]:
        exit_code = EXIT_FAILURE
    else:
        exit_code = EXIT_FOUND if summary.counts["found"] else 0
    return Ending(exit_code, is_whole=summary.counts.total() == len(units))


def _print_json(outcome: Outcome) -> None:
    click.echo(json.dumps(outcome.to_dict()))


def _journal(settings: Settings, options: Options) -> Journal | None:
    if options.journal is None:
        return None
    name = "all" if options.shard is None else "shard-{}-of-{}".format(*options.shard)
    key = {
        "command": settings.command,
        "form": settings.form,
        "verify": settings.verify,
        "consumers": sorted(settings.consumers),
        "version": settings.version,
        "schema_version": _batch.SCHEMA_VERSION,
    }
    return Journal(options.journal, name, key, read_only=settings.dry_run)


def _engine(options: Options) -> Engine:
    if options.engine == "threads":
        return partial(_batch.run_in_threads, jobs=options.jobs)
    from mutcanon._batch_ray import run_on_ray

    return partial(run_on_ray, address=options.address)


class _Stop(Event):
    """Set when the batch is to end; `signal` says whether from outside."""

    signal: int | None = None


@contextlib.contextmanager
def _stoppable() -> Iterator[_Stop]:
    """Ctrl-C and SIGTERM let what has begun come to its end; a second Ctrl-C does not."""
    stop = _Stop()

    def handle(number: int, _frame: Any) -> None:
        if stop.signal is not None:
            # Threads in the middle of a file cannot be told to leave it. It is whole, old or new.
            os.write(2, b"\x1b[?25h\n" if os.isatty(2) else b"\n")  # the bar hides the cursor
            os._exit(EXIT_INTERRUPTED)
        stop.signal = number
        stop.set()
        # Not through a stream, which may be in the middle of a write.
        os.write(2, b"\nstopping: files that are being worked on come to their end first\n")

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _InOrder:
    """Hands on outcomes in the order of their units, whatever the order in which they come."""

    def __init__(self, *receivers: Callable[[Outcome], None]) -> None:
        self._receivers = receivers
        self._waiting: dict[int, Outcome] = {}
        self._next = 0

    def add(self, position: int, outcome: Outcome) -> None:
        self._waiting[position] = outcome
        while self._next in self._waiting:
            self._hand_on(self._next)
            self._next += 1

    def flush(self) -> None:
        """Hands on the rest, where some before them never came."""
        for position in sorted(self._waiting):
            self._hand_on(position)

    def _hand_on(self, position: int) -> None:
        outcome = self._waiting.pop(position)
        for receive in self._receivers:
            receive(outcome)
