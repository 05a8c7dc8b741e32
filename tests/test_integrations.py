"""Shells, pre-commit and GitHub: what they are given works, without torch."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import archives
from test_cli_batch import MAIN, NO_TORCH, run

ROOT = Path(__file__).parent.parent


# Completion


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_a_completion_script(shell: str) -> None:
    result = run(_MUTCANON_COMPLETE=f"{shell}_source")
    assert result.returncode == 0
    assert "_mutcanon_completion" in result.stdout
    assert f"_MUTCANON_COMPLETE={shell}_complete" in result.stdout
    line = f"_MUTCANON_COMPLETE={shell}_source mutcanon"
    assert line in (ROOT / "docs" / "cli.md").read_text()
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=result.stdout, text=True, check=True)


def completions(*words: str) -> list[str]:
    typed = " ".join(("mutcanon", *words))
    environment = {"COMP_WORDS": typed, "COMP_CWORD": str(len(words))}
    result = run(_MUTCANON_COMPLETE="bash_complete", **environment)
    assert result.returncode == 0
    return result.stdout.splitlines()


def test_commands_options_choices_and_files_are_completed() -> None:
    assert "plain,check" in completions("che")
    assert completions("check", "--eng") == ["plain,--engine"]
    assert completions("check", "--engine", "r") == ["plain,ray"]
    assert completions("check", "zo") == ["file,zo"]
    assert completions("rewrite", "zoo", "-o", "o") == ["file,o"]


# pre-commit


def load_yaml(path: Path) -> Any:
    yaml = pytest.importorskip("yaml")
    return yaml.safe_load(path.read_text())


def test_the_hook_checks_archives() -> None:
    (hook,) = load_yaml(ROOT / ".pre-commit-hooks.yaml")
    assert hook["id"] in (ROOT / "docs" / "cli.md").read_text()
    assert re.search(hook["files"], "zoo/a.pt2")
    assert not re.search(hook["files"], "zoo/a.pt2.txt")
    program, *arguments = shlex.split(hook["entry"])
    assert program == "mutcanon"
    for name, code in (("redundant", 1), ("canonical", 0)):
        assert run(*arguments, archives.DATA / f"{name}.pt2").returncode == code


# GitHub


class Repository:
    """A repository with a commit, and `mutcanon` on its path."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory / "work"
        self.directory.mkdir()
        tool = directory / "bin" / "mutcanon"
        tool.parent.mkdir()
        tool.write_text(f"#!{sys.executable}\n{NO_TORCH}\n{MAIN}\n")
        tool.chmod(0o755)
        paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        self.environment = {
            **os.environ,
            "PATH": f"{tool.parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join(map(os.path.abspath, filter(None, paths))),
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_SYSTEM": os.devnull,
        }
        self.git("init", "--quiet")

    def git(self, *words: str) -> str:
        identity = ("-c", "user.name=n", "-c", "user.email=e@example.org")
        command = ["git", *identity, *words]
        return subprocess.run(
            command,
            cwd=self.directory,
            env=self.environment,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()

    def commit(self, **files: str | None) -> str:
        for name, archive in files.items():
            path = self.directory / f"{name}.pt2"
            if archive is None:
                path.unlink()
            else:
                path.write_bytes(archives.archive(archive))
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "m", "--allow-empty")
        return self.git("rev-parse", "HEAD")

    def check(self, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [ROOT / "tools" / "check-changed"],
            cwd=self.directory,
            env={**self.environment, **environment},
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path)


def test_the_action_checks_what_changed_and_is_still_there(repository: Repository) -> None:
    base = repository.commit(old="redundant", gone="redundant", now="canonical")
    repository.commit(**{"new one": "canonical", "gone": None})
    result = repository.check(BASE=base, ARGUMENTS="--json --jobs 1", SARIF="log.sarif")
    assert (result.returncode, result.stderr.count("failed")) == (0, 0)
    assert [json.loads(line)["name"] for line in result.stdout.splitlines()] == ["new one.pt2"]
    assert (repository.directory / "log.sarif").exists()
    repository.commit(now="redundant")
    result = repository.check(BASE=base)
    assert result.returncode == 1
    assert "now.pt2: 2 of 2 copies are redundant" in result.stdout
    assert "old.pt2" not in result.stdout


def test_the_action_checks_everything_where_there_is_no_base(repository: Repository) -> None:
    repository.commit(old="redundant", now="canonical")
    for base in ("all", "0" * 40, "1" * 40, ""):
        result = repository.check(BASE=base)
        assert result.returncode == 1
        assert "old.pt2: 2 of 2 copies are redundant" in result.stdout


def test_the_action_has_a_log_where_nothing_changed(repository: Repository) -> None:
    base = repository.commit(old="redundant")
    repository.commit()
    result = repository.check(BASE=base, SARIF="log.sarif")
    assert (result.returncode, result.stdout) == (0, "no .pt2 archive changed\n")
    log = json.loads((repository.directory / "log.sarif").read_text())
    assert log["runs"][0]["results"] == []


def test_the_action_passes_what_it_is_given_and_puts_nothing_into_scripts() -> None:
    action = load_yaml(ROOT / "action.yml")
    (step,) = action["runs"]["steps"]
    assert set(action["inputs"]) == {"base", "arguments", "sarif", "requirement"}
    used = re.findall(r"inputs\.(\w+)", " ".join(step["env"].values()))
    assert set(used) == set(action["inputs"])
    assert "${{" not in step["run"]
    assert "tools/check-changed" in step["run"]
