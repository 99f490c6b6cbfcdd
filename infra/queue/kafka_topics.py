"""Kafka's topics and committed offsets, asked for and made through its admin API."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import structlog
from kafka import KafkaAdminClient, OffsetSpec, TopicPartition, errors
from kafka.admin import ConfigResource, ConfigResourceType

from infra.queue.kafka_faults import BrokerUnavailable, connected, translate
from infra.queue.kafka_policy import KafkaPolicy
from jobs.model import Value
from jobs.ports.queue import TopicFacts

log = structlog.get_logger()

T = TypeVar("T")

_RETRY_S = 0.1
_ALREADY_THERE = errors.TopicAlreadyExistsError.errno
_NOT_THERE = errors.UnknownTopicOrPartitionError.errno


@dataclass(frozen=True, slots=True, kw_only=True)
class Disagreement(Value):
    """A topic is not as the settings say. Nightmill changes no topic that is there: its operator does."""

    topic: str
    what: str
    wanted: str
    found: str

    @property
    def sentence(self) -> str:
        return f"Topic {self.topic} has {self.what} {self.found} instead of {self.wanted}."


class Topics:
    """From any thread; one question at a time."""

    def __init__(self, policy: KafkaPolicy, hint: str) -> None:
        self._policy = policy
        self._hint = hint
        self._lock = threading.RLock()
        self._client: Any = None

    def ensure(self, topics: Sequence[str], partitions: int) -> None:
        """Make those that are not there; say where others disagree with the policy."""
        known = self._known(topics)
        new = [topic for topic in dict.fromkeys(topics) if topic not in known]
        if new:
            self._ask(lambda client: self._make(client, new, partitions))
        for disagreement in self._compare(list(known), known, partitions):
            log.warning("topic_disagrees", **{name: getattr(disagreement, name) for name in disagreement.__slots__})

    def disagreements(self, topics: Sequence[str], partitions: int) -> list[Disagreement]:
        """Where topics that are there are not as the policy says."""
        known = self._known(topics)
        return list(self._compare(list(known), known, partitions))

    def facts(self, topic: str) -> TopicFacts | None:
        return self._ask(lambda client: self._facts(client, topic))

    def exist(self, topics: Sequence[str]) -> set[str]:
        return set(self._known(topics))

    def delete(self, topic: str) -> None:
        self._ask(lambda client: self._delete(client, topic))

    def committed(self, group: str, topic: str, partition: int) -> int | None:
        place = TopicPartition(topic, partition)
        found = self._ask(lambda client: client.list_group_offsets({group: [place]}))[group].get(place)
        return None if found is None or found.offset < 0 else int(found.offset)

    def close(self) -> None:
        with self._lock:
            self._drop()

    # ---- questions ------------------------------------------------------------------------------

    def _ask(self, question: Callable[[Any], T]) -> T:
        """Ask, for as long as the policy allows; a broker that moved or restarted meanwhile is found again."""
        until = time.monotonic() + self._policy.answer_s
        with self._lock:
            while True:
                try:
                    if self._client is None:
                        self._client = connected(
                            KafkaAdminClient, self._policy.bootstrap, self._hint, self._policy.admin()
                        )
                    return question(self._client)
                except errors.KafkaError as error:
                    self._drop()
                    if not error.retriable or time.monotonic() >= until:
                        raise translate(error, self._policy.bootstrap) from error
                    time.sleep(_RETRY_S)

    def _drop(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _known(self, topics: Sequence[str]) -> dict[str, Any]:
        """Topic → its description, of those that there are."""
        return self._ask(lambda client: _described(client, topics))

    def _facts(self, client: Any, topic: str) -> TopicFacts | None:
        described = _described(client, [topic]).get(topic)
        if described is None:
            return None
        places = [TopicPartition(topic, p["partition_index"]) for p in described["partitions"]]
        first = client.list_partition_offsets(dict.fromkeys(places, OffsetSpec.EARLIEST))
        end = client.list_partition_offsets(dict.fromkeys(places, OffsetSpec.LATEST))
        return TopicFacts(
            topic=topic,
            topic_id=str(described["topic_id"] or ""),
            partitions=len(places),
            log_start={place.partition: first[place].offset for place in sorted(places)},
            log_end={place.partition: end[place].offset for place in sorted(places)},
        )

    def _make(self, client: Any, topics: list[str], partitions: int) -> None:
        replication = self._replication(client)
        configs = {"retention.ms": str(self._retention_ms)}
        if replication >= 3:
            configs["min.insync.replicas"] = "2"
        wanted = {"num_partitions": partitions, "replication_factor": replication, "configs": configs}
        answer = client.create_topics(dict.fromkeys(topics, wanted), raise_errors=False)
        for topic in answer["topics"]:
            if topic["error_code"] not in {0, _ALREADY_THERE}:
                fault = errors.for_code(topic["error_code"])
                raise fault(f"topic {topic['name']}: {topic['error_message'] or fault.description}")
        client.wait_for_topics(topics, timeout_ms=self._policy.answer_s * 1000)
        log.info("topics_made", topics=topics, partitions=partitions, replication=replication)

    def _delete(self, client: Any, topic: str) -> None:
        """And wait until the broker no longer knows it."""
        answer = client.delete_topics([topic], raise_errors=False)
        code = answer["topics"][0]["error_code"]
        if code not in {0, _NOT_THERE}:
            raise errors.for_code(code)(f"topic {topic}")
        until = time.monotonic() + self._policy.answer_s
        while _described(client, [topic]):
            if time.monotonic() >= until:
                raise BrokerUnavailable(where=self._policy.bootstrap, reason=f"topic {topic} is still being deleted")
            time.sleep(_RETRY_S / 2)

    # ---- how topics should be -------------------------------------------------------------------

    @property
    def _retention_ms(self) -> int:
        return round(self._policy.retention_s * 1000)

    def _replication(self, client: Any) -> int:
        if self._policy.replication:
            return self._policy.replication
        return 3 if len(client.describe_cluster()["brokers"]) >= 3 else 1

    def _compare(self, topics: list[str], known: dict[str, Any], partitions: int) -> Iterator[Disagreement]:
        if not topics:
            return
        replication, configs = self._ask(lambda client: (self._replication(client), _configs(client, topics)))
        for topic in topics:
            parts = known[topic]["partitions"]
            found = {
                "partitions": (partitions, len(parts)),
                "replication": (replication, min(len(part["replica_nodes"]) for part in parts)),
                "retention.ms": (self._retention_ms, int(configs[topic].get("retention.ms", -1))),
            }
            for what, (wanted, is_) in found.items():
                if wanted != is_:
                    yield Disagreement(topic=topic, what=what, wanted=str(wanted), found=str(is_))


def _described(client: Any, topics: Sequence[str]) -> dict[str, Any]:
    found = {}
    for described in client.describe_topics(list(dict.fromkeys(topics))) if topics else []:
        if described["error_code"] == 0:
            found[described["name"]] = described
        elif described["error_code"] != _NOT_THERE:
            raise errors.for_code(described["error_code"])(f"topic {described['name']}")
    return found


def _configs(client: Any, topics: list[str]) -> dict[str, dict[str, str]]:
    """Topic → name → value."""
    resources = [ConfigResource(ConfigResourceType.TOPIC, topic) for topic in topics]
    found = client.describe_configs(resources, config_filter="all").get("topic", {})
    return {topic: {name: entry["value"] for name, entry in found.get(topic, {}).items()} for topic in topics}
