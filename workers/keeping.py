"""Runs the keeper of batches: every open batch is looked at again and again, a few at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any

import structlog
from structlog.contextvars import bound_contextvars

from jobs.batching import Keeper
from jobs.errors import DatabaseUnavailable, NightmillError, Unavailable
from jobs.filing import Batch, tokens_of
from jobs.ports.clock import Clock
from workers.together import Together

log = structlog.get_logger()

_LOOK_AGAIN_S, _LONGEST_REST_S = 5.0, 300.0
"""After a fault a batch is let alone for so long; twice as long each time, where no backend was to blame."""
_TRIES = 5
"""So often in a row may a batch without a job be more than we can deal with; then it is `failed`."""
_LARGE_TOKENS = 250_000
_MOST_LARGE = 2
"""Inputs of more tokens (a megabyte) that are checked at a time, of a tenant only one: it takes minutes, and the
threads are few.
"""
_TIDY_S = 60.0
_LOOK_S = 0.00015
"""For each open batch, until all are looked at again: a look takes a tenth of that, however many there are."""
_FEW_TOKENS = tokens_of(64 << 10)


@dataclass(slots=True, kw_only=True)
class Keeping:
    """`step` again and again. threads: checking five million lines must not hold up the batch of one line beside
    it. quick: of small batches, in lists: they wait for the database, and what they write shares transactions.

    tidy: what is done about once a minute beside the batches (old idempotency keys, bytes of deleted files).
    """

    keeper: Keeper
    threads: ThreadPoolExecutor
    quick: ThreadPoolExecutor
    clock: Clock
    tidy: Callable[[], object] = lambda: None
    _busy: dict[str, Future[Any]] = field(default_factory=dict)
    _over: SimpleQueue[str] = field(default_factory=SimpleQueue)
    _lists: Together[Batch, Batch] = field(init=False)
    _checking: dict[str, str] = field(default_factory=dict)
    _rests: dict[str, float] = field(default_factory=dict)
    _faults: dict[str, int] = field(default_factory=dict)
    _alone: set[str] = field(default_factory=set)
    _tidied_s: float | None = None
    _newest: str | None = None
    _whole_s: float = 0.0

    def __post_init__(self) -> None:
        self._lists = Together(self.keeper.attend_all, self.quick)

    def step(self) -> int:
        """Begin on every open batch that nobody is at; how many. Raises DatabaseUnavailable."""
        self._collect()
        now_s = self.clock.monotonic()
        self._rests = {name: until_s for name, until_s in self._rests.items() if until_s > now_s}
        begun = 0
        for batch in self._look(now_s):
            if batch.id not in self._busy and batch.id not in self._rests and self._may_begin(batch):
                self._take(batch)
                begun += 1
        self._tidy(now_s)
        return begun

    def _take(self, batch: Batch) -> None:
        self._busy[batch.id] = future = self._begin(batch)
        future.add_done_callback(lambda _: self._over.put(batch.id))

    def _look(self, now_s: float) -> Sequence[Batch]:
        """At all that are open, or, where that was done just now, at the new ones only."""
        if now_s < self._whole_s:
            found = self.keeper.look(after=self._newest)
        else:
            found = self.keeper.look()
            self._whole_s = now_s + found.seen * _LOOK_S
        self._newest = found.newest
        return found.todo

    def close(self) -> None:
        """Wait for what is under way."""
        for threads in (self.threads, self.quick):
            threads.shutdown(wait=True, cancel_futures=True)

    def _may_begin(self, batch: Batch) -> bool:
        """Note it where it is large: `_checking` has the tenants of those."""
        if batch.job is not None or batch.enqueued_tokens <= _LARGE_TOKENS:
            return True
        if batch.tenant in self._checking.values() or len(self._checking) >= _MOST_LARGE:
            return False
        self._checking[batch.id] = batch.tenant
        return True

    def _begin(self, batch: Batch) -> Future[Any]:
        small = batch.enqueued_tokens <= _FEW_TOKENS
        if small and batch.id not in self._alone:
            return self._lists.submit(batch)
        return (self.quick if small else self.threads).submit(self._attend, batch)

    def _attend(self, batch: Batch) -> None:
        with bound_contextvars(batch=batch.id, tenant=batch.tenant):
            if self._faults.get(batch.id, 0) >= _TRIES and self.keeper.give_up(batch):
                log.error("batch_given_up", tries=_TRIES)
            else:
                self.keeper.attend(batch)

    def _collect(self) -> None:
        while not self._over.empty():
            name = self._over.get()
            future = self._busy.pop(name)
            self._checking.pop(name, None)
            if (error := future.exception()) is not None:
                self._rest(name, error)
            else:
                self._faults.pop(name, None)
                self._alone.discard(name)

    def _rest(self, name: str, error: BaseException) -> None:
        """A fault of one batch, or of ours that it brings out, holds up no other. Nor does a backend that is away, if
        it is only that batch's: it is in no list again before it came on.
        """
        if not isinstance(error, DatabaseUnavailable):
            self._alone.add(name)
        if not isinstance(error, Unavailable):
            self._faults[name] = self._faults.get(name, 0) + 1
        rest_s = _LOOK_AGAIN_S * 2.0 ** min(10, max(0, self._faults.get(name, 0) - 1))
        self._rests[name] = self.clock.monotonic() + min(_LONGEST_REST_S, rest_s)
        reason = error.sentence if isinstance(error, NightmillError) else repr(error)
        log.error("batch_held_up", batch=name, reason=reason, exc_info=error, silent=True)

    def _tidy(self, now_s: float) -> None:
        if self._tidied_s is None or now_s - self._tidied_s >= _TIDY_S:
            self._tidied_s = now_s
            self.tidy()
