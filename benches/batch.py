"""What a batch costs: `mutcanon check` and `rewrite` on a directory of small archives.

    python benches/batch.py [--files N] [--rounds N] [--directory DIR]

Whole processes are timed, the start of Python included; the files are in the page cache. For
comparison: reading the same graphs with Python's own zipfile and json, which is what a script
without mutcanon begins with, and `cp -r` of the same directory, followed by `sync`, since
`rewrite` syncs every file.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

import archives

MAIN = "from mutcanon.cli import main; main(prog_name='mutcanon')"

#: The least that a plain script has to do: parse each graph and look for copies.
PLAIN = """
import json, pathlib, sys, zipfile
copies = 0
for path in sorted(pathlib.Path(sys.argv[1]).glob("*.pt2")):
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            if "/models/" in name and name.endswith(".json"):
                graph = json.loads(archive.read(name))["graph_module"]["graph"]
                copies += sum(n["target"] == "torch.ops.aten.copy.default" for n in graph["nodes"])
print(copies)
"""


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--directory", type=Path, help="where to work; on the disk to be measured")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.directory) as name:
        measure(Path(name), options.files, options.rounds)


def measure(directory: Path, files: int, rounds: int) -> None:
    """Times every subject; they take turns."""
    zoo, out = directory / "zoo", directory / "out"
    zoo.mkdir()
    archives.small(zoo / "0.pt2")
    for i in range(1, files):
        shutil.copyfile(zoo / "0.pt2", zoo / f"{i}.pt2")
    mutcanon = (sys.executable, "-c", MAIN)
    subjects = {
        "check": [*mutcanon, "check", zoo],
        "check --jobs 1": [*mutcanon, "check", zoo, "--jobs", "1"],
        "check --verify": [*mutcanon, "check", zoo, "--verify"],
        "zipfile and json": [sys.executable, "-c", PLAIN, zoo],
        "rewrite -o": [*mutcanon, "rewrite", zoo, "-o", out],
        "rewrite -o, again": [*mutcanon, "rewrite", zoo, "-o", out],
        "cp -r, sync": ["sh", "-c", 'cp -r "$0" "$1" && sync "$1"/*', zoo, directory / "copy"],
    }
    times: dict[str, list[float]] = {subject: [] for subject in subjects}
    for _ in range(rounds):
        for path in (out, directory / "copy"):
            shutil.rmtree(path, ignore_errors=True)
        for subject, command in subjects.items():
            start = time.perf_counter()
            result = subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
            times[subject].append(time.perf_counter() - start)
            if result.returncode not in (0, 1):
                raise SystemExit(f"{subject}: exit code {result.returncode}")
    size = (zoo / "0.pt2").stat().st_size
    title = f"{files:,} archives of {size / 1e6:.1f} MB, medians of {rounds} rounds in turns"
    table = Table("", title=title)
    for heading in ("s", "files/s"):
        table.add_column(heading, justify="right")
    for subject, taken in times.items():
        median = statistics.median(taken)
        table.add_row(subject, f"{median:.2f}", f"{files / median:.0f}")
    Console().print(table)


if __name__ == "__main__":
    main()
