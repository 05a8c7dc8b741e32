"""The progress bar of a batch: on a terminal only, on stderr, with rate and time left."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING

from mutcanon.cli import messages
from mutcanon.cli._summary import readable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from mutcanon._batch import Outcome, Unit

#: A small file takes time too: as much as so many bytes of a large one, or so.
_FIXED_COST = 1 << 20


@contextlib.contextmanager
def progress(verb: str, units: Sequence[Unit]) -> Iterator[Callable[[Outcome], None]]:
    """Shows a bar while it is entered, and gives what moves it on."""
    console = messages()
    if not console.is_terminal:
        yield lambda _: None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    bar = Progress(
        TextColumn(verb),
        BarColumn(),
        TextColumn("{task.fields[files]} of {task.fields[all]} files"),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(compact=True),
        console=console,
        transient=True,
        # Results that go to a file must not turn up here.
        redirect_stdout=sys.stdout.isatty(),
    )
    task = bar.add_task(verb, total=sum(map(_cost, units)), files=0, all=len(units), rate="")
    files = size = 0

    def move(outcome: Outcome) -> None:
        nonlocal files, size
        files, size = files + 1, size + outcome.size
        seconds = bar.tasks[task].elapsed or 1e-9
        rate = f"{files / seconds:.0f} files/s, {readable(size / seconds)}/s"
        bar.update(task, advance=_cost(outcome), files=files, rate=rate)

    with bar:
        yield move


def _cost(file: Unit | Outcome) -> int:
    return file.size + _FIXED_COST
