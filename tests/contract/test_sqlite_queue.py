"""What only the embedded topics promise, by a clock that a test may move."""

import pytest

from infra.clocks import SeededIds
from infra.queue import open_queue
from infra.sql import AT_ONCE
from jobs.ports.queue import Outgoing

pytestmark = pytest.mark.contract

T = "nightmill.batch.normal"
P0, P1 = (T, 0), (T, 1)


@pytest.fixture
def queue(tmp_path, clock, no_flush):
    opened = open_queue(tmp_path / "home", clock=clock, ids=SeededIds(), pace=AT_ONCE)
    yield opened
    opened.close()


@pytest.fixture
def consumers(queue):
    opened = []

    def make(group="g"):
        opened.append(queue.consumer(group, [T]))
        return opened[-1]

    yield make
    for consumer in opened:
        consumer.close()


def a_message(value=b"v", topic=T):
    return Outgoing(topic=topic, key=b"k", value=value)


def values(consumer):
    return [record.value for record in consumer.poll(0.0)]


def test_a_silent_member_loses_its_partitions_and_comes_back(queue, consumers, clock):
    queue.ensure_topics([T], partitions=2)
    one, two = consumers(), consumers()
    for consumer in (one, two):
        consumer.poll(0.0)
    clock.advance(6.0)
    two.poll(0.0)
    assert len(two.assigned()) == 1
    clock.advance(6.0)
    two.poll(0.0)  # beats, and buries the other one
    two.poll(0.0)
    assert two.assigned() == {P0, P1}
    for consumer in (one, two):
        consumer.poll(0.0)
    assert len(one.assigned()) == len(two.assigned()) == 1


def test_records_that_every_group_has_finished_go(queue, consumers, clock):
    queue.ensure_topics([T])
    queue.publish([a_message(b"%d" % n) for n in range(4)])
    fast, slow = consumers("fast"), consumers("slow")
    clock.advance(9.0)
    fast.commit({P0: 4})
    assert queue.facts(T).log_start == {0: 0}
    clock.advance(9.0)
    slow.commit({P0: 3})
    assert queue.facts(T) == queue.facts(T).evolve(log_start={0: 3}, log_end={0: 4})
    assert values(slow) == [b"3"]


def test_records_go_by_age_whoever_waits_for_them(queue, consumers, clock):
    queue.ensure_topics([T, "other"])
    queue.publish([a_message(), a_message()])
    clock.advance(86_399.0)
    queue.publish([a_message(b"young"), a_message(topic="other")])
    clock.advance(2.0)
    consumer = consumers()
    consumer.commit({P0: 0})
    assert queue.facts(T).log_start == {0: 2}
    assert values(consumers("g2")) == [b"young"]
