"""From an ingress topic to a job: other systems submit by a message, and the topic's name says which tenant pays.

An offset is finished when the database has the job, or the dead letters have the message. Whoever dies in between
submits again, and the message's key makes it one job. A backend that is away delays a submission and never refuses it.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import structlog

from jobs.errors import BadInput, NightmillError, Unavailable
from jobs.model import Job, Value
from jobs.ports.clock import Clock
from jobs.ports.intake import SubmitRequest
from jobs.ports.queue import Consumer, Queue, Record
from jobs.request import check_storage, request_of
from workers.letters import bury
from workers.loops import Alarm, Loop
from workers.offsets import Offsets
from workers.wire import trace_of

log = structlog.get_logger()

TAKEN, BUG = "taken", "bug"
_LONGEST_KEY = 255
_SUBMITTERS = 4
"""Inputs looked at side by side: one with a hundred million ids to check holds no other tenant up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IngressPolicy(Value):
    """topics: name → tenant. inputs, outputs: URI prefixes that a submission may name.

    in_hand: messages taken and not yet answered for, at most. poll_s: wait for a message; full_s: the same while there
    is no room. away_s: pause before a backend that did not answer is asked again.
    """

    topics: Mapping[str, str]
    group: str
    dead_topic: str
    inputs: tuple[str, ...] = ("s3://",)
    outputs: tuple[str, ...] = ("s3://",)
    in_hand: int = 16
    poll_s: float = 0.2
    full_s: float = 0.05
    away_s: float = 1.0


@dataclass(slots=True)
class InHand:
    """Messages taken and not yet answered for. Those of one key come out one after the other, in the order in which
    they came, others side by side: of two requests under one key the first is the one that counts.
    """

    _waiting: list[Record] = field(default_factory=list)
    _busy: set[tuple[str, bytes]] = field(default_factory=set)
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def __len__(self) -> int:
        return len(self._waiting) + len(self._busy)

    def put(self, record: Record) -> None:
        with self._changed:
            self._waiting.append(record)
            self._changed.notify()

    def get(self, wait_s: float) -> Record | None:
        """The next whose key nobody is busy with; `done` or `again` follows."""
        with self._changed:
            self._changed.wait_for(lambda: self._next() is not None, wait_s)
            record = self._next()
            if record is not None:
                self._waiting.remove(record)
                self._busy.add(_mark(record))
            return record

    def done(self, record: Record) -> None:
        with self._changed:
            self._busy.discard(_mark(record))
            self._changed.notify()

    def again(self, record: Record) -> None:
        """It could not be dealt with now: it goes behind all others, and those of its key with it."""
        with self._changed:
            mark = _mark(record)
            self._busy.discard(mark)
            others = [other for other in self._waiting if _mark(other) != mark]
            self._waiting = [*others, record, *(other for other in self._waiting if _mark(other) == mark)]
            self._changed.notify()

    def _next(self) -> Record | None:
        return next((record for record in self._waiting if _mark(record) not in self._busy), None)


def _mark(record: Record) -> tuple[str, bytes]:
    return record.place.topic, record.key


@dataclass(slots=True, kw_only=True)
class Ingress:
    """`poll_step` runs in a thread of its own and never touches the database; `submit_step` in one or several others.

    read: a message's value as the fields of a request; raises Refused. submit: writes the job, or finds the one that
    the idempotency key made; raises Refused, Conflict, Unavailable. counts: submissions by what became of them: `taken`
    or the code of the error.
    """

    broker: Queue
    clock: Clock
    read: Callable[[bytes], Mapping[str, Any]]
    submit: Callable[[SubmitRequest], Job]
    policy: IngressPolicy
    counts: Counter[str] = field(default_factory=Counter)
    _consumer: Consumer | None = None
    _offsets: Offsets = field(default_factory=Offsets)
    _in_hand: InHand = field(default_factory=InHand)
    _counting: threading.Lock = field(default_factory=threading.Lock)

    # ---- the poll thread ------------------------------------------------------------------------

    def poll_step(self) -> None:
        """Take what there is room for; commit what has been answered for. Whatever the broker says is waited out: the
        jobs that are there already must go on.
        """
        try:
            self._poll(self._consumer or self._open())
        except NightmillError as error:
            log.warning("ingress_waits", code=error.code, reason=error.sentence)
            self.clock.sleep(self.policy.away_s)

    def close(self) -> None:
        """Leave the group, after the last step; what is in hand comes again."""
        if self._consumer is not None:
            self._consumer.commit(self._offsets.committable())
            self._consumer.close()

    def _open(self) -> Consumer:
        """In the thread that polls: a consumer belongs to one."""
        topics = list(self.policy.topics)
        self.broker.ensure_topics([*topics, self.policy.dead_topic])
        self._consumer = self.broker.consumer(self.policy.group, topics)
        log.info("ingress_open", topics=topics)
        return self._consumer

    def _poll(self, consumer: Consumer) -> None:
        room, assigned = self.policy.in_hand - len(self._in_hand), sorted(consumer.assigned())
        if room > 0:
            consumer.resume(assigned)
        else:
            consumer.pause(assigned)
        wait_s = self.policy.poll_s if room > 0 else self.policy.full_s
        for record in consumer.poll(wait_s, max_records=max(1, room)):
            self._offsets.take(record.place)
            self._in_hand.put(record)
        if offsets := self._offsets.committable():
            consumer.commit(offsets)

    # ---- the threads that submit ------------------------------------------------------------------

    def submit_step(self, wait_s: float = 0.2) -> bool:
        """Deal with the next message; whether one was dealt with for good."""
        record = self._in_hand.get(wait_s)
        if record is None:
            return False
        try:
            self._deal_with(record)
        except NightmillError as error:  # a backend is away, or the dead letters are not ours to write
            log.warning("submission_waits", **_place_of(record), code=error.code, reason=error.sentence)
            self._in_hand.again(record)
            self.clock.sleep(self.policy.away_s)
            return False
        self._offsets.finish(record.place)
        self._in_hand.done(record)
        return True

    def _deal_with(self, record: Record) -> None:
        tenant = self.policy.topics[record.place.topic]
        facts = {**_place_of(record), "tenant": tenant}
        try:
            job = self.submit(self._request(record, tenant))
        except Unavailable:
            raise
        except NightmillError as error:
            self._refuse(record, facts, error.code, error.sentence)
        except Exception as error:  # the message's edge: one that is too much for us must not end the process for ever
            log.exception("submission_failed", **facts)
            self._refuse(record, facts, BUG, f"Something unexpected happened ({error!r}), a fault in Nightmill.")
        else:
            self._count(TAKEN)
            log.info("submission_taken", job=job.id, pool=job.pool, rows=job.total_rows, **facts)

    def _request(self, record: Record, tenant: str) -> SubmitRequest:
        key = _key_of(record)
        asked = self.read(record.value)
        request = request_of(asked, tenant=tenant, creator=f"ingress:{record.place.topic}", key=key)
        check_storage(request.input, self.policy.inputs, setting="ingress_inputs")
        check_storage(request.output, self.policy.outputs, setting="ingress_outputs")
        return request.evolve(foreign=True)

    def _refuse(self, record: Record, facts: Mapping[str, Any], code: str, reason: str) -> None:
        bury(self.broker, self.policy.dead_topic, record, code=code, reason=reason)
        self._count(code)
        log.warning("submission_refused", code=code, reason=reason, **facts)

    def _count(self, what: str) -> None:
        with self._counting:
            self.counts[what] += 1


def ingress_loops(ingress: Ingress, alarm: Alarm) -> list[Loop]:
    """The threads of an ingress, not yet started."""
    submitters = [Loop(f"submit-{number}", ingress.submit_step, alarm) for number in range(_SUBMITTERS)]
    return [Loop("ingress", ingress.poll_step, alarm), *submitters]


def _key_of(record: Record) -> str:
    """The idempotency key. Raises BadInput where the message has none that can be kept as text."""
    try:
        key = record.key.decode()
    except UnicodeDecodeError as error:
        raise BadInput(source="the message's key", reason="it is not UTF-8 text") from error
    if not key:
        raise BadInput(source="the message's key", reason="there is none, and by it one that comes twice is one job")
    if len(key) > _LONGEST_KEY or not key.isprintable():
        raise BadInput(source="the message's key", reason=f"it is not of 1 to {_LONGEST_KEY} printable characters")
    return key


def _place_of(record: Record) -> dict[str, Any]:
    """What an event says of a message."""
    place, trace = record.place, trace_of(record.headers)
    facts = {"topic": place.topic, "partition": place.partition, "offset": place.offset}
    return {**facts, "key": record.key.decode(errors="backslashreplace")} | (
        {} if trace is None else {"trace": trace.trace_id}
    )
