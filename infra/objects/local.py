"""Objects in a local directory. A name appears in one step, with all its bytes, and stays after a power cut."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote, unquote

from jobs.errors import Exists, NotFound, Refused, StorageFull, Unavailable
from jobs.ports.objects import ObjectFacts

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_FORBIDDEN = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_UNFIT = frozenset({errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.ENAMETOOLONG})
_NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})
_COMPARE_BYTES = 1 << 20


def scheme_of(uri: str) -> str:
    """ "file" for plain paths."""
    match = _SCHEME.match(uri)
    return match[1].lower() if match else "file"


def path_of(uri: str) -> Path:
    """The local path behind a plain path or a `file://` URI."""
    match = _SCHEME.match(uri)
    if match is None:
        return Path(uri)
    host, slash, rest = uri[match.end() :].partition("/")
    if match[1].lower() != "file" or host not in {"", "localhost"} or not slash:
        raise Refused(reason=f"{uri} is not a local file; write file:///PATH or a plain path")
    return Path("/" + unquote(rest))


class LocalObjects:
    """Writes go to a hidden name beside the target, are synced, and get their name by `link()`, which never replaces.

    Stateless, so it may be used from any thread. Hidden names end in `.tmp` and are not listed.
    """

    def put_if_absent(self, uri: str, data: bytes) -> ObjectFacts:
        target = path_of(uri)
        with _errors(uri), _temporary(target) as temporary:
            _write(temporary, data)
            _name(temporary, target, uri)
            _sync(target.parent)
            return _facts(uri, target)

    def put_many(self, items: Sequence[tuple[str, bytes]]) -> list[ObjectFacts]:
        return [self.put_if_absent(uri, data) for uri, data in items]

    def put_file_if_absent(self, uri: str, local: Path) -> ObjectFacts:
        target = path_of(uri)
        with _errors(uri):
            _sync(local)
            _make_folder(target.parent)
            self._move(local, target, uri)
            _sync(target.parent)
            local.unlink(missing_ok=True)
            return _facts(uri, target)

    def replace(self, uri: str, data: bytes) -> ObjectFacts:
        target = path_of(uri)
        with _errors(uri), _temporary(target) as temporary:
            _write(temporary, data)
            temporary.replace(target)
            _sync(target.parent)
            return _facts(uri, target)

    def publish(self, source: str, target: str) -> None:
        origin, place = path_of(source), path_of(target)
        with _errors(source):
            if not origin.is_file():
                raise FileNotFoundError(origin)
        with _errors(target):
            _make_folder(place.parent)
            self._move(origin, place, target)

    def publish_many(self, pairs: Sequence[tuple[str, str]]) -> None:
        for source, target in pairs:
            self.publish(source, target)

    def read(self, uri: str) -> bytes:
        with _errors(uri):
            return path_of(uri).read_bytes()

    def open(self, uri: str) -> BinaryIO:
        with _errors(uri):
            return path_of(uri).open("rb")

    def facts(self, uri: str) -> ObjectFacts | None:
        path = path_of(uri)
        with _errors(uri):
            return _facts(uri, path) if path.is_file() else None

    def list(self, prefix: str, *, unfinished: bool = False) -> Iterator[ObjectFacts]:
        shown = [uri for uri in _below(prefix) if unfinished or not _hidden(path_of(uri).name)]
        for uri in shown:
            with suppress(FileNotFoundError):  # deleted since the walk
                yield _facts(uri, path_of(uri))

    def delete(self, uri: str) -> None:
        path = path_of(uri)
        with _errors(uri), suppress(FileNotFoundError):
            path.unlink()

    def delete_many(self, uris: Sequence[str]) -> None:
        for uri in uris:
            self.delete(uri)

    def link(self, uri: str, seconds: int) -> str | None:  # noqa: ARG002 - a file has no address elsewhere
        return None

    def sync(self, folder: str) -> None:
        with _errors(folder):
            _sync(path_of(folder))

    def scratch(self, near: str) -> Path:
        target = path_of(near)
        with _errors(near):
            _make_folder(target.parent)
        return _hidden_name(target)

    def _move(self, source: Path, target: Path, uri: str) -> None:
        """Give `source` the name `target`; a copy of it where the two are on different file systems."""
        try:
            _name(source, target, uri)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            with _temporary(target) as temporary:
                shutil.copyfile(source, temporary)
                _sync(temporary)
                _name(temporary, target, uri)


def _name(source: Path, target: Path, uri: str) -> None:
    """Let a synced file have this name too, unless other content has it already."""
    try:
        os.link(source, target)
    except FileExistsError:
        _must_equal(source, target, uri)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        _copy_without_links(source, target, uri)


def _copy_without_links(source: Path, target: Path, uri: str) -> None:
    """Where a file system has no hard links: look and rename, while a lock on the folder keeps our kind out."""
    folder = os.open(target.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        if target.exists():
            _must_equal(source, target, uri)
            return
        copy = _hidden_name(target)
        shutil.copyfile(source, copy)
        _sync(copy)
        copy.rename(target)
    finally:
        os.close(folder)


def _must_equal(source: Path, target: Path, uri: str) -> None:
    if not (source.samefile(target) or _equal(source, target)):
        raise Exists(uri=uri)


def _equal(left: Path, right: Path) -> bool:
    if left.stat().st_size != right.stat().st_size:
        return False
    with left.open("rb") as one, right.open("rb") as two:
        while chunk := one.read(_COMPARE_BYTES):
            if chunk != two.read(_COMPARE_BYTES):
                return False
    return True


def _facts(uri: str, path: Path) -> ObjectFacts:
    found = path.stat()
    return ObjectFacts(uri=uri, size=found.st_size, stamp=f"mtime_ns:{found.st_mtime_ns}")


def _below(prefix: str) -> list[str]:
    """URIs of all files below a folder, sorted, in the form of the prefix."""
    folder, base, is_uri = path_of(prefix), prefix.rstrip("/"), bool(_SCHEME.match(prefix))
    found = []
    with _errors(prefix):
        for parent, _, names in os.walk(folder):
            below = Path(parent).relative_to(folder)
            found += [(below / name).as_posix() for name in names]
    return sorted(f"{base}/{quote(name) if is_uri else name}" for name in found)


@contextmanager
def _temporary(target: Path) -> Iterator[Path]:
    _make_folder(target.parent)
    path = _hidden_name(target)
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


def _hidden_name(target: Path) -> Path:
    # At most 255 bytes is what file systems take; the target's name may be that long itself.
    return target.parent / f".{target.name[:40]}.{secrets.token_hex(8)}.tmp"


def _hidden(name: str) -> bool:
    return name.startswith(".") and name.endswith(".tmp")


def _write(path: Path, data: bytes) -> None:
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync(path: Path) -> None:
    """Make a file's bytes, or a folder's names, durable."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _make_folder(folder: Path) -> None:
    """A new folder's own name must be durable too, up to the first one that was there."""
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    try:
        folder.mkdir(exist_ok=True)
    except FileExistsError:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder)) from None
    _sync(folder.parent)


@contextmanager
def _errors(uri: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise NotFound(kind="object", name=uri, hint="It may have been deleted or moved.") from error
    except OSError as error:
        if error.errno in _FULL:
            raise StorageFull(where=uri) from error
        reason = f"{uri}: {os.strerror(error.errno) if error.errno else error}"
        raise (Refused if error.errno in _FORBIDDEN | _UNFIT else Unavailable)(reason=reason) from error
