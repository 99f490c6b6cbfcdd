"""The queue port: one body over every adapter. Apache Kafka's contract."""

import threading
import zlib

import pytest

from jobs.errors import NotFound
from jobs.ports.queue import Outgoing, Record, TopicFacts
from jobs.ports.store import Place

pytestmark = pytest.mark.contract

T = "nightmill.batch.normal"
P0, P1 = (T, 0), (T, 1)


def a_message(key=b"k", value=b"v", topic=T, **fields):
    return Outgoing(topic=topic, key=key, value=value, **fields)


def keys_for(partition, count, of=2):
    """Keys that fall on one partition."""
    names = (b"k%d" % n for n in range(10_000))
    return [key for key in names if zlib.crc32(key) % of == partition][:count]


def drained(consumer, **poll):
    records = []
    while found := consumer.poll(0.0, **poll):
        records += found
    return records


def values(records):
    return [record.value for record in records]


@pytest.fixture
def consumers(queue):
    """Makes consumers of one group on T, and closes them."""
    opened = []

    def make(group="g", topics=(T,)):
        opened.append(queue.consumer(group, list(topics)))
        return opened[-1]

    yield make
    for consumer in opened:
        consumer.close()


def settle(*consumers):
    """Let members notice a rebalance."""
    for consumer in consumers:
        consumer.pause([P0, P1])
        consumer.poll(0.0)
        consumer.resume([P0, P1])


def test_a_record_comes_out_as_it_went_in(queue, consumers):
    queue.ensure_topics([T])
    topic_id = queue.facts(T).topic_id
    sent = a_message(b"key", b"\x00\xff", headers=(("traceparent", b"00-\xfe"), ("traceparent", b"")))
    places = queue.publish([sent, sent])
    assert places == [Place(topic=T, topic_id=topic_id, partition=0, offset=n) for n in (0, 1)]
    assert drained(consumers()) == [
        Record(place=place, key=sent.key, value=sent.value, headers=sent.headers) for place in places
    ]


def test_topics_are_made_once_and_keep_their_id(queue):
    assert queue.facts(T) is None
    queue.ensure_topics([T, T], partitions=2)
    made = queue.facts(T)
    assert made == TopicFacts(
        topic=T, topic_id=made.topic_id, partitions=2, log_start={0: 0, 1: 0}, log_end={0: 0, 1: 0}
    )
    queue.ensure_topics([T], partitions=5)
    assert queue.facts(T) == made


def test_a_topic_made_anew_has_another_id_and_nothing_of_the_old_one(queue, consumers):
    queue.ensure_topics([T])
    queue.publish([a_message()])
    consumer = consumers()
    assert len(drained(consumer)) == 1
    consumer.commit({P0: 1})
    old = queue.facts(T)
    queue.delete_topic(T)
    assert queue.facts(T) is None
    assert drained(consumer) == []
    assert consumer.assigned() == frozenset()
    queue.ensure_topics([T])
    assert queue.facts(T).topic_id != old.topic_id
    assert consumer.committed(P0) is None
    (place,) = queue.publish([a_message(value=b"new")])
    assert place.offset == 0
    assert values(drained(consumer)) == [b"new"]


def test_deleting_a_topic_that_is_not_there_is_no_error(queue):
    queue.delete_topic("nobody")


def test_publishing_to_an_unknown_topic_sends_nothing_at_all(queue, consumers):
    queue.ensure_topics([T])
    with pytest.raises(NotFound, match="nobody"):
        queue.publish([a_message(), a_message(topic="nobody")])
    assert queue.publish([]) == []
    assert queue.facts(T).log_end == {0: 0}


def test_a_key_always_falls_on_its_partition_in_order(queue, consumers):
    queue.ensure_topics([T], partitions=2)
    one, two = keys_for(0, 1)[0], keys_for(1, 1)[0]
    places = queue.publish([a_message(key, b"%d" % n) for n, key in enumerate([one, two, one, one])])
    assert [(place.partition, place.offset) for place in places] == [(0, 0), (1, 0), (0, 1), (0, 2)]
    records = drained(consumers())
    assert values(r for r in records if r.key == one) == [b"0", b"2", b"3"]


def test_a_group_starts_at_the_earliest_record_and_goes_on_after_its_commit(queue, consumers):
    queue.ensure_topics([T])
    queue.publish([a_message(value=b"%d" % n) for n in range(4)])
    first = consumers()
    assert first.committed(P0) is None
    assert values(first.poll(0.0, max_records=3)) == [b"0", b"1", b"2"]
    first.commit({P0: 2})
    first.close()
    second = consumers()
    assert second.committed(P0) == queue.committed("g", T, 0) == 2
    assert values(drained(second)) == [b"2", b"3"]


def test_groups_do_not_see_each_other(queue, consumers):
    queue.ensure_topics([T])
    queue.publish([a_message()])
    for consumer in [consumers("a"), consumers("b")]:
        assert len(drained(consumer)) == 1
        consumer.commit({P0: 1})
    assert queue.committed("c", T, 0) is None


def test_members_share_the_partitions_and_take_over_what_one_leaves(queue, consumers):
    queue.ensure_topics([T], partitions=2)
    one = consumers()
    assert one.assigned() == {P0, P1}
    two = consumers()
    settle(one, two)
    assert one.assigned() | two.assigned() == {P0, P1}
    assert len(one.assigned()) == len(two.assigned()) == 1
    one.close()
    settle(two)
    assert two.assigned() == {P0, P1}


def test_a_member_that_is_one_too_many_has_nothing_until_another_leaves(queue, consumers):
    queue.ensure_topics([T])
    queue.publish([a_message()])
    members = [consumers(), consumers()]
    settle(*members)
    idle, busy = sorted(members, key=lambda member: len(member.assigned()))
    assert idle.assigned() == frozenset()
    assert len(drained(busy)) == 1
    busy.close()
    assert len(drained(idle)) == 1  # not committed, so it comes again


def test_a_partition_that_is_kept_goes_on_where_it_is(queue, consumers):
    queue.ensure_topics([T], partitions=2)
    queue.publish([a_message(key, key) for key in (keys_for(0, 3) + keys_for(1, 3))])
    one = consumers()
    assert len(drained(one)) == 6
    two = consumers()
    settle(one, two)
    again = drained(two)
    assert drained(one) == []
    assert len(again) == 3  # not committed by the one that had them


def test_a_commit_for_a_partition_that_went_to_another_has_no_effect(queue, consumers):
    queue.ensure_topics([T], partitions=2)
    one, two = consumers(), consumers()
    settle(one, two)
    one.commit({P0: 5, P1: 5})
    mine = [queue.committed("g", T, part) for part in (0, 1)]
    assert sorted(mine, key=str) == [5, None]


def test_a_silent_member_loses_its_partitions_and_comes_back(queue, consumers, clock):
    queue.ensure_topics([T], partitions=2)
    one, two = consumers(), consumers()
    settle(one, two)
    clock.advance(6.0)
    settle(two)
    assert len(two.assigned()) == 1
    clock.advance(6.0)
    settle(two)  # beats, and buries the other one
    settle(two)
    assert two.assigned() == {P0, P1}
    settle(one, two)
    settle(one, two)
    assert len(one.assigned()) == len(two.assigned()) == 1


def test_a_paused_partition_gives_nothing_until_it_is_resumed(queue, consumers):
    queue.ensure_topics([T], partitions=2)
    queue.publish([a_message(keys_for(0, 1)[0], b"0"), a_message(keys_for(1, 1)[0], b"1")])
    consumer = consumers()
    consumer.pause([P0, ("nobody", 0)])
    assert values(drained(consumer)) == [b"1"]
    consumer.resume([P0])
    assert values(drained(consumer)) == [b"0"]


def test_a_full_partition_starves_no_other(queue, consumers):
    queue.ensure_topics([T], partitions=2)
    queue.publish([a_message(keys_for(0, 1)[0]) for _ in range(50)] + [a_message(keys_for(1, 1)[0])])
    consumer = consumers()
    seen = [record.place.partition for _ in range(2) for record in consumer.poll(0.0, max_records=3)]
    assert 1 in seen


def test_poll_wakes_up_for_a_record(queue, consumers):
    queue.ensure_topics([T])
    consumer = consumers()
    got = []
    waiting = threading.Thread(target=lambda: got.extend(consumer.poll(60.0)))
    waiting.start()
    queue.publish([a_message(value=b"late")])
    waiting.join(timeout=30.0)
    assert values(got) == [b"late"]


def test_producers_may_be_many(queue, consumers):
    queue.ensure_topics([T], partitions=2)
    places = []
    threads = [
        threading.Thread(target=lambda n=n: places.extend(queue.publish([a_message(b"%d" % n) for _ in range(5)])))
        for n in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({(place.partition, place.offset) for place in places}) == 40
    assert sum(queue.facts(T).log_end.values()) == len(drained(consumers())) == 40


def test_records_that_every_group_has_finished_go(queue, consumers, clock):
    queue.ensure_topics([T])
    queue.publish([a_message(value=b"%d" % n) for n in range(4)])
    fast, slow = consumers("fast"), consumers("slow")
    clock.advance(9.0)
    fast.commit({P0: 4})
    assert queue.facts(T).log_start == {0: 0}
    clock.advance(9.0)
    slow.commit({P0: 3})
    assert queue.facts(T) == queue.facts(T).evolve(log_start={0: 3}, log_end={0: 4})
    assert values(drained(slow)) == [b"3"]


def test_records_go_by_age_whoever_waits_for_them(queue, consumers, clock):
    queue.ensure_topics([T, "other"])
    queue.publish([a_message(), a_message()])
    clock.advance(86_399.0)
    queue.publish([a_message(value=b"young"), a_message(topic="other")])
    clock.advance(2.0)
    consumer = consumers()
    consumer.commit({P0: 0})
    assert queue.facts(T).log_start == {0: 2}
    assert values(drained(consumers("g2"))) == [b"young"]


def test_closing_twice_is_fine(queue):
    queue.ensure_topics([T])
    consumer = queue.consumer("g", [T])
    consumer.close()
    consumer.close()


def test_a_topic_that_comes_later_is_assigned_when_it_is_there(queue, consumers):
    consumer = consumers()
    assert consumer.poll(0.0) == []
    queue.ensure_topics([T])
    queue.publish([a_message()])
    assert len(drained(consumer)) == 1
