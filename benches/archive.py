"""What a rewrite of a .pt2 archive costs, against torch, plain Python and a copy of the file.

    python benches/archive.py [--small | --large | --only ARCHIVE] [--folder DIR]

Every run is a process of its own, so that its peak of memory is its own too; the subjects take
turns. Starting Python and importing torch are not counted. A rewrite is on the disk when it
returns (fsync), which neither `cp` nor torch promises, so a copy with fsync stands beside it.
Results go to a temporary directory; TMPDIR=DIR --folder DIR measures another file system.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Callable

WIDTH = 110
ZOO = 1000


@dataclass(frozen=True)
class Bench:
    """One archive: the generator in archives.py that makes it, and how often each subject runs."""

    archive: str
    rounds: int
    torch_rounds: int


SMALL = (Bench("small", 1, 1),)
BENCHES = (Bench("small", 9, 3), Bench("weights", 7, 3))
LARGE = (Bench("graph", 7, 1),)


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", action="store_true", help="one small archive: does this run?")
    parser.add_argument("--large", action="store_true", help="160 MiB of JSON too (minutes)")
    parser.add_argument("--only", choices=[b.archive for b in BENCHES + LARGE], help="this archive")
    parser.add_argument("--folder", type=Path, help="where to keep the archives between runs")
    parser.add_argument("--subject", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.subject:
        run_subject(*options.subject)
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.folder or Path(scratch)
        folder.mkdir(exist_ok=True)
        console = Console(width=WIDTH)
        benches = (
            SMALL if options.small else BENCHES + LARGE * (options.large or bool(options.only))
        )
        for bench in benches:
            if options.only in (None, bench.archive):
                console.print(measure(bench, folder, Path(scratch)))
        if options.only is None:
            console.print(zoo(made("small", folder), Path(scratch), 20 if options.small else ZOO))


def made(name: str, folder: Path) -> Path:
    """The archive, made unless it is there."""
    path = folder / f"{name}.pt2"
    if not path.exists():
        script = Path(__file__).with_name("archives.py")
        subprocess.run([sys.executable, "-W", "ignore", script, name, path], check=True)
    return path


def measure(bench: Bench, folder: Path, scratch: Path) -> Table:
    """The table of one archive."""
    path = made(bench.archive, folder)
    results: dict[str, list[tuple[float, float]]] = {name: [] for name in SUBJECTS}
    names = list(SUBJECTS)
    shuffle = random.Random(0).shuffle
    for i in range(bench.rounds):
        shuffle(names)
        for name in names:
            if name != "torch" or i < bench.torch_rounds:
                results[name].append(in_process(name, path, scratch / "out.pt2"))
    size = path.stat().st_size / 2**20
    table = Table("subject", title=f"{bench.archive}: {size:,.1f} MiB")
    for heading in ("ms", "best", "to rewrite", "peak MiB"):
        table.add_column(heading, justify="right")
    ours = statistics.median(seconds for seconds, _ in results["rewrite"])
    for name, runs in results.items():
        seconds = [s for s, _ in runs]
        table.add_row(
            name,
            f"{statistics.median(seconds) * 1e3:,.1f}",
            f"{min(seconds) * 1e3:,.1f}",
            f"{statistics.median(seconds) / ours:.2f}x",
            f"{max(peak for _, peak in runs):,.0f}",
        )
    return table


def in_process(name: str, path: Path, out: Path) -> tuple[float, float]:
    """Seconds and peak MiB of a subject in a process of its own."""
    command = [sys.executable, "-W", "ignore", __file__, "--subject", name, path, out]
    result = subprocess.run(command, check=True, capture_output=True, text=True)
    seconds, peak = json.loads(result.stdout)
    return seconds, peak


def run_subject(name: str, path: str, out: str) -> None:
    """Runs a subject and prints its seconds and peak."""
    run = SUBJECTS[name]()
    Path(out).unlink(missing_ok=True)
    start = time.perf_counter()
    run(path, out)
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    sys.stdout.write(json.dumps([seconds, peak]))


def _rewrite() -> Callable[[str, str], object]:
    from mutcanon import archive

    return archive.rewrite


def _analyze() -> Callable[[str, str], object]:
    from mutcanon import archive

    return lambda path, _: archive.analyze(path)


def _torch() -> Callable[[str, str], object]:
    import torch
    from torch.export.pt2_archive import _package  # noqa: F401 - load imports it otherwise

    import mutcanon

    # The first program of a process pays for imports that the others do not.
    tiny = torch.export.export(torch.nn.Identity(), (torch.zeros(1),))
    mutcanon.canonicalize_(tiny.run_decompositions({}))

    def run(path: str, out: str) -> None:
        program = torch.export.load(path)
        torch.export.save(mutcanon.canonicalize_(program), out)

    return run


def _plain_python() -> Callable[[str, str], object]:
    from archive_baseline import collapse

    return collapse


def _copy(durable: bool) -> Callable[[str, str], object]:
    def run(path: str, out: str) -> None:
        subprocess.run(["cp", path, out], check=True)
        if durable:
            subprocess.run(["sync", out], check=True)

    return run


SUBJECTS: dict[str, Callable[[], Callable[[str, str], object]]] = {
    "rewrite": _rewrite,
    "analyze": _analyze,
    "torch": _torch,
    "plain python": _plain_python,
    "cp": lambda: _copy(False),
    "cp, sync": lambda: _copy(True),
}


def zoo(path: Path, scratch: Path, count: int) -> Table:
    """The table of many archives at once."""
    from mutcanon import archive

    folder, out = scratch / "zoo", scratch / "zoo-out"
    folder.mkdir()
    out.mkdir()
    paths = [folder / f"{i}.pt2" for i in range(count)]
    for copy in paths:
        shutil.copyfile(path, copy)
    table = Table("threads", title=f"{count} archives of {path.stat().st_size / 1e6:.1f} MB")
    for heading in ("analyze s", "rewrite s"):
        table.add_column(heading, justify="right")
    for threads in (1, 2):
        with ThreadPoolExecutor(threads) as pool:
            start = time.perf_counter()
            list(pool.map(archive.analyze, paths))
            middle = time.perf_counter()
            list(pool.map(lambda p: archive.rewrite(p, out / p.name), paths))
            end = time.perf_counter()
        table.add_row(str(threads), f"{middle - start:.2f}", f"{end - middle:.2f}")
    return table


if __name__ == "__main__":
    main()
