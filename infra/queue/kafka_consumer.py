"""One member of a consumer group over Apache Kafka.

Records are fetched a little ahead into a small store by partition, from which `poll` takes them in turn: so a full
partition starves no other, a pause holds at once and through every rebalance, and a resume costs no round trip.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import structlog
from kafka import ConsumerRebalanceListener, KafkaConsumer, OffsetAndMetadata, errors
from kafka import TopicPartition as Partition
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.structs import MemberState

from infra.queue.kafka_faults import BrokerUnavailable, connected, is_refusal, said, translate
from infra.queue.kafka_policy import KafkaPolicy
from jobs.ports.queue import Record, TopicPartition
from jobs.ports.store import Place

log = structlog.get_logger()

_ENOUGH = 32
"""So many records of a partition are held; then its fetches rest."""
_ALL = 1 << 20
"""A poll takes all that was fetched: the rest of a fetch that kafka-python 3.0 keeps through a pause it may forget."""
_COMMIT_S = 1.0
_CLOSE_S = 2.0
_REST_S = 0.1
"""Pause after a fault, and between two tries to commit."""
_JOIN_S = 1.0
"""Least time for a poll that joins. kafka-python 3.0 loses a join that a poll did not wait for: it begins again, or,
where new metadata was its reason, takes itself for a member for ever. So while it joins it is told to, and given time.
"""


class GroupMember(ConsumerRebalanceListener):  # type: ignore[misc]  # the library has no types
    """`jobs.ports.queue.Consumer`. It joins in `poll`, and goes on trying while no broker answers."""

    def __init__(
        self,
        policy: KafkaPolicy,
        hint: str,
        *,
        group: str,
        topics: Sequence[str],
        committed: Callable[[str, str, int], int | None],
    ) -> None:
        self._policy = policy
        self._hint = hint
        self._group = group
        self._topics = list(topics)
        self._committed = committed
        self._client: Any = None
        self._ids: dict[str, str] = {}
        self._held: dict[TopicPartition, deque[Record]] = {}
        self._paused: set[TopicPartition] = set()
        self._done: dict[TopicPartition, int] = {}
        self._commit_at = 0.0
        self._turn = 0
        self._closed = False
        self._open()

    # ---- the port -------------------------------------------------------------------------------

    def poll(self, timeout_s: float, max_records: int = 64) -> list[Record]:
        until = time.monotonic() + timeout_s
        records = self._take(max_records)
        while True:
            left = max(0.0, until - time.monotonic())
            self._fetch(0.0 if records else left)
            self._commit()
            records = records or self._take(max_records)
            if records or time.monotonic() >= until:
                return records

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Offsets of partitions that went to another member are dropped. While no broker answers they are kept, and
        committed by a later call of this or of `poll`.
        """
        mine = self.assigned()
        self._done |= {place: offset for place, offset in offsets.items() if place in mine}
        self._commit()

    def committed(self, partition: TopicPartition) -> int | None:
        return self._committed(self._group, *partition)

    def assigned(self) -> frozenset[TopicPartition]:
        return frozenset(tuple(place) for place in self._client.assignment()) if self._client else frozenset()

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        self._paused |= self.assigned() & set(partitions)

    def resume(self, partitions: Sequence[TopicPartition]) -> None:
        self._paused -= set(partitions)

    def close(self) -> None:
        """Leave the group at once, so that the others need not wait for the session to run out."""
        if self._closed:
            return
        self._commit_at = 0.0
        self._commit()
        self._closed = True
        self._drop()

    # ---- rebalances: called by the client's own thread while this one waits in `poll` or `close` -----------

    def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        """What is new is fetched from its committed offset; what is paused stays so."""

    def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        """They go to another member in a second round, for which this one has to join again: what is finished can still
        be committed before.
        """
        for place in revoked:
            self._held.pop(tuple(place), None)

    def on_partitions_lost(self, lost: Iterable[Any]) -> None:
        for place in lost:
            self._held.pop(tuple(place), None)
            self._done.pop(tuple(place), None)

    # ---- the client -----------------------------------------------------------------------------

    def _open(self) -> None:
        """Connect; a broker that does not answer is asked again by the next `poll`. Raises BrokerRefused."""
        config = {
            **self._policy.consumer(self._group),
            "partition_assignment_strategy": [CooperativeStickyAssignor],
        }
        try:
            self._client = connected(KafkaConsumer, self._policy.bootstrap, self._hint, config)
        except BrokerUnavailable as error:
            log.warning("broker_away", group=self._group, reason=error.sentence)
            return
        self._client.subscribe(topics=self._topics, listener=self)

    def _drop(self) -> None:
        """Leave, and forget what only this membership knew."""
        client, self._client = self._client, None
        if client is not None:
            with contextlib.suppress(errors.KafkaError):
                client.close(autocommit=False, timeout_ms=_CLOSE_S * 1000)
        self._ids, self._held, self._done = {}, {}, {}

    def _fetch(self, wait_s: float) -> None:
        """One poll of the client; it also keeps up the membership, so it is due however much is held."""
        if self._client is None:
            self._open()
            return
        try:
            self._store(self._client.poll(timeout_ms=wait_s * 1000, max_records=_ALL))
            if self._client is not None and self._client.group_metadata().state != MemberState.STABLE:
                self._client._coordinator.request_rejoin()  # noqa: SLF001 - see _JOIN_S
                self._store(self._client.poll(timeout_ms=_JOIN_S * 1000, max_records=_ALL))
        except errors.KafkaError as error:
            self._fault(error, wait_s)

    def _store(self, found: Mapping[Any, Sequence[Any]]) -> None:
        """Hold what was fetched."""
        if self._made_anew():
            self._drop()
            return
        for place, records in found.items():
            held = self._held.setdefault(tuple(place), deque())
            held.extend(self._record(record) for record in records)
        self._rest_what_has_enough()

    def _fault(self, error: errors.KafkaError, wait_s: float) -> None:
        if is_refusal(error):
            raise translate(error, self._policy.bootstrap) from error
        log.warning("consumer_fault", group=self._group, fault=type(error).__name__, reason=said(error))
        if not error.retriable:
            self._drop()
        time.sleep(min(wait_s, _REST_S))

    def _made_anew(self) -> bool:
        """Whether a topic was deleted and made again since it was first seen: then every position in it means nothing.

        The client notices by its metadata, at most `metadata_s` late, and fetches by name; until then records of the
        new topic may come under the old id. They come again.
        """
        for topic in {place.topic for place in self._client.assignment()}:
            now = topic_id(self._client._cluster, topic)  # noqa: SLF001 - it has no public way to a topic's id
            if now and self._ids.setdefault(topic, now) != now:
                log.warning("topic_made_anew", topic=topic, group=self._group)
                return True
        return False

    def _rest_what_has_enough(self) -> None:
        assigned = self._client.assignment()
        enough = {Partition(*place) for place, held in self._held.items() if len(held) >= _ENOUGH} & assigned
        resting = self._client.paused()
        self._client.pause(*(enough - resting))
        self._client.resume(*(resting - enough))

    # ---- records --------------------------------------------------------------------------------

    def _take(self, room: int) -> list[Record]:
        """What is held and not paused, each partition in turn first."""
        places = sorted(place for place, held in self._held.items() if held and place not in self._paused)
        self._turn += 1
        records: list[Record] = []
        for number in range(len(places)):
            held = self._held[places[(self._turn + number) % len(places)]]
            records += [held.popleft() for _ in range(min(len(held), room - len(records)))]
        return records

    def _record(self, record: Any) -> Record:
        where = Place(
            topic=record.topic,
            topic_id=self._ids.get(record.topic, ""),
            partition=record.partition,
            offset=record.offset,
        )
        headers = tuple((name, value or b"") for name, value in record.headers or ())
        return Record(place=where, key=record.key or b"", value=record.value or b"", headers=headers)

    # ---- offsets --------------------------------------------------------------------------------

    def _commit(self) -> None:
        """Commit what is finished. What the broker does not take now is kept for the next time."""
        if not self._done or self._client is None or time.monotonic() < self._commit_at:
            return
        done = dict(self._done)
        try:
            self._client.commit(
                {Partition(*place): OffsetAndMetadata(offset, "", -1) for place, offset in done.items()},
                timeout_ms=_COMMIT_S * 1000,
            )
        except errors.KafkaError as error:
            if is_refusal(error):
                raise translate(error, self._policy.bootstrap) from error
            log.debug("commit_waits", group=self._group, fault=type(error).__name__)
            self._commit_at = time.monotonic() + _REST_S
            mine = self.assigned()
            self._done = {place: offset for place, offset in self._done.items() if place in mine}
            return
        self._done = {place: offset for place, offset in self._done.items() if done.get(place) != offset}


def topic_id(cluster: Any, topic: str) -> str:
    """The topic's id as this client last heard it, or "" (not heard yet, or not there)."""
    found = cluster.topic_id(topic)
    return "" if found is None else str(found)
