"""`mutcanon check` and `mutcanon rewrite`, run as their users run them; no torch is needed."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result

import archives
from mutcanon import cli

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MAIN = "from mutcanon.cli import main; main(prog_name='mutcanon')"
#: Of tests/data in the order of their names: what a check finds.
STATUSES = [
    "clean" if path.stem in {"canonical", "delay-line-right"} else "found"
    for path in sorted(archives.DATA.glob("*.pt2"))
]
#: torch may be there; whoever imports it here has made a mistake.
NO_TORCH = "import sys; sys.modules['torch'] = sys.modules['executorch'] = None; "


def command(*args: object, **env: str) -> tuple[list[str], dict[str, str]]:
    return (
        [sys.executable, "-c", NO_TORCH + MAIN, *map(str, args)],
        {**os.environ, "COLUMNS": "150", **env},
    )


def run(*args: object, **env: str) -> subprocess.CompletedProcess[str]:
    """Runs `mutcanon`."""
    words, environment = command(*args, **env)
    return subprocess.run(words, capture_output=True, text=True, check=False, env=environment)


def invoke(*args: object) -> Result:
    """The same in this process, for what lives in its memory."""
    return CliRunner().invoke(cli.main, [*map(str, args)], prog_name="mutcanon")


def rows(text: str) -> dict[str, str]:
    """The rows of the summary's first table."""
    cells = (line.strip("│").split("│") for line in text.splitlines() if line.startswith("│"))
    return {cell[0].strip(): cell[1].strip() for cell in cells if len(cell) == 2}


def objects(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.fixture
def tmp_path(tmp_path: Path) -> Iterator[Path]:
    """In memory where that is to be had: each result is synced to its disk, which may be busy."""
    if not os.access("/dev/shm", os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        yield Path(directory)


@pytest.fixture
def zoo(tmp_path: Path) -> Path:
    archives.make_zoo(tmp_path / "zoo", 44)
    return tmp_path / "zoo"


@pytest.fixture
def expected(zoo: Path, tmp_path: Path) -> dict[str, bytes]:
    """What becomes of the zoo when nothing is in the way."""
    assert run("rewrite", zoo, "-o", tmp_path / "expected").returncode == 0
    return archives.tree(tmp_path / "expected")


# check


def test_check_lists_what_would_change_and_what_is_wrong() -> None:
    result = run("check", archives.DATA)
    assert result.returncode == 1
    assert result.stderr == ""
    lines = result.stdout.splitlines()
    data = archives.DATA
    assert f"{data}/redundant.pt2: 2 of 2 copies are redundant (32 B a call)" in lines
    assert f"{data}/dynamic.pt2: 2 of 2 copies are redundant (2*(4*s33) bytes a call)" in lines
    assert f"{data}/two-models.pt2 [prefill]: 2 of 2 copies are redundant (32 B a call)" in lines
    wrong = "overwritten of b <- b_a because of a <- args_0"
    consumers = "torch.module, torch.run_decompositions, executorch"
    assert f"{data}/delay-line.pt2: {wrong} in {consumers}" in lines
    assert not any("canonical.pt2" in line for line in lines)
    assert rows(result.stdout)["something to do"] == str(STATUSES.count("found"))


def test_check_of_canonical_archives_finds_nothing() -> None:
    result = run("check", archives.DATA / "canonical.pt2")
    assert (result.returncode, result.stderr) == (0, "")
    assert rows(result.stdout)["nothing to do"] == "1"


def test_a_check_starts_at_once() -> None:
    """What takes long to import is left alone until it is needed: on terminals, for URLs."""
    slow = ["torch", "numpy", "sympy", "fsspec", "ray", "urllib.request", "rich.progress"]
    imported = f"print([m for m in {slow} if m in sys.modules], file=sys.stderr)"
    code = f"import sys\ntry:\n    {MAIN}\nfinally:\n    {imported}"
    result = subprocess.run(
        [sys.executable, "-c", code, "check", archives.DATA / "canonical.pt2"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stderr == "[]\n"


def test_findings_can_be_those_of_one_consumer() -> None:
    restored = archives.DATA / "restored.pt2"
    assert "dropped_write" in run("check", restored).stdout
    assert "dropped_write" not in run("check", restored, "--consumer", "torch.module").stdout


def test_json_is_one_object_a_file_in_order_with_a_schema_version() -> None:
    result = run("check", archives.DATA, "--json", "--jobs", "3")
    assert result.returncode == 1
    found = objects(result.stdout)
    assert [o["source"] for o in found] == sorted(str(p) for p in archives.DATA.glob("*.pt2"))
    assert [o["status"] for o in found] == STATUSES
    for fields in found:
        assert list(fields) == [
            "schema_version", "name", "source", "target", "status", "size", "seconds", "kind",
            "code", "message", "models", "resumed",
        ]  # fmt: skip
        assert fields["schema_version"] == 1
        for model in fields["models"]:
            assert list(model) == ["model", "graph_size", "copies_before", "copies_after", "report"]
            assert model["report"]["schema_version"] == 1
    assert rows(result.stderr)["files"] == str(len(STATUSES))


def test_bad_files_fail_and_foreign_ones_do_not(tmp_path: Path) -> None:
    archives.add_bad_files(tmp_path)
    result = run("check", tmp_path)
    assert result.returncode == 2
    counts = rows(result.stdout)
    assert counts["failed"] == str(len(archives.corrupt()))
    assert counts["no exported program"] == str(len(archives.FOREIGN))
    for name, (_, code) in archives.corrupt().items():
        assert f"[{code}]" in next(li for li in result.stderr.splitlines() if f"/{name}" in li)
        assert any(f"/{name}" in line and code in line for line in result.stdout.splitlines())
    for name in archives.corrupt():
        (tmp_path / name).unlink()
    assert run("check", tmp_path).returncode == 0


def test_fail_fast_stops_at_the_first_failure(zoo: Path) -> None:
    (zoo / "a" / "0.pt2").write_bytes(b"")
    result = run("check", zoo, "--fail-fast", "--jobs", "1")
    assert result.returncode == 2
    assert int(rows(result.stdout)["not done"]) > 30


def test_verify_reads_everything(tmp_path: Path) -> None:
    heavy = bytearray(archives.with_weights(archives.archive("canonical"), 1000))
    heavy[heavy.index(b"\x5a" * 100) + 50] ^= 1
    path = tmp_path / "a.pt2"
    path.write_bytes(heavy)
    assert run("check", path).returncode == 0
    result = run("check", path, "--verify")
    assert result.returncode == 2
    assert "[checksum]" in result.stderr


def test_a_check_with_a_journal_finds_again_what_it_found(tmp_path: Path) -> None:
    results = [run("check", archives.DATA, "--json", "--journal", tmp_path) for _ in range(2)]
    first, second = (objects(result.stdout) for result in results)
    assert [r.returncode for r in results] == [1, 1]
    assert second == [fields | {"resumed": True} for fields in first]


def test_colours_are_for_terminals_that_want_them() -> None:
    assert "\x1b" not in run("check", archives.DATA).stdout
    colour = re.compile(r"\x1b\[[0-9;]*3[0-7]m")
    assert colour.search(run("check", archives.DATA, FORCE_COLOR="1").stdout)
    assert not colour.search(run("check", archives.DATA, FORCE_COLOR="1", NO_COLOR="1").stdout)


# What a command is given


def test_files_directories_patterns_and_urls_are_found_once(zoo: Path) -> None:
    (zoo / ".hidden.pt2").write_bytes(b"")
    (zoo / "a" / "note.txt").write_text("")
    for path in (zoo, f"{zoo}/", f"{zoo}/*", f"{zoo}/**/*.pt2", zoo.as_uri()):
        result = run("check", path, zoo / "a", "--json")
        assert len(objects(result.stdout)) == 44, path


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("check",), "Missing argument"),
        (("check", "no/such.pt2"), "no/such.pt2: no such file or directory [not_found]"),
        (("check", "{zoo}/nothing*"), "no such file or directory [not_found]"),
        (("check", "{zoo}/empty"), "no .pt2 file in it [not_found]"),
        (("check", "{zoo}", "--shard", "3/2"), "'3/2' is not like 2/8"),
        (("check", "nonsense://zoo"), "nonsense://zoo: "),
        (("rewrite", "{zoo}"), "either -o DIR or --in-place is needed"),
        (("rewrite", "{zoo}", "-o", "x", "--in-place"), "either -o DIR or --in-place is needed"),
        (("rewrite", "{zoo}", "-o", "{zoo}"), "use --in-place for that"),
        (("rewrite", "{zoo}/a", "-o", "{zoo}"), "holds all that there is to rewrite"),
        (("rewrite", "{zoo}", "-o", "{zoo}/x.pt2"), "results go to a directory"),
        (("rewrite", "{zoo}/a", "-o", "{zoo}/b/0.pt2"), "results go to a directory"),
        (("rewrite", "{zoo}", "-o", "{zoo}/a/0.pt2/x"), "0.pt2/x/.mutcanon: Not a directory [io]"),
        (("rewrite", "{zoo}/a/0.pt2", "{zoo}/b/0.pt2", "-o", "x"), "would both become"),
    ],
)
def test_wrong_usage_ends_with_2_and_a_message(
    args: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    for part in ("a", "b", "empty"):
        (tmp_path / part).mkdir()
    for part in ("a", "b"):
        shutil.copyfile(archives.DATA / "canonical.pt2", tmp_path / part / "0.pt2")
    before = archives.tree(tmp_path)
    result = run(*(arg.format(zoo=tmp_path) for arg in args))
    assert result.returncode == 2
    assert message in result.stderr
    assert result.stdout == ""
    assert archives.tree(tmp_path) == before


# rewrite


def test_rewrite_makes_a_whole_copy_of_the_zoo(zoo: Path, tmp_path: Path) -> None:
    (zoo / "a" / "file").with_suffix(".txt").write_text("not ours")
    before, out = archives.tree(zoo), tmp_path / "out"
    result = run("rewrite", zoo, "-o", out)
    assert result.returncode == 0
    changes = archives.count_changes(44)
    assert rows(result.stdout)["rewritten"] == str(changes)
    assert rows(result.stdout)["nothing to do"] == str(44 - changes)
    after = archives.tree(out)
    assert after.keys() == {name for name in before if name.endswith(".pt2")}
    assert sum(after[name] != before[name] for name in after) == changes
    assert archives.tree(zoo) == before
    again = run("rewrite", out, "-o", tmp_path / "again")
    assert rows(again.stdout)["nothing to do"] == "44"
    assert archives.tree(tmp_path / "again") == after


def test_a_second_run_skips_what_is_done(
    zoo: Path, expected: dict[str, bytes], tmp_path: Path
) -> None:
    out = tmp_path / "expected"
    times = {path: path.stat().st_mtime_ns for path in out.rglob("*.pt2")}
    (zoo / "a" / "redundant-0.pt2").write_bytes(archives.archive("dynamic"))
    result = run("rewrite", zoo, "-o", out, "--json")
    found = objects(result.stdout)
    assert {o["name"] for o in found if not o["resumed"]} == {"a/redundant-0.pt2"}
    assert rows(result.stderr)["done by an earlier run"] == "43"
    changed = {path for path in times if path.stat().st_mtime_ns != times[path]}
    assert changed == {out / "a" / "redundant-0.pt2"}


def test_output_below_the_zoo_is_not_taken_for_a_part_of_it(zoo: Path) -> None:
    for _ in range(2):
        result = run("rewrite", zoo, "-o", zoo / "out")
        assert rows(result.stdout)["files"] == "44"


def test_in_place_keeps_permissions_and_links_and_what_needs_nothing(tmp_path: Path) -> None:
    for name in ("redundant", "canonical"):
        shutil.copyfile(archives.DATA / f"{name}.pt2", tmp_path / f"{name}.pt2")
        (tmp_path / f"{name}.pt2").chmod(0o640)
    (tmp_path / "link.pt2").symlink_to("redundant.pt2")
    untouched = (tmp_path / "canonical.pt2").stat()
    result = run("rewrite", tmp_path / "link.pt2", tmp_path / "canonical.pt2", "--in-place")
    assert result.returncode == 0
    assert (tmp_path / "link.pt2").is_symlink()
    assert (tmp_path / "redundant.pt2").stat().st_mode & 0o777 == 0o640
    assert os.stat(tmp_path / "canonical.pt2").st_mtime_ns == untouched.st_mtime_ns
    assert os.stat(tmp_path / "canonical.pt2").st_ino == untouched.st_ino
    assert run("check", tmp_path / "redundant.pt2").returncode == 0
    assert len(list(tmp_path.iterdir())) == 3


def test_dry_run_lists_and_writes_nothing(zoo: Path, tmp_path: Path) -> None:
    before = archives.tree(tmp_path)
    for where in (("-o", tmp_path / "out"), ("--in-place",)):
        result = run("rewrite", zoo, *where, "--dry-run")
        assert result.returncode == 0
        assert f"{zoo}/a/redundant-0.pt2: 2 of 2 copies are redundant" in result.stdout
        assert rows(result.stdout)["would be rewritten"] == str(archives.count_changes(44))
        assert archives.tree(tmp_path) == before
    assert not (tmp_path / "out").exists()


def test_shards_make_one_zoo(zoo: Path, expected: dict[str, bytes], tmp_path: Path) -> None:
    out = tmp_path / "out"
    files = []
    for index in (1, 2, 3):
        result = run("rewrite", zoo, "-o", out, "--shard", f"{index}/3")
        assert result.returncode == 0
        files.append(int(rows(result.stdout)["files"]))
    assert sum(files) == 44 > max(files)
    assert archives.tree(out) == expected
    whole = run("rewrite", zoo, "-o", out)
    assert rows(whole.stdout)["done by an earlier run"] == "44"


def test_minimal_needs_no_more_copies_than_portable(tmp_path: Path) -> None:
    copies = {}
    for form in ("minimal", "portable"):
        result = run("rewrite", archives.DATA, "-o", tmp_path / form, "--form", form, "--json")
        copies[form] = sum(m["copies_after"] for o in objects(result.stdout) for m in o["models"])
    assert copies["minimal"] < copies["portable"]


# Interrupted


def large_zoo(directory: Path, count: int = 240) -> Path:
    """Enough to be in the middle of it: a few files are heavy."""
    archives.make_zoo(directory, count)
    heavy = archives.with_weights(archives.archive("redundant"), 1 << 22)
    for i in range(6):
        (directory / "abc"[i % 3] / f"heavy-{i}.pt2").write_bytes(heavy)
    return directory


def start_and_wait(directory: Path, files: int, *args: object) -> subprocess.Popen[str]:
    """Runs `mutcanon` until so many results are there. Its output goes to files beside them."""
    words, environment = command(*args)
    with open(f"{directory}.stdout", "w") as out, open(f"{directory}.stderr", "w") as err:
        process = subprocess.Popen(words, stdout=out, stderr=err, text=True, env=environment)
    wait_for(lambda: len(list(directory.rglob("*.pt2"))) >= files, process)
    return process


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 60
    while process.poll() is None and not condition() and time.monotonic() < deadline:
        time.sleep(0.0005)


def test_killed_anywhere_it_leaves_whole_files_and_goes_on(tmp_path: Path) -> None:
    zoo, out = large_zoo(tmp_path / "zoo"), tmp_path / "out"
    assert run("rewrite", zoo, "-o", tmp_path / "expected").returncode == 0
    expected = archives.tree(tmp_path / "expected")
    killed = 0
    for files in (1, 40, 90, 140, 190):
        process = start_and_wait(out, files, "rewrite", zoo, "-o", out, "--jobs", 2)
        process.kill()
        process.wait()
        killed += process.returncode == -signal.SIGKILL
        for name, contents in archives.tree(out).items():
            if not name.endswith(".mutcanon-tmp"):
                assert contents == expected[name], name
    assert killed >= 3
    result = run("rewrite", zoo, "-o", out)
    assert result.returncode == 0
    summary = rows(result.stdout)
    assert summary["files"] == "246"
    assert int(summary["done by an earlier run"]) > 100
    rewritten = archives.count_changes(240) + 6
    assert summary["rewritten"] == str(rewritten)
    assert summary["nothing to do"] == str(246 - rewritten)
    assert archives.tree(out) == expected  # no temporary file is left either


def is_there(path: Path, contents: bytes) -> bool:
    return path.read_bytes() == contents


def test_killed_in_place_it_leaves_old_files_or_new_ones(tmp_path: Path) -> None:
    zoo = large_zoo(tmp_path / "zoo")
    before = archives.tree(zoo)
    assert run("rewrite", zoo, "-o", tmp_path / "expected").returncode == 0
    expected = archives.tree(tmp_path / "expected")
    changing = [name for name in before if before[name] != expected[name]]
    for share in (0.0, 0.3, 0.6):
        words, environment = command("rewrite", zoo, "--in-place", "--jobs", 2)
        process = subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL)
        probe = sorted(changing)[int(share * len(changing))]
        wait_for(partial(is_there, zoo / probe, expected[probe]), process)
        process.kill()
        process.wait()
        now = archives.tree(zoo)
        for name in before:
            assert now[name] in (before[name], expected[name])
    assert run("rewrite", zoo, "--in-place").returncode == 0
    assert archives.tree(zoo) == expected


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_what_is_begun_and_says_what_is_done(number: int, tmp_path: Path) -> None:
    zoo, out = large_zoo(tmp_path / "zoo", 480), tmp_path / "out"
    process = start_and_wait(out, 60, "rewrite", zoo, "-o", out, "--json", "--jobs", 2)
    process.send_signal(number)
    assert process.wait(60) == 130
    stdout, stderr = (Path(f"{out}.{name}").read_text() for name in ("stdout", "stderr"))
    assert "stopping" in stderr
    assert "interrupted" in stderr
    assert "Traceback" not in stderr
    done = objects(stdout)
    summary = rows(stderr)
    assert 60 <= len(done) < 486
    assert summary["not done"] == str(486 - len(done))
    assert archives.tree(out).keys() == {fields["name"] for fields in done}
    again = run("rewrite", zoo, "-o", out)
    assert again.returncode == 0
    assert rows(again.stdout)["done by an earlier run"] == str(len(done))
    assert len(archives.tree(out)) == 486


def test_a_second_ctrl_c_does_not_wait(tmp_path: Path) -> None:
    zoo, out = large_zoo(tmp_path / "zoo", 480), tmp_path / "out"
    process = start_and_wait(out, 60, "rewrite", zoo, "-o", out, "--jobs", 2)
    process.send_signal(signal.SIGINT)
    wait_for(lambda: "stopping" in Path(f"{out}.stderr").read_text(), process)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    assert "Traceback" not in Path(f"{out}.stderr").read_text()
    assert run("rewrite", zoo, "-o", out).returncode == 0
    assert len(archives.tree(out)) == 486  # and no temporary file


def test_a_full_disk_fails_what_has_no_room_and_nothing_else(tmp_path: Path) -> None:
    zoo, out = large_zoo(tmp_path / "zoo", 30), tmp_path / "out"
    words, environment = command("rewrite", zoo, "-o", out)
    result = subprocess.run(
        words,
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 21, 1 << 21)),
    )
    assert result.returncode == 2
    assert rows(result.stdout)["failed"] == "6"
    whole = archives.tree(out)
    assert len(whole) == 30  # no part of a file, under no name
    again = run("rewrite", zoo, "-o", out)
    assert again.returncode == 0
    assert rows(again.stdout)["done by an earlier run"] == "30"
    assert len(archives.tree(out)) == 36


#: Runs twice on a file system of 6 MiB of its own, the second time once it has grown.
SMALL_DISK = """
mount -t tmpfs -o size=6m none "$1" || exit 77
target=$1 outside=$2
shift 2
"$@" >"$outside.first"
echo $? >"$outside.code"
ls -A "$target" >"$outside.left"
mount -o remount,size=64m "$target" && "$@" >"$outside.second" && cp -r "$target" "$outside"
"""


def test_a_disk_that_is_full_and_then_is_not(tmp_path: Path) -> None:
    zoo, out, copied = large_zoo(tmp_path / "zoo", 30), tmp_path / "out", tmp_path / "copied"
    assert run("rewrite", zoo, "-o", tmp_path / "expected").returncode == 0
    out.mkdir()
    words, environment = command("rewrite", zoo, "-o", out, "--jobs", 1)
    namespace = ["unshare", "--map-root-user", "--mount", "sh", "-c", SMALL_DISK, "sh"]
    try:
        result = subprocess.run(
            [*namespace, out, copied, *words],
            capture_output=True,
            text=True,
            check=False,
            env=environment,
        )
    except FileNotFoundError:
        pytest.skip("needs unshare, of util-linux")
    if not Path(f"{copied}.code").exists():
        pytest.skip(f"needs a file system of its own: {result.stderr}")
    assert Path(f"{copied}.code").read_text() == "2\n"
    assert rows(Path(f"{copied}.first").read_text())["failed"] == "5"  # one of six has room
    assert result.stderr.count("No space left on device") >= 5
    assert Path(f"{copied}.left").read_text() == ".mutcanon\na\nb\nc\n"
    second = rows(Path(f"{copied}.second").read_text())
    # What was done while the disk was full could perhaps not be noted, and was done again.
    assert 20 < int(second["done by an earlier run"]) <= 31
    assert archives.tree(copied) == archives.tree(tmp_path / "expected")


# URLs


@pytest.fixture
def memory() -> Any:
    fsspec = pytest.importorskip("fsspec")
    fs = fsspec.filesystem("memory")
    fs.store.clear()
    for name, contents in [("x", "redundant"), ("sub/y", "canonical"), ("sub/z", "cast")]:
        fs.pipe_file(f"/zoo/{name}.pt2", archives.archive(contents))
    fs.pipe_file("/zoo/bad.pt2", b"")
    return fs


def test_urls_are_read_and_written(memory: Any, tmp_path: Path) -> None:
    expected = {}
    for name in ("redundant", "canonical", "cast"):
        run("rewrite", archives.DATA / f"{name}.pt2", "-o", tmp_path)
        expected[name] = (tmp_path / f"{name}.pt2").read_bytes()
    for args in (("memory://zoo",), ("memory://zoo/*.pt2", "memory://zoo/sub/")):
        result = invoke("check", *args, "--json")
        assert result.exit_code == 2
        assert sorted(o["status"] for o in objects(result.stdout)) == [
            "clean", "failed", "found", "found",
        ]  # fmt: skip
    for resumed in ("", "3"):
        result = invoke("rewrite", "memory://zoo", "-o", "memory://out")
        assert result.exit_code == 2
        assert rows(result.stdout).get("done by an earlier run", "") == resumed
        assert memory.cat_file("/out/x.pt2") == expected["redundant"]
        assert memory.cat_file("/out/sub/y.pt2") == archives.archive("canonical")
        assert memory.cat_file("/out/sub/z.pt2") == expected["cast"]
        assert sorted(memory.find("/out")) == [
            "/out/.mutcanon/all.jsonl", "/out/sub/y.pt2", "/out/sub/z.pt2", "/out/x.pt2",
        ]  # fmt: skip
    result = invoke("rewrite", "memory://zoo/sub", "-o", tmp_path / "local")
    assert result.exit_code == 0
    assert (tmp_path / "local" / "z.pt2").read_bytes() == expected["cast"]
    result = invoke("rewrite", "memory://zoo/x.pt2", "--in-place", "--json")
    assert objects(result.stdout)[0]["target"] == "memory://zoo/x.pt2"
    assert memory.cat_file("/zoo/x.pt2") == expected["redundant"]


def test_a_certificate_goes_beside_a_result_at_a_url(memory: Any, tmp_path: Path) -> None:
    result = invoke("rewrite", "memory://zoo/x.pt2", "-o", "memory://out", "--certificate")
    assert result.exit_code == 0
    assert sorted(memory.find("/out", maxdepth=1)) == ["/out/x.certificate.json", "/out/x.pt2"]
    for name in ("x.certificate.json", "x.pt2"):
        (tmp_path / name).write_bytes(memory.cat_file(f"/out/{name}"))
    before = archives.DATA / "redundant.pt2"
    certificate = tmp_path / "x.certificate.json"
    result = invoke("verify", before, tmp_path / "x.pt2", "--certificate", certificate)
    assert result.exit_code == 0, result.output


def test_what_needs_nothing_is_not_uploaded_again(
    memory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(memory), "put_file", None)
    result = invoke("rewrite", "memory://zoo/sub/y.pt2", "--in-place")
    assert result.exit_code == 0
    assert rows(result.stdout)["nothing to do"] == "1"


def test_an_upload_that_fails_leaves_the_old_file(
    memory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError(13, "read only")

    monkeypatch.setattr(type(memory), "mv", refuse)
    result = invoke("rewrite", "memory://zoo/x.pt2", "--in-place", "--json")
    assert result.exit_code == 2
    (fields,) = objects(result.stdout)
    assert (fields["status"], fields["code"]) == ("failed", "io")
    assert memory.cat_file("/zoo/x.pt2") == archives.archive("redundant")
    assert len(memory.find("/zoo")) == 4


def test_without_fsspec_urls_say_what_to_install() -> None:
    words, environment = command("check", "s3://bucket/zoo")
    words[2] = "import sys; sys.modules['fsspec'] = None; " + words[2]
    result = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
    assert result.returncode == 2
    assert "pip install 'mutcanon[remote]'" in result.stderr
