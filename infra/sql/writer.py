"""Gathers what waits to be written and commits it in one transaction: a flush to disk costs the same for one change as
for sixty-four.

SQLite has one such thread a process. The gap after each of its commits lets another process's writer in: its lock is
not fair, and without the gap two busy processes made 652 commits against 1. PostgreSQL has several, without a gap.

Who is in a hurry and finds nobody before him writes by himself: two threads less to wake while a client waits.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeVar

import sqlalchemy as sa

from jobs.errors import Broken, Unavailable
from jobs.model import Value

T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")
Transact = Callable[[Callable[[sa.Connection], Any]], Any]
"""Carries out a closure in a transaction of its own; its result once that is durable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace(Value):
    """linger_s: how long the first arrival waits for company; commit_linger_s: the same for commits of tasks, which
    hold nobody up. gap_s: pause after each transaction; urgent_gap_s: the same before one for somebody who does not
    linger, longer than a writer of another process sleeps between two tries. members: most callers in one.

    writers: transactions at a time. Where there are several, only who comes while one is under way waits for company.
    """

    linger_s: float = 0.002
    commit_linger_s: float = 0.020
    gap_s: float = 0.005
    urgent_gap_s: float = 0.002
    members: int = 64
    writers: int = 1


AT_ONCE = Pace(linger_s=0.0, commit_linger_s=0.0, gap_s=0.0)
"""For tests that make thousands of single moves."""


@dataclass(slots=True)
class _Member:
    work: Callable[[sa.Connection, list[Any]], list[Any]]
    items: Sequence[Any]
    due: float
    urgent: bool
    future: Future[list[Any]] = field(default_factory=Future)


class Writer:
    """May be called from any thread. A thread starts when there is work and all others are busy; readers start none."""

    def __init__(self, transact: Transact, pace: Pace) -> None:
        self._transact = transact
        self._pace = pace
        self._changed = threading.Condition()
        self._waiting: list[_Member] = []
        self._threads: list[threading.Thread] = []
        self._idle = 0
        self._busy = 0
        self._closed = False
        self._pid = os.getpid()
        self._last_commit = 0.0

    def run(self, work: Callable[[sa.Connection], T], *, linger_s: float | None = None) -> T:
        """Carry out `work` in a transaction and return its result once that is durable.

        It may run twice (alone after a companion failed), so it must change nothing but the database.
        """
        result: T = self._run(lambda connection, _: [work(connection)], [None], linger_s)[0]
        return result

    def run_all(
        self, work: Callable[[sa.Connection, list[A]], list[B]], items: Sequence[A], *, linger_s: float | None = None
    ) -> list[B]:
        """As `run`; but `work` is called once for the items of all who wait with the same `work`, a result for each."""
        results: list[B] = self._run(work, items, linger_s)
        return results

    def _run(self, work: Callable[[sa.Connection, list[Any]], list[Any]], items: Any, linger_s: float | None) -> Any:
        if os.getpid() != self._pid:
            raise Broken(reason="a database opened before a fork was used after it")
        wait = self._pace.linger_s if linger_s is None else linger_s
        member = _Member(work, items, time.monotonic() + wait, urgent=wait <= 0)
        with self._changed:
            if self._closed:
                raise Broken(reason="a closed database was written to")
            if himself := member.urgent and not self._waiting and self._may_write():
                self._busy += 1
            else:
                self._wait_for_others(member)
        if himself:
            self._write([member])
        return member.future.result()

    def _may_write(self) -> bool:
        """At once, for somebody urgent."""
        return self._busy < self._pace.writers and self._gap_end(urgent=True) <= time.monotonic()

    def _wait_for_others(self, member: _Member) -> None:
        sooner = not self._waiting or member.due < self._soonest() or member.urgent
        self._waiting.append(member)
        self._start()
        if sooner or len(self._waiting) >= self._pace.members:  # else it goes with those who came before it
            self._changed.notify_all()

    def close(self) -> None:
        """Finish what waits and what is under way, then end the threads."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()
        with self._changed:
            while self._busy:
                self._changed.wait()

    def _start(self) -> None:
        if not self._idle and len(self._threads) < self._pace.writers:
            thread = threading.Thread(target=self._loop, name="database-writer", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _loop(self) -> None:
        while group := self._gather():
            self._write(group)

    def _write(self, group: Sequence[_Member]) -> None:
        """Whoever calls it has been counted as busy."""
        try:
            self._commit(group)
        finally:
            with self._changed:
                self._busy -= 1
                self._last_commit = time.monotonic()
                self._changed.notify_all()

    def _gather(self) -> Sequence[_Member]:
        """The next group; empty once closed and drained."""
        with self._changed:
            self._idle += 1
            while self._waiting or not self._closed:
                ready = self._waiting and self._busy < self._pace.writers
                left = self._hold_back_s() if ready else None
                if left is not None and left <= 0:
                    break
                self._changed.wait(left)
            self._idle -= 1
            group = self._waiting[: self._pace.members]
            del self._waiting[: self._pace.members]
            self._busy += bool(group)
            return group

    def _hold_back_s(self) -> float:
        if self._closed:
            return 0.0
        now = time.monotonic()
        gap = self._gap_end(urgent=any(member.urgent for member in self._waiting)) - now
        if len(self._waiting) >= self._pace.members:
            return gap
        if self._pace.writers > 1 and not self._busy:
            return gap
        return max(gap, self._soonest() - now)

    def _gap_end(self, *, urgent: bool) -> float:
        return self._last_commit + (min(self._pace.urgent_gap_s, self._pace.gap_s) if urgent else self._pace.gap_s)

    def _soonest(self) -> float:
        return min(member.due for member in self._waiting)

    def _commit(self, group: Sequence[_Member]) -> None:
        try:
            results = self._transact(lambda connection: _carry_out(connection, group))
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


def _carry_out(connection: sa.Connection, group: Sequence[_Member]) -> list[list[Any]]:
    """The results of each member; those with the same work are one call of it, wherever they stand."""
    alike: dict[Any, list[int]] = {}
    for place, member in enumerate(group):
        alike.setdefault(member.work, []).append(place)
    results: dict[int, list[Any]] = {}
    for work, places in alike.items():
        found = iter(work(connection, [item for place in places for item in group[place].items]))
        results |= {place: list(islice(found, len(group[place].items))) for place in places}
    return [results[place] for place in range(len(group))]


def _fail(group: Sequence[_Member], error: BaseException) -> None:
    for member in group:
        member.future.set_exception(error)
