"""A broker in memory, one partition a topic, with what a test of a dispatcher needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jobs.errors import NotFound, Unavailable
from jobs.ports.queue import Consumer, Outgoing, Queue, Record, TopicFacts, TopicPartition
from jobs.ports.store import Place


class MemoryQueue(Queue):
    """Topics as lists; `make_anew` gives one a new id, as a deleted and recreated topic has. away: so many publishes
    from now on fail.
    """

    def __init__(self) -> None:
        self.topics: dict[str, list[Outgoing]] = {}
        self.topic_ids: dict[str, str] = {}
        self.log_start: dict[str, int] = {}
        self.away = 0
        self.committed_offsets: dict[tuple[str, str, int], int] = {}

    def make_anew(self, topic: str, topic_id: str) -> None:
        self.topics[topic], self.topic_ids[topic] = [], topic_id

    def ensure_topics(self, topics: Sequence[str], partitions: int | None = None) -> None:
        for topic in topics:
            if topic not in self.topics:
                self.make_anew(topic, f"{topic}-1")

    def publish(self, messages: Sequence[Outgoing]) -> list[Place]:
        if self.away:
            self.away -= 1
            raise Unavailable(reason="the test took it away")
        for message in messages:
            if message.topic not in self.topics:
                raise NotFound(kind="topic", name=message.topic, hint="")
        return [self._append(message) for message in messages]

    def consumer(self, group: str, topics: Sequence[str]) -> MemoryConsumer:
        return MemoryConsumer(self, group, topics)

    def facts(self, topic: str) -> TopicFacts | None:
        if topic not in self.topics:
            return None
        start = {0: self.log_start.get(topic, 0)}
        end = {0: len(self.topics[topic])}
        return TopicFacts(topic=topic, topic_id=self.topic_ids[topic], partitions=1, log_start=start, log_end=end)

    def committed(self, group: str, topic: str, partition: int) -> int | None:
        return self.committed_offsets.get((group, topic, partition))

    def delete_topic(self, topic: str) -> None:
        del self.topics[topic]

    def close(self) -> None: ...

    def _append(self, message: Outgoing) -> Place:
        log = self.topics[message.topic]
        log.append(message)
        topic_id = self.topic_ids[message.topic]
        return Place(topic=message.topic, topic_id=topic_id, partition=0, offset=len(log) - 1)


class MemoryConsumer(Consumer):
    """Has all partitions. Records already polled are `position`; `rewind` is what a restart or a rebalance does."""

    def __init__(self, queue: MemoryQueue, group: str, topics: Sequence[str]) -> None:
        self.queue = queue
        self.group = group
        self.topics = list(topics)
        self.position: dict[str, int] = {}
        self.paused: frozenset[TopicPartition] = frozenset()

    def rewind(self, topic: str) -> None:
        self.position[topic] = self.queue.committed(self.group, topic, 0) or 0

    def poll(self, timeout_s: float, max_records: int = 64) -> list[Record]:
        records: list[Record] = []
        for topic in self.topics:
            if (topic, 0) not in self.paused:
                records += self._take(topic, max_records - len(records))
        return records

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        for (topic, partition), offset in offsets.items():
            self.queue.committed_offsets[self.group, topic, partition] = offset

    def committed(self, partition: TopicPartition) -> int | None:
        return self.queue.committed(self.group, *partition)

    def assigned(self) -> frozenset[TopicPartition]:
        return frozenset((topic, 0) for topic in self.topics)

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        self.paused |= frozenset(partitions)

    def resume(self, partitions: Sequence[TopicPartition]) -> None:
        self.paused -= frozenset(partitions)

    def close(self) -> None: ...

    def _take(self, topic: str, most: int) -> list[Record]:
        at = self.position.get(topic, 0)
        taken = self.queue.topics[topic][at : at + most]
        self.position[topic] = at + len(taken)
        return [
            Record(
                place=Place(topic=topic, topic_id=self.queue.topic_ids[topic], partition=0, offset=at + number),
                key=message.key,
                value=message.value,
                headers=message.headers,
            )
            for number, message in enumerate(taken)
        ]
