"""The benches run, and measure what they say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import mutcanon

BENCHES = Path(__file__).parent.parent / "benches"
sys.path.insert(0, str(BENCHES))

from baselines import edit, signature_driven, whole_graph  # noqa: E402
from synthetic import add_copies, count_copies, synthetic  # noqa: E402


def test_a_synthetic_program_is_a_valid_one_of_its_size() -> None:
    program = synthetic(nodes=200, targets=4, depth=3)
    program.graph.lint()
    program.validate()
    assert abs(len(program.graph.nodes) - 200) < 10
    assert count_copies(program) == 12
    assert [m.depth for m in mutcanon.analyze(program).mutations] == [3] * 4


@pytest.mark.parametrize("subject", [mutcanon.canonicalize_, signature_driven, whole_graph])
def test_every_subject_removes_every_copy_and_nothing_else(subject: object) -> None:
    program = synthetic(nodes=200, targets=4, depth=0)
    names = [n.name for n in program.graph.nodes]
    add_copies(program, 3)
    subject(program)  # type: ignore[operator]
    assert [n.name for n in program.graph.nodes] == names
    program.validate()


def test_the_floor_removes_every_copy_and_nothing_else() -> None:
    program = synthetic(nodes=200, targets=4, depth=0)
    names = [n.name for n in program.graph.nodes]
    (outputs,) = program.graph.output_node().args
    edit(program, outputs, add_copies(program, 3))
    assert [n.name for n in program.graph.nodes] == names
    program.validate()


@pytest.mark.parametrize(
    "arguments",
    [
        ("canonicalize.py", "--small"),
        ("archive.py", "--small"),
        ("check.py", "--small"),
        ("batch.py", "--files", "3", "--rounds", "1"),
        pytest.param(("lowering.py", "--layers", "1"), marks=pytest.mark.executorch),
        pytest.param(
            ("decode.py", "--layers", "1", "--context", "16", "--rounds", "1"),
            marks=pytest.mark.executorch,
        ),
    ],
    ids=lambda arguments: arguments[0],
)
def test_every_bench_runs(arguments: tuple[str, ...]) -> None:
    script, *options = arguments
    command = [sys.executable, "-W", "ignore", str(BENCHES / script), *options]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert "━" in result.stdout
