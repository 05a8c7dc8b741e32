"""mutcanon.archive: what a file is, what is written where, and what happens when it goes wrong.

Whether the decisions are right is for test_archive_cases.py.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import stat
import struct
import subprocess
import sys
import threading
import time
import zipfile
from pathlib import Path

import pytest
import torch
from torch.export.pt2_archive._package import load_pt2, package_pt2

import oracle
from mutcanon import _core, archive
from mutcanon.errors import InvalidProgramError, MutcanonError, UnsupportedError


class Cache(torch.nn.Module):
    def __init__(self, layers=1):
        super().__init__()
        self.projections = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(layers))

    def forward(self, cache, x, i):
        for projection in self.projections:
            x = projection(x)
        cache.index_copy_(0, i, x)
        return cache.sum(0)


def arguments(step):
    return (torch.zeros(8, 4), torch.full((1, 4), step + 1.0), torch.tensor([step])), {}


def program(layers=1, decompositions=3, module=Cache, **options):
    torch.manual_seed(0)
    ep = torch.export.export(module(layers), arguments(0)[0], **options)
    for _ in range(decompositions):
        ep = ep.run_decompositions({})
    return ep


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """An archive with two redundant copies."""
    path = tmp_path_factory.mktemp("cache") / "cache.pt2"
    torch.export.save(program(), path, extra_files={"notes.txt": "kept"})
    return path


def edited(source, target, change, compression=zipfile.ZIP_STORED):
    """A copy of an archive, written by python, with some entries changed or dropped (None)."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w", compression) as new:
        for name in old.namelist():
            data = change(name, old.read(name))
            if data is not None:
                new.writestr(name, data)
    return target


def models_of(path):
    return {m.model: (m.copies_before, m.copies_after) for m in archive.analyze(path).models}


# What is in a file


def test_rewritten_program_is_eager_pytorch_and_keeps_the_rest(cache, tmp_path):
    after = tmp_path / "after.pt2"
    outcome = archive.rewrite(cache, after, verify=True)
    assert outcome.action == "rewritten"
    assert models_of(cache) == {"model": (2, 0)}
    assert models_of(after) == {"model": (0, 0)}
    extra = {"notes.txt": ""}
    ep = torch.export.load(after, extra_files=extra)
    assert extra["notes.txt"] in ("kept", b"kept")
    torch.manual_seed(0)
    want = oracle.eager(Cache(), arguments)
    got = oracle.unlifted(ep, arguments, want.mutated)
    assert oracle.difference(want, got) == ""
    with zipfile.ZipFile(cache) as old, zipfile.ZipFile(after) as new:
        assert new.testzip() is None
        assert old.namelist() == new.namelist()
        graph = "cache/models/model.json"
        assert all(old.read(n) == new.read(n) for n in old.namelist() if n != graph)


def test_entries_start_at_multiples_of_64(cache, tmp_path):
    after = tmp_path / "after.pt2"
    archive.rewrite(cache, after)
    data = after.read_bytes()
    with zipfile.ZipFile(after) as new:
        for entry in new.infolist():
            head = entry.header_offset
            name, extra = struct.unpack_from("<HH", data, head + 26)
            assert (head + 30 + name + extra) % 64 == 0


def test_every_model_of_an_archive_is_rewritten(tmp_path):
    before, after = tmp_path / "before.pt2", tmp_path / "after.pt2"
    programs = {"model": program(), "decode/x": program(2), "plain": program(decompositions=1)}
    package_pt2(before, exported_programs=programs)
    expected = {"model": (2, 0), "decode/x": (2, 0), "plain": (0, 0)}
    assert models_of(before) == expected
    assert archive.rewrite(before, after, verify=True).action == "rewritten"
    loaded = load_pt2(after).exported_programs
    assert loaded.keys() == expected.keys()
    for ep in loaded.values():
        ep.validate()
        assert oracle.count_copies(ep) == 0


def test_interfaces_of_preserved_submodules_follow(tmp_path):
    class Inner(torch.nn.Module):
        def forward(self, cache):
            cache.add_(1)
            return cache

    class Outer(torch.nn.Module):
        def __init__(self, layers):
            super().__init__()
            self.inner = Inner()

        def forward(self, cache, x, i):
            return self.inner(cache) * x

    before, after = tmp_path / "before.pt2", tmp_path / "after.pt2"
    ep = program(module=Outer, preserve_module_call_signature=("inner",), strict=False)
    torch.export.save(ep, before)
    archive.rewrite(before, after, verify=True)
    loaded = torch.export.load(after)
    names = {node.name for node in loaded.graph.nodes}
    (entry,) = [e for e in loaded.module_call_graph if e.fqn == "inner"]
    mentioned = [a.name for a in (*entry.signature.inputs, *entry.signature.outputs)]
    assert mentioned
    assert set(mentioned) <= names


def test_copies_in_bodies_of_control_flow_are_rewritten(tmp_path):
    class Branch(torch.nn.Module):
        def __init__(self, layers):
            super().__init__()

        def forward(self, cache, x, i):
            def double(c):
                return torch.ops.aten.copy(c, torch.ops.aten.copy(c, c * 2)) + 1

            return torch.cond(x.sum() > 0, double, lambda c: c - 1, (cache,))

    before, after = tmp_path / "before.pt2", tmp_path / "after.pt2"
    torch.export.save(program(module=Branch, decompositions=1), before)
    (model,) = archive.rewrite(before, after, verify=True).report.models
    assert (model.copies_before, model.copies_after) == (2, 0)
    assert {c.graph for c in model.report.collapsed} == {"true_graph_0"}
    ep = torch.export.load(after)
    want = oracle.eager(Branch(0), arguments)
    assert oracle.difference(want, oracle.unlifted(ep, arguments, want.mutated)) == ""


# Other writers, other formats


def test_archives_of_other_zip_writers_are_rewritten(cache, tmp_path):
    plain = edited(cache, tmp_path / "plain.pt2", lambda name, data: data)
    after = tmp_path / "after.pt2"
    assert archive.rewrite(plain, after, verify=True).action == "rewritten"
    assert zipfile.ZipFile(after).testzip() is None
    assert oracle.count_copies(torch.export.load(after)) == 0


def test_compressed_weights_are_copied_and_a_compressed_graph_is_refused(cache, tmp_path):
    deflated = zipfile.ZipFile(tmp_path / "deflated.pt2", "w", zipfile.ZIP_DEFLATED)
    mixed = zipfile.ZipFile(tmp_path / "mixed.pt2", "w", zipfile.ZIP_DEFLATED)
    with zipfile.ZipFile(cache) as old, deflated, mixed:
        for name in old.namelist():
            deflated.writestr(name, old.read(name))
            kind = zipfile.ZIP_STORED if name.endswith("model.json") else zipfile.ZIP_DEFLATED
            mixed.writestr(name, old.read(name), kind)
    after = tmp_path / "after.pt2"
    assert archive.rewrite(tmp_path / "mixed.pt2", after, verify=True).action == "rewritten"
    assert oracle.count_copies(torch.export.load(after)) == 0
    with pytest.raises(UnsupportedError, match=r"model\.json.*load and save") as refused:
        archive.analyze(tmp_path / "deflated.pt2")
    assert refused.value.code == "compressed_graph"


def zip_of(*names):
    def make(path):
        with zipfile.ZipFile(path, "w") as out:
            for name in names:
                out.writestr(name, b"pt2")

    return make


FOREIGN = {
    "checkpoint": lambda path: torch.save({"w": torch.zeros(2)}, path),
    "torchscript": zip_of("m/data.pkl", "m/code/m.py", "m/constants.pkl", "m/version"),
    "compiled_model": zip_of("m/data/aotinductor/model/m.so", "m/archive_format"),
    "legacy_export": zip_of("serialized_exported_program.json", "version"),
    "etrecord": zip_of("ETRECORD_V0", "exported_program", "edge_dialect_exported_program"),
    "executorch_program": lambda path: path.write_bytes(b"\x20\0\0\0ET12eh00" + bytes(64)),
    "lfs_pointer": lambda path: path.write_text(
        "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 12345\n"
    ),
    "zip": zip_of("hello.txt"),
    "unknown": lambda path: path.write_bytes(b"hello"),
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_other_formats_are_told_by_their_contents_and_left_alone(kind, tmp_path):
    path, after = tmp_path / "file.pt2", tmp_path / "after.pt2"
    FOREIGN[kind](path)
    report = archive.analyze(path)
    assert (report.kind, report.models) == (kind, ())
    assert report.summary
    assert archive.rewrite(path, after).action == "foreign"
    assert not after.exists()


def test_empty_file_is_no_file_of_torchs(tmp_path):
    path = tmp_path / "empty.pt2"
    path.touch()
    assert archive.analyze(path).kind == "unknown"


def test_compiled_models_beside_a_program_are_mentioned(cache, tmp_path):
    def change(name, data):
        return data

    both = edited(cache, tmp_path / "both.pt2", change)
    with zipfile.ZipFile(both, "a") as out:
        out.writestr("cache/data/aotinductor/model/m.so", b"code")
    assert archive.analyze(both).has_compiled_models
    assert not archive.analyze(cache).has_compiled_models


# Refusals


def test_refusals_name_the_file_the_entry_and_the_reason(cache, tmp_path):
    def change(name, data):
        return data.replace(b'"major": 8', b'"major": 9') if name.endswith("model.json") else data

    path = edited(cache, tmp_path / "newer.pt2", change)
    with pytest.raises(UnsupportedError) as refused:
        archive.rewrite(path, tmp_path / "after.pt2")
    assert refused.value.code == "schema_version"
    assert str(refused.value).startswith(f"{path}: cache/models/model.json: schema 9: ")


def test_damage_is_found_where_it_is_read_and_everywhere_with_verify(cache, tmp_path):
    with zipfile.ZipFile(cache) as old:
        weight = old.read("cache/data/weights/weight_0")
        graph = old.read("cache/models/model.json")
    path, after = tmp_path / "damaged.pt2", tmp_path / "after.pt2"
    for part, verify in ((weight[:16], True), (graph[:16], False)):
        data = bytearray(cache.read_bytes())
        data[data.index(part)] ^= 1
        path.write_bytes(data)
        with pytest.raises(InvalidProgramError) as refused:
            archive.rewrite(path, after, verify=verify)
        assert refused.value.code == "checksum"
        assert list(tmp_path.iterdir()) == [path]
    path.write_bytes(cache.read_bytes()[:-100])
    with pytest.raises(InvalidProgramError) as refused:
        archive.analyze(path)
    assert refused.value.code == "truncated"


def test_what_the_system_refuses_is_an_oserror(cache, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"missing\.pt2"):
        archive.analyze(tmp_path / "missing.pt2")
    with pytest.raises(FileNotFoundError):
        archive.rewrite(cache, tmp_path / "missing" / "after.pt2")
    with pytest.raises(OSError, match="directory"):
        archive.analyze(tmp_path)


def test_unknown_form_is_refused(cache):
    with pytest.raises(MutcanonError):
        archive.analyze(cache, form="smallest")


# Writing


def test_in_place_keeps_permissions_and_links(cache, tmp_path):
    path, link = tmp_path / "model.pt2", tmp_path / "link.pt2"
    path.write_bytes(cache.read_bytes())
    path.chmod(0o640)
    link.symlink_to(path)
    assert archive.rewrite(link, link).action == "rewritten"
    assert link.is_symlink()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    before = path.stat()
    assert archive.rewrite(link, path).action == "untouched"
    assert (path.stat().st_mtime_ns, path.stat().st_ino) == (before.st_mtime_ns, before.st_ino)
    assert models_of(path) == {"model": (0, 0)}


def test_nothing_to_do_copies_byte_for_byte(tmp_path):
    before, after = tmp_path / "before.pt2", tmp_path / "after.pt2"
    torch.export.save(program(decompositions=0), before)
    before.write_bytes(before.read_bytes() + b"junk")
    assert archive.rewrite(before, after).action == "copied"
    assert before.read_bytes() == after.read_bytes()


RUN = "import sys; from mutcanon import archive; [archive.rewrite(p, p) for p in sys.argv[1:]]"


def test_no_space_leaves_the_old_file_and_nothing_else(cache, tmp_path):
    path = tmp_path / "model.pt2"
    path.write_bytes(cache.read_bytes())

    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

    run = subprocess.run(
        [sys.executable, "-c", RUN, path], preexec_fn=limit, capture_output=True, text=True
    )
    assert run.returncode == 1
    assert "OSError" in run.stderr
    assert list(tmp_path.iterdir()) == [path]
    assert path.read_bytes() == cache.read_bytes()


def test_killed_at_any_moment_only_whole_files_are_left(cache, tmp_path):
    heavy = edited(
        cache,
        tmp_path / "heavy.pt2",
        lambda name, data: bytes(1 << 22) if name.endswith("weight_0") else data,
    )
    old = heavy.read_bytes()
    archive.rewrite(heavy, heavy)
    new = heavy.read_bytes()
    heavy.unlink()
    paths = [tmp_path / f"{i}.pt2" for i in range(20)]

    def start():
        for path in paths:
            path.write_bytes(old)
        run = subprocess.Popen(
            [sys.executable, "-c", f"print(flush=True); {RUN}", *paths], stdout=subprocess.PIPE
        )
        run.stdout.readline()
        return run, time.monotonic()

    run, begin = start()
    run.communicate()
    duration = time.monotonic() - begin
    assert {path.read_bytes() for path in paths} == {new}
    moments = 16
    caught = 0
    for moment in range(moments):
        run, _ = start()
        time.sleep(duration * moment / moments)
        run.kill()
        run.communicate()
        states = {path.read_bytes() for path in paths}
        assert states <= {old, new}
        caught += len(states) == 2
        for left in set(tmp_path.iterdir()) - set(paths):
            assert left.name.endswith(".mutcanon-tmp")
            left.unlink()
    assert caught, "no process was killed in the middle"


# Threads


@pytest.fixture(scope="module")
def wordy(cache, tmp_path_factory):
    """An archive whose graph takes a while to read."""
    story = b'"stack_trace": "' + b"once upon a time " * (1 << 22)

    def change(name, data):
        return data.replace(b'"stack_trace": "', story, 1) if name.endswith("model.json") else data

    return edited(cache, tmp_path_factory.mktemp("wordy") / "wordy.pt2", change)


def test_python_runs_while_an_archive_is_read(wordy):
    span = []

    def work():
        start = time.monotonic()
        archive.analyze(wordy)
        span.extend((start, time.monotonic()))

    worker = threading.Thread(target=work)
    ticks = []
    worker.start()
    while worker.is_alive():
        ticks.append(time.monotonic())
    worker.join()
    start, end = span
    margin = (end - start) / 4
    assert sum(start + margin < tick < end - margin for tick in ticks) > 10


def test_threads_rewrite_at_the_same_time(cache, tmp_path):
    paths = [tmp_path / f"{i}.pt2" for i in range(8)]
    errors = []

    def work(path):
        with contextlib.suppress(FileExistsError):
            path.write_bytes(cache.read_bytes())
        try:
            for _ in range(20):
                archive.rewrite(cache, path, verify=True)
                archive.rewrite(cache, paths[0], verify=True)
        except MutcanonError as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(path,)) for path in paths]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len({path.read_bytes() for path in paths}) == 1
    assert sorted(os.listdir(tmp_path)) == sorted(path.name for path in paths)


def test_no_framework_is_imported():
    code = (
        "import sys; from mutcanon import archive; archive.analyze(sys.argv[1]);"
        "sys.exit(any(m in sys.modules for m in ('torch', 'numpy', 'sympy')))"
    )
    path = os.fspath(__file__)
    assert subprocess.run([sys.executable, "-c", code, path]).returncode == 0


def test_every_refusal_is_documented():
    page = (Path(__file__).parent.parent / "docs" / "archive.md").read_text()
    for code, sentence in _core.refusals():
        assert f"| `{code}` | {sentence} |" in page
