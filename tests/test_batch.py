"""Batches: one file never harms another, and what is done is not done again."""

from __future__ import annotations

import os
import shutil
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

import archives
from mutcanon import _batch, _core, _journal, _store
from mutcanon._batch import Outcome, Settings, Unit

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

CHECK, REWRITE = Settings("check"), Settings("rewrite")


def unit(source: Path, target: Path | None = None, **fields: Any) -> Unit:
    size = source.stat().st_size if source.exists() else 0
    return Unit(source.name, str(source), target and str(target), size, **fields)


def run(
    units: Sequence[Unit], settings: Settings = CHECK, jobs: int = 2, **options: Any
) -> list[Outcome]:
    engine = partial(_batch.run_in_threads, jobs=jobs)
    return list(_batch.run(units, settings, engine, threading.Event(), **options))


# One unit


@pytest.mark.parametrize(
    ("name", "status"),
    [("redundant", "found"), ("canonical", "clean"), ("lost-cast", "found")],
)
def test_check_says_what_would_change_or_is_wrong(name: str, status: str) -> None:
    outcome = _batch.run_unit(unit(archives.DATA / f"{name}.pt2"), CHECK)
    assert (outcome.status, outcome.kind) == (status, "exported_program")
    assert outcome.target is None


def test_findings_can_be_those_of_some_consumers() -> None:
    restored = unit(archives.DATA / "restored.pt2")
    for consumer, codes in (("executorch", ["dropped_write"]), ("torch.module", [])):
        (model,) = _batch.run_unit(restored, Settings("check", consumers=(consumer,))).models
        assert [finding["code"] for finding in model["report"]["findings"]] == codes


@pytest.mark.parametrize(("name", "changes"), archives.CHANGES.items())
def test_rewrite_is_done_once(name: str, changes: bool, tmp_path: Path) -> None:
    source, target = archives.DATA / f"{name}.pt2", tmp_path / "new" / "out.pt2"
    outcome = _batch.run_unit(unit(source, target), REWRITE)
    assert outcome.status == ("rewritten" if changes else "unchanged")
    assert outcome.target == str(target)
    assert (target.read_bytes() == source.read_bytes()) is not changes
    again = _batch.run_unit(unit(target, target), REWRITE)
    assert again.status == "unchanged"
    assert again.models[0]["copies_before"] == outcome.models[0]["copies_after"]


def test_dry_run_writes_nothing(tmp_path: Path) -> None:
    target = tmp_path / "out.pt2"
    settings = Settings("rewrite", dry_run=True)
    outcome = _batch.run_unit(unit(archives.DATA / "redundant.pt2", target), settings)
    assert (outcome.status, outcome.target) == ("would_rewrite", None)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("name", "expected"), archives.FOREIGN.items())
def test_other_formats_are_told_by_their_contents(
    name: str, expected: tuple[bytes, str], tmp_path: Path
) -> None:
    contents, kind = expected
    source, target = tmp_path / name, tmp_path / "out" / name
    source.write_bytes(contents)
    outcome = _batch.run_unit(unit(source, target), REWRITE)
    assert (outcome.status, outcome.kind) == ("foreign", kind)
    assert outcome.message.startswith(f"{source}: ")
    assert not target.exists()


@pytest.mark.parametrize(("name", "expected"), archives.corrupt().items())
def test_damaged_files_fail_with_a_code(
    name: str, expected: tuple[bytes, str], tmp_path: Path
) -> None:
    contents, code = expected
    source = tmp_path / name
    source.write_bytes(contents)
    outcome = _batch.run_unit(unit(source, source), REWRITE)
    assert (outcome.status, outcome.code) == ("failed", code)
    assert outcome.message.startswith(f"{source}: ")
    assert source.read_bytes() == contents


def test_what_the_system_refuses_is_an_outcome(tmp_path: Path) -> None:
    for source in (tmp_path / "missing.pt2", tmp_path):
        outcome = _batch.run_unit(unit(source), CHECK)
        assert outcome.status == "failed"
        assert str(source) in outcome.message
    occupied = tmp_path / "a-file"
    occupied.write_text("")
    target = occupied / "out.pt2"
    outcome = _batch.run_unit(unit(archives.DATA / "redundant.pt2", target), REWRITE)
    assert (outcome.status, outcome.code) == ("failed", "io")


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.pt2")
    for settings in (CHECK, REWRITE):
        pipe = Unit("a.pt2", str(tmp_path / "a.pt2"), None, 0, known=())
        outcome = _batch.run_unit(pipe, settings)
        assert (outcome.status, outcome.code) == ("failed", "unknown_format")


def test_whatever_happens_in_a_unit_is_its_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    def explode(*_: Any, **__: Any) -> str:
        raise ZeroDivisionError("by the way")

    monkeypatch.setattr(_core, "analyze_archive", explode)
    outcome = _batch.run_unit(unit(archives.DATA / "redundant.pt2"), CHECK)
    assert (outcome.status, outcome.code) == ("failed", "unexpected")
    assert "by the way" in outcome.message


def test_a_worker_of_another_version_refuses() -> None:
    settings = Settings("check", version="0.0.0")
    outcome = _batch.run_unit(unit(archives.DATA / "redundant.pt2"), settings)
    assert (outcome.status, outcome.code) == ("failed", "worker_version")


# Batches


def test_one_bad_file_does_not_stop_the_others(tmp_path: Path) -> None:
    zoo = archives.make_zoo(tmp_path, 33)
    archives.add_bad_files(tmp_path / "bad")
    outcomes = run([Unit(i.name, i.path, None, i.size) for i in _store.discover([str(tmp_path)])])
    by_status = {
        status: {o.name for o in outcomes if o.status == status}
        for status in ("clean", "found", "foreign", "failed")
    }
    assert by_status["foreign"] == {f"bad/{name}" for name in archives.FOREIGN}
    assert by_status["failed"] == {f"bad/{name}" for name in archives.corrupt()}
    assert by_status["clean"] | by_status["found"] == set(zoo)
    assert {name for name, changes in zoo.items() if changes} <= by_status["found"]


def test_threads_work_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    meeting = threading.Barrier(3, timeout=30)

    def meet(*_: Any) -> Iterator[None]:
        meeting.wait()  # passes only when three threads are here
        return iter(())

    monkeypatch.setattr(_batch, "run_unit", meet)
    assert len(run([unit(archives.DATA / "redundant.pt2")] * 9, jobs=3)) == 9


def test_told_to_stop_it_ends_what_it_has_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, stop = [], threading.Event()

    def work(unit: Unit, _: Settings) -> Outcome:
        begun.append(unit)
        time.sleep(0.01)
        return Outcome(unit.name, unit.source, None, "clean")

    monkeypatch.setattr(_batch, "run_unit", work)
    outcomes = []
    units = [unit(archives.DATA / "redundant.pt2")] * 50
    for outcome in _batch.run_in_threads(units, CHECK, stop, jobs=2):
        outcomes.append(outcome)
        if len(outcomes) == 5:
            stop.set()
    assert 5 <= len(outcomes) == len(begun) < 20


def test_shards_are_parts_that_only_names_decide(tmp_path: Path) -> None:
    units = [unit(tmp_path / f"{i}.pt2") for i in range(300)]
    parts = [_batch.shard(units, index, 4) for index in (1, 2, 3, 4)]
    assert sorted(u.name for part in parts for u in part) == sorted(u.name for u in units)
    assert all(40 < len(part) < 120 for part in parts)
    assert [u for u in parts[1] if u in units[::2]] == _batch.shard(units[::2], 2, 4)
    # Another release must divide in the same way: two may work on one zoo.
    assert [u.name for u in parts[0][:4]] == ["2.pt2", "4.pt2", "7.pt2", "9.pt2"]


def test_leftovers_of_killed_processes_go_and_those_of_living_ones_stay(tmp_path: Path) -> None:
    target = tmp_path / "a.pt2"
    dead, living = 2**22 + 1, os.getpid()
    files = {
        f".a.pt2.{dead}.0.mutcanon-tmp": False,
        f".a.pt2.{living}.0.mutcanon-tmp": True,
        f".b.pt2.{dead}.0.mutcanon-tmp": True,  # of a file that is not in the batch
        ".a.pt2.note": True,
    }
    for name in files:
        (tmp_path / name).write_text("")
    _store.remove_leftovers([str(target)])
    assert {path.name for path in tmp_path.iterdir()} == {n for n, stays in files.items() if stays}


# The journal


def make_journal(directory: Path, name: str = "all", **settings: Any) -> _journal.Journal:
    return _journal.Journal(str(directory), name, settings)


def test_what_is_done_is_told_by_contents_not_by_time(tmp_path: Path) -> None:
    source, target = tmp_path / "a.pt2", tmp_path / "out.pt2"

    def go() -> Outcome:
        journal = make_journal(tmp_path / "journal")
        (outcome,) = run([unit(source, target)], REWRITE, journal=journal)
        journal.close()
        return outcome

    shutil.copyfile(archives.DATA / "redundant.pt2", source)
    first = go()
    assert (first.status, first.resumed) == ("rewritten", False)
    os.utime(source, (1, 1))
    again = go()
    assert again.resumed
    assert again.to_dict() == first.to_dict() | {"resumed": True}
    target.unlink()
    assert not go().resumed
    target.write_bytes(target.read_bytes()[:-1])
    assert not go().resumed
    stat = source.stat()
    source.write_bytes(archives.archive("dynamic"))
    os.utime(source, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    changed = go()
    assert not changed.resumed
    assert changed.models != first.models


def test_in_place_a_rewritten_file_is_known_as_what_it_is_now(tmp_path: Path) -> None:
    source = tmp_path / "a.pt2"
    source.write_bytes(archives.archive("redundant"))
    for resumed in (False, True):
        journal = make_journal(tmp_path / "journal")
        (outcome,) = run([unit(source, source)], REWRITE, journal=journal)
        journal.close()
        assert (outcome.status, outcome.resumed) == ("rewritten", resumed)


def test_failures_are_tried_again(tmp_path: Path) -> None:
    source = tmp_path / "a.pt2"
    source.write_bytes(archives.archive("redundant")[:-1])
    for _ in range(2):
        journal = make_journal(tmp_path / "journal")
        (outcome,) = run([unit(source)], journal=journal)
        journal.close()
        assert (outcome.status, outcome.resumed) == ("failed", False)


def test_journals_of_all_shards_and_of_these_settings_count(tmp_path: Path) -> None:
    first = make_journal(tmp_path, "shard-1-of-2", form="portable")
    first.record("a", "before", "after", {"status": "rewritten"})
    first.close()
    second = make_journal(tmp_path, "shard-2-of-2", form="portable")
    assert second.known("a") == (("before", "after"),)
    assert second.recall("a", "before") == {"status": "rewritten"}
    assert make_journal(tmp_path, form="minimal").known("a") == ()


@pytest.mark.parametrize("cut", [1, 2, 20, 40])
def test_a_line_that_was_not_finished_is_none(cut: int, tmp_path: Path) -> None:
    journal = make_journal(tmp_path)
    for name in ("a", "b"):
        journal.record(name, "before", None, {"name": name})
    journal.close()
    path = tmp_path / "all.jsonl"
    path.write_bytes(path.read_bytes()[:-cut])
    journal = make_journal(tmp_path)
    assert journal.known("a") == (("before", None),)
    assert journal.known("b") == ((("before", None),) if cut == 1 else ())
    journal.record("c", "before", None, {"name": "c"})
    journal.close()
    journal = make_journal(tmp_path)
    assert journal.recall("a", "before") == {"name": "a"}
    assert journal.recall("c", "before") == {"name": "c"}


class FullDisk:
    """A file that takes ten more bytes, and then nothing."""

    def __init__(self, file: Any) -> None:
        self.file = file
        self.room = 10

    def write(self, line: bytes) -> int:
        if not self.room:
            raise OSError(28, "No space left on device")
        written: int = self.file.write(line[: self.room])
        self.room = 0
        return written


def test_a_journal_on_a_full_disk_does_not_stop_the_batch(tmp_path: Path) -> None:
    def record(name: str) -> None:
        journal.record(name, "before", None, {"name": name})

    journal = make_journal(tmp_path)
    record("a")
    assert journal.trouble is None
    writer: Any = journal._writer
    writer._file = FullDisk(writer._file)
    for name in "bc":
        record(name)
        assert "No space left" in str(journal.trouble)
    writer._file = writer._file.file
    record("d")
    journal.close()
    journal = make_journal(tmp_path)
    assert {name for name in "abcd" if journal.known(name)} == {"a", "d"}
    assert journal.recall("d", "before") == {"name": "d"}


def test_fingerprints_depend_on_every_entry_and_on_nothing_else(tmp_path: Path) -> None:
    whole = archives.archive("redundant")
    files = {
        "a.pt2": whole,
        "same.pt2": whole,
        "cut.pt2": whole[:-1],
        "weights.pt2": archives.with_weights(whole, 1000),
        "noise.pt2": b"noise" * 99,
        "pointer.pt2": b"PK\5\6" + b"\xff" * 18,
        "pointer64.pt2": b"PK\6\7" + b"\xff" * 16 + b"PK\5\6" + b"\xff" * 18,
    }
    prints = {}
    for name, contents in files.items():
        (tmp_path / name).write_bytes(contents)
        prints[name] = _journal.fingerprint(str(tmp_path / name))
    assert prints["a.pt2"] == prints["same.pt2"] is not None
    assert prints["weights.pt2"] not in {None, prints["a.pt2"]}
    for name in ("cut.pt2", "noise.pt2", "pointer.pt2", "pointer64.pt2"):
        assert prints[name] is None
