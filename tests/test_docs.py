"""Every reason has its entry in the documentation, and what an entry shows is so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import mutcanon
from conftest import need
from mutcanon import _core

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
REASONS = (ROOT / "docs" / "reasons.md").read_text()
CODES = [code for code, _, _ in _core.reasons()]

PRELUDE, *ENTRIES = re.split(r"^## ", REASONS, flags=re.MULTILINE)
FINDINGS = (ROOT / "docs" / "findings.md").read_text()
FINDING_PRELUDE, *FINDING_ENTRIES = re.split(r"^## ", FINDINGS, flags=re.MULTILINE)


def block(text: str) -> tuple[str, str]:
    """Language and text of the only code block."""
    ((language, code),) = re.findall(r"^```(\w+)\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    return language, code


def test_every_reason_has_one_entry_in_order() -> None:
    assert [entry.split("\n", 1)[0] for entry in ENTRIES] == CODES


@pytest.mark.parametrize(
    ("page", "codes"),
    [("in-place.md", _core.in_place_reasons()), ("findings.md", _core.finding_codes())],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_every_other_code_has_one_row_in_order(
    page: str, codes: list[tuple[str, str, str]]
) -> None:
    text = (ROOT / "docs" / page).read_text()
    assert re.findall(r"^\| `(\w+)` \|", text, flags=re.MULTILINE) == [code for code, *_ in codes]


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
    need("torch")
    names: dict[str, object] = {}
    exec(block(PRELUDE)[1], names)
    exec(program, names)
    for form in ("portable", "minimal"):
        report = mutcanon.analyze(names["ep"], form=form)  # type: ignore[arg-type]
        stays = form == "portable" or "Only the portable form keeps it" not in " ".join(
            entry.split()
        )
        assert (code in [copy.code for copy in report.kept]) == stays


def test_every_finding_has_one_entry_in_order() -> None:
    found = [entry.split("\n", 1)[0] for entry in FINDING_ENTRIES]
    assert found == [code for code, *_ in _core.finding_codes()]


@pytest.mark.parametrize("entry", FINDING_ENTRIES, ids=lambda entry: entry.split("\n", 1)[0])
def test_the_program_of_an_entry_shows_its_finding(entry: str) -> None:
    code = entry.split("\n", 1)[0]
    language, program = block(entry)
    if language == "mut":
        assert f": {code} in " in _core.findings_text(program)
        return
    need("torch")
    names: dict[str, object] = {}
    exec(block(FINDING_PRELUDE)[1], names)
    exec(program, names)
    assert code in [f.code for f in mutcanon.analyze(names["ep"]).findings]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "page", [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))], ids=str
)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        if "://" not in link:
            assert (page.parent / link).exists(), link


@pytest.mark.executorch
def test_the_readme_runs(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)
    names: dict[str, object] = {}
    for code in blocks:
        exec(code, names)
    assert capsys.readouterr().out.startswith("portable form: 2 copies, 2 collapse")
    assert len(mutcanon.analyze(names["ep"]).copies) == 0  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["demo", "test"])
def test_the_readme_gives_each_command_once(name: str) -> None:
    # .ci/run runs these very lines.
    assert len(re.findall(rf"^make {name} .*# ", README, flags=re.MULTILINE)) == 1
