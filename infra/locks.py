"""File locks that die with their process: who is alive, and who has a job.

They are `flock`s, so Linux and macOS only, and a local file system: a lock that a network file system grants twice
protects nothing. (Windows would need `msvcrt.locking`, which cannot be probed without taking it.)
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import socket
import weakref
from collections.abc import Iterable
from pathlib import Path
from typing import Self

from jobs.errors import Conflict, Refused

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,199}")
_UNFIT = re.compile(r"[^A-Za-z0-9._-]")


class LockTaken(Conflict):
    """{name} is held by process {pid}."""

    code = "lock_taken"


class FileLock:
    """An exclusive lock on a file, held until `close` or the end of the process; the file says who holds it."""

    def __init__(self, path: Path, *, text: str = "", wait: bool = False) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._fd = _locked(path, wait=wait)
        _held.add(self)
        self.write(text)

    def write(self, text: str) -> None:
        """Replace what the file says below the process id."""
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"{os.getpid()}\n{text}".encode(), 0)

    def close(self) -> None:
        """Let go. The file goes while it is still locked, so nobody can be waiting on a name that is gone unseen."""
        if self._fd < 0:
            return
        self.path.unlink(missing_ok=True)
        self.abandon()

    def abandon(self) -> None:
        """Close our handle only: after a fork the lock stays the parent's and must not outlive it in the child."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_held: weakref.WeakSet[FileLock] = weakref.WeakSet()


def _forget_after_fork() -> None:
    for lock in list(_held):
        lock.abandon()


os.register_at_fork(after_in_child=_forget_after_fork)


def _locked(path: Path, *, wait: bool) -> int:
    """A locked handle on the file that bears this name now, or LockTaken."""
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            got = _lock(fd, wait=wait)
        except BaseException:
            os.close(fd)
            raise
        if got and _same_file(fd, path):
            return fd
        os.close(fd)  # its holder removed it between our open and our lock, or has it
        if not got:
            raise LockTaken(name=path.stem, pid=pid_in(path))


def _lock(fd: int, *, wait: bool) -> bool:
    """False if somebody holds it. A probe that shares it for a moment is not somebody: it is tried again."""
    while True:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            return True
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        fcntl.flock(fd, fcntl.LOCK_UN)


def _same_file(fd: int, path: Path) -> bool:
    try:
        there = path.stat()
    except FileNotFoundError:
        return False
    return os.path.samestat(os.fstat(fd), there)


def pid_in(path: Path) -> int | None:
    """The process id that a lock file names."""
    try:
        first = path.read_text().partition("\n")[0]
    except FileNotFoundError:
        return None
    return int(first) if first.isdigit() else None


def is_locked(path: Path) -> bool:
    """Whether a live process holds the file. Probes share, so two of them never mistake each other for a holder."""
    try:
        fd = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


class OwnerLock:
    """Locks of one data directory: `owners/` says which lease owners live, `locks/` who holds a name."""

    def __init__(self, home: Path) -> None:
        self._owners = home / "owners"
        self._names = home / "locks"
        folder = hashlib.sha256(os.fsencode(home.absolute())).hexdigest()[:8]
        self._where = f"{_UNFIT.sub('-', socket.gethostname())[:60]}.{folder}"

    def owner(self, name: str) -> str:
        """The name of an owner here: it says on which machine, and by which data directory, its lock can be seen."""
        return f"{name}@{self._where}"

    def hold(self, owner: str, jobs: Iterable[str] = ()) -> FileLock:
        """Show that this owner lives, until the process ends or the lock is closed. The file lists its jobs."""
        self._sweep()
        return FileLock(_file(self._owners, owner), text=" ".join(jobs), wait=True)

    def is_alive(self, owner: str) -> bool:
        """Whether the owner's process lives. Of one elsewhere no lock is seen: it counts as alive."""
        where = owner.partition("@")[2]
        return where not in {"", self._where} or is_locked(_file(self._owners, owner))

    def pid_of(self, owner: str) -> int | None:
        """The owner's process id, None when it has left no trace."""
        return pid_in(_file(self._owners, owner))

    def claim(self, name: str) -> FileLock:
        """Hold a name that only one process may have. Raises LockTaken with the holder's process id."""
        return FileLock(_file(self._names, name))

    def holder_of(self, name: str) -> int | None:
        """The id of the live process that has claimed a name, or None."""
        file = _file(self._names, name)
        return pid_in(file) if is_locked(file) else None

    def _sweep(self) -> None:
        """Remove what killed owners left; a missing file reads as dead, so this changes no answer."""
        for path in self._owners.glob("*.lock"):
            with contextlib.suppress(LockTaken):
                FileLock(path).close()


def _file(folder: Path, name: str) -> Path:
    if not _NAME.fullmatch(name):
        raise Refused(reason=f"{name!r} cannot name a lock file")
    return folder / f"{name}.lock"
