"""Carries out in lists what many ask for one by one: what a list writes shares transactions, and threads are few."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from typing import Generic, TypeVar

from jobs.errors import Unavailable

T = TypeVar("T")
R = TypeVar("R")

_MOST = 64
"""Of a list: as many as a group of the committer has members."""
_LISTS = 2
"""Under way at a time: while one waits for the database the other works."""


class Together(Generic[T, R]):
    """work: a result for each item, in order; it may be asked again for any of them, in another list or alone.

    An item joins the next list. Where a list fails each of its items is tried alone, so that a failure is its own.
    """

    def __init__(self, work: Callable[[Sequence[T]], Sequence[R]], threads: Executor) -> None:
        self._work = work
        self._threads = threads
        self._lock = threading.Lock()
        self._waiting: list[tuple[T, Future[R]]] = []
        self._lists = 0

    def submit(self, item: T, *, alone: bool = False) -> Future[R]:
        """Its result, once its list is through. alone: in no list. So comes again what failed in one: the backend that
        is away may be its own, and the others of its next list shall not wait for it too.
        """
        future: Future[R] = Future()
        if alone:
            self._threads.submit(self._carry_out, [(item, future)])
            return future
        with self._lock:
            self._waiting.append((item, future))
            begins = self._lists < _LISTS
            self._lists += begins
        if begins:
            self._threads.submit(self._drain)
        return future

    def _drain(self) -> None:
        while group := self._next():
            self._carry_out(group)

    def _next(self) -> Sequence[tuple[T, Future[R]]]:
        with self._lock:
            group = self._waiting[:_MOST]
            del self._waiting[:_MOST]
            self._lists -= not group
            return group

    def _carry_out(self, group: Sequence[tuple[T, Future[R]]]) -> None:
        try:
            results = self._work([item for item, _ in group])
            pairs = [*zip(group, results, strict=True)]
        except BaseException as error:  # noqa: BLE001  # it belongs to whoever waits for the item
            if len(group) == 1 or isinstance(error, Unavailable):  # alone each would wait for the same backend
                for _, future in group:
                    future.set_exception(error)
            else:
                for one in group:
                    self._carry_out([one])
        else:
            for (_, future), result in pairs:
                future.set_result(result)
