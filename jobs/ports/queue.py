"""The queue port: topics with partitions, consumer groups and committed offsets; Apache Kafka's contract.

Topics are made before use. Delivery is at least once. A record is finished when its offset has been committed; after a
restart or a rebalance a group goes on from its committed offsets, and from the earliest record where it has none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from jobs.model import Value
from jobs.ports.store import Place

TopicPartition = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Record(Value):
    """What a consumer got. key and value are bytes; an unreadable value is the consumer's to dead-letter."""

    place: Place
    key: bytes
    value: bytes
    headers: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing(Value):
    """What a producer sends."""

    topic: str
    key: bytes
    value: bytes
    headers: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFacts(Value):
    """A topic as the backend has it. log_start: first offset still there, by partition."""

    topic: str
    topic_id: str
    partitions: int
    log_start: Mapping[int, int] = field(default_factory=dict)
    log_end: Mapping[int, int] = field(default_factory=dict)


class Consumer(Protocol):
    """One member of a consumer group. Used from one thread."""

    def poll(self, timeout_s: float, max_records: int = 64) -> list[Record]:
        """Records from the partitions that are assigned and not paused; waits up to `timeout_s` for the first.

        Keeps up the membership, so it is called however little room there is. Empty while the broker is away.
        """
        ...

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Everything before these offsets is finished. Never fails because the broker is away: it is made up for."""
        ...

    def committed(self, partition: TopicPartition) -> int | None: ...

    def assigned(self) -> frozenset[TopicPartition]: ...

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        """`poll` gives no record of these until `resume`, through every rebalance that leaves them with this member."""
        ...

    def resume(self, partitions: Sequence[TopicPartition]) -> None: ...

    def close(self) -> None: ...


class Queue(Protocol):
    """A broker."""

    def ensure_topics(self, topics: Sequence[str], partitions: int | None = None) -> None:
        """Make those that are not there, with as many partitions as the backend's settings say unless told; existing
        ones stay as they are.
        """
        ...

    def disagreements(self, topics: Sequence[str], partitions: int | None = None) -> list[str]:
        """Where topics that are there are not as `ensure_topics` would make them, a sentence each."""
        ...

    def publish(self, messages: Sequence[Outgoing]) -> list[Place]:
        """Send and wait until all are durable; places in the order of the messages."""
        ...

    def consumer(self, group: str, topics: Sequence[str]) -> Consumer: ...

    def facts(self, topic: str) -> TopicFacts | None:
        """None for a topic that is not there."""
        ...

    def committed(self, group: str, topic: str, partition: int) -> int | None:
        """A group's committed offset, or None; the group need not be ours, nor alive."""
        ...

    def delete_topic(self, topic: str) -> None: ...

    def close(self) -> None: ...
