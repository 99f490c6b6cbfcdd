"""Topics in Apache Kafka, through kafka-python."""

from __future__ import annotations

import threading
import time
import zlib
from collections.abc import Sequence
from typing import Any

from kafka import KafkaProducer, errors

from infra.queue.kafka_consumer import GroupMember, topic_id
from infra.queue.kafka_faults import BrokerUnavailable, MessageTooLarge, connected, translate
from infra.queue.kafka_policy import KafkaPolicy
from infra.queue.kafka_topics import Topics
from jobs.errors import NightmillError, NotFound
from jobs.ports.queue import Outgoing, TopicFacts
from jobs.ports.store import Place

_LATE_S = 1.0
"""The producer gives a message up by itself; so much longer is waited for its word."""


class KafkaQueue:
    """`jobs.ports.queue.Queue`. May be used from any thread; each consumer from one.

    Nothing connects before it is first needed. A broker that is away makes `publish` and the questions raise
    BrokerUnavailable within the policy's times; when it is back the same object goes on.
    """

    def __init__(self, policy: KafkaPolicy) -> None:
        self.policy = policy
        self._hint = _hint(policy)
        self._topics = Topics(policy, self._hint)
        self._lock = threading.Lock()
        self._producer: Any = None

    def ensure_topics(self, topics: Sequence[str], partitions: int | None = None) -> None:
        """A topic that is there and not as the policy says is reported in the log, and left alone."""
        self._topics.ensure(topics, partitions or self.policy.partitions)

    def disagreements(self, topics: Sequence[str], partitions: int | None = None) -> list[str]:
        """About partitions, replication and retention."""
        found = self._topics.disagreements(topics, partitions or self.policy.partitions)
        return [disagreement.sentence for disagreement in found]

    def publish(self, messages: Sequence[Outgoing]) -> list[Place]:
        """Raises NotFound for a topic that is not there, and then sends none of the messages; MessageTooLarge;
        BrokerUnavailable when not all were acknowledged in time: some of them may be stored all the same.
        """
        if not messages:
            return []
        producer = self._open_producer()
        topics = list(dict.fromkeys(message.topic for message in messages))
        try:
            logs = {topic: self._log_of(producer, topic) for topic in topics}
            sent = [self._send(producer, message, logs[message.topic]) for message in messages]
            until = time.monotonic() + self.policy.publish_s + _LATE_S
            acknowledged = [future.get(timeout=max(0.0, until - time.monotonic())) for future in sent]
        except errors.KafkaError as error:
            raise self._unsent(producer, topics, error) from error
        return [
            Place(topic=ack.topic, topic_id=logs[ack.topic][0], partition=ack.partition, offset=ack.offset)
            for ack in acknowledged
        ]

    def consumer(self, group: str, topics: Sequence[str]) -> GroupMember:
        return GroupMember(self.policy, self._hint, group=group, topics=topics, committed=self._topics.committed)

    def facts(self, topic: str) -> TopicFacts | None:
        return self._topics.facts(topic)

    def committed(self, group: str, topic: str, partition: int) -> int | None:
        return self._topics.committed(group, topic, partition)

    def delete_topic(self, topic: str) -> None:
        self._topics.delete(topic)

    def close(self) -> None:
        with self._lock:
            producer, self._producer = self._producer, None
        if producer is not None:
            _shut(producer, _LATE_S)
        self._topics.close()

    # ---- sending --------------------------------------------------------------------------------

    def _open_producer(self) -> Any:
        with self._lock:
            if self._producer is None:
                where = self.policy.bootstrap
                self._producer = connected(KafkaProducer, where, self._hint, self.policy.producer())
            return self._producer

    def _log_of(self, producer: Any, topic: str) -> tuple[str, int]:
        """The topic's id and the number of its partitions.

        The id is read before the send, so that it is never newer than the log that the message fell into: an older one
        makes the reaper release the task again, a newer one would make it wait for ever.
        """
        cluster = producer._metadata  # noqa: SLF001 - it has no public way to a topic's id
        if cluster.partitions_for_topic(topic) is None and not self._topics.exist([topic]):
            raise NotFound(kind="topic", name=topic, hint="Topics are made before use.")
        partitions = producer.partitions_for(topic)
        return topic_id(cluster, topic), len(partitions)

    @staticmethod
    def _send(producer: Any, message: Outgoing, log: tuple[str, int]) -> Any:
        return producer.send(
            message.topic,
            key=message.key,
            value=message.value,
            headers=list(message.headers),
            partition=zlib.crc32(message.key) % log[1],
        )

    def _unsent(self, producer: Any, topics: list[str], error: errors.KafkaError) -> NightmillError:
        """What became of a message that was not acknowledged."""
        where = self.policy.bootstrap
        fault = translate(error, where, ", ".join(topics))
        if isinstance(error, errors.KafkaTimeoutError):
            fault = BrokerUnavailable(where=where, reason=f"nothing acknowledged within {self.policy.publish_s:g} s")
        if isinstance(fault, MessageTooLarge):
            return fault
        unheard = [t for t in topics if producer._metadata.partitions_for_topic(t) is None]  # noqa: SLF001 - as above
        self._discard(producer)
        for topic in unheard:
            if not self._topics.exist([topic]):
                return NotFound(kind="topic", name=topic, hint="Topics are made before use.")
        return fault

    def _discard(self, producer: Any) -> None:
        """kafka-python 3.0's producer sends nothing more once a message has run out of time, and it goes on refusing
        from memory what was refused once; so the next publish makes another.
        """
        with self._lock:
            if self._producer is producer:
                self._producer = None
        _shut(producer, 0)


def open_kafka(policy: KafkaPolicy) -> KafkaQueue:
    """The queue of a Kafka cluster."""
    return KafkaQueue(policy)


def _hint(policy: KafkaPolicy) -> str:
    """What else may be wrong where a client only timed out."""
    security = policy.security
    doubts = []
    if security.logs_in:
        doubts.append(f"the name or password of user {security.username!r} for {security.mechanism}")
    if security.encrypts:
        doubts.append("its certificate")
    return f" (either no broker is ready there, or wrong is {' or '.join(doubts)})" if doubts else ""


def _shut(producer: Any, wait_s: float) -> None:
    """Close a producer; what is still unsent then is given up."""
    try:
        producer.close(timeout=wait_s)
    except errors.KafkaError:
        producer._sender.force_close()  # noqa: SLF001 - `close` has left its thread running
