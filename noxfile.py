"""What needs environments of its own: distributions as users install them, and supported versions.

    nox                 # what `make wheel` built, on every Python that is installed
    nox -s versions     # torch and executorch from the oldest to the newest, one after another

`make wheel` and `make versions` call it; the latter makes docs/versions.md of the results.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import nox

nox.needs_version = ">=2025.5.1"
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.sessions = ["wheel", "sdist"]
nox.options.download_python = "never"
nox.options.error_on_missing_interpreters = False

# Certificates that the system trusts are trusted, as pip does it.
os.environ.setdefault("UV_SYSTEM_CERTS", "1")

ROOT = Path(__file__).parent
RESULTS = ROOT / "target" / "versions"
PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14", "3.15")
TOOLS = ("pytest", "pytest-xdist", "hypothesis", "expecttest")

# Without torch.
PLAIN_TESTS = (
    "tests/test_batch.py",
    "tests/test_cli_batch.py",
    "tests/test_page.py",
    "tests/test_verify.py",
)
TORCH_TESTS = (
    "tests/test_torch_names.py",
    "tests/test_alias.py",
    "tests/test_canonicalize.py",
    "tests/test_unlift.py",
    "tests/test_cases.py",
)
EXECUTORCH_TESTS = (
    "tests/test_executorch_names.py",
    "tests/test_executorch.py",
    "tests/test_to_executorch.py",
)
# torch alone, and each executorch with the torch that it was built with.
PAIRS = (
    ("2.8.0", None),
    ("2.9.1", None),
    ("2.10.0", None),
    ("2.11.0", None),
    ("2.12.1", "1.3.1"),
    ("2.13.0", "1.4.1"),
    ("2.13.0", "1.5.1"),
    ("2.14.1", None),
    ("2.15.0", None),
)

if shutil.which("pyenv"):
    # Its commands fail for each version that is not selected.
    listed = subprocess.run(["pyenv", "versions", "--bare"], capture_output=True, text=True)
    os.environ["PYENV_VERSION"] = ":".join(listed.stdout.split())


@nox.session(python=PYTHONS)
def wheel(session: nox.Session) -> None:
    """Test the wheel without torch, from outside the tree."""
    test_plain(session, find("*.whl"))


@nox.session
def sdist(session: nox.Session) -> None:
    """Build from the source distribution, and test without torch, from outside the tree."""
    test_plain(session, find("*.tar.gz"))


def test_plain(session: nox.Session, distribution: str) -> None:
    """Installs nothing but a distribution, and runs what needs nothing else."""
    session.install(distribution, "fsspec", *TOOLS)
    outside = Path(session.create_tmp())
    shutil.rmtree(outside / "tests", ignore_errors=True)
    shutil.copytree(ROOT / "tests", outside / "tests")
    session.chdir(outside)
    session.run(
        "pytest",
        "-p",
        "no:cacheprovider",
        *PLAIN_TESTS,
        *session.posargs,
        env={"MUTCANON_REQUIRE": ""},  # what needs more than this is skipped
    )


@nox.session(python="3.12")
@nox.parametrize(("torch", "executorch"), PAIRS)
def versions(session: nox.Session, torch: str, executorch: str | None) -> None:
    """Run the tests that look at torch and executorch on one pair of versions."""
    pair = [f"torch=={torch}"] + ([f"executorch=={executorch}"] if executorch else [])
    session.install(*pair, "sympy", *TOOLS, find("*.whl"))
    RESULTS.mkdir(parents=True, exist_ok=True)
    session.run(
        "pytest",
        "--tb=line",
        f"--junitxml={RESULTS / f'{torch}-{executorch}.xml'}",
        *TORCH_TESTS,
        *(EXECUTORCH_TESTS if executorch else ()),
        *session.posargs,
        env={"MUTCANON_REQUIRE": "torch,executorch" if executorch else "torch"},
        success_codes=range(6),  # which tests fail is the result
    )
    shutil.rmtree(session.virtualenv.location)  # the next pair needs the room


def find(pattern: str) -> str:
    """The distribution in dist/ that this machine can install."""
    kind = {"darwin": "macosx", "win32": "win"}.get(sys.platform, "manylinux")
    found = list(ROOT.glob(f"dist/mutcanon-{pattern}"))
    found = [p for p in found if p.suffix == ".gz" or kind in p.name]
    if len(found) != 1:
        raise SystemExit(f"dist/ must hold one {pattern}, not {len(found)}: run `make wheel`")
    return str(found[0])
