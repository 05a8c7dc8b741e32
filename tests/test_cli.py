"""The command line, run as its users run it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import torch

import mutcanon
from mutcanon import _drawing, cli

if TYPE_CHECKING:
    from pathlib import Path

#: Small enough for a test; the numbers in the tables scale with it.
SMALL = ("demo", "--layers", "1", "--context", "16", "--steps", "4")
HIDE = """
import sys
from importlib.machinery import PathFinder

class Hiding(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name in {names!r} else super().find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = Hiding
"""
MAIN = "from mutcanon.cli import main; main(prog_name='mutcanon')"


def run(
    *args: object, hidden: tuple[str, ...] = (), **env: str
) -> subprocess.CompletedProcess[str]:
    """Runs `mutcanon`, in an environment without the hidden packages."""
    code = (HIDE.format(names=hidden) if hidden else "") + MAIN
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, args)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": "100", **env},
    )


class Cache(torch.nn.Module):
    def forward(self, cache: torch.Tensor, row: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        cache.index_copy_(0, i, row)
        return cache.sum()


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    ep = torch.export.export(Cache(), (torch.zeros(4, 2), torch.ones(1, 2), torch.tensor([1])))
    for _ in range(3):
        ep = ep.run_decompositions({})
    path = tmp_path / "cache.pt2"
    torch.export.save(ep, path)
    return path


def test_help_lists_the_commands_and_needs_no_torch() -> None:
    result = run("--help", hidden=("torch", "executorch", "rich"))
    assert result.returncode == 0
    assert result.stderr == ""
    for command in ("demo", "explain"):
        assert f"\n  {command} " in result.stdout


def test_version_is_that_of_the_package() -> None:
    assert run("--version").stdout == f"mutcanon {mutcanon.__version__}\n"


@pytest.mark.parametrize(
    "args",
    [("nonsense",), ("explain",), ("explain", "no-such-file.pt2"), ("demo", "--layers", "0")],
)
def test_wrong_usage_ends_with_2_and_a_message(args: tuple[str, ...]) -> None:
    result = run(*args)
    assert result.returncode == 2
    assert result.stdout == ""
    assert "Error" in result.stderr


def test_explain_draws_the_report(stored: Path) -> None:
    result = run("explain", stored)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == f"{_drawing.text(mutcanon.analyze(torch.export.load(stored)))}\n"


def test_explain_prints_json(stored: Path) -> None:
    result = run("explain", "--json", stored)
    report = json.loads(result.stdout)
    assert result.returncode == 0
    assert report["schema_version"] == 1
    assert [copy["decision"] for copy in report["copies"]] == ["collapse", "collapse"]


def test_explain_takes_a_form(stored: Path) -> None:
    result = run("explain", "--form", "minimal", "--json", stored)
    assert json.loads(result.stdout)["form"] == "minimal"


def test_explain_names_a_file_that_torch_cannot_load(tmp_path: Path) -> None:
    path = tmp_path / "broken.pt2"
    path.write_bytes(b"no archive")
    result = run("explain", path)
    assert result.returncode == 2
    assert result.stdout == ""
    assert f"error: {path}: " in result.stderr


def test_explain_needs_no_torch(stored: Path) -> None:
    assert run("explain", stored, hidden=("torch",)).returncode == 0


def test_demo_says_what_to_install_without_torch() -> None:
    result = run(*SMALL, hidden=("torch",))
    assert result.returncode == 2
    assert result.stdout == ""
    assert "pip install 'mutcanon[executorch]'" in result.stderr


def test_demo_without_executorch_shows_the_rest() -> None:
    result = run(*SMALL, hidden=("executorch",))
    assert result.returncode == 0, result.stderr
    rows = table_rows(result.stdout)
    assert rows["copies"] == ["7", "1"]
    assert rows["deepest chain"] == ["3", "1"]
    assert rows["eager, 4 steps"] == ["equal bit for bit"] * 2
    assert "copy stays (window): strides" in result.stdout
    assert "pip install 'mutcanon[executorch]'" in result.stderr
    assert "ExecuTorch" not in result.stdout
    assert "\x1b" not in result.stdout + result.stderr


@pytest.mark.executorch
def test_demo_lowers_both_ways_and_agrees_with_eager() -> None:
    result = run(*SMALL)
    assert result.returncode == 0, result.stderr
    rows = table_rows(result.stdout)
    stock, ours = (float(cell.removesuffix(" KiB")) for cell in rows["planned memory"])
    assert ours < stock
    assert rows["mutations write a step"][1] == "0 B"
    assert all(cell.endswith(" ms") for cell in rows["a step, median of 20"])
    assert all(cell.startswith("within ") for cell in rows["eager, 4 steps"])


def test_no_color_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    for console in (cli.output(), cli.messages()):
        assert not console.no_color
    monkeypatch.setenv("NO_COLOR", "1")
    for console in (cli.output(), cli.messages()):
        assert console.no_color


def table_rows(text: str) -> dict[str, list[str]]:
    """The cells of the printed tables by the first one of their row."""
    rows = (
        [cell.strip() for cell in line.strip("│┃").split("│")]
        for line in text.splitlines()
        if "│" in line
    )
    return {first: rest for first, *rest in rows}
