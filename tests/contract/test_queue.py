"""The queue port: one body over every adapter. Apache Kafka's contract."""

import threading
import zlib
from concurrent.futures import ThreadPoolExecutor

import pytest

from jobs.errors import NotFound
from jobs.ports.queue import Outgoing, Record, TopicFacts
from jobs.ports.store import Place
from tests.support.kafka import eventually

pytestmark = pytest.mark.contract

T = "nightmill.batch.normal"
P0, P1 = (T, 0), (T, 1)
QUIET_S = 0.3
"""Nothing more came for so long: then nothing more comes. (A broker far away needs a moment to say anything at all.)"""


def a_message(key=b"k", value=b"v", topic=T, **fields):
    return Outgoing(topic=topic, key=key, value=value, **fields)


def keys_for(partition, count, of=2):
    """Keys that fall on one partition."""
    names = (b"k%d" % n for n in range(10_000))
    return [key for key in names if zlib.crc32(key) % of == partition][:count]


def polled(*consumers, wait_s=0.0):
    """What each gives; each polls in a thread of its own, as members do: they wait for each other."""
    with ThreadPoolExecutor(len(consumers)) as threads:
        return [*threads.map(lambda consumer: consumer.poll(wait_s), consumers)]


def got(consumer, count, beside=()):
    """So many records, and then no more. beside: other members, which get none."""
    records, others = [], []

    def look(wait_s=0.02):
        mine, *rest = polled(consumer, *beside, wait_s=wait_s)
        records.extend(mine)
        others.extend(record for theirs in rest for record in theirs)
        return len(records) >= count

    eventually(look)
    look(QUIET_S)
    assert (len(records), others) == (count, [])
    return records


def values(records):
    return [record.value for record in records]


def settle(until, *consumers):
    """Let members notice a rebalance; what each was given meanwhile."""
    given = [[] for _ in consumers]

    def look():
        for records, more in zip(given, polled(*consumers), strict=True):
            records.extend(more)
        return until()

    assert eventually(look)
    return given


def shared_by(*consumers):
    """Whether they have both partitions, and each has one if it can."""
    dealt = [consumer.assigned() for consumer in consumers]
    return frozenset().union(*dealt) == {P0, P1} and sorted(map(len, dealt)) in ([2], [1, 1])


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


def test_a_record_comes_out_as_it_went_in(queue, consumers):
    queue.ensure_topics([T])
    topic_id = queue.facts(T).topic_id
    sent = a_message(b"key", b"\x00\xff", headers=(("traceparent", b"00-\xfe"), ("traceparent", b"")))
    places = queue.publish([sent, sent])
    assert places == [Place(topic=T, topic_id=topic_id, partition=0, offset=n) for n in (0, 1)]
    assert got(consumers(), 2) == [
        Record(place=place, key=sent.key, value=sent.value, headers=sent.headers) for place in places
    ]


def test_topics_are_made_once_and_keep_their_id(queue):
    assert queue.facts(T) is None
    queue.ensure_topics([T, T], partitions=2)
    made = queue.facts(T)
    assert made == TopicFacts(
        topic=T, topic_id=made.topic_id, partitions=2, log_start={0: 0, 1: 0}, log_end={0: 0, 1: 0}
    )
    assert queue.disagreements([T, "nobody"], partitions=2) == []
    queue.ensure_topics([T], partitions=5)
    assert queue.facts(T) == made
    assert queue.disagreements([T, "nobody"], partitions=5) == [f"Topic {T} has partitions 2 instead of 5."]


def test_a_topic_made_anew_has_another_id_and_nothing_of_the_old_one(queue, consumers):
    queue.ensure_topics([T])
    queue.publish([a_message()])
    consumer = consumers()
    assert len(got(consumer, 1)) == 1
    consumer.commit({P0: 1})
    old = queue.facts(T)
    queue.delete_topic(T)
    assert queue.facts(T) is None
    settle(lambda: consumer.assigned() == frozenset(), consumer)
    queue.ensure_topics([T])
    assert queue.facts(T).topic_id != old.topic_id
    assert consumer.committed(P0) is None
    (place,) = queue.publish([a_message(value=b"new")])
    assert (place.topic_id, place.offset) == (queue.facts(T).topic_id, 0)
    (record,) = got(consumer, 1)
    assert (record.value, record.place) == (b"new", place)


def test_a_topic_made_anew_unseen_gives_its_records_from_the_first_one(queue, consumers):
    queue.ensure_topics([T])
    queue.publish([a_message(), a_message()])
    consumer = consumers()
    got(consumer, 2)
    queue.delete_topic(T)
    queue.ensure_topics([T])
    queue.publish([a_message(value=b"%d" % n) for n in range(3)])
    new, records = queue.facts(T).topic_id, []

    def look():  # they may come under the old id first, and then again
        records.extend(record for record in consumer.poll(0.02) if record.place.topic_id == new)
        return len(records) == 3

    assert eventually(look)
    assert [(r.place.offset, r.value) for r in records] == [(0, b"0"), (1, b"1"), (2, b"2")]


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
    records = got(consumers(), 4)
    assert values(r for r in records if r.key == one) == [b"0", b"2", b"3"]


def test_a_group_starts_at_the_earliest_record_and_goes_on_after_its_commit(queue, consumers):
    queue.ensure_topics([T])
    queue.publish([a_message(value=b"%d" % n) for n in range(4)])
    first = consumers()
    assert first.committed(P0) is None
    assert values(eventually(lambda: first.poll(0.02, max_records=3))) == [b"0", b"1", b"2"]
    first.commit({P0: 2})
    first.close()
    second = consumers()
    assert second.committed(P0) == queue.committed("g", T, 0) == 2
    assert values(got(second, 2)) == [b"2", b"3"]


def test_groups_do_not_see_each_other(queue, consumers):
    queue.ensure_topics([T])
    queue.publish([a_message()])
    for consumer in [consumers("a"), consumers("b")]:
        got(consumer, 1)
        consumer.commit({P0: 1})
    assert queue.committed("c", T, 0) is None


def test_members_share_the_partitions_and_take_over_what_one_leaves(queue, consumers):
    queue.ensure_topics([T], partitions=2)
    one = consumers()
    settle(lambda: shared_by(one), one)
    two = consumers()
    settle(lambda: shared_by(one, two), one, two)
    one.close()
    settle(lambda: shared_by(two), two)


def test_a_member_that_is_one_too_many_has_nothing_until_another_leaves(queue, consumers):
    queue.ensure_topics([T])
    members = [consumers(), consumers()]
    settle(lambda: sorted(len(member.assigned()) for member in members) == [0, 1], *members)
    queue.publish([a_message()])
    idle, busy = sorted(members, key=lambda member: len(member.assigned()))
    got(busy, 1, beside=[idle])
    busy.close()
    got(idle, 1)  # not committed, so it comes again


def test_a_partition_that_is_kept_goes_on_where_it_is(queue, consumers):
    queue.ensure_topics([T], partitions=2)
    queue.publish([a_message(key, key) for key in (keys_for(0, 3) + keys_for(1, 3))])
    one = consumers()
    got(one, 6)
    two = consumers()
    by_one, by_two = settle(lambda: shared_by(one, two), one, two)
    by_two += got(two, 3 - len(by_two), beside=[one])
    assert (len(by_one), len(by_two)) == (0, 3)  # not committed by the one that had them


def test_a_commit_for_a_partition_that_went_to_another_has_no_effect(queue, consumers):
    queue.ensure_topics([T], partitions=2)
    one, two = consumers(), consumers()
    settle(lambda: shared_by(one, two), one, two)
    one.commit({P0: 5, P1: 5})
    mine = [queue.committed("g", T, part) for part in (0, 1)]
    assert sorted(mine, key=str) == [5, None]


def test_a_paused_partition_gives_nothing_until_it_is_resumed(queue, consumers):
    queue.ensure_topics([T], partitions=2)
    consumer = consumers()
    settle(lambda: shared_by(consumer), consumer)
    consumer.pause([P0, ("nobody", 0)])
    queue.publish([a_message(keys_for(0, 1)[0], b"0"), a_message(keys_for(1, 1)[0], b"1")])
    assert values(got(consumer, 1)) == [b"1"]
    consumer.resume([P0])
    assert values(got(consumer, 1)) == [b"0"]


def test_a_pause_holds_through_a_rebalance_that_leaves_the_partition_here(queue, consumers):
    queue.ensure_topics([T], partitions=2)
    one = consumers()
    settle(lambda: shared_by(one), one)
    two = consumers()
    settle(lambda: shared_by(one, two), one, two)
    kept = one.assigned()
    one.pause([*kept])
    two.close()
    assert eventually(lambda: one.poll(0.0) == [] and shared_by(one))
    queue.publish([a_message(keys_for(0, 1)[0]), a_message(keys_for(1, 1)[0])])
    assert {(r.place.topic, r.place.partition) for r in one.poll(QUIET_S)} & kept == set()
    one.resume([P0, P1])
    assert eventually(lambda: [r for r in one.poll(0.02) if (r.place.topic, r.place.partition) in kept])


def test_a_full_partition_starves_no_other(queue, consumers):
    queue.ensure_topics([T], partitions=2)
    queue.publish([a_message(keys_for(0, 1)[0]) for _ in range(50)] + [a_message(keys_for(1, 1)[0])])
    consumer = consumers()
    records = eventually(lambda: consumer.poll(0.02, max_records=3))
    for _ in range(4):
        records += consumer.poll(QUIET_S, max_records=3)
    assert 1 in [record.place.partition for record in records]


def test_poll_wakes_up_for_a_record(queue, consumers):
    queue.ensure_topics([T])
    consumer = consumers()
    records = []
    waiting = threading.Thread(target=lambda: records.extend(consumer.poll(60.0)))
    waiting.start()
    queue.publish([a_message(value=b"late")])
    waiting.join(timeout=30.0)
    assert values(records) == [b"late"]


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
    assert sum(queue.facts(T).log_end.values()) == len(got(consumers(), 40)) == 40


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
    got(consumer, 1)
