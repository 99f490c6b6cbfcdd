"""Ends leases that nobody renews, and finds messages that were lost. Only a compare-and-set ends a lease."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from jobs import ledger, moves
from jobs.model import Task, Usage
from jobs.moves import Answer, Waste
from jobs.ports.clock import Clock
from jobs.ports.queue import Queue
from jobs.ports.store import Place, Store
from workers.about import about

log = structlog.get_logger()


@dataclass(slots=True)
class Watch:
    """Whether the database was seen without a gap for a whole lease, wall and monotonic clock agreeing.

    After an outage or a sleeping laptop the watch starts anew, so nobody's work is thrown away for our own absence.
    """

    lease_s: float
    largest_gap_s: float = 5.0
    _since: tuple[float, float] | None = None
    _last: tuple[float, float] | None = None

    def seen(self, wall: float, monotonic: float) -> bool:
        """Note a sight of the database; True when overdue leases may be ended."""
        if self._last is None or self._gap(wall, monotonic):
            self._since = (wall, monotonic)
        self._last = (wall, monotonic)
        return self._since is not None and monotonic - self._since[1] >= self.lease_s

    def _gap(self, wall: float, monotonic: float) -> bool:
        assert self._last is not None
        passed_wall, passed = wall - self._last[0], monotonic - self._last[1]
        return passed > self.largest_gap_s or abs(passed_wall - passed) > 1.0


@dataclass(slots=True, kw_only=True)
class Reaper:
    """alive: whether an owner's process still lives (its file lock); owners on other machines count as alive.

    reaped: tasks taken back so far, by cause.
    """

    store: Store
    broker: Queue
    clock: Clock
    group: str
    alive: Callable[[str], bool]
    lease_s: float = 30.0
    lost_after_s: float = 15.0
    watch: Watch = field(init=False)
    reaped: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.watch = Watch(self.lease_s)

    def step(self, pool: str) -> int:
        """How many tasks were taken back."""
        found = Counter(worker_died=end_dead_owners(self.store, self.alive))
        if self.watch.seen(self.store.now(), self.clock.monotonic()):
            overdue = self.store.overdue(pool)
            found["lease_lost"] = sum(end_lease(self.store, task, usage, "lease_lost") for task, usage in overdue)
        found["message_lost"] = self._requeue_lost(pool)
        self.reaped.update(found)
        return found.total()

    def _requeue_lost(self, pool: str) -> int:
        silent = self.store.silent(pool, self.lost_after_s)
        lost = [task for task, place in silent if self._is_lost(place)]
        if not lost:
            return 0
        log.warning("messages_lost", tasks=[task.id for task in lost])
        return self.store.make([moves.withdraw(task) for task in lost]).count(Answer.MADE)

    def _is_lost(self, place: Place) -> bool:
        """Another topic id, a log start or a group offset beyond it. Not a plain timer: a paused topic fills up."""
        facts = self.broker.facts(place.topic)
        if facts is None or facts.topic_id != place.topic_id:
            return True
        if facts.log_start.get(place.partition, 0) > place.offset:
            return True
        committed = self.broker.committed(self.group, place.topic, place.partition)
        return committed is not None and committed > place.offset


def end_dead_owners(store: Store, alive: Callable[[str], bool]) -> int:
    """Take back what processes held that are gone: their file locks are free, so no lease need run out."""
    ended = 0
    for owner in store.owners():
        if not alive(owner):
            ended += sum(end_lease(store, task, usage, "worker_died") for task, usage in store.leased_by(owner))
    return ended


def end_lease(store: Store, task: Task, usage: Usage, cause: str) -> bool:
    """leased → queued, with what was spent posted as waste. False if the worker settled it meanwhile."""
    tokens = usage.input_tokens + usage.cached_tokens + usage.output_tokens
    job = store.job(task.job)
    entries = ledger.waste(job, task.id, task.epoch, cause, usage, store.now()) if tokens else ()
    with about(job, task):
        answer = store.make([moves.hand_back(task, Waste(cause=cause, usage=usage, entries=entries))])[0]
        if answer is Answer.MADE:
            log.warning("lease_ended", owner=task.owner, cause=cause)
    return answer is Answer.MADE
