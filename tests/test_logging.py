"""What is logged, and that torch's own switch turns it on."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("torch")

PROGRAM = """
import torch, mutcanon

class Add(torch.nn.Module):
    def forward(self, cache, x):
        cache.add_(x)
        return cache * 2

program = torch.export.export(Add(), (torch.zeros(3), torch.ones(3)))
for _ in range(3):
    program = program.run_decompositions({})
mutcanon.canonicalize(program)
mutcanon.canonicalize_(program)
"""


def log(setting: str | None) -> list[str]:
    """The lines that mutcanon logs in a new process, without what torch puts before them."""
    environment = {k: v for k, v in os.environ.items() if k not in ("TORCH_LOGS", "MUTCANON_CHECK")}
    if setting is not None:
        environment["TORCH_LOGS"] = setting
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    lines = done.stderr.splitlines()
    return [line.partition("] ")[2].strip() for line in lines if "mutcanon/" in line]


COUNTS = "program: 2 copies collapsed, 0 kept, 0 added"


def test_torch_logs_names_each_decision() -> None:
    once = [
        "portable form: 2 copies, 2 collapse, 0 stay, 0 added; 24 bytes a call saved",
        "user_input cache <- add (copies below: 2 -> 0)",
        "collapse copy: its readers read add",
        "collapse copy_1: its readers read add",
        COUNTS,
    ]
    assert log("+mutcanon") == once * 2


def test_without_the_plus_it_counts() -> None:
    assert log("mutcanon") == [COUNTS] * 2


def test_nothing_is_logged_unasked() -> None:
    assert log(None) == []
