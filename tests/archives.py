"""Directories of archives for the tests of batches, made of those in tests/data, without torch."""

from __future__ import annotations

import io
import shutil
import zipfile
from pathlib import Path

DATA = Path(__file__).parent / "data"

#: What `rewrite` makes of them: whether the file changes.
CHANGES = {
    "redundant": True,
    "canonical": False,
    "cast": True,
    "two-models": True,
    "dynamic": True,
    "delay-line": True,
    "delay-line-right": False,
    "swap": True,
    "restored": True,
    "lost-cast": False,
    "lost-broadcast": False,
    "shared": True,
    "stale-output": True,
    "transposed": True,
    "returned": True,
    "parameter": False,
    "identity": True,
}


def archive(name: str) -> bytes:
    """The contents of one of tests/data."""
    return (DATA / f"{name}.pt2").read_bytes()


def make_zoo(directory: Path, count: int) -> dict[str, bool]:
    """Many archives in subdirectories; for each path below, whether a rewrite changes it."""
    zoo = {}
    for i in range(count):
        stem, changes = list(CHANGES.items())[i % len(CHANGES)]
        name = f"{'abc'[i % 3]}/{stem}-{i}.pt2"
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(DATA / f"{stem}.pt2", directory / name)
        zoo[name] = changes
    return zoo


def count_changes(count: int) -> int:
    """How many archives of such a zoo a rewrite changes."""
    changes = list(CHANGES.values())
    return sum(changes[i % len(changes)] for i in range(count))


def zipped(**entries: bytes) -> bytes:
    """A zip file; two underscores in a name stand for a slash, one for a dot."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for name, contents in entries.items():
            file.writestr(name.replace("__", "/").replace("_", "."), contents)
    return buffer.getvalue()


def with_weights(archive: bytes, size: int) -> bytes:
    """An archive with so many bytes more."""
    buffer = io.BytesIO(archive)
    with zipfile.ZipFile(buffer, "a") as file:
        root = file.namelist()[0].partition("/")[0]
        file.writestr(f"{root}/data/weights/weight_0", b"\x5a" * size)
    return buffer.getvalue()


#: Other formats with the same ending: contents, and what they are.
FOREIGN = {
    "scripted.pt2": (zipped(m__data_pkl=b".", m__constants_pkl=b"."), "torchscript"),
    "weights.pt2": (zipped(m__data_pkl=b"."), "checkpoint"),
    "compiled.pt2": (zipped(m__data__aotinductor__model__x_so=b"."), "compiled_model"),
    "lowered.pt2": (b"\x20\0\0\0ET12" + bytes(64), "executorch_program"),
}


def corrupt() -> dict[str, tuple[bytes, str]]:
    """Files that are damaged: contents, and the code of the failure."""
    whole = archive("redundant")
    flipped = bytearray(whole)
    flipped[whole.index(b'{"graph_module"') + 20] ^= 1
    return {
        "truncated.pt2": (whole[:2000], "truncated"),
        "clipped.pt2": (whole[:-100], "truncated"),
        "flipped.pt2": (bytes(flipped), "checksum"),
        "empty.pt2": (b"", "unknown_format"),
        "pointer.pt2": (b"version https://git-lfs.github.com/spec/v1\n", "unknown_format"),
        "noise.pt2": (bytes(range(7, 256)) * 9, "unknown_format"),
    }


def add_bad_files(directory: Path) -> None:
    """Puts foreign and corrupt files into a directory."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, (contents, _) in {**FOREIGN, **corrupt()}.items():
        (directory / name).write_bytes(contents)


def tree(directory: Path) -> dict[str, bytes]:
    """All files below a directory, our journal left out."""
    files = (path for path in directory.rglob("*") if path.is_file())
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in files
        if ".mutcanon" not in path.relative_to(directory).parts
    }
