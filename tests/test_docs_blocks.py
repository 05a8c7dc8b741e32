"""Every code block of the documentation is run.

The Python blocks of a page run in order, in one namespace and an empty directory in which a zoo of
archives lies. What a page needs besides stands in a comment, `<!-- python ... -->`. A command of a
shell block is run if it is mutcanon's, and otherwise looked up: its target, extra or file exists.
Two pages have entries of their own, which `test_docs.py` runs.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from archives import add_bad_files, archive, make_zoo
from conftest import need

ROOT = Path(__file__).parent.parent
ENTRIES = {"reasons.md", "findings.md"}
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^(?:```(\w*)\n(.*?)^```$|<!-- (python)\n(.*?)^-->$)", re.MULTILINE | re.DOTALL)
LANGUAGES = {"python", "sh", "text", "mut", "yaml", ""}

# Libraries whose absence skips a page, by what is imported in it.
NEEDED = ("torch", "executorch", "transformers")


def blocks(page: Path) -> list[tuple[str, str]]:
    """Language and text of each block of a page, in order."""
    found = BLOCK.findall(page.read_text())
    return [(language or hidden, code or setup) for language, code, hidden, setup in found]


def pages_with(language: str) -> list[Path]:
    pages = [page for page in PAGES if any(found == language for found, _ in blocks(page))]
    return [page for page in pages if page.name not in ENTRIES]


@pytest.fixture
def zoo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory with model.pt2, and a zoo that has bad files too."""
    (tmp_path / "model.pt2").write_bytes(archive("redundant"))
    make_zoo(tmp_path / "zoo", 20)
    add_bad_files(tmp_path / "zoo" / "bad")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_blocks_are_of_a_known_language(page: Path) -> None:
    assert {language for language, _ in blocks(page)} <= LANGUAGES


@pytest.mark.parametrize("page", pages_with("python"), ids=lambda page: page.name)
def test_python_blocks_run(page: Path, zoo: Path) -> None:
    code = [code for language, code in blocks(page) if language == "python"]
    for package in NEEDED:
        if re.search(rf"^\s*(?:from|import) {package}\b", "\n".join(code), re.MULTILINE):
            need(package)
    names: dict[str, object] = {"__name__": page.stem}
    for block in code:
        exec(compile(block, str(page), "exec"), names)


@pytest.mark.parametrize("page", pages_with("sh"), ids=lambda page: page.name)
def test_commands_exist(page: Path, zoo: Path) -> None:
    for language, code in blocks(page):
        for line in code.splitlines() if language == "sh" else ():
            if command := shlex.split(line, comments=True):
                look_at(command)


def look_at(command: list[str]) -> None:
    """Runs a command, or finds what it names."""
    while re.fullmatch(r"[A-Z_]+=.*", command[0]):
        command = command[1:]
    program, *arguments = command
    if program == "mutcanon":
        run(arguments)
    elif program == "make":
        target = arguments[0]
        assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE), target
    elif program == "pip":
        extras = re.findall(r"\[([\w,]+)\]", " ".join(arguments))
        known = re.findall(r"^(\w+) = \[", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
        assert arguments[0] == "install" and {e for x in extras for e in x.split(",")} <= set(known)
    elif program in ("python", "bash"):
        script = next(a for a in arguments if a.endswith((".py", ".sh")))
        assert script == "your_script.py" or (ROOT / script).exists(), script
    else:
        assert (ROOT / program).exists(), f"{program}: say here how it is tested"


def run(arguments: list[str]) -> None:
    """Runs mutcanon; what it finds in the zoo, bad files included, is no failure of the page."""
    torch_needed = {"demo"}
    if arguments[0] in torch_needed:
        need("executorch")
    result = subprocess.run(
        [sys.executable, "-c", "from mutcanon.cli import main; main()", *arguments],
        capture_output=True,
        text=True,
    )
    output = result.stdout + result.stderr
    assert "Traceback" not in output and "Usage:" not in output, output
    assert result.returncode in ((0, 1, 2) if "zoo" in " ".join(arguments) else (0, 1)), output
    if "-o" in arguments:
        shutil.rmtree(arguments[arguments.index("-o") + 1], ignore_errors=True)
