"""The archive path's table says what the torch path reads off the installed libraries' schemas."""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import need

TOOLS = Path(__file__).parent.parent / "tools"
LIBRARIES = ("torch", "torchao", "executorch")


@pytest.fixture(scope="module")
def script():
    need("torch")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(TOOLS)
        return importlib.import_module("alias_table")


@pytest.fixture(scope="module")
def tables():
    """Library -> its table, made in a process of its own: other tests register more operators."""
    need("torch")
    need("executorch")  # which brings torchao
    code = (
        "import json, alias_table\n"
        "print(json.dumps({each.name: alias_table.table(each) for each in alias_table.LIBRARIES}))"
    )
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        cwd=TOOLS,
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(run.stdout.splitlines()[-1])


def facts(text):
    """Operator -> its facts."""
    return {line.split()[0]: line.split()[1:] for line in text.splitlines()[1:]}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", LIBRARIES)
def test_table_is_that_of_the_library(script, tables, name):
    stored, made = (script.FOLDER / f"{name}.txt").read_text(), tables[name]
    version = importlib.metadata.version(name).partition("+")[0]
    if stored.startswith(f"# {name} {version};"):
        assert made == stored, "run tools/alias_table.py"
    else:
        # Another version may know other operators, but must agree on those that both know.
        new, old = facts(made), facts(stored)
        assert {op: new[op] for op in new.keys() & old.keys()} == {
            op: old[op] for op in new.keys() & old.keys()
        }


def test_the_traps_are_in_it(script):
    table = facts((script.FOLDER / "torch.txt").read_text())
    assert table["aten.dropout.default"] == ["aliases=*", "impure"]
    assert table["aten.type_as.default"] == ["aliases=*"]
    assert table["aten.view.default"] == ["aliases=self"]
    assert table["aten.split.Tensor"] == ["aliases=self"]
    assert table["aten.add_.Tensor"] == ["aliases=self", "writes=self"]
    assert table["aten.index_put.default"] == ["keeps"]
    assert table["aten.mul.Tensor"] == []
