"""Somebody else's tests, with mutcanon enabled for all of them, next to stock.

    python tools/other_suites.py CHECKOUT test/export/test_unflatten.py [-k EXPRESSION ...]

CHECKOUT is a checkout of pytorch or executorch of the version that is installed, or the directory
of an installed package that ships its tests. Paths are relative to it. Each file runs twice, in a
process of its own: as it is, and under `mutcanon.enable()` with the checker on. What came out
differently is printed, and the exit code is 1 if anything did.

Tests of executorch import modules that its wheel leaves out. A checkout of it is laid over links to
the installed package, so that nothing needs to be built.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest


class Recorder:
    """A plugin for pytest that notes the outcome of each test."""

    def __init__(self, file: str) -> None:
        """Notes into `file`."""
        self.file = file
        self.outcomes: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Notes one phase of one test."""
        if report.when == "call" or report.outcome != "passed":
            self.outcomes[report.nodeid] = report.outcome

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Notes a file that cannot be imported."""
        if report.failed:
            self.outcomes[report.nodeid] = "not collected"

    def pytest_sessionfinish(self) -> None:
        """Writes what was noted."""
        Path(self.file).write_text(json.dumps(self.outcomes))


def run_here(enabled: str, file: str, arguments: list[str]) -> int:
    """Runs pytest in this process."""
    if enabled == "mutcanon":
        os.environ["MUTCANON_CHECK"] = "1"
        import mutcanon

        mutcanon.enable()
    quiet = ["-q", "-p", "no:cacheprovider", "--import-mode=importlib", "--tb=short"]
    return int(pytest.main([*quiet, *arguments], plugins=[Recorder(file)]))


def laid_over_package(checkout: Path, root: Path) -> Path:
    """A tree in `root` with the installed executorch, and what only the checkout has."""
    package = root / "executorch"
    installed = importlib.util.find_spec("executorch")
    if installed is None or not installed.submodule_search_locations:
        sys.exit("executorch is not installed")

    def link_new(source: str, target: str) -> None:
        if not os.path.lexists(target):
            os.symlink(source, target)

    for tree in (Path(installed.submodule_search_locations[0]), checkout / "exir"):
        to = package / "exir" if tree.name == "exir" else package
        shutil.copytree(tree, to, copy_function=link_new, dirs_exist_ok=True)
    return package


def outcomes(enabled: str, checkout: Path, arguments: list[str]) -> tuple[dict[str, str], str]:
    """What became of each test, and what pytest printed."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "outcomes.json")
        command = [sys.executable, "-W", "ignore", __file__, "--here", enabled, str(file)]
        done = subprocess.run(
            [*command, *arguments], cwd=checkout, capture_output=True, text=True, check=False
        )
        if not file.exists():
            sys.exit(f"{enabled}: pytest did not end\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
        return json.loads(file.read_text()), done.stdout


def main() -> None:
    """Runs both and prints what differs."""
    if sys.argv[1:2] == ["--here"]:
        sys.exit(run_here(sys.argv[2], sys.argv[3], sys.argv[4:]))
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    checkout, arguments = Path(sys.argv[1]).resolve(), sys.argv[2:]
    with tempfile.TemporaryDirectory() as folder:
        if (checkout / "exir" / "tests").is_dir():
            checkout = laid_over_package(checkout, Path(folder))
            os.environ["PYTHONPATH"] = f"{folder}:{os.environ.get('PYTHONPATH', '')}"
        stock, _ = outcomes("stock", checkout, arguments)
        ours, printed = outcomes("mutcanon", checkout, arguments)
    differences = {
        name: (stock.get(name, "not run"), ours.get(name, "not run"))
        for name in sorted(stock.keys() | ours.keys())
        if stock.get(name) != ours.get(name)
    }
    for name, (before, after) in differences.items():
        print(f"{name}: {before} as it is, {after} with mutcanon")
    counts = [sum(o == "passed" for o in each.values()) for each in (stock, ours)]
    print(f"{len(stock)} tests: {counts[0]} pass as they are, {counts[1]} with mutcanon, ", end="")
    print(f"{len(differences)} differ")
    if differences:
        print(printed)
    sys.exit(1 if differences else 0)


if __name__ == "__main__":
    main()
