"""From a topic to a lease: polls without ever waiting for work, leases in another thread, commits finished offsets.

An offset is finished when the database has answered for its message, not when the work is done: retrying is the
reaper's job alone, so one slow task holds nothing behind it.
"""

from __future__ import annotations

import queue
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import structlog
from structlog.contextvars import bound_contextvars

from jobs import moves
from jobs.errors import NotFound, Unavailable
from jobs.model import Job, Message, Priority, Task, TaskState, Value
from jobs.moves import Answer, Lease
from jobs.ports.clock import Clock, Ids
from jobs.ports.queue import Consumer, Queue, Record
from jobs.ports.store import Store
from workers import wire
from workers.about import about
from workers.letters import bury
from workers.offsets import OffsetTracker

log = structlog.get_logger()

UNREADABLE = "unreadable"
"""Of a message that was dropped, and the code of its dead letter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchPolicy(Value):
    """lease_s: how long a lease lasts without a beat. dead_topic: where unreadable messages go, bytes and all.

    poll_s: wait for a message; full_s: for a worker that has enough, and will have for longer; behind_s: for the lease
    thread to take the last message. away_s: pause before a database that did not answer is asked again.
    """

    lease_s: float = 30.0
    poll_s: float = 0.2
    full_s: float = 0.05
    behind_s: float = 0.01
    away_s: float = 0.5
    dead_topic: str = "nightmill.dead"


@dataclass(slots=True, kw_only=True)
class Taken:
    """A polled message on its way to the database. token: the same in every attempt, so that a lease whose answer was
    lost is known again as our own. message: None if it is unreadable (fault says why) and on its way to the dead
    letters.
    """

    record: Record
    message: Message | None
    token: str
    fault: str = ""


class Crew(Protocol):
    """The workers that a dispatcher leases for. Called from both of its threads."""

    def room(self, priority: Priority) -> bool:
        """Whether somebody wants another task of this priority."""
        ...

    def whom(self, priority: Priority) -> str | None:
        """For whom to lease the next one: the owner's name; None if nobody has room any more."""
        ...

    def accept(self, job: Job, task: Task) -> None:
        """A task that was leased for `task.owner`."""
        ...


@dataclass(slots=True, kw_only=True)
class Dispatcher:
    """`poll_step` runs in the poll thread and never touches the database; `lease_step` runs in another."""

    store: Store
    broker: Queue
    consumer: Consumer
    ids: Ids
    clock: Clock
    priorities: dict[str, Priority]
    crew: Crew
    policy: DispatchPolicy
    leased: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    _trackers: dict[tuple[str, int], OffsetTracker] = field(default_factory=dict)
    _to_lease: queue.SimpleQueue[Taken] = field(default_factory=queue.SimpleQueue)
    _without_room: deque[Taken] = field(default_factory=deque)
    _answered: queue.SimpleQueue[Record] = field(default_factory=queue.SimpleQueue)

    # ---- the poll thread ------------------------------------------------------------------------

    def poll_step(self) -> None:
        """Apply room as pauses, poll, pass messages on, commit what the database has answered for."""
        for record in self.consumer.poll(self._apply_room(), max_records=1):
            self._tracker(record).take(record.place.offset)
            self._pass_on(record)
        self._commit_finished()

    def _apply_room(self) -> float:
        """How long to wait in the next poll."""
        assigned = sorted(self.consumer.assigned())
        if not self._to_lease.empty():
            self.consumer.pause(assigned)
            return self.policy.behind_s
        wanted = [place for place in assigned if self.crew.room(self.priorities[place[0]])]
        self.consumer.resume(wanted)
        self.consumer.pause([place for place in assigned if place not in wanted])
        return self.policy.poll_s if len(wanted) == len(assigned) else self.policy.full_s

    def _tracker(self, record: Record) -> OffsetTracker:
        key = (record.place.topic, record.place.partition)
        tracker = self._trackers.get(key)
        if tracker is None or tracker.topic_id != record.place.topic_id:
            tracker = self._trackers[key] = OffsetTracker(topic_id=record.place.topic_id)
        return tracker

    def _pass_on(self, record: Record) -> None:
        message: Message | None = None
        why = ""
        try:
            message = wire.decode(record.value, self.priorities[record.place.topic])
        except wire.Unreadable as fault:
            log.error("message_unreadable", topic=record.place.topic, offset=record.place.offset, fault=str(fault))
            self.dropped[UNREADABLE] += 1
            why = str(fault)
        self._to_lease.put(Taken(record=record, message=message, token=self.ids.token(), fault=why))

    def _commit_finished(self) -> None:
        while not self._answered.empty():
            place = self._answered.get().place
            tracker = self._trackers.get((place.topic, place.partition))
            if tracker is not None and tracker.topic_id == place.topic_id:  # not of a topic that was made anew since
                tracker.finish(place.offset)
        offsets = {key: at for key, tracker in self._trackers.items() if (at := tracker.committable()) is not None}
        if offsets:
            self.consumer.commit(offsets)

    # ---- the lease thread -----------------------------------------------------------------------

    def lease_step(self, wait_s: float = 0.2) -> bool:
        """Lease the next message's task and hand it to the worker; a backend that is away is waited for.

        Whether a message was dealt with.
        """
        taken = self._next(wait_s)
        if taken is None:
            return False
        with bound_contextvars(**({"task": taken.message.task} if taken.message is not None else {})):
            return self._try(taken)

    def _try(self, taken: Taken) -> bool:
        try:
            self._deal_with(taken)
        except Unavailable as error:
            log.warning("backend_away", reason=error.sentence, place=taken.record.place)
            self._to_lease.put(taken)
            self.clock.sleep(self.policy.away_s)
            return False
        except _NoRoom:
            self._without_room.append(taken)
            self.clock.sleep(self.policy.full_s)
            return False
        self._answered.put(taken.record)
        return True

    def _next(self, wait_s: float) -> Taken | None:
        """What came last may be urgent: what found no room is tried again when nothing else is there."""
        try:
            return self._to_lease.get(timeout=min(wait_s, self.policy.full_s) if self._without_room else wait_s)
        except queue.Empty:
            return self._without_room.popleft() if self._without_room else None

    def _deal_with(self, taken: Taken) -> None:
        if taken.message is None:
            bury(self.broker, self.policy.dead_topic, taken.record, code=UNREADABLE, reason=taken.fault)
            return
        owner = self.crew.whom(taken.message.priority)
        if owner is None:
            raise _NoRoom
        grant = Lease(token=taken.token, owner=owner, lease_s=self.policy.lease_s)
        self._lease(taken.message, grant, wire.released_of(taken.record.headers))

    def _lease(self, message: Message, grant: Lease, released_at: float | None) -> None:
        answer = self.store.make([moves.lease(message, grant)])[0]
        if answer is Answer.LOST:
            self._drop(message)
            return
        task = self.store.task(message.task)
        if task.token == grant.token:
            job = self.store.job(task.job)
            self.leased += 1
            with about(job, task):
                self.crew.accept(job, task.evolve(priority=message.priority, released_at=released_at))

    def _drop(self, message: Message) -> None:
        """It was no news: counted by what did not match, as the task stands now."""
        try:
            task = self.store.task(message.task)
        except NotFound:
            self.dropped["unknown"] += 1
        else:
            self.dropped[mismatch(message, task)] += 1


class _NoRoom(Exception):
    """Whoever had room is gone or full: the message waits here, as its partition does."""


def mismatch(message: Message, task: Task) -> str:
    """Why a message does not lease this task: the first of its guard's conditions that fails."""
    if task.pool != message.pool:
        return "pool"
    if task.state is not TaskState.RELEASED:
        return "state"
    return "epoch" if task.epoch != message.epoch else "ticket"


def topics_of(prefix: str, pools: Sequence[str]) -> dict[str, Priority]:
    """Topic name → priority, for the topics of these pools."""
    return {wire.topic(prefix, pool, priority): priority for pool in pools for priority in Priority}
