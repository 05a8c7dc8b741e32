"""What tests need from outside, and what happens where it is not installed.

torch, executorch and transformers are optional: a test that needs one that is missing is skipped.
Where they have to be there, as on CI, MUTCANON_REQUIRE=torch,executorch,transformers turns those
skips into failures.
"""

from __future__ import annotations

import importlib.util
import os

import pytest

# The independent checker looks at every result that a test makes, before mutcanon is imported.
os.environ["MUTCANON_CHECK"] = "1"

OPTIONAL = ("torch", "executorch", "transformers", "chromium")
REQUIRED = frozenset(filter(None, os.environ.get("MUTCANON_REQUIRE", "").split(",")))


def need(package: str) -> None:
    """Skips the test, or fails it where the package is required."""
    if importlib.util.find_spec(package) is None:
        if package in REQUIRED:
            pytest.fail(f"{package} is not installed, but MUTCANON_REQUIRE names it")
        pytest.skip(f"needs {package}")


def pytest_configure(config: pytest.Config) -> None:
    """Refuses a requirement that nobody would notice to be misspelt."""
    if unknown := REQUIRED.difference(OPTIONAL):
        raise pytest.UsageError(f"MUTCANON_REQUIRE: {', '.join(sorted(unknown))}: not optional")


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector):
    """Skips a file that imports a package which is missing and not required."""
    report = yield
    excinfo = report.call.excinfo if report.failed else None
    cause = excinfo.value.__cause__ if excinfo is not None else None
    if isinstance(cause, ModuleNotFoundError):
        package = (cause.name or "").partition(".")[0]
        if package in OPTIONAL and package not in REQUIRED:
            report.outcome = "skipped"
            report.longrepr = (str(collector.path), 0, f"Skipped: needs {package}")
    return report


@pytest.fixture(autouse=True)
def _executorch(request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("executorch"):
        need("executorch")
