"""`--engine ray` on a cluster of this machine, with several workers, of which some are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import archives
from test_cli_batch import command, large_zoo, objects, rows, run, start_and_wait, tmp_path

if TYPE_CHECKING:
    from collections.abc import Iterator

ray = pytest.importorskip("ray")

__all__ = ["tmp_path"]
WORKERS = 3


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """The address of a cluster that nobody outside of this machine can reach."""
    from ray.cluster_utils import Cluster

    environment = pytest.MonkeyPatch()
    environment.setenv("RAY_USAGE_STATS_ENABLED", "0")
    # Ray's drivers take 127.0.0.1 for another address of this machine unless told so.
    environment.setenv("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    # Workers import mutcanon from where this process has it.
    import mutcanon

    environment.setenv("PYTHONPATH", str(Path(mutcanon.__file__).parent.parent))
    head = {
        "num_cpus": WORKERS,
        "node_ip_address": "127.0.0.1",
        "include_dashboard": False,
        "object_store_memory": 100 << 20,
    }
    cluster = Cluster(initialize_head=True, head_node_args=head)
    yield cluster.address
    cluster.shutdown()
    environment.undo()


def workers() -> list[int]:
    """The processes that are at work on a unit."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes().startswith(b"ray::run_unit"):
                found.append(int(path.parent.name))
        except OSError:
            pass  # it has ended
    return found


def test_a_cluster_does_what_threads_do(cluster: str, tmp_path: Path) -> None:
    zoo = large_zoo(tmp_path / "zoo", 44)
    archives.add_bad_files(zoo / "bad")
    results = {}
    for engine in ("threads", "ray"):
        out = tmp_path / engine
        result = run("rewrite", zoo, "-o", out, "--json", "--engine", engine, "--address", cluster)
        assert result.returncode == 2
        results[engine] = [
            {**fields, "seconds": 0, "target": fields["target"] and fields["name"]}
            for fields in objects(result.stdout)
        ]
    assert results["ray"] == results["threads"]
    assert archives.tree(tmp_path / "ray") == archives.tree(tmp_path / "threads")
    again = run("rewrite", zoo, "-o", out, "--engine", "ray", "--address", cluster)
    foreign_zips = 3
    assert rows(again.stdout)["done by an earlier run"] == str(50 + foreign_zips)


def test_relative_paths_are_those_of_the_driver(cluster: str, tmp_path: Path) -> None:
    archives.make_zoo(tmp_path / "zoo", 3)
    words, environment = command(
        "rewrite", "zoo", "-o", "out", "--engine", "ray", "--address", cluster, "--json"
    )
    environment["PYTHONPATH"] = os.pathsep.join(
        map(os.path.abspath, environment.get("PYTHONPATH", "").split(os.pathsep))
    )
    result = subprocess.run(
        words, cwd=tmp_path, capture_output=True, text=True, check=True, env=environment
    )
    assert {fields["source"].partition("/")[0] for fields in objects(result.stdout)} == {"zoo"}
    assert len(archives.tree(tmp_path / "out")) == 3


def test_units_of_a_killed_worker_are_done_by_another(cluster: str, tmp_path: Path) -> None:
    zoo, out = large_zoo(tmp_path / "zoo", 480), tmp_path / "out"
    assert run("rewrite", zoo, "-o", tmp_path / "expected").returncode == 0
    arguments = ("rewrite", zoo, "-o", out, "--engine", "ray", "--address", cluster)
    process = start_and_wait(out, 60, *arguments)
    killed: list[int] = []
    deadline = time.monotonic() + 60
    while len(killed) < 2 and process.poll() is None and time.monotonic() < deadline:
        for worker in workers()[:1]:
            os.kill(worker, signal.SIGKILL)
            killed.append(worker)
    assert len(killed) == 2
    assert process.wait(120) == 0
    summary = rows(Path(f"{out}.stdout").read_text())
    assert summary["files"] == "486"
    assert "failed" not in summary
    found = archives.tree(out)
    temporary = {name for name in found if name.endswith(".mutcanon-tmp")}
    assert len(temporary) <= len(killed)
    assert {n: found[n] for n in found.keys() - temporary} == archives.tree(tmp_path / "expected")
    assert rows(run(*arguments).stdout)["done by an earlier run"] == "486"
    assert archives.tree(out) == archives.tree(tmp_path / "expected")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_what_the_cluster_has_begun(
    number: signal.Signals, cluster: str, tmp_path: Path
) -> None:
    zoo, out = large_zoo(tmp_path / "zoo", 480), tmp_path / "out"
    arguments = ("rewrite", zoo, "-o", out, "--engine", "ray", "--address", cluster)
    process = start_and_wait(out, 60, *arguments)
    process.send_signal(number)
    assert process.wait(60) == 130
    summary = rows(Path(f"{out}.stdout").read_text())
    done = 486 - int(summary["not done"])
    assert 60 <= done < 486
    assert len(archives.tree(out)) == done


def test_no_cluster_is_an_error_that_says_so(tmp_path: Path) -> None:
    result = run("check", archives.DATA, "--engine", "ray", "--address", "127.0.0.1:1")
    assert result.returncode == 2
    assert "no Ray cluster there" in result.stderr
    assert "Traceback" not in result.stderr
