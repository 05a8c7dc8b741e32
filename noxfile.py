"""What needs environments of its own: supported versions, and wheels as a user installs them.

    nox -s versions          # torch and executorch from the oldest to the newest; about 5 GB each
    nox -s wheels            # what `make wheel` built, on every Python that is installed

`versions` ends with `tools/versions.py`, which writes docs/versions.md from what was run.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import nox

nox.needs_version = ">=2025.2.9"
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.sessions = ["wheels"]

ROOT = Path(__file__).parent
RESULTS = ROOT / "target" / "versions"
PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")

# torch alone, and each executorch with the torch that it was built against.
PAIRS = (
    ("2.8.0", None),
    ("2.9.1", None),
    ("2.10.0", None),
    ("2.11.0", "1.2.0"),
    ("2.12.1", "1.3.1"),
    ("2.13.0", "1.4.1"),
    ("2.13.0", "1.5.1"),
    ("2.14.1", None),
    ("2.15.0", None),
)
TOOLS = ("pytest", "pytest-xdist", "hypothesis", "expecttest")
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
# What is promised without torch.
PLAIN_TESTS = ("tests/test_archive.py", "tests/test_batch.py", "tests/test_cli_batch.py")


@nox.session(python="3.12")
@nox.parametrize(("torch", "executorch"), PAIRS)
def versions(session: nox.Session, torch: str, executorch: str | None) -> None:
    """Run the tests that look at torch and executorch on one pair of versions."""
    pair = [f"torch=={torch}"] + ([f"executorch=={executorch}"] if executorch else [])
    session.install(*pair, *TOOLS, "sympy", wheel(session))
    RESULTS.mkdir(parents=True, exist_ok=True)
    report = RESULTS / f"{torch}-{executorch or 'none'}.xml"
    session.run(
        "pytest",
        *TORCH_TESTS,
        *(EXECUTORCH_TESTS if executorch else ()),
        f"--junitxml={report}",
        *session.posargs,
        env={"MUTCANON_REQUIRE": "torch,executorch" if executorch else "torch"},
        success_codes=[0, 1],  # which tests fail is the result
    )
    shutil.rmtree(session.virtualenv.location)  # the next one needs the room


@nox.session(python=PYTHONS)
def wheels(session: nox.Session) -> None:
    """Test the wheel without torch, from outside the tree."""
    session.install(*TOOLS, "fsspec", wheel(session))
    outside = Path(session.create_tmp())
    shutil.rmtree(outside / "tests", ignore_errors=True)
    shutil.copytree(ROOT / "tests", outside / "tests")
    session.chdir(outside)
    session.run("pytest", "-p", "no:cacheprovider", *PLAIN_TESTS, *session.posargs)


def wheel(session: nox.Session) -> str:
    """The newest wheel of this machine's kind in dist/."""
    kind = (
        "macosx" if sys.platform == "darwin" else "win" if sys.platform == "win32" else "manylinux"
    )
    found = sorted(ROOT.glob(f"dist/mutcanon-*{kind}*.whl"), key=lambda path: path.stat().st_mtime)
    if not found:
        session.error("no wheel in dist/: run `make wheel` first")
    return str(found[-1])
