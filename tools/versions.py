"""Writes docs/versions.md: what `nox -s versions` found on each pair of torch and executorch.

A pair is supported if all tests pass on it. Another says which tests do not.
"""

from __future__ import annotations

import collections
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "target" / "versions"

HEADER = """# Supported versions

`make versions` found this: it runs the tests that look at torch and executorch on each pair. Pairs
that are not listed were not tried. mutcanon pins nothing; where a private name has moved it says so
by a `VersionError`, and changes nothing.

| torch | executorch | passed | failed | where |
| --- | --- | --- | --- | --- |
"""


def main() -> int:
    """Writes the table."""
    reports = sorted(RESULTS.glob("*.xml"), key=lambda path: version_key(path.stem))
    if not reports:
        print(f"{RESULTS}: no reports; run `make versions`", file=sys.stderr)
        return 2
    rows = [row(path) for path in reports]
    (ROOT / "docs" / "versions.md").write_text(HEADER + "".join(rows))
    return 0


def version_key(stem: str) -> list[int]:
    """Orders by torch, then by executorch."""
    return [int(part) for part in stem.replace("None", "0").replace("-", ".").split(".")]


def row(path: Path) -> str:
    """One line of the table."""
    cases = list(ET.parse(path).getroot().iter("testcase"))
    failed = collections.Counter(
        case.get("classname", "").rpartition(".")[2] or case.get("name", "")
        for case in cases
        if case.find("failure") is not None or case.find("error") is not None
    )
    torch, _, executorch = path.stem.partition("-")
    passed = sum(len(case) == 0 for case in cases)
    where = ", ".join(f"{name} {count}" for name, count in sorted(failed.items()))
    name = "" if executorch == "None" else executorch
    return f"| {torch} | {name} | {passed} | {failed.total()} | {where} |\n"


if __name__ == "__main__":
    sys.exit(main())
