"""From a topic to a lease: polls without ever waiting for work, leases in another thread, commits finished offsets.

An offset is finished when the database has answered for its message, not when the work is done: retrying is the
reaper's job alone, so one slow task holds nothing behind it.
"""

from __future__ import annotations

import queue
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

import structlog

from jobs import moves
from jobs.errors import Unavailable
from jobs.model import Job, Message, Priority, Task, TaskState, Value
from jobs.moves import Lease, Move
from jobs.ports.clock import Clock, Ids
from jobs.ports.queue import Consumer, Queue, Record
from jobs.ports.store import Store
from workers import wire
from workers.about import about
from workers.letters import bury
from workers.offsets import Offsets

log = structlog.get_logger()

UNREADABLE = "unreadable"
"""Of a message that was dropped, and the code of its dead letter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchPolicy(Value):
    """lease_s: how long a lease lasts without a beat. dead_topic: where unreadable messages go, bytes and all.
    at_once: messages that are polled together, and leased in one transaction.

    poll_s: wait for a message; full_s: for a worker that has enough, and will have for longer; behind_s: for the lease
    thread to take the last message. away_s: pause before a database that did not answer is asked again.
    """

    lease_s: float = 30.0
    at_once: int = 1
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

    def whom(self, wanted: Sequence[tuple[Priority, int]]) -> list[str | None]:
        """For whom to lease each of these tasks, (priority, tokens), in this order: the owner's name; None for one
        that nobody has room for.
        """
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
    _offsets: Offsets = field(default_factory=Offsets)
    _to_lease: queue.SimpleQueue[Taken] = field(default_factory=queue.SimpleQueue)
    _undecided: set[str] = field(default_factory=set)
    _without_room: list[Taken] = field(default_factory=list)

    # ---- the poll thread ------------------------------------------------------------------------

    def poll_step(self) -> None:
        """Apply room as pauses, poll, pass messages on, commit what the database has answered for."""
        for record in self.consumer.poll(self._apply_room(), max_records=self.policy.at_once):
            self._offsets.take(record.place)
            self._pass_on(record)
        if offsets := self._offsets.committable():
            self.consumer.commit(offsets)

    def _apply_room(self) -> float:
        """How long to wait in the next poll."""
        assigned = sorted(self.consumer.assigned())
        if self._undecided:  # until then nobody knows what room is left
            self.consumer.pause(assigned)
            return self.policy.behind_s
        held = {taken.message.priority for taken in self._without_room if taken.message is not None}
        open_ones = {p for p in set(self.priorities.values()) - held if self.crew.room(p)}
        wanted = [place for place in assigned if self.priorities[place[0]] in open_ones]
        self.consumer.resume(wanted)
        self.consumer.pause([place for place in assigned if place not in wanted])
        return self.policy.poll_s if len(wanted) == len(assigned) else self.policy.full_s

    def _pass_on(self, record: Record) -> None:
        message: Message | None = None
        why = ""
        try:
            message = wire.decode(record.value, self.priorities[record.place.topic])
        except wire.Unreadable as fault:
            log.error("message_unreadable", topic=record.place.topic, offset=record.place.offset, fault=str(fault))
            self.dropped[UNREADABLE] += 1
            why = str(fault)
        taken = Taken(record=record, message=message, token=self.ids.token(), fault=why)
        self._undecided.add(taken.token)
        self._to_lease.put(taken)

    # ---- the lease thread -----------------------------------------------------------------------

    def lease_step(self, wait_s: float = 0.2) -> bool:
        """Lease the tasks of the next messages and hand them to the workers; a backend that is away is waited for.

        Whether a message was dealt with.
        """
        batch = self._next(wait_s)
        todo = {taken.token: taken for taken in batch}
        try:
            self._deal_with(todo)
        except Unavailable as error:
            log.warning("backend_away", reason=error.sentence, places=[taken.record.place for taken in todo.values()])
            for taken in todo.values():
                self._to_lease.put(taken)
            self.clock.sleep(self.policy.away_s)
            return False
        self._without_room = list(todo.values())
        self._undecided -= {taken.token for taken in batch}
        if todo and len(todo) == len(batch):
            self.clock.sleep(self.policy.full_s)
        return len(todo) < len(batch)

    def _next(self, wait_s: float) -> list[Taken]:
        """What was polled, and what found no room before: the most urgent first, and of those what came first."""
        batch, self._without_room = self._without_room, []
        with suppress(queue.Empty):
            batch.append(self._to_lease.get(timeout=min(wait_s, self.policy.full_s) if batch else wait_s))
            while True:
                batch.append(self._to_lease.get_nowait())
        return sorted(batch, key=lambda taken: taken.message.priority.rank if taken.message is not None else -1)

    def _deal_with(self, todo: dict[str, Taken]) -> None:
        """Takes out of `todo`, by token, what the database has answered for; what nobody has room for stays in it.

        It may be done again with what is left after any failure: a lease of which the answer was lost is our own.
        """
        for taken in [taken for taken in todo.values() if taken.message is None]:
            bury(self.broker, self.policy.dead_topic, taken.record, code=UNREADABLE, reason=taken.fault)
            self._finish(todo, taken)
        found = self._standing(todo)
        for taken in list(todo.values()):
            if not (taken.token in found and _may_lease(taken, found[taken.token][0])):
                self._drop(todo, taken, found)
        leases = self._leases(todo, found)
        if leases:
            self.store.make(list(leases.values()))
            found = self._standing(todo)
        for taken in list(todo.values()):
            if (there := found.get(taken.token)) is not None and there[0].token == taken.token:
                self._hand_over(taken, *there)
                self._finish(todo, taken)
            elif taken.token in leases:  # somebody was faster
                self._drop(todo, taken, found)

    def _standing(self, todo: Mapping[str, Taken]) -> Standing:
        names = {taken.token: taken.message.task for taken in todo.values() if taken.message is not None}
        there = self.store.with_jobs(sorted(set(names.values()))) if names else {}
        return {token: there[name] for token, name in names.items() if name in there}

    def _leases(self, todo: Mapping[str, Taken], found: Standing) -> dict[str, Move]:
        """By token, of those for which somebody has room and which are not ours yet."""
        fresh = [(taken, taken.message) for token, taken in todo.items() if found[token][0].token != token]
        wanted = [(message.priority, found[taken.token][0].tokens) for taken, message in fresh if message is not None]
        owners = self.crew.whom(wanted) if wanted else []
        return {
            taken.token: moves.lease(message, Lease(token=taken.token, owner=owner, lease_s=self.policy.lease_s))
            for (taken, message), owner in zip(fresh, owners, strict=True)
            if message is not None and owner is not None
        }

    def _hand_over(self, taken: Taken, task: Task, job: Job) -> None:
        assert taken.message is not None
        self.leased += 1
        released_at = wire.released_of(taken.record.headers)
        with about(job, task):
            self.crew.accept(job, task.evolve(priority=taken.message.priority, released_at=released_at))

    def _drop(self, todo: dict[str, Taken], taken: Taken, found: Standing) -> None:
        """It was no news: counted by what did not match, as the task stands now."""
        assert taken.message is not None
        there = found.get(taken.token)
        self.dropped[mismatch(taken.message, there[0]) if there is not None else "unknown"] += 1
        self._finish(todo, taken)

    def _finish(self, todo: dict[str, Taken], taken: Taken) -> None:
        del todo[taken.token]
        self._offsets.finish(taken.record.place)


Standing = Mapping[str, tuple[Task, Job]]
"""A message's token → its task and job, as the database has them now."""


def _may_lease(taken: Taken, task: Task) -> bool:
    """Whether the message tells of this release of the task, or has leased it before, unheard."""
    message = taken.message
    if message is None:
        return False
    told = (message.pool, message.epoch, message.ticket)
    fresh = task.state is TaskState.RELEASED and told == (task.pool, task.epoch, task.ticket)
    return fresh or task.token == taken.token


def mismatch(message: Message, task: Task) -> str:
    """Why a message does not lease this task: the first of its guard's conditions that fails."""
    if task.pool != message.pool:
        return "pool"
    if task.state is not TaskState.RELEASED:
        return "state"
    return "epoch" if task.epoch != message.epoch else "ticket"
