"""The one thread of a process that writes to a database: it gathers what waits and commits it in one transaction.

A flush to disk costs the same for one change as for sixty-four. The gap after each commit lets another process's
writer in: SQLite's lock is not fair, and without the gap two busy processes made 652 commits against 1.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import sqlalchemy as sa

from jobs.errors import Broken, Unavailable
from jobs.model import Value

T = TypeVar("T")
Begin = Callable[[], AbstractContextManager[sa.Connection]]
"""Opens a transaction that commits at the end of the block, or rolls back when it raises."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace(Value):
    """linger_s: how long the first arrival waits for company; commit_linger_s: the same for commits of tasks, which
    hold nobody up. gap_s: pause after each transaction. members: most closures in one.
    """

    linger_s: float = 0.002
    commit_linger_s: float = 0.020
    gap_s: float = 0.005
    members: int = 64


AT_ONCE = Pace(linger_s=0.0, commit_linger_s=0.0, gap_s=0.0)
"""For tests that make thousands of single moves."""


@dataclass(slots=True)
class _Member:
    work: Callable[[sa.Connection], Any]
    due: float
    future: Future[Any] = field(default_factory=Future)


class Writer:
    """`run` may be called from any thread. The thread starts with the first write; readers never start one."""

    def __init__(self, begin: Begin, pace: Pace) -> None:
        self._begin = begin
        self._pace = pace
        self._changed = threading.Condition()
        self._waiting: list[_Member] = []
        self._thread: threading.Thread | None = None
        self._closed = False
        self._pid = os.getpid()
        self._last_commit = 0.0

    def run(self, work: Callable[[sa.Connection], T], *, linger_s: float | None = None) -> T:
        """Carry out `work` in a transaction and return its result once that is durable.

        It may run twice (alone after a companion failed), so it must change nothing but the database.
        """
        if os.getpid() != self._pid:
            raise Broken(reason="a database opened before a fork was used after it")
        wait = self._pace.linger_s if linger_s is None else linger_s
        member = _Member(work, time.monotonic() + wait)
        with self._changed:
            if self._closed:
                raise Broken(reason="a closed database was written to")
            self._waiting.append(member)
            self._start()
            self._changed.notify_all()
        result: T = member.future.result()
        return result

    def close(self) -> None:
        """Finish what waits, then end the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._loop, name="database-writer", daemon=True)
            self._thread.start()

    def _loop(self) -> None:
        while group := self._gather():
            self._commit(group)
            self._last_commit = time.monotonic()

    def _gather(self) -> Sequence[_Member]:
        """The next group; empty once closed and drained."""
        with self._changed:
            while not self._closed and not self._waiting:
                self._changed.wait()
            while self._waiting and (left := self._hold_back_s()) > 0:
                self._changed.wait(left)
            group = self._waiting[: self._pace.members]
            del self._waiting[: self._pace.members]
            return group

    def _hold_back_s(self) -> float:
        if self._closed:
            return 0.0
        now = time.monotonic()
        gap = self._last_commit + self._pace.gap_s - now
        if len(self._waiting) >= self._pace.members:
            return gap
        return max(gap, min(member.due for member in self._waiting) - now)

    def _commit(self, group: Sequence[_Member]) -> None:
        try:
            with self._begin() as connection:
                results = [member.work(connection) for member in group]
        except Unavailable as error:  # no member's fault: alone each would wait for the same backend once more
            _fail(group, error)
        except BaseException as error:  # noqa: BLE001  # it belongs to the caller who waits for it
            if len(group) == 1:
                _fail(group, error)
                return
            for member in group:
                self._commit([member])
        else:
            for member, result in zip(group, results, strict=True):
                member.future.set_result(result)


def _fail(group: Sequence[_Member], error: BaseException) -> None:
    for member in group:
        member.future.set_exception(error)
