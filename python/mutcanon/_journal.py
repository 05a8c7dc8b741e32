"""What earlier runs did, so that the next one skips it: by content, never by time.

A journal lies beside the output and has a line for each file that was done: what the file held,
what was made of it, and the outcome, which stands in the next summary as if it had happened then.
What failed has no line and is tried again. A line that a killed process left half written is none.

What a file holds is told by its zip directory, which has a checksum of every entry: some kilobytes
are read, not gigabytes, from a URL too.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import time
from typing import Any, NamedTuple, Protocol

from mutcanon import _store

#: Where results go, the journals of all shards are in a directory of this name.
DIRECTORY = ".mutcanon"

_END, _LOCATOR, _END64 = b"PK\5\6", b"PK\6\7", b"PK\6\6"
_END_SIZE, _LOCATOR_SIZE, _END64_SIZE, _MAX_COMMENT = 22, 20, 56, 0xFFFF

#: Seconds between two writes of a journal to an object store, which cannot append.
_UPLOAD_EVERY = 10.0


def fingerprint(path: str) -> str | None:
    """What a zip file holds, as a digest of its directory and its length; None for other files.

    Raises:
        OSError: The file cannot be read.
    """
    size = _store.size(path)
    tail_start = max(0, size - _MAX_COMMENT - _END_SIZE)
    tail = _store.read(path, tail_start, size)
    end = tail.rfind(_END)
    if end < 0 or len(tail) - end < _END_SIZE:
        return None
    start = int.from_bytes(tail[end + 16 : end + 20], "little")
    locator = tail[max(0, end - _LOCATOR_SIZE) : end]
    if locator.startswith(_LOCATOR):
        at = int.from_bytes(locator[8:16], "little")
        end64 = _store.read(path, at, min(size, at + _END64_SIZE)) if at < size else b""
        if not end64.startswith(_END64) or len(end64) < _END64_SIZE:
            return None
        start = int.from_bytes(end64[48:56], "little")
    if start >= size:
        return None
    directory = (
        tail[start - tail_start :] if start >= tail_start else _store.read(path, start, size)
    )
    return hashlib.blake2b(directory, digest_size=16, person=b"mutcanon").hexdigest() + f"-{size}"


class Journal:
    """The journals of a directory: all are read, one is written."""

    def __init__(
        self, directory: str, name: str, settings: dict[str, Any], *, read_only: bool = False
    ) -> None:
        """Reads what there is.

        Args:
            directory: Where the journals are; a URL if results go to one.
            name: The one to be written. Shards that run at the same time have one each.
            settings: What else an outcome depends on; lines of other settings do not count.
            read_only: Whether nothing is to be written after all.
        """
        self._read_only = read_only
        self._own = _store.join(directory, f"{name}.jsonl")
        self._settings = settings
        #: name -> what it held -> what the result held, and the outcome's place.
        self._done: dict[str, dict[str, tuple[str | None, _Place]]] = {}
        for path in _store.files(directory, ".jsonl"):
            self._read(path)
        self._writer: _Writer | None = None
        #: Why something that is done could not be noted; the next run does it again.
        self.trouble: Exception | None = None

    def _read(self, path: str) -> None:
        start = 0
        for line in _store.read(path).splitlines(keepends=True):
            outcome, _, key = line.rpartition(b"\t")
            try:
                settings, name, before, after = json.loads(key)
            except ValueError:
                settings = None  # a process was killed here; the key comes last, so it is not whole
            if settings == self._settings:
                place = _Place(path, start, start + len(outcome))
                self._done.setdefault(name, {})[before] = (after, place)
            start += len(line)

    def known(self, name: str) -> tuple[tuple[str, str | None], ...]:
        """What files of this name held that are done, each with what the result held."""
        return tuple((before, after) for before, (after, _) in self._done.get(name, {}).items())

    def recall(self, name: str, before: str) -> dict[str, Any]:
        """The outcome of a file that is done."""
        _, place = self._done[name][before]
        outcome: dict[str, Any] = json.loads(_store.read(place.path, place.start, place.end))
        return outcome

    def record(self, name: str, before: str, after: str | None, outcome: dict[str, Any]) -> None:
        """Adds a file that is done."""
        if self._read_only:
            return
        key = json.dumps([self._settings, name, before, after])
        try:
            if self._writer is None:
                self._writer = _open(self._own)
            self._writer.add(f"{json.dumps(outcome)}\t{key}\n".encode())
        except Exception as error:  # a full disk, a store that is away: the batch goes on
            self.trouble = error

    def close(self) -> None:
        """Makes sure that everything is written."""
        try:
            if self._writer is not None:
                self._writer.close()
        except Exception as error:
            self.trouble = error


class _Place(NamedTuple):
    path: str
    start: int
    end: int


class _Writer(Protocol):
    def add(self, line: bytes) -> None: ...
    def close(self) -> None: ...


def _open(path: str) -> _Writer:
    return _Uploads(path) if _store.is_url(path) else _Appends(path)


class _Appends:
    """A local journal. What is handed to the system outlives the process."""

    def __init__(self, path: str) -> None:
        _store.make_parent(path)
        self._is_torn = False
        self._file = open(path, "a+b", buffering=0)  # noqa: SIM115 (closed by close)
        if size := self._file.tell():
            self._file.seek(size - 1)
            self._is_torn = self._file.read(1) != b"\n"  # a process was killed in the middle

    def add(self, line: bytes) -> None:
        if self._is_torn:
            line = b"\n" + line
        # A disk that is full may take a part of it.
        self._is_torn = True
        self._is_torn = self._file.write(line) != len(line)
        if self._is_torn:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def close(self) -> None:
        self._file.close()


class _Uploads:
    """A journal in an object store, which cannot append: written anew every few seconds."""

    def __init__(self, url: str) -> None:
        self._url = url
        try:
            self._text = _store.read(url)
        except FileNotFoundError:
            self._text = b""
        self._last = time.monotonic()

    def add(self, line: bytes) -> None:
        self._text += line
        if time.monotonic() - self._last > _UPLOAD_EVERY:
            self.close()

    def close(self) -> None:
        with _store.temporary() as copy:
            with open(copy, "wb") as file:
                file.write(self._text)
            _store.upload(copy, self._url)
        self._last = time.monotonic()
