"""Every reason has its entry in the documentation, and what an entry shows is so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import mutcanon
from mutcanon import _core

ROOT = Path(__file__).parent.parent
REASONS = (ROOT / "docs" / "reasons.md").read_text()
CODES = [code for code, _, _ in _core.reasons()]

PRELUDE, *ENTRIES = re.split(r"^## ", REASONS, flags=re.MULTILINE)


def block(text: str) -> tuple[str, str]:
    """Language and text of the only code block."""
    ((language, code),) = re.findall(r"^```(\w+)\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    return language, code


def test_every_reason_has_one_entry_in_order() -> None:
    assert [entry.split("\n", 1)[0] for entry in ENTRIES] == CODES


@pytest.mark.parametrize("code", CODES)
def test_every_reason_has_a_file_test(code: str) -> None:
    files = (ROOT / "rust" / "filetests").glob(f"keep-{code.replace('_', '-')}*.mut")
    assert any(f"%c: {code}" in f.read_text() or f": {code} " in f.read_text() for f in files)


@pytest.mark.parametrize("entry", ENTRIES, ids=CODES)
def test_the_program_of_an_entry_shows_its_reason(entry: str) -> None:
    code = entry.split("\n", 1)[0]
    language, program = block(entry)
    if language == "mut":
        assert f"keep %c: {code}" in _core.plan_text(program, "portable")
        return
    names: dict[str, object] = {}
    exec(block(PRELUDE)[1], names)
    exec(program, names)
    report = mutcanon.analyze(names["ep"])  # type: ignore[arg-type]
    assert code in [copy.code for copy in report.kept]


@pytest.mark.parametrize(
    "page", [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))], ids=str
)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        if "://" not in link:
            assert (page.parent / link).exists(), link
