"""Where archives are: local paths, and URLs by way of fsspec.

Local files never pass through fsspec, so that the kernel can copy their bytes; `s3://`, `gs://`,
`hf://` and the like need fsspec with the user's own plug-in, and are fetched to a temporary file
and put back from one. Nothing is ever written under its own name: a reader of the store sees the
old file or the new one, whole.
"""

from __future__ import annotations

import contextlib
import glob
import os
import re
import secrets
import stat
import tempfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mutcanon.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

#: What a directory is searched for. Files that are named, or match a pattern, may end in anything.
SUFFIX = ".pt2"

#: How the core names a temporary file: the file's own name, and the process that writes it.
_LEFTOVER = re.compile(r"\.(?P<name>.+)\.(?P<process>\d+)\.\d+\.mutcanon-tmp")

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*(://|::)")
_PATTERN = re.compile(r"[*?[]")


@dataclass(frozen=True)
class Item:
    """A file that was found.

    Attributes:
        path: Its path or URL.
        name: Its path below the argument that it was found for, with slashes.
        size: Its length in bytes.
    """

    path: str
    name: str
    size: int


def is_url(path: str) -> bool:
    """Whether fsspec has to be asked for the path."""
    return _URL.match(path) is not None


def plain(path: str) -> str:
    """The path without the `file://` that some tools put before local ones."""
    if not path.startswith("file://"):
        return path
    # Only here: to import it takes longer than to check a file.
    from urllib.parse import unquote, urlsplit
    from urllib.request import url2pathname

    return url2pathname(unquote(urlsplit(path).path))


def join(directory: str, name: str) -> str:
    """A path or URL below a directory."""
    if is_url(directory):
        return f"{directory.rstrip('/')}/{name}"
    return os.path.join(directory, *name.split("/"))


# Finding


def discover(paths: Iterable[str]) -> list[Item]:
    """Finds files, directories and patterns; each file once, in a stable order.

    Args:
        paths: What to look for. Of directories, files in them that end in `.pt2`; hidden ones, our
            temporary files among them, are not looked at.

    Raises:
        UnsupportedError: One of the paths leads to nothing.
    """
    found: dict[str, Item] = {}
    for path in map(plain, paths):
        items = list(_find_remote(path) if is_url(path) else _find_local(path))
        if not items:
            what = f"no {SUFFIX} file in it" if _is_directory(path) else "no such file or directory"
            raise UnsupportedError(f"{path}: {what}", code="not_found")
        for item in items:
            found.setdefault(item.path if is_url(item.path) else os.path.realpath(item.path), item)
    return list(found.values())


def _is_directory(path: str) -> bool:
    return _file_system(path)[0].isdir(path) if is_url(path) else os.path.isdir(path)


def is_below(path: str, directory: str) -> bool:
    """Whether a file is somewhere in a directory."""
    if is_url(path) or is_url(directory):
        return path.startswith(directory.rstrip("/") + "/")
    return os.path.realpath(path).startswith(os.path.join(os.path.realpath(directory), ""))


def _fixed_part(pattern: str) -> str:
    """The directories of a pattern that hold no wildcard."""
    match = _PATTERN.search(pattern)
    head = pattern[: match.start()] if match else pattern
    return head[: head.rfind("/") + 1]


def _is_archive(name: str) -> bool:
    hidden = any(part.startswith(".") for part in name.split("/"))
    return name.lower().endswith(SUFFIX) and not hidden


def _find_local(path: str) -> Iterator[Item]:
    if os.path.isdir(path):
        yield from _walk(path, path)
    elif os.path.lexists(path) or not _PATTERN.search(path):
        if os.path.lexists(path):
            yield _local_item(path, os.path.dirname(path))
    else:
        root = _fixed_part(path)
        for match in sorted(glob.glob(path, recursive=True)):
            if os.path.isdir(match):
                yield from _walk(match, root)
            else:
                yield _local_item(match, root)


def _walk(directory: str, root: str) -> Iterator[Item]:
    unreadable: list[str] = []
    walk = os.walk(directory, onerror=lambda error: unreadable.append(error.filename))
    for here, directories, files in walk:
        directories[:] = sorted(d for d in directories if not d.startswith("."))
        for file in sorted(files):
            if _is_archive(file):
                yield _local_item(os.path.join(here, file), root)
    # A directory that cannot be read is an item like others: it fails when its turn comes.
    for path in unreadable:
        yield _local_item(path, root)


def _local_item(path: str, root: str) -> Item:
    name = os.path.relpath(path, root or ".").replace(os.sep, "/")
    try:
        size = os.stat(path).st_size
    except OSError:
        size = 0  # a dangling link, say: reading it will tell
    return Item(path, name, size)


def _find_remote(url: str) -> Iterator[Item]:
    fs, path = _file_system(url)
    if fs.isdir(path):
        root, root_url = path.rstrip("/") + "/", url
        entries = fs.find(path, detail=True)
        names = [name for name in sorted(entries) if _is_archive(name[len(root) :])]
    elif fs.exists(path):
        yield Item(url, path.rpartition("/")[2], fs.info(path).get("size") or 0)
        return
    else:
        root, root_url = _fixed_part(path), _fixed_part(url)
        entries = fs.glob(path, detail=True) if _PATTERN.search(path) else {}
        names = [name for name in sorted(entries) if entries[name]["type"] == "file"]
    for name in names:
        below = name[len(root) :]
        # Under the URL that was given: another spelling of it may mean another plug-in.
        yield Item(join(root_url, below), below, entries[name].get("size") or 0)


def files(directory: str, suffix: str) -> list[str]:
    """The files right in a directory, none where there is no such directory."""
    if is_url(directory):
        fs, path = _file_system(directory)
        inner = fs.ls(path, detail=False) if fs.isdir(path) else []
        names = sorted(name.rpartition("/")[2] for name in inner)
        return [join(directory, name) for name in names if name.endswith(suffix)]
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return []
    return sorted(os.path.join(directory, name) for name in names if name.endswith(suffix))


# Reading and writing


def _file_system(url: str) -> tuple[Any, str]:
    try:
        from fsspec.core import url_to_fs
    except ModuleNotFoundError as error:
        raise UnsupportedError(
            f"{url}: URLs need fsspec; install it with: pip install 'mutcanon[remote]'",
            code="needs_fsspec",
        ) from error
    try:
        fs, path = url_to_fs(url)
    except (ImportError, ValueError) as error:  # no plug-in, or an unknown protocol
        raise UnsupportedError(f"{url}: {error}", code="needs_plugin") from error
    return fs, path


def require_file(path: str) -> None:
    """Refuses what a read could wait for without end: a pipe, a terminal, a socket."""
    if is_url(path):
        return
    mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):  # of a directory the system says itself
        raise UnsupportedError(f"{path}: no file, but a pipe or device", code="unknown_format")


def size(path: str) -> int:
    """The length of a file; OSError where there is none."""
    if not is_url(path):
        return os.stat(path).st_size
    fs, inner = _file_system(path)
    return int(fs.info(inner)["size"])


def read(path: str, start: int = 0, end: int | None = None) -> bytes:
    """A part of a file."""
    if is_url(path):
        fs, inner = _file_system(path)
        return bytes(fs.cat_file(inner, start=start, end=end))
    with open(path, "rb") as file:
        file.seek(start)
        return file.read(-1 if end is None else max(0, end - start))


@contextlib.contextmanager
def local_copy(path: str) -> Iterator[str]:
    """A local path with the file's contents: the file itself, or a copy for as long as needed."""
    if not is_url(path):
        yield path
        return
    fs, inner = _file_system(path)
    with temporary() as copy:
        fs.get_file(inner, copy)
        yield copy


@contextlib.contextmanager
def temporary() -> Iterator[str]:
    """The path of a local file that is gone afterwards; the file does not exist yet."""
    with tempfile.TemporaryDirectory(prefix="mutcanon-") as directory:
        yield os.path.join(directory, "archive" + SUFFIX)


def upload(local: str, url: str) -> None:
    """Puts a file to a URL: under another name first, then as what it is."""
    fs, path = _file_system(url)
    parent, _, name = path.rpartition("/")
    hidden = f"{parent}/.{name}.{secrets.token_hex(4)}.tmp"
    fs.makedirs(parent, exist_ok=True)
    try:
        fs.put_file(local, hidden)
        fs.mv(hidden, path)
    except BaseException:
        with contextlib.suppress(Exception):
            fs.rm_file(hidden)
        raise


def remove_leftovers(targets: Iterable[str]) -> None:
    """Removes temporary files that a killed process left where these local files are to be."""
    places = {os.path.realpath(target) for target in targets if not is_url(target)}
    for directory in sorted({os.path.dirname(place) for place in places}):
        for path in files(directory, ".mutcanon-tmp"):
            match = _LEFTOVER.fullmatch(os.path.basename(path))
            if (
                match is not None
                and os.path.join(directory, match["name"]) in places
                and not _is_running(int(match["process"]))
            ):
                with contextlib.suppress(OSError):  # somebody else was faster, or it is not ours
                    os.remove(path)


def _is_running(process: int) -> bool:
    if os.name == "nt":
        return True  # there is no way to ask that does no harm
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


def make_parent(path: str) -> None:
    """Makes the directory of a local file."""
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)


def is_same(a: str, b: str) -> bool:
    """Whether two paths lead to one file."""
    if is_url(a) or is_url(b):
        return a == b
    return os.path.realpath(a) == os.path.realpath(b)
