"""Outcomes of a check as SARIF 2.1.0, which code-scanning pages read.

A finding is a result at its file, with the program and the node as its logical location; so is a
file that cannot be read, and one that a rewrite would change. What a page shows of a rule comes
from the tables that the documentation is checked against.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from mutcanon import __version__, _core, _store
from mutcanon._batch import FAILURES
from mutcanon.cli._describe import changes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mutcanon._batch import Outcome

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"

#: The rule of a program that `mutcanon rewrite` would change.
NOT_CANONICAL = "not_canonical"

#: Findings that are a suspicion; the others are wrong results.
_SUSPICIONS = frozenset({"already_lost"})


class Log:
    """Collects the outcomes of a batch."""

    def __init__(self) -> None:
        self._rules = list(_rules())
        self._places = {rule["id"]: i for i, rule in enumerate(self._rules)}
        self._results: list[dict[str, Any]] = []

    def add(self, outcome: Outcome) -> None:
        """Takes one file into account."""
        if outcome.status == "failed":
            message = outcome.message.removeprefix(f"{outcome.source}: ")
            self._add(outcome, outcome.code, message)
        for model in outcome.models:
            name, report = model["model"], model["report"]
            values = {m["target"]: m["value"] for m in report["mutations"]}
            for finding in report["findings"]:
                output, other = finding["output"], finding["other"]
                because = f" because of {other}" if other else ""
                consumers = ", ".join(finding["consumers"])
                what = f"{finding['sentence']}: {output}{because}, in {consumers}"
                message = f"{what}; {finding['advice']}"
                places = (name, values.get(output, output), other or "")
                self._add(outcome, finding["code"], message, places)
            if not report["changes_nothing"]:
                message = f"mutcanon rewrite would change it: {changes(model)}"
                self._add(outcome, NOT_CANONICAL, message, (name,))

    def _add(self, outcome: Outcome, code: str, message: str, places: tuple[str, ...] = ()) -> None:
        """One result; `places` are the program, the node, and another that has to do with it."""
        rule = self._places.get(code, self._places["unexpected"])
        # The same in the next run, so that a page does not show it as new.
        identity = json.dumps([outcome.name, code, places]).encode()
        location: dict[str, Any] = {
            "physicalLocation": {
                "artifactLocation": {"uri": _uri(outcome.source)},
                "region": {"startLine": 1},  # archives have no lines, but pages want one
            }
        }
        if places:
            name = ".".join(places[:2])
            location["logicalLocations"] = [{"fullyQualifiedName": name, "kind": "member"}]
        where = f" [{places[0]}]" if places else ""
        self._results.append(
            {
                "ruleId": self._rules[rule]["id"],
                "ruleIndex": rule,
                "level": self._rules[rule]["defaultConfiguration"]["level"],
                "message": {"text": f"{outcome.name}{where}: {message}"},
                "locations": [location],
                "partialFingerprints": {
                    "primaryLocationLineHash": hashlib.blake2b(identity, digest_size=16).hexdigest()
                },
            }
        )

    def write(self, path: str, *, is_whole: bool) -> None:
        """Writes the log; `is_whole` says whether every file of the batch is in it."""
        driver = {"name": "mutcanon", "version": __version__, "rules": self._rules}
        run = {
            "tool": {"driver": driver},
            "invocations": [{"executionSuccessful": is_whole}],
            "results": self._results,
        }
        log = {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}
        _store.make_parent(path)
        Path(path).write_text(json.dumps(log, indent=1) + "\n", encoding="utf-8")


def _rules() -> Iterator[dict[str, Any]]:
    for code, sentence, advice in _core.finding_codes():
        level = "warning" if code in _SUSPICIONS else "error"
        yield _rule(code, level, sentence, advice, "correctness")
    yield _rule(
        NOT_CANONICAL,
        "note",
        "a program has copies that are proved redundant, lacks some, or writes in another order",
        "run mutcanon rewrite",
        "performance",
    )
    for code, sentence in [*_core.refusals(), *FAILURES.items()]:
        yield _rule(code, "error", sentence, "replace the file, or leave it out", "unreadable")


def _rule(code: str, level: str, sentence: str, advice: str, tag: str) -> dict[str, Any]:
    return {
        "id": code,
        "name": code.title().replace("_", ""),
        "shortDescription": {"text": _capitalized(sentence)},
        "fullDescription": {"text": f"{_capitalized(sentence)}."},
        "help": {"text": f"To mend it: {advice}."},
        "defaultConfiguration": {"level": level},
        "properties": {"tags": [tag]},
    }


def _capitalized(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]


def _uri(source: str) -> str:
    """The file relative to here, which on a runner is the repository; elsewhere in full."""
    if _store.is_url(source):
        return source
    path = os.path.relpath(source) if not os.path.isabs(source) else source
    here = os.path.join(os.getcwd(), "")
    if path.startswith(here):
        path = path[len(here) :]
    path = path.replace(os.sep, "/")
    if os.path.isabs(path) or path.startswith("../"):
        return Path(os.path.abspath(source)).as_uri()
    return quote(path, errors="surrogateescape")
