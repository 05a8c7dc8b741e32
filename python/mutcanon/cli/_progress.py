"""The progress bar of a batch: on a terminal only, on stderr, with rate and time left."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from mutcanon.cli import messages
from mutcanon.cli._summary import readable

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from mutcanon._batch import Outcome, Unit

#: A small file takes time too: as much as so many bytes of a large one, or so.
_FIXED_COST = 1 << 20


class Progress:
    """Knows how much is done, and shows it while it is entered."""

    def __init__(self, verb: str, units: Sequence[Unit]) -> None:
        console = messages()
        self._bar = Bar(
            TextColumn(verb),
            BarColumn(),
            TextColumn("{task.fields[files]} of {task.fields[all]} files"),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(compact=True),
            console=console,
            disable=not console.is_terminal,
            transient=True,
            # Results that go to a file must not turn up here.
            redirect_stdout=sys.stdout.isatty(),
        )
        self._task = self._bar.add_task(
            verb, total=sum(map(_cost, units)), files=0, all=len(units), rate=""
        )
        self._files = self._bytes = 0

    def add(self, outcome: Outcome) -> None:
        """One file more is done."""
        self._files += 1
        self._bytes += outcome.size
        seconds = self._bar.tasks[self._task].elapsed or 1e-9
        rate = f"{self._files / seconds:.0f} files/s, {readable(self._bytes / seconds)}/s"
        self._bar.update(self._task, advance=_cost(outcome), files=self._files, rate=rate)

    def __enter__(self) -> Progress:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._bar.stop()


def _cost(file: Unit | Outcome) -> int:
    return file.size + _FIXED_COST
