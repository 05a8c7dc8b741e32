"""`check --sarif`: a log in the shape of SARIF 2.1.0, with what was found and nothing else."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import archives
from mutcanon import _batch, _core
from mutcanon.cli import _sarif
from test_cli_batch import command, objects, run, tmp_path

__all__ = ["tmp_path"]

ROOT = Path(__file__).parent.parent

#: The part of the standard that we use: for each object, its properties, the required ones first.
#: A property ends in "*" where it is a list; its own shape follows.
TEXT = {"text": str}
SHAPE = {
    "$schema": str,
    "version": str,
    "runs*": {
        "tool": {
            "driver": {
                "name": str,
                "version": str,
                "rules*": {
                    "id": str,
                    "name": str,
                    "shortDescription": TEXT,
                    "fullDescription": TEXT,
                    "help": TEXT,
                    "defaultConfiguration": {"level": str},
                    "properties": {"tags*": str},
                },
            }
        },
        "invocations*": {"executionSuccessful": bool},
        "results*": {
            "ruleId": str,
            "ruleIndex": int,
            "level": str,
            "message": TEXT,
            "locations*": {
                "physicalLocation": {
                    "artifactLocation": {"uri": str},
                    "region": {"startLine": int},
                },
                "logicalLocations*?": {"fullyQualifiedName": str, "kind": str},
            },
            "partialFingerprints": {"primaryLocationLineHash": str},
        },
    },
}


def require_shape(value: Any, shape: Any, where: str = "log") -> None:
    """Fails where the value has something else than the shape says."""
    if isinstance(shape, type):
        assert type(value) is shape, where
        return
    assert isinstance(value, dict), where
    known = set()
    for key, inner in shape.items():
        name = key.rstrip("*?")
        known.add(name)
        if name not in value:
            assert key.endswith("?"), f"{where}.{name} is missing"
        elif "*" in key:
            assert isinstance(value[name], list), where
            for i, item in enumerate(value[name]):
                require_shape(item, inner, f"{where}.{name}[{i}]")
        else:
            require_shape(value[name], inner, f"{where}.{name}")
    assert value.keys() <= known, where


def read(path: Path) -> dict[str, Any]:
    """The run of a log, once it has the shape that pages rely on."""
    log = json.loads(path.read_text(encoding="utf-8"))
    require_shape(log, SHAPE)
    assert log["version"] == "2.1.0"
    (one,) = log["runs"]
    rules = one["tool"]["driver"]["rules"]
    assert len({rule["id"] for rule in rules}) == len(rules)
    for result in one["results"]:
        rule = rules[result["ruleIndex"]]
        assert result["ruleId"] == rule["id"]
        assert result["level"] == rule["defaultConfiguration"]["level"]
        assert result["level"] in {"note", "warning", "error"}
        (location,) = result["locations"]
        assert location["physicalLocation"]["region"]["startLine"] == 1
    prints = [r["partialFingerprints"]["primaryLocationLineHash"] for r in one["results"]]
    assert len(set(prints)) == len(prints)
    return dict(one)


def test_every_finding_every_change_and_every_failure_is_a_result(tmp_path: Path) -> None:
    for path in archives.DATA.glob("*.pt2"):
        shutil.copyfile(path, tmp_path / path.name)
    archives.add_bad_files(tmp_path)
    result = run("check", tmp_path, "--json", "--sarif", tmp_path / "out" / "log.sarif")
    assert result.returncode == 2
    expected = []
    for fields in objects(result.stdout):
        if fields["status"] == "failed":
            expected.append((fields["name"], fields["code"]))
        for model in fields["models"]:
            report = model["report"]
            expected += [(fields["name"], finding["code"]) for finding in report["findings"]]
            if not report["changes_nothing"]:
                expected.append((fields["name"], "not_canonical"))
    log = read(tmp_path / "out" / "log.sarif")
    uri = [r["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for r in log["results"]]
    assert {u.rpartition("/")[0] for u in uri} == {tmp_path.as_uri()}
    names = [u.rpartition("/")[2] for u in uri]
    found = list(zip(names, (r["ruleId"] for r in log["results"]), strict=True))
    assert found == expected
    codes = {code for _, code in found}
    assert codes >= {code for code, *_ in _core.finding_codes()}
    assert codes >= {code for _, code in archives.corrupt().values()}
    assert log["invocations"] == [{"executionSuccessful": True}]


def test_a_result_names_file_program_node_consumers_and_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "my models").mkdir()
    shutil.copyfile(archives.DATA / "delay-line.pt2", tmp_path / "my models" / "a.pt2")
    words, environment = command("check", "my models", "--sarif", "log.sarif")
    paths = environment.get("PYTHONPATH", "").split(os.pathsep)
    environment["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, filter(None, paths)))
    result = subprocess.run(words, cwd=tmp_path, capture_output=True, env=environment, check=False)
    assert result.returncode == 1
    first = read(tmp_path / "log.sarif")["results"][0]
    (location,) = first["locations"]
    assert location["physicalLocation"]["artifactLocation"]["uri"] == "my%20models/a.pt2"
    assert location["logicalLocations"] == [{"fullyQualifiedName": "model.b_a", "kind": "member"}]
    assert first["ruleId"] == "overwritten"
    text = first["message"]["text"]
    for part in ("a.pt2 [model]: ", ": b because of a, in torch.module", "; canonicalize the"):
        assert part in text


def test_the_same_findings_have_the_same_fingerprints(tmp_path: Path) -> None:
    results = []
    for name in ("first", "second"):
        shutil.copyfile(archives.DATA / "swap.pt2", tmp_path / "swap.pt2")
        run("check", tmp_path / "swap.pt2", "--sarif", tmp_path / name)
        results.append(read(tmp_path / name)["results"])
    assert results[0] == results[1] != []


def test_nothing_found_is_a_log_without_results(tmp_path: Path) -> None:
    result = run("check", archives.DATA / "canonical.pt2", "--sarif", tmp_path / "log.sarif")
    assert result.returncode == 0
    assert read(tmp_path / "log.sarif")["results"] == []


def test_a_log_that_is_not_whole_says_so(tmp_path: Path) -> None:
    archives.make_zoo(tmp_path / "zoo", 44)
    (tmp_path / "zoo" / "a" / "0.pt2").write_bytes(b"")
    log = tmp_path / "log.sarif"
    run("check", tmp_path / "zoo", "--fail-fast", "--jobs", "1", "--sarif", log)
    assert read(log)["invocations"] == [{"executionSuccessful": False}]


def test_every_code_that_a_file_can_fail_with_has_a_rule_and_a_row() -> None:
    page = (ROOT / "docs" / "cli.md").read_text()
    rows = set(re.findall(r"`(\w+)`", "\n".join(re.findall(r"^\| (`.*?) \|", page, re.MULTILINE))))
    archive_page = (ROOT / "docs" / "archive.md").read_text()
    rows |= set(re.findall(r"^\| `(\w+)` \|", archive_page, re.MULTILINE))
    assert rows >= _batch.FAILURES.keys()
    rules = {rule["id"] for rule in _sarif._rules()}
    assert rules >= _batch.FAILURES.keys() | {code for code, _ in _core.refusals()}


def test_what_a_page_shows_of_a_rule_is_what_the_documentation_says() -> None:
    page = (ROOT / "docs" / "findings.md").read_text()
    rules = {rule["id"]: rule for rule in _sarif._rules()}
    for code, what, todo in re.findall(r"^\| `(\w+)` \| (.*?) \| (.*?) \|$", page, re.MULTILINE):
        assert rules[code]["fullDescription"]["text"] == what
        advice = rules[code]["help"]["text"].removeprefix("To mend it: ")
        assert advice.lower() == todo.lower()


@pytest.mark.parametrize("source", ["s3://bucket/zoo/a b.pt2", "/elsewhere/ü.pt2", "../a.pt2"])
def test_files_elsewhere_have_their_whole_address(source: str) -> None:
    uri = _sarif._uri(source)
    assert uri == source if "://" in source else uri.startswith("file:///")
