"""From a topic to a lease: polls without ever waiting for work, leases in another thread, commits finished offsets.

An offset is finished when the database has answered for its message, not when the work is done: retrying is the
reaper's job alone, so one slow task holds nothing behind it.
"""

from __future__ import annotations

import queue
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import structlog

from jobs import moves
from jobs.errors import Unavailable
from jobs.model import Job, Message, Priority, Task, Value
from jobs.moves import Answer, Lease
from jobs.ports.clock import Clock, Ids
from jobs.ports.queue import Consumer, Outgoing, Queue, Record
from jobs.ports.store import Store
from workers import wire
from workers.offsets import OffsetTracker

log = structlog.get_logger()


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
    lost is known again as our own.
    """

    record: Record
    message: Message
    token: str


@dataclass(slots=True, kw_only=True)
class Dispatcher:
    """`poll_step` runs in the poll thread and never touches the database; `lease_step` runs in another."""

    store: Store
    broker: Queue
    consumer: Consumer
    ids: Ids
    clock: Clock
    owner: str
    priorities: dict[str, Priority]
    room: Callable[[], bool]
    accept: Callable[[Job, Task], None]
    policy: DispatchPolicy
    dropped: Counter[str] = field(default_factory=Counter)
    _trackers: dict[tuple[str, int], OffsetTracker] = field(default_factory=dict)
    _to_lease: queue.SimpleQueue[Taken] = field(default_factory=queue.SimpleQueue)
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
        behind = not self._to_lease.empty()
        assigned = sorted(self.consumer.assigned())
        if not behind and self.room():
            self.consumer.resume(assigned)
            return self.policy.poll_s
        self.consumer.pause(assigned)
        return self.policy.behind_s if behind else self.policy.full_s

    def _tracker(self, record: Record) -> OffsetTracker:
        key = (record.place.topic, record.place.partition)
        tracker = self._trackers.get(key)
        if tracker is None or tracker.topic_id != record.place.topic_id:
            tracker = self._trackers[key] = OffsetTracker(topic_id=record.place.topic_id)
        return tracker

    def _pass_on(self, record: Record) -> None:
        try:
            message = wire.decode(record.value, self.priorities[record.place.topic])
        except wire.Unreadable as fault:
            log.error("message_unreadable", topic=record.place.topic, offset=record.place.offset, fault=str(fault))
            self.dropped["unreadable"] += 1
            self.broker.publish(
                [Outgoing(topic=self.policy.dead_topic, key=record.key, value=record.value, headers=record.headers)]
            )
            self._answered.put(record)
            return
        self._to_lease.put(Taken(record=record, message=message, token=self.ids.token()))

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
        """Lease the next message's task and hand it to the worker; a database that is away is waited for.

        Whether a message was dealt with.
        """
        try:
            taken = self._to_lease.get(timeout=wait_s)
        except queue.Empty:
            return False
        try:
            self._lease(taken)
        except Unavailable as error:
            log.warning("database_away", reason=error.sentence, task=taken.message.task)
            self._to_lease.put(taken)
            self.clock.sleep(self.policy.away_s)
            return False
        self._answered.put(taken.record)
        return True

    def _lease(self, taken: Taken) -> None:
        grant = Lease(token=taken.token, owner=self.owner, lease_s=self.policy.lease_s)
        answer = self.store.make([moves.lease(taken.message, grant)])[0]
        if answer is Answer.LOST:
            self.dropped["stale"] += 1
            return
        task = self.store.task(taken.message.task)
        if task.token == grant.token:
            self.accept(self.store.job(task.job), task)


def topics_of(prefix: str, pools: Sequence[str]) -> dict[str, Priority]:
    """Topic name → priority, for the topics of these pools."""
    return {wire.topic(prefix, pool, priority): priority for pool in pools for priority in Priority}
