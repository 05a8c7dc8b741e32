"""What a batch came to, as the table at its end."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from rich.console import RenderableType

    from mutcanon._batch import Outcome

#: Each status as the table's row has it, in this order.
_ROWS = {
    "clean": "nothing to do",
    "found": "something to do",
    "rewritten": "rewritten",
    "would_rewrite": "would be rewritten",
    "unchanged": "nothing to do",
    "foreign": "no exported program",
    "failed": "failed",
}

_STYLES = {"found": "yellow", "would_rewrite": "yellow", "rewritten": "green", "failed": "red"}


class Summary:
    """Adds up outcomes, and is printed with rich. It keeps only those that need words."""

    def __init__(self, verb: str, total: int) -> None:
        self.counts: Counter[str] = Counter()
        self.total = total
        self.resumed = 0
        self._verb = verb
        self._start = time.monotonic()
        self._bytes = 0
        self._copies = [0, 0]
        self._saved = 0
        self._has_open_sizes = False
        self._findings: Counter[str] = Counter()
        self._words: list[Outcome] = []

    def add(self, outcome: Outcome) -> None:
        """Takes one file into account."""
        self.counts[outcome.status] += 1
        self.resumed += outcome.resumed
        self._bytes += outcome.size
        for model in outcome.models:
            self._copies[0] += model["copies_before"]
            self._copies[1] += model["copies_after"]
            self._saved += model["report"]["bytes_saved"] or 0
            self._has_open_sizes |= model["report"]["bytes_saved"] is None
            if self._verb == "check":  # a rewrite mends most of them
                self._findings.update(finding["code"] for finding in model["report"]["findings"])
        if outcome.status in {"foreign", "failed"}:
            self._words.append(outcome)

    def __rich__(self) -> RenderableType:
        parts: list[RenderableType] = [self._table()]
        if self._findings:
            parts.append(self._table_of_findings())
        if self._words:
            parts.append(self._table_of_words())
        return Group(*parts)

    def _table(self) -> Table:
        done = self.counts.total()
        table = Table(title=f"mutcanon {self._verb}", title_justify="left", show_header=False)
        table.add_column()
        table.add_column(justify="right")
        for status, words in _ROWS.items():
            if self.counts[status]:
                table.add_row(words, f"{self.counts[status]:,}", style=_STYLES.get(status))
        if done < self.total:
            table.add_row("not done", f"{self.total - done:,}")
        table.add_row("files", f"{self.total:,}", style="bold")
        if self.resumed:
            table.add_row("done by an earlier run", f"{self.resumed:,}")
        table.add_section()
        before, after = self._copies
        table.add_row("copies", f"{before:,} -> {after:,}")
        at_least = "at least " if self._has_open_sizes else ""
        table.add_row("copied less in a call of each", at_least + readable(self._saved))
        seconds = time.monotonic() - self._start
        table.add_row("size", readable(self._bytes))
        table.add_row("time", f"{seconds:.1f} s")
        return table

    def _table_of_findings(self) -> Table:
        table = Table("what stock consumers get wrong")
        table.add_column("times", justify="right")
        for code, count in sorted(self._findings.items()):
            table.add_row(code, f"{count:,}")
        return table

    def _table_of_words(self) -> Table:
        table = Table("left as they are", "", "why")
        for outcome in sorted(self._words, key=lambda o: (o.status, o.source)):
            code = outcome.code or outcome.kind
            message = outcome.message.removeprefix(f"{outcome.source}: ")
            table.add_row(Text(outcome.source, overflow="fold"), code, Text(message))
        return table


def readable(size: float) -> str:
    """A number of bytes for people."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
