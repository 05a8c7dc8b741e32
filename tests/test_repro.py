"""`check --repro`: each test fails on the archive that it is about, and passes on a mended one."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest

import archives
from mutcanon import _batch, _core, _repro
from mutcanon._batch import Outcome, Settings, Unit

if TYPE_CHECKING:
    from collections.abc import Iterable

pytest.importorskip("torch")

#: Archive -> the findings about it, each with who gets it wrong.
EVERYBODY = ("torch.module", "torch.run_decompositions", "executorch")
FOUND = {
    "delay-line": {"overwritten": EVERYBODY, "dropped_write": ("executorch",)},
    "swap": {"overwritten": EVERYBODY, "dropped_write": ("executorch",)},
    "restored": {"dropped_write": ("executorch",)},
    "shared": {"shared_value": EVERYBODY},
    "lost-cast": {"already_lost": EVERYBODY},
    "lost-broadcast": {"already_lost": EVERYBODY},
    "stale-output": {"stale_output": EVERYBODY},
    "transposed": {"overlap": EVERYBODY},
    "returned": {"already_lost": EVERYBODY, "replaced_output": EVERYBODY[:2]},
    "parameter": {"parameter_not_written": ("executorch",)},
    "identity": {"permuted_outputs": ("executorch",)},
    "same-name": {"same_name": EVERYBODY},
    "reset": {"same_name": ("executorch",)},
}
#: What no rewrite mends: it is lost, or it takes another lowering.
STAYS = {
    "lost-cast": {"already_lost"},
    "lost-broadcast": {"already_lost"},
    "parameter": {"parameter_not_written"},
    "same-name": {"same_name"},
    "reset": {"same_name"},
}


def check(path: Path) -> Outcome:
    unit = Unit(path.name, str(path), None, path.stat().st_size)
    return _batch.run_unit(unit, Settings("check"))


def results(directory: Path) -> dict[str, dict[str, bool]]:
    """Runs the tests in a directory; for each file, which of its tests pass."""
    report = directory / "report.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    subprocess.run(
        [*command, f"--junitxml={report}", str(directory)],
        cwd=directory,
        capture_output=True,
        check=False,
    )
    found: dict[str, dict[str, bool]] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        assert case.find("error") is None, case.get("name")
        tests = found.setdefault(f"{case.get('classname')}.py", {})
        tests[str(case.get("name"))] = case.find("failure") is None
    return found


def names_of_tests(names: Iterable[str]) -> set[str]:
    """Names of the tests for some consumers, without those that cannot run here."""
    has_executorch = importlib.util.find_spec("executorch") is not None
    return {
        "test_" + name.rpartition(".")[2]
        for name in names
        if has_executorch or name != "executorch"
    }


def write_tests(outcomes: list[Outcome], directory: Path) -> None:
    count = sum(_repro.write_tests(outcome, str(directory)) for outcome in outcomes)
    assert count == len(list(directory.glob("test_*.py")))
    if importlib.util.find_spec("executorch") is None:
        for path in directory.glob("test_*.py"):
            text = path.read_text().partition("\n\ndef test_executorch")[0]
            path.write_text(text + "\n")


def test_each_finding_is_known() -> None:
    known = {code for findings in FOUND.values() for code in findings}
    assert known == {code for code, _, _ in _core.finding_codes()}
    for path in archives.DATA.glob("*.pt2"):
        found = {
            finding["code"]: tuple(finding["consumers"])
            for model in check(path).models
            for finding in model["report"]["findings"]
        }
        assert found == FOUND.get(path.stem, {}), path.stem


def test_the_documentation_names_an_archive_for_each_finding() -> None:
    page = (Path(__file__).parent.parent / "docs" / "findings.md").read_text()
    rows = re.findall(r"^\| [^|]+ \| `(\w+)` \| `([\w-]+)` \| (.+) \|$", page, re.MULTILINE)
    for code, name, who in rows:
        consumers = EVERYBODY if who == "all" else tuple(who.split(", "))
        assert FOUND[name][code] == consumers, (name, code)
    assert {code for code, _, _ in rows} == {code for code, _, _ in _core.finding_codes()}


@pytest.mark.slow
def test_each_test_fails_and_passes_once_the_archive_is_mended(tmp_path: Path) -> None:
    outcomes = [check(archives.DATA / f"{name}.pt2") for name in FOUND]
    write_tests(outcomes, tmp_path / "wrong")
    wrong = results(tmp_path / "wrong")
    for name, findings in FOUND.items():
        for i, (code, consumers) in enumerate(findings.items()):
            file = f"test_{name.replace('-', '_')}_model_{code}_{i}.py"
            expected = names_of_tests(consumers)
            if code == "overlap":
                expected -= {"test_executorch"}  # its views are copies
            if code == "already_lost":
                expected = {"test_value_has_the_type_of_its_target"}
            assert wrong.get(file, {}) == dict.fromkeys(expected, False), file

    right = tmp_path / "right"
    right.mkdir()
    for name in FOUND:
        source, target = archives.DATA / f"{name}.pt2", right / f"{name}.pt2"
        unit = Unit(target.name, str(source), str(target), 0)
        assert _batch.run_unit(unit, Settings("rewrite")).target == str(target)
        left = {f["code"] for f in check(target).models[0]["report"]["findings"]}
        assert left == STAYS.get(name, set())
        for path in (tmp_path / "wrong").glob(f"test_{name.replace('-', '_')}_model_*.py"):
            old, new = (f"ARCHIVE = {str(path)!r}" for path in (source, target))
            text = path.read_text()
            assert old in text
            (right / path.name).write_text(text.replace(old, new))
    kept = {name.replace("-", "_") for name in STAYS}
    for file, tests in results(right).items():
        stays = file.partition("_model_")[0].removeprefix("test_") in kept
        assert set(tests.values()) == {not stays}, file


def test_names_and_messages_of_any_kind_make_valid_tests(tmp_path: Path) -> None:
    finding = {
        "code": "overwritten",
        "output": 'a"""\\',
        "other": "ü",
        "consumers": EVERYBODY,
        "sentence": "it goes wrong",
        "advice": "do something",
    }
    models = ({"model": "my/models.v1", "report": {"findings": [finding, finding]}},)
    outcome = Outcome("sub dir/x.pt2", "memory://a'b/x.pt2", None, "found", models=models)
    assert _repro.write_tests(outcome, str(tmp_path)) == 2
    for number in (0, 1):
        path = tmp_path / f"test_sub_dir_x_my_models_v1_overwritten_{number}.py"
        compile(path.read_text(encoding="utf-8"), path, "exec")
