"""What a model's folder holds: hashed in full when it is added, looked at by size and time at each start."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from jobs.errors import BadInput, ModelChanged
from jobs.model import Value

Progress = Callable[[int, int], None]
"""Called with (bytes hashed, bytes in all)."""

CHUNK_BYTES = 4 << 20
_OTHER_FORMATS = {"coreml", "metal", "onnx", "openvino", "original"}
"""Folders in which repositories keep the same weights once more, for other engines."""
_UNREAD = {".md", ".pdf", ".png", ".jpg", ".gitattributes"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFile(Value):
    """A file that makes the model what it is. name: below the folder, with slashes. sha256: "" until hashed."""

    name: str
    size: int
    mtime_ns: int
    sha256: str = ""


def look(folder: Path) -> tuple[ModelFile, ...]:
    """Every file an engine may read, sorted by name, without opening one. Raises BadInput if there are no weights."""
    if not folder.is_dir():
        raise BadInput(source=str(folder), reason="there is no such folder")
    files = tuple(sorted(_walk(folder), key=lambda file: file.name))
    if not files:
        raise BadInput(source=str(folder), reason="it holds no files")
    return files


def _walk(folder: Path) -> Iterator[ModelFile]:
    for root, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".") and name not in _OTHER_FORMATS]
        for name in names:
            path = Path(root, name)
            if name.startswith(".") or path.suffix in _UNREAD or not path.is_file():
                continue
            facts = path.stat()  # follows links: hub caches link to their blobs
            yield ModelFile(name=path.relative_to(folder).as_posix(), size=facts.st_size, mtime_ns=facts.st_mtime_ns)


def hashed(folder: Path, progress: Progress | None = None) -> tuple[ModelFile, ...]:
    """As `look`, each file with its sha256. Raises BadInput when a file changes meanwhile."""
    files = look(folder)
    total, done = sum(file.size for file in files), 0
    out = []
    for file in files:
        digest = hashlib.sha256()
        with (folder / file.name).open("rb") as stream:
            while chunk := stream.read(CHUNK_BYTES):
                digest.update(chunk)
                done += len(chunk)
                if progress is not None:
                    progress(min(done, total), total)
        out.append(file.evolve(sha256=digest.hexdigest()))
    if look(folder) != files:
        raise BadInput(source=str(folder), reason="its files changed while they were read")
    return tuple(out)


def checksum_of(files: Sequence[ModelFile]) -> str:
    """One sha256 over names and contents, hex: equal for equal folders wherever they lie."""
    return _digest(f"{file.name}\0{file.sha256}" for file in files)


def stamp_of(files: Sequence[ModelFile]) -> str:
    """One sha256 over names, sizes and times, hex: cheap to ask, changes when a file was written."""
    return _digest(f"{file.name}\0{file.size}\0{file.mtime_ns}" for file in files)


def _digest(lines: Iterator[str]) -> str:
    digest = hashlib.sha256()
    for line in lines:
        digest.update(line.encode("utf-8", "surrogateescape") + b"\n")
    return digest.hexdigest()


def check_stamp(name: str, folder: Path, known: Sequence[ModelFile]) -> None:
    """Raise ModelChanged naming the first file that is not as it was when the model was added."""
    if not folder.is_dir():
        raise ModelChanged(name=name, reason=f"{folder} is gone")
    reason = _difference({f.name: f for f in known}, {f.name: f for f in look(folder)})
    if reason is not None:
        raise ModelChanged(name=name, reason=f"{reason} in {folder}")


def check_content(name: str, folder: Path, known: Sequence[ModelFile], now: Sequence[ModelFile]) -> None:
    """Raise ModelChanged naming the first file whose content is not what was added; times do not matter."""
    was, found = {f.name: f.sha256 for f in known}, {f.name: f.sha256 for f in now}
    for file in sorted(was.keys() | found.keys()):
        if was.get(file) != found.get(file):
            raise ModelChanged(name=name, reason=f"{_how(file, file in was, file in found)} in {folder}")


def _difference(was: Mapping[str, ModelFile], now: Mapping[str, ModelFile]) -> str | None:
    for file in sorted(was.keys() | now.keys()):
        before, after = was.get(file), now.get(file)
        if before is None or after is None:
            return _how(file, before is not None, after is not None)
        if before.size != after.size:
            return f"{file} had {before.size} bytes and has {after.size}"
        if before.mtime_ns != after.mtime_ns:
            return f"{file} was written since; `nightmill models verify` accepts it if only its time differs"
    return None


def _how(file: str, was: bool, is_now: bool) -> str:  # noqa: FBT001 - two facts of the same kind
    if not is_now:
        return f"{file} is gone"
    return f"{file} has other content" if was else f"{file} is new"
